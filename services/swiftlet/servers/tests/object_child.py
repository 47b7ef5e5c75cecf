"""An object server in a process of its own, to be killed.

The argument is the device's directory. Prints its native port.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

from swiftlet_native import ObjectServer

from swiftlet.store.native import NativeStore
from swiftlet.transport.native_caller import machine
from swiftlet.transport.tests.test_native_objects import KEY, PORT


def serve(root: Path) -> None:
    """Serve one device until killed."""
    store = NativeStore(root)
    server = ObjectServer(f"127.0.0.1:{PORT}", machine(), [KEY], {"d1": store.native}, {}, pool_bytes=32 << 20)
    print(server.listen("127.0.0.1", 0), flush=True)
    signal.pause()


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
