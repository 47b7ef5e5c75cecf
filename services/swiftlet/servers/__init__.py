"""Storage servers: aiohttp shells around store and listing.

In here: routes, framing, admission, thread pools, listing rows on their way out. Not in here: how objects are
kept (`store`), what messages look like (`transport.wire`), settings and start-up (`main`).
"""
