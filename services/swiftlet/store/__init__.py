"""Object stores: what one device must do to keep objects, and its implementations.

In here: the `Store` boundary, the native store, the plain-file store, and failpoints for crash tests. Not in here:
sockets, rings, HTTP, anything that knows there is more than one device, and the in-memory twin and the conformance
suite (`testing.store`).
"""
