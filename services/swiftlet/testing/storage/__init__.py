"""Test support for `swiftlet.servers`: storage servers in memory, and the suite of object transports."""
