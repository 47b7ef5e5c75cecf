"""Object stores: what one device must do to keep objects, and its implementations.

In here: the `Store` boundary, the plain-file store, the in-memory twin with injected faults, and the
conformance suite that all of them pass. Not in here: sockets, rings, HTTP, or anything that knows there is
more than one device.
"""
