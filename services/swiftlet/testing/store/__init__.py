"""Test support for `swiftlet.store`: a device in memory, faults of devices, and the suite that stores pass."""
