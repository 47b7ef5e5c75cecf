"""Object servers on one machine, each behind a relay that counts, with a ring over them and objects put straight into
their stores.

All servers live in the benchmark's own process. The stores are native ones on a disk, or `Generated` ones that hold an
index and no objects.
"""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import cast

from aiohttp import web
from swiftlet_native import xxh3_64, xxh3_128

from swiftlet.errors import NotFound
from swiftlet.model import Entry, ObjectKey, ObjectRow, PutFooter, PutRecord
from swiftlet.ring import Ring, RingBuilder
from swiftlet.ring.model import Device
from swiftlet.servers.objects.object_server import ObjectServer, add_object_routes
from swiftlet.servers.shared.sync_answers import placed_by
from swiftlet.store.native import NativeStore
from swiftlet.store.protocol import Store
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.timestamp import Timestamp
from swiftlet.transport.signing import ClusterKey

KEY = ClusterKey(b"the key of the benchmark")
_BUILT_POWER = 16
"""The part power up to which rings are built partition by partition."""
_SEGMENT_BYTES = 1448
"""Data in one TCP segment on Ethernet."""
_SEGMENT_HEADERS = 78
"""IP and TCP headers of a segment, and half of those of an acknowledgement."""


class Rows:
    """Takes no rows: none is sent."""

    async def send(self, account: str, container: str, replica_index: int, row: ObjectRow) -> None:
        raise NotFound("there are no containers")


class Relay:
    """Counts what goes to one server and back. Stopped, it refuses connections, as a node that is down does."""

    def __init__(self, port: int) -> None:
        self.server_port = port
        self.bytes = 0
        """HTTP and WebSockets, headers included, both ways."""
        self.messages = 0
        """Pieces that came for the server: a request, or what a stream carried at a time."""
        self.segments = 0
        """TCP segments that this would be on Ethernet; an estimate."""
        self.port = 0
        self.ends: set[_End] = set()
        self._server: asyncio.Server | None = None

    @property
    def tcp_bytes(self) -> int:
        """With the headers of IP and TCP, estimated."""
        return self.bytes + self.segments * _SEGMENT_HEADERS

    def reset(self) -> None:
        self.bytes = self.messages = self.segments = 0

    async def start(self) -> None:
        """Listen, on the same port as before."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Begun(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Refuse connections, and end those there are."""
        if self._server is not None:
            self._server.close()
        for end in list(self.ends):
            end.break_off()


class _End(asyncio.Protocol):
    """One end of a connection through a relay; what comes goes out at the other end."""

    def __init__(self, relay: Relay, other: _End | None = None) -> None:
        self._relay = relay
        self.other = other
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self._relay.ends.add(self)

    def data_received(self, data: bytes) -> None:
        self._relay.bytes += len(data)
        self._relay.segments += -(-len(data) // _SEGMENT_BYTES)
        assert self.other is not None
        assert self.other.transport is not None
        self.other.transport.write(data)

    def pause_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.resume_reading()

    def connection_lost(self, exc: Exception | None) -> None:
        self._relay.ends.discard(self)
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()

    def break_off(self) -> None:
        assert self.transport is not None
        self.transport.abort()


class _Begun(_End):
    """The end of who asks, which is read once the server is reached."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        assert self.transport is not None
        self.transport.pause_reading()
        self._early: list[bytes] = []
        self._connecting = asyncio.create_task(self._connect())

    def data_received(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            # A loop may have read before it was told to pause.
            self._early.append(data)
            return
        self._relay.messages += 1
        super().data_received(data)

    async def _connect(self) -> None:
        assert self.transport is not None
        self.other = there = _End(self._relay, self)
        try:
            await asyncio.get_running_loop().create_connection(lambda: there, "127.0.0.1", self._relay.server_port)
        except OSError:
            self.transport.abort()
        else:
            for data in self._early:
                self.data_received(data)
            self.transport.resume_reading()


class Generated(MemoryStore):
    """An index without objects: what a device would hold of `objects` objects, the same on every replica."""

    def __init__(self, hashes: Mapping[int, Mapping[str, bytes]], mine: Iterable[int]) -> None:
        """`mine` are the partitions that the device holds."""
        super().__init__()
        self._hashes = hashes
        self._mine = frozenset(mine)

    def partitions(self, policy: int) -> list[int]:
        """Return its partitions that are not empty."""
        return sorted(partition for partition in self._mine if partition in self._hashes)

    def suffix_hashes(self, policy: int, partition: int) -> Mapping[str, bytes]:
        """Made when the index was."""
        return self._hashes.get(partition, {}) if partition in self._mine else {}

    def entries(self, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Nothing differs, so nobody asks."""
        raise NotFound("a generated index has no entries")


def generated_hashes(objects: int, part_power: int) -> dict[int, dict[str, bytes]]:
    """Suffix hashes by partition: of each object something that depends on its name, of the size of a set hash."""
    found: dict[int, dict[str, bytes]] = {}
    for number in range(objects):
        digest = hashlib.md5(str(number).encode()).digest()
        partition = int.from_bytes(digest[:4], "big") >> (32 - part_power)
        suffixes = found.setdefault(partition, {})
        suffix = digest.hex()[-3:]
        suffixes[suffix] = xxh3_128(suffixes.get(suffix, b"") + digest)
    return found


@dataclass
class Node:
    """A device with its store, and the relay before its server."""

    device: Device
    store: Store
    relay: Relay


class Cluster:
    """Nodes, their ring, and what is in them."""

    def __init__(self, ring: Ring, nodes: list[Node]) -> None:
        self.ring = ring
        self.nodes = nodes
        self.by_device = {node.device.id: node for node in nodes}

    def put(self, number: int, second: float, body: bytes, devices: Iterable[Device]) -> int:
        """Put a version of an object on some devices; on how many."""
        key = self.key(number)
        footer = PutFooter(len(body), hashlib.md5(body).hexdigest(), xxh3_64(body))
        count = 0
        for device in devices:
            writer = self.by_device[device.id].store.create(key)
            writer.write(body)
            writer.commit(PutRecord(f"/a/c/{number}", Timestamp.at(second), "text/plain"), footer)
            count += 1
        return count

    def delete(self, number: int, second: float, devices: Iterable[Device]) -> int:
        """Delete an object at some devices; at how many."""
        key = self.key(number)
        count = 0
        for device in devices:
            self.by_device[device.id].store.delete(key, Timestamp.at(second), f"/a/c/{number}")
            count += 1
        return count

    def forget(self, device: Device, key: ObjectKey) -> None:
        """Remove everything that a device has of an object."""
        store = self.by_device[device.id].store
        for entry in store.entries(key.policy, key.partition, key.hex[-3:]):
            if entry.digest == key.digest:
                store.remove(key, entry)

    def key(self, number: int) -> ObjectKey:
        """Return the key of the object with this number."""
        digest = hashlib.md5(str(number).encode()).digest()
        return ObjectKey(0, self.ring.partition_of(digest), digest)

    def holders(self, number: int) -> list[Device]:
        """An object's primaries, the first one chosen by its name so that none is always first."""
        found = list(self.ring.primaries(self.key(number).partition))
        start = number % len(found)
        return found[start:] + found[:start]


MakeStore = Callable[[Path, Iterable[int]], Store]
"""From a directory and the partitions of its device to a store."""


def native(directory: Path, partitions: Iterable[int]) -> Store:
    """Return a native store in a directory."""
    return NativeStore(directory, volume_bytes=64 << 20)


def _is(id_: int, found: Device) -> bool:
    return found.id == id_


def _ring_of(nodes: int, replicas: int, part_power: int) -> Ring:
    """Return a ring over nodes of one device each, all of one weight.

    A large one repeats the layout of a smaller one, which is as balanced and made in a fraction of the time.
    """
    builder = RingBuilder(min(part_power, _BUILT_POWER), replicas, min_part_hours=0)
    for number in range(nodes):
        builder.add_device(host=f"h{number}", port=1, device="d", region="r", zone=f"z{number}", weight=1)
    builder.rebalance(500_000)
    made = builder.ring
    times = 1 << part_power - made.part_power
    return Ring(1, part_power, replicas, made.devices, [row * times for row in made.rows])


@asynccontextmanager
async def cluster_of(
    nodes: int, replicas: int, part_power: int, make: MakeStore = native, parent: Path | None = None
) -> AsyncIterator[Cluster]:
    """Servers, running; their stores are below `parent`, by default where temporary files are."""
    old = _ring_of(nodes, replicas, part_power)
    made: list[Node] = []
    runners: list[web.AppRunner] = []
    rings: dict[int, Ring] = {}
    with tempfile.TemporaryDirectory(dir=parent, prefix="bench-sync-") as directory:
        for device in old.devices:
            assert device is not None
            root = Path(directory) / f"d{device.id}"
            root.mkdir()
            store = make(root, (partition for partition, _ in old.partitions_of(device.id)))
            app = web.Application(client_max_size=0)
            placed = placed_by(lambda policy: rings[policy], "d", partial(_is, device.id))
            server = ObjectServer({"d": store}, Rows(), key=KEY, placed={"d": placed})
            add_object_routes(app, server)
            runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            runners.append(runner)
            relay = Relay(runner.addresses[0][1])
            await relay.start()
            made.append(Node(replace(device, host="127.0.0.1", port=relay.port), store, relay))
        ring = Ring(1, part_power, replicas, [node.device for node in made], old.rows)
        rings[0] = ring
        try:
            yield Cluster(ring, made)
        finally:
            for node in made:
                await node.relay.stop()
            for runner in runners:
                await runner.cleanup()
            for node in made:
                node.store.close()
