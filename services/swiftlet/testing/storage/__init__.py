"""Test support for `swiftlet.storage`: storage servers in memory, and the suite of object transports."""
