"""Object stores: what one device must do to keep objects, and the store that does it.

In here: the `Store` boundary, the native store, and the rules by which versions merge and sets are hashed. Not in
here: sockets, rings, HTTP, anything that knows there is more than one device, and the in-memory twin and the
conformance suite (`testing.store`).
"""
