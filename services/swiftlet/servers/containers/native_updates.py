"""The native half of the container server, beside the one over HTTP: it takes container updates, without Python.

What it takes is in the update tables of the devices, from where the databases get it (`swiftlet.listing.updates`). Its
counters are added to the metrics every few seconds. See `docs/design/2026-11-25-container-updates.md`.

Fault model: the port may be taken, or the system be out of descriptors: then the service does not start. When the
service ends, clients are asked to send nothing more, and the connections are closed; what was taken is merged by the
stores, which end after it. Proxies that get no answer bring the rows over HTTP, here or to the next process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import swiftlet_native
from aiohttp import web
from pydantic.alias_generators import to_camel

from swiftlet.listing.updates import UpdateTable
from swiftlet.servers.containers.container_metrics import (
    UPDATE_ROWS,
    UPDATES_JOURNAL,
    UPDATES_OPEN,
    UPDATES_REFUSED,
    UPDATES_WAITING,
)
from swiftlet.servers.shared.addresses import numeric_address
from swiftlet.transport.modes import Encryption
from swiftlet.transport.native_metrics import Growth, by_transport

MEASURE_S = 5.0
"""Seconds between two readings of the counters."""


@dataclass(frozen=True, slots=True)
class NativeUpdatesSettings:
    """The limits of the native half."""

    name: str
    """`host:port` as in the rings, by which callers name the server that they want."""
    machine: str
    pool_bytes: int
    socket_directory: Path | None = None
    silence_s: float = 1.5
    """Seconds of silence after which the connection of a client is closed."""
    encryption: Encryption = "none"
    """Whether clients must, may or can't encrypt."""


class NativeUpdates:
    """Serves the update tables of this process's devices over the native transport."""

    def __init__(
        self,
        tables: Mapping[str, swiftlet_native.UpdateTable],
        keys: Sequence[bytes],
        settings: NativeUpdatesSettings,
    ) -> None:
        """Create the server; nobody is let in before `listen`. `tables` by device name are the caller's to stop. Raises
        OSError.
        """
        self.port: int | None = None
        self._counts = UpdateCounts(tables)
        self._server = swiftlet_native.ContainerServer(
            settings.name,
            settings.machine,
            list(keys),
            dict(tables),
            {},
            pool_bytes=settings.pool_bytes,
            socket_directory=settings.socket_directory,
            silence_s=settings.silence_s,
            encryption=settings.encryption,
        )

    def listen(self, host: str, port: int) -> int:
        """Accept clients and return the port. Raises OSError when the port is not available."""
        self.port = self._server.listen(numeric_address(host), port)
        return self.port

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Use these keys in handshakes from now on."""
        self._server.set_keys(list(keys))

    def status(self) -> dict[str, object]:
        """Return the field `native` of the status report."""
        clients = [row for row in self._server.report() if row["transport"] is not None]
        return {"port": self.port, "clients": len(clients)}

    def transports(self) -> dict[str, int]:
        """Return how many clients are connected over which transport."""
        return by_transport(self._server.report())

    async def run(self, _app: web.Application) -> AsyncIterator[None]:
        """Measure until shutdown, then stop; for `app.cleanup_ctx`."""
        task = asyncio.create_task(self._measuring())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        self._counts.measure()
        await asyncio.to_thread(self._server.stop)

    async def leave(self, _app: web.Application) -> None:
        """Ask clients to send nothing more; for `app.on_shutdown`."""
        self._server.leave()

    async def _measuring(self) -> None:
        while True:
            self._counts.measure()
            await asyncio.sleep(MEASURE_S)


def table_status(table: UpdateTable) -> dict[str, object]:
    """Return the fields of a table's status report."""
    return {to_camel(name): value for name, value in table.status().items()}


class UpdateCounts:
    """Adds the counters of update tables to the metrics."""

    def __init__(self, tables: Mapping[str, UpdateTable]) -> None:
        """`tables` by device name."""
        self._tables = tables
        self._growth = Growth()

    def measure(self) -> None:
        """Add what was counted since the last call."""
        for device, table in self._tables.items():
            status = table.status()
            UPDATES_WAITING.labels(device).set(cast("int", status["rows"]))
            UPDATES_OPEN.labels(device).set(cast("int", status["open"]))
            UPDATES_JOURNAL.labels(device).set(cast("int", status["journal_bytes"]))
            UPDATE_ROWS.labels(device).inc(self._more(device, "taken", status))
            UPDATES_REFUSED.labels(device, "busy").inc(self._more(device, "refused", status))
            UPDATES_REFUSED.labels(device, "not-taken").inc(self._more(device, "not_taken", status))

    def _more(self, device: str, what: str, status: Mapping[str, object]) -> int:
        return self._growth.of((device, what), cast("int", status[what]))
