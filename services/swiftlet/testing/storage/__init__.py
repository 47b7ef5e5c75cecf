"""Of `swiftlet.storage`: storage servers in memory as their clients see them, and the suite of object transports."""
