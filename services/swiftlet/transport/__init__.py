"""How services talk to storage devices on other nodes.

In here: the boundaries `ObjectTransport` and `ListingTransport` and their implementations. Not in here: which
device to ask (that is `placement`), what the device does with it (`store`, `listing`), or client HTTP.
"""
