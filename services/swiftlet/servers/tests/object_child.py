"""An object server in a process of its own, to be killed.

Arguments: the kind of store, the device's directory. Prints its port.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from aiohttp import web

from swiftlet.servers.objects.object_server import create_object_app
from swiftlet.servers.objects.outbox import Outbox
from swiftlet.store.kinds import StoreKind, open_store
from swiftlet.testing.storage.object_conformance import RowRecorder


async def serve(kind: StoreKind, root: Path) -> None:
    """Serve one device until killed."""
    store = open_store(kind, root)
    app = create_object_app(devices={"d1": store}, outboxes={"d1": Outbox(root / "outbox")}, row_sink=RowRecorder())
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve("native" if sys.argv[1] == "native" else "plain", Path(sys.argv[2])))
