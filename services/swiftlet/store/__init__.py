"""Object stores: what one device must do to keep objects, and the store that does it.

This package has the `Store` boundary, the native store, and the rules by which versions merge and sets are hashed.
Sockets, rings, HTTP, anything that knows of more than one device, and the in-memory twin with the conformance suite
(`testing.store`) don't belong here.
"""
