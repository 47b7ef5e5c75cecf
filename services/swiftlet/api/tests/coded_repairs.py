"""Repairs of the objects of `swiftlet.api.tests.coded`: rounds of its devices, and proxies that end in the middle
of a write.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import struct
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import cast

from swiftlet_native import TransportPeer

from swiftlet.api.tests.coded import CODED, CODING, KEYS, CodedServers
from swiftlet.boundaries.coded import CodedPacker, UnsettledFragment
from swiftlet.errors import NodeUnreachable
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.shared.sync_answers import PlacedBy, answer_sync, placed_by
from swiftlet.sync.coded.backlog import Bounds
from swiftlet.sync.coded.fates import Watch
from swiftlet.sync.coded.packing import PackLimits, PackRounds
from swiftlet.sync.coded.repairer import CodedRepairer
from swiftlet.sync.coded.report import CodedReport
from swiftlet.sync.failures.neighbours import Neighbours
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.planning.standing import Standings
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.native_calls import NativeSettings
from swiftlet.transport.native_client import NativeClient
from swiftlet.transport.native_coded import NativeCoded
from swiftlet.transport.native_coded_packs import NativeCodedPacker
from swiftlet.transport.native_coded_repair import NativeCodedRepair
from swiftlet.transport.native_objects import NativeObjectTransport

RECOVER_AFTER_S = 600.0
UNBOUNDED = Bounds(1 << 20, 1 << 40)
_HEAD = struct.Struct(">8xBxxxII8x")
_REQUEST, _ABOUT = 5, 15
"""The kind of a frame, and the number of a method; see `docs/transport.md`."""


class Repairs:
    """Rounds of the replicators of some devices; time passes only when a test says so."""

    def __init__(
        self,
        servers: CodedServers,
        now_s: Callable[[], float],
        reclaim_age_s: float = math.inf,
        bounds: Bounds = UNBOUNDED,
        pace: Pace | None = None,
    ) -> None:
        """`now_s` is the time of the writers; `pace` limits what is moved."""
        self.servers = servers
        self.standings = Standings()
        self.passed_s = 0.0
        """Seconds that have passed for the replicators."""
        self.packed_for: Collection[int] | None = None
        """Devices whose partitions are packed; None for all."""
        self.rings: dict[int, Ring] = {}
        """The rings that servers go by which have another one, by the ids of their devices."""
        self._placed: dict[int, PlacedBy] = {}
        self._local: Collection[int] = ()
        self.repair = NativeCodedRepair(servers.coded)
        self._now_s = now_s
        self._transport = transport = NativeObjectTransport(servers.client, cast("HttpDevices", self))
        self._repairer = CodedRepairer(
            lambda ring: [ring.device(number) for number in self._local],
            lambda _policy: servers.ring,
            lambda _policy: CODING,
            transport,
            self.repair,
            Neighbours(Observer("", ""), FailureTable(), _never),
            Watch(RECOVER_AFTER_S, lambda: self.passed_s),
            bounds,
            self.standings,
            pace,
            reclaim_age_s=reclaim_age_s,
            now_s=lambda: now_s() + 30,
        )

    def status(self) -> dict[str, object] | None:
        """Return the last round as the status report has it."""
        return self._repairer.status()

    def packing(self, limits: PackLimits, packer: CodedPacker | None = None) -> PackRounds:
        """Return rounds of packing of all devices, or of `packed_for`; time passes for them as it does for these."""
        return PackRounds(
            lambda ring: [
                device
                for device in ring.devices
                if device is not None and (self.packed_for is None or device.id in self.packed_for)
            ],
            lambda _policy: self.servers.ring,
            lambda _policy: CODING,
            lambda _policy: 1,
            self._transport,
            packer or NativeCodedPacker(self.servers.coded),
            Neighbours(Observer("", ""), FailureTable(), _never),
            limits,
            now_s=self._now_s,
            clock=lambda: self.passed_s,
        )

    async def ask(self, device: Device, message: bytes) -> bytes:
        """Answer a question of a session for a device, by its store."""
        if device.id in self.servers.client.away:
            raise NodeUnreachable(f"{device.address} is away")
        placed = self._placed.get(device.id)
        if placed is None:
            rings = lambda _policy: self.rings.get(device.id, self.servers.ring)  # noqa: E731
            placed = self._placed[device.id] = placed_by(rings, device.device, lambda one: one.id == device.id)
        return await asyncio.to_thread(answer_sync, self.servers.stores[device.id], message, placed)

    async def round_of(self, *devices: int) -> CodedReport:
        """Do a round of the replicators of these devices; all without any."""
        self._local = devices or range(len(self.servers.stores))
        return await self._repairer.run_round([CODED])

    async def unsettled(self) -> list[UnsettledFragment]:
        """Return what is not settled at any device."""
        found: list[UnsettledFragment] = []
        for device in self.servers.ring.devices:
            assert device is not None
            found += (await self.repair.unsettled(device, CODED, None))[0]
        return found


async def _never(_device: Device) -> bool:
    return False


class _Relay:
    """What is between a proxy and its devices, and ends the proxy as it sends the first question of a kind."""

    def __init__(self, last: int) -> None:
        self._last = last
        self.ended = asyncio.Event()
        self._serving: set[asyncio.Task[None]] = set()

    async def serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the frames of one connection to a port until the proxy has ended."""
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        there, to = await asyncio.open_connection("127.0.0.1", port)
        ways = [self._frames(reader, to), _all(there, writer), self.ended.wait()]
        tasks = [asyncio.create_task(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for one in tasks:
            one.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for end in (to, writer):
            end.close()
            with contextlib.suppress(OSError):
                await end.wait_closed()

    async def close(self) -> None:
        """Pass on nothing more."""
        self.ended.set()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _frames(self, reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
        while True:
            head = await reader.readexactly(_HEAD.size)
            kind, meta_bytes, body_bytes = _HEAD.unpack(head)
            meta, body = await reader.readexactly(meta_bytes), await reader.readexactly(body_bytes)
            # A question about a version ends with its number, and 16 bytes for the version.
            if kind == _REQUEST and int.from_bytes(meta[:2], "big") == _ABOUT and meta[-17] == self._last:
                self.ended.set()
            if self.ended.is_set():
                return
            to.write(head + meta + body)
            await to.drain()


async def _all(reader: asyncio.StreamReader, to: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        to.write(data)
        await to.drain()


class _Relayed(NativeClient):
    """A client whose connections go through relays."""

    ports: Mapping[int, int] = MappingProxyType({})
    """The relay of each device, by its id."""

    def known(self, device: Device) -> TransportPeer | None:
        return self.native().peer(f"{device.host}:{device.port}", "127.0.0.1", self.ports[device.id])

    async def peer(self, device: Device) -> TransportPeer:
        found = self.known(device)
        assert found is not None
        return found


COMMIT, SETTLE = 1, 2
"""Questions before which a proxy may end."""


@asynccontextmanager
async def ending_before(servers: CodedServers, question: int) -> AsyncIterator[NativeCoded]:
    """Writers of a proxy that ends when it is about to ask the first device this."""
    relay = _Relay(question)
    listening: list[asyncio.Server] = []
    ports: dict[int, int] = {}
    for device in servers.ring.devices:
        assert device is not None
        port = device.port + 1000
        serve = lambda reader, writer, port=port: relay.serve(port, reader, writer)  # noqa: E731
        listening.append(await asyncio.start_server(serve, "127.0.0.1", 0))
        ports[device.id] = listening[-1].sockets[0].getsockname()[1]
    client = _Relayed(NativeSettings(connect_timeout_s=2.0, answer_timeout_s=2.0), KEYS)
    client.ports = ports
    try:
        yield NativeCoded(client)
    finally:
        await client.close()
        # The event loop takes over those that have just connected, which it can't once nobody listens.
        for _ in range(4):
            await asyncio.sleep(0)
        for server in listening:
            server.close()
        await relay.close()
