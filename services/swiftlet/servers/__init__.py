"""Storage servers: aiohttp shells around store and listing.

Routes, framing, admission, thread pools and the delivery of listing rows belong here. How objects are kept (`store`),
what messages look like (`transport.wire`), settings and start-up (`main`) don't.
"""
