"""Of `swiftlet.store`: the in-memory twin of a device, the faults of a device, and the suite that stores pass."""
