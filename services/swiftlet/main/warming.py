"""Connections to object servers of other regions, made before somebody needs them.

TCP, TLS and the handshake take three round trips: a tenth of a second over the wide area, which else the first write of
a proxy waits for, and the first one after a server or a link was away. Within a region they take no time that counts.

Fault model: a server may be unreachable or silent at any time. It is asked again at the next look, and takes nothing
from those that answer. Open connections are kept open by the transport itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from aiohttp import web

from swiftlet.errors import NodeError
from swiftlet.main.background import in_background
from swiftlet.placement.plan import Place
from swiftlet.ring.model import Device
from swiftlet.transport.native_caller import NativeCaller

MAX_WARM = 256
"""Servers of other regions to which a process connects before it needs them; to the rest it connects when it does."""
LOOK_S = 5.0
"""Seconds between two looks for servers that it is not connected to."""
_AT_ONCE = 16
_PROBE = (0, b"")
"""The request that the transport itself answers."""


class Warming:
    """Connects to servers in other regions."""

    def __init__(self, caller: NativeCaller, place: Place, servers: Callable[[], Sequence[Device]]) -> None:
        """`servers` returns a device of each server."""
        self._caller = caller
        self._place = place
        self._servers = servers

    def cold(self) -> list[Device]:
        """Return a device of each server in another region to which there is no connection."""
        if self._place.region is None:
            return []
        open_ = {row["peer"] for row in self._caller.report() if row["transport"] is not None}
        far = [device for device in self._servers() if device.region != self._place.region][:MAX_WARM]
        return [device for device in far if f"{device.host}:{device.port}" not in open_]

    async def look(self) -> None:
        """Connect to all that can be reached."""
        at_once = asyncio.Semaphore(_AT_ONCE)

        async def connect(device: Device) -> None:
            async with at_once:
                with contextlib.suppress(NodeError):
                    await self._caller.ask(device, _PROBE)

        await asyncio.gather(*(connect(device) for device in self.cold()))

    async def run(self) -> None:
        """Connect again and again to servers to which there is no connection, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK_S)


def keep_warm(
    app: web.Application, caller: NativeCaller, place: Place, servers: Callable[[], Sequence[Device]]
) -> None:
    """Keep connections to servers of other regions while `app` runs."""

    async def warming(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(Warming(caller, place, servers).run):
            yield

    app.cleanup_ctx.append(warming)
