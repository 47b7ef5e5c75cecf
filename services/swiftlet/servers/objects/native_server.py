"""The native object server, beside the one over HTTP: the same open stores, its own threads, no Python per request.

Its counters are added to the object server's metrics every few seconds. See `native/crates/node` and
`docs/transport.md`.

Fault model: the port may be taken, or the system be out of descriptors: then there is no native server, and callers use
HTTP. RDMA may be missing or not work (`swiftlet.transport.rdma`). A device may fail or be missing while the others
serve. When the service ends, clients are asked to send no more requests, and those in progress get some time; then they
are aborted, and the stores are closed.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import swiftlet_native
from aiohttp import web

from swiftlet.ring.model import Coding
from swiftlet.servers.objects.metrics import (
    GUESTS,
    NATIVE_CLIENTS,
    NATIVE_FETCHED,
    NATIVE_IN_FLIGHT,
    NATIVE_RDMA_FALLBACKS,
    NATIVE_REFUSED,
    RECEIVED,
    REQUESTS,
    SENT,
)
from swiftlet.servers.shared.addresses import numeric_address
from swiftlet.store.native import NativeStore
from swiftlet.transport.modes import Encryption, Mode
from swiftlet.transport.native_metrics import Growth, by_transport
from swiftlet.transport.rdma import start

MEASURE_S = 5.0
"""Seconds between two readings of the counters."""
_LOOK_S = 0.02
"""Seconds between checks whether all requests have ended."""


@dataclass(frozen=True, slots=True)
class NativeServerSettings:
    """The limits of the native server."""

    name: str
    """`host:port` as in the rings, by which callers name the server that they want."""
    machine: str
    pool_bytes: int
    threads_per_device: int = 4
    max_requests_per_device: int = 512
    socket_directory: Path | None = None
    drain_s: float = 10.0
    """Seconds that requests in progress get to finish after the service was asked to end."""
    rdma: Mode = "off"
    """Whether bodies go by RDMA for clients that have it too."""
    silence_s: float = 1.5
    """Seconds of silence after which the connection of a client is closed."""
    encryption: Encryption = "none"
    """Whether clients must, may or can't encrypt."""
    guests: tuple[int, int, int] | None = None
    """The bytes of memory and the connections that clients with grants may have together, and the bytes of memory that
    is shared with those on this machine; None: there are none.
    """
    hash_path: tuple[bytes, bytes] = (b"", b"")
    """What is hashed before and after names."""


class NativeServer:
    """Serves native stores over the native transport."""

    def __init__(
        self,
        stores: Mapping[str, NativeStore],
        unused: Mapping[str, str],
        keys: Sequence[bytes],
        settings: NativeServerSettings,
        doubts: Mapping[str, swiftlet_native.Doubts] | None = None,
        rings: Callable[[], Mapping[int, int]] = dict,
    ) -> None:
        """Create the server; nobody is let in before `listen`. Raises OSError, and SettingsError when RDMA is required
        and fails.

        `stores` by device name are closed by the caller. `unused` has devices that can't be used, and why. `doubts` has
        what the served devices may have missed. `rings` returns the versions of the rings in use by policy, which
        guests are told.
        """
        self.port: int | None = None
        self._drain_s = settings.drain_s
        self._rings = rings
        self._ends_at: float | None = None
        """When the requests in progress have to be finished, on the event loop's clock."""
        self._growth = Growth()
        self._seen: set[str] = set()
        """The transports that clients have used."""

        self._lets_guests_in = settings.guests is not None
        guests: dict[str, Any] = {}
        if self._lets_guests_in:
            guests = {"guests": settings.guests, "hash_path": settings.hash_path}

        def make(rdma: bool) -> swiftlet_native.ObjectServer:
            return swiftlet_native.ObjectServer(
                settings.name,
                settings.machine,
                list(keys),
                {name: store.native for name, store in stores.items()},
                dict(unused),
                pool_bytes=settings.pool_bytes,
                threads_per_device=settings.threads_per_device,
                max_requests_per_device=settings.max_requests_per_device,
                socket_directory=settings.socket_directory,
                rdma=rdma,
                silence_s=settings.silence_s,
                doubts=dict(doubts or {}),
                encryption=settings.encryption,
                **guests,
            )

        self._server, self._rdma = start(settings.rdma, make)

    def listen(self, host: str, port: int) -> int:
        """Accept clients and return the port. Raises OSError when the port is not available."""
        self.port = self._server.listen(numeric_address(host), port)
        return self.port

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Use these keys in handshakes from now on."""
        self._server.set_keys(list(keys))

    def set_codings(self, codings: Mapping[int, Coding | None]) -> None:
        """Know these policies from now on, by index, and how their objects are coded; what arrives for another coding
        is refused.
        """
        self._server.set_codings(
            {
                policy: None if coding is None else (coding.data, coding.parity, coding.cell_bytes)
                for policy, coding in codings.items()
            }
        )

    def status(self) -> dict[str, object]:
        """Return the field `native` of the status report."""
        clients = [row for row in self._server.report() if row["transport"] is not None]
        refused = sum(cast("int", device["refused"]) for device in self._server.stats())
        return {"port": self.port, "clients": len(clients), "refused": refused}

    def rdma_status(self) -> dict[str, object]:
        """Return the field `rdma` of the status report."""
        return self._rdma.status()

    def takes_tls(self) -> bool:
        """Whether clients may encrypt; with RDMA they can't."""
        return not self._rdma.status()["ready"]

    def transports(self) -> dict[str, int]:
        """Return the field `transports` of the status report: how many clients are connected over which transport."""
        return by_transport(self._server.report())

    def measure(self) -> None:
        """Add what was counted since the last call to the metrics."""
        if self._lets_guests_in:
            GUESTS.set(self._server.guests())
        clients = self.transports()
        for transport in self._seen | clients.keys():
            NATIVE_CLIENTS.labels(transport).set(clients.get(transport, 0))
        self._seen |= clients.keys()
        fetched, fallbacks = (
            sum(cast("int", row[name]) for row in self._server.report()) for name in ("fetched_bytes", "fallbacks")
        )
        NATIVE_FETCHED.inc(self._more(("fetched",), fetched))
        NATIVE_RDMA_FALLBACKS.inc(self._more(("fallbacks",), fallbacks))
        for device in self._server.stats():
            name = str(device["device"])
            NATIVE_IN_FLIGHT.labels(name).set(cast("int", device["requests"]))
            RECEIVED.labels(name).inc(self._more((name, "received"), device["received_bytes"]))
            SENT.labels(name).inc(self._more((name, "sent"), device["sent_bytes"]))
            NATIVE_REFUSED.labels(name).inc(self._more((name, "refused"), device["refused"]))
            for operation, outcome, count in cast("list[tuple[str, str, int]]", device["answered"]):
                REQUESTS.labels(name, operation, outcome).inc(self._more((name, operation, outcome), count))

    def _more(self, what: tuple[str, ...], count: object) -> int:
        return self._growth.of(what, cast("int", count))

    async def leave(self, _app: web.Application) -> None:
        """Ask clients to send no more requests, and begin the time that those in progress get; for
        `app.on_shutdown`.
        """
        if self._ends_at is None:
            self._ends_at = asyncio.get_running_loop().time() + self._drain_s
            self._server.leave()

    async def run(self, _app: web.Application) -> AsyncIterator[None]:
        """Measure until shutdown, then let requests in progress finish, and stop; for `app.cleanup_ctx`."""
        task = asyncio.create_task(self._measuring())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self.leave(_app)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout_at(self._ends_at):
                while any(device["requests"] for device in self._server.stats()):  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(_LOOK_S)
        self.measure()
        await asyncio.to_thread(self._server.stop)

    async def _measuring(self) -> None:
        while True:
            for policy, version in self._rings().items() if self._lets_guests_in else ():
                self._server.set_ring(policy, version)
            self.measure()
            await asyncio.sleep(MEASURE_S)
