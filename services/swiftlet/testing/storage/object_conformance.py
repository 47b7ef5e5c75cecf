"""A conformance suite for every `ObjectTransport`, against one device whose store can be made to fail.

A test module subclasses `ObjectTransportConformance` and says how to reach a store; pytest runs the rest.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field

import pytest
from swiftlet_native import Doubts

from swiftlet.boundaries.objects import (
    MAX_ACKNOWLEDGED,
    ContainerUpdate,
    GetStream,
    ObjectTransport,
    PutStream,
    WriteReply,
)
from swiftlet.errors import (
    ChecksumMismatch,
    DeviceFailed,
    DiskFull,
    NodeError,
    NotFound,
    SizeMismatch,
    Superseded,
    SwiftletError,
    Unproved,
)
from swiftlet.model import Entry, Kind, ObjectKey, ObjectRow, PostRecord, PutFooter, PutRecord
from swiftlet.ring.model import Device
from swiftlet.servers.objects.pending_updates import PendingUpdate, PendingUpdates
from swiftlet.testing.store.conformance import NAME, at, footer_of, key_of, some_bytes
from swiftlet.testing.store.faults import FaultyStore
from swiftlet.testing.store.memory import MemoryStore

ROW = ContainerUpdate("account", "container", (0, 2))


@dataclass(slots=True)
class RowRecorder:
    """A sink for rows that remembers them and fails on demand."""

    rows: list[tuple[str, str, int, ObjectRow]] = field(default_factory=list)
    error: Exception | None = None
    delay_s: float = 0.0

    async def send(self, account: str, container: str, replica_index: int, row: ObjectRow) -> None:
        """Remember a row, or raise."""
        await asyncio.sleep(self.delay_s)
        if self.error is not None:
            raise self.error
        self.rows.append((account, container, replica_index, row))


@dataclass(slots=True)
class Peer:
    """One device, and how to reach it."""

    transport: ObjectTransport
    device: Device
    store: FaultyStore
    pending: PendingUpdates
    """The rows that the device keeps."""
    doubts: Doubts = field(default_factory=Doubts)
    """What the device may have missed."""

    def check_told(self, key: ObjectKey, row: ObjectRow) -> None:
        """Check that the last write's row is pending for both replicas of `ROW`."""
        assert PendingUpdate(key, row.modified, ROW.replicas) in self.pending.due(0.0, 1000)

    def check_untold(self) -> None:
        """Check that no row is pending."""
        assert self.pending.count() == 0

    def forget_rows(self) -> None:
        """Clear the pending rows, as if nothing had been written yet."""
        self.pending.acknowledge([(row.key, row.timestamp) for row in self.pending.due(0.0, 1000)])

    async def put(self, key: ObjectKey, moment: float, data: bytes, **metadata: str) -> WriteReply:
        """Store in one round trip."""
        return await self.transport.put(self.device, key, record(moment, **metadata), data, footer_of(data), ROW)

    async def stream(
        self, key: ObjectKey, moment: float, data: bytes, size: int | None, step: int = 100_000
    ) -> WriteReply:
        """Store as a stream."""
        stream = await self.transport.open_put(self.device, key, record(moment), size, ROW)
        for start in range(0, len(data), step):
            await stream.write(memoryview(data)[start : start + step])
        return await stream.commit(footer_of(data))

    async def content(self, key: ObjectKey, start: int = 0, stop: int | None = None) -> bytes:
        """Read a range of an object."""
        return await drain(await self.transport.get(self.device, key, start, stop))


async def drain(stream: GetStream) -> bytes:
    """Return all of a stream's bytes."""
    pieces = [piece async for piece in stream.chunks()]
    await stream.close()
    return b"".join(pieces)


def record(moment: float, **metadata: str) -> PutRecord:
    """Return a PUT of the suite's one name."""
    return PutRecord(NAME, at(moment), "text/plain", metadata, {"sys": "1"})


class ObjectTransportConformance(ABC):
    """The suite of checks that every `ObjectTransport` passes."""

    @abstractmethod
    def connected(self, store: FaultyStore) -> AbstractAsyncContextManager[Peer]:
        """Connect a transport to a device that is kept in `store`."""

    def fresh_store(self) -> FaultyStore:
        """Return an empty device; in memory unless a suite says otherwise."""
        return MemoryStore()

    @pytest.fixture
    async def peer(self) -> AsyncIterator[Peer]:
        """Yield a peer with one healthy device."""
        store = self.fresh_store()
        try:
            async with self.connected(store) as peer:
                yield peer
        finally:
            store.close()

    @pytest.mark.parametrize("size", [0, 1, 65_000, 1_048_576, 3_000_001])
    async def test_small(self, peer: Peer, size: int) -> None:
        """One round trip each way."""
        data = some_bytes(size)
        assert await peer.put(key_of(1), 1, data, color="blüe") == WriteReply(pending=True)
        assert await peer.content(key_of(1)) == data
        info = await peer.transport.head(peer.device, key_of(1))
        assert info == peer.store.stat(key_of(1))
        peer.check_told(key_of(1), ObjectRow("object", at(1), size, footer_of(data).etag, "text/plain"))

    @pytest.mark.parametrize("known", [True, False])
    @pytest.mark.parametrize("size", [0, 1, 1_048_576, 5_000_001])
    async def test_large(self, peer: Peer, size: int, known: bool) -> None:
        """A stream, with and without a size."""
        data = some_bytes(size)
        reply = await peer.stream(key_of(1), 1, data, size if known else None, step=300_001)
        assert reply == WriteReply(pending=True)
        peer.check_told(key_of(1), ObjectRow("object", at(1), size, footer_of(data).etag, "text/plain"))
        assert await peer.content(key_of(1)) == data

    async def test_ranges(self, peer: Peer) -> None:
        """Any range, also beyond the end; the description comes along."""
        data = some_bytes(2_000_000)
        await peer.put(key_of(1), 1, data)
        for start, stop in [(0, 10), (5, None), (1_999_990, 3_000_000), (2_000_000, None), (9_000_000, None), (7, 7)]:
            stream = await peer.transport.get(peer.device, key_of(1), start, stop)
            assert stream.info.size == len(data)
            assert await drain(stream) == data[start:stop]

    async def test_names_and_metadata_at_their_limits(self, peer: Peer) -> None:
        """The longest name and 4 KiB of metadata travel in every message."""
        name = "/account/container/" + "\U0001f600" * 256
        metadata = {f"X-Object-Meta-{number}": "ü" * 128 for number in range(16)}
        sent = PutRecord(name, at(1), "text/plain; " + "x" * 200, metadata, {"sys": "s" * 1000})
        await peer.transport.put(peer.device, key_of(1), sent, b"data", footer_of(b"data"), ROW)
        stream = await peer.transport.get(peer.device, key_of(1))
        assert (stream.info.name, stream.info.metadata) == (name, metadata)
        assert await drain(stream) == b"data"
        await peer.transport.post(peer.device, key_of(1), PostRecord(at(2), metadata | {"more": "y" * 4000}), ROW)
        assert (await peer.transport.head(peer.device, key_of(1))).metadata["more"] == "y" * 4000

    async def test_absent(self, peer: Peer) -> None:
        """NotFound, with the tombstone's time when there is one."""
        for ask in (peer.transport.get, peer.transport.head):
            with pytest.raises(NotFound) as caught:
                await ask(peer.device, key_of(1))
            assert caught.value.timestamp is None
        reply = await peer.transport.delete(peer.device, key_of(1), at(3), NAME, ROW)
        assert reply == WriteReply(pending=True, existed=False)
        with pytest.raises(NotFound) as caught:
            await peer.transport.get(peer.device, key_of(1))
        assert caught.value.timestamp == at(3)

    async def test_what_is_in_doubt_is_left_to_others(self, peer: Peer) -> None:
        """Who asks for what is proved is told that it is not; others, and writers, are served as ever."""
        there, absent, post = key_of(1), key_of(2), PostRecord(at(2), {"a": "b"})
        partition = (there.policy, there.partition)
        assert absent.partition == there.partition
        await peer.put(there, 1, b"data")
        assert (await peer.transport.head(peer.device, there, proved=True)).size == 4
        for doubt in (peer.doubts.doubt_all, lambda: peer.doubts.doubt([partition])):
            doubt()
            with pytest.raises(Unproved):
                await peer.transport.head(peer.device, there, proved=True)
            with pytest.raises(Unproved):
                await peer.transport.get(peer.device, there, proved=True)
            with pytest.raises(Unproved):
                await peer.transport.post(peer.device, absent, post, proved=True)
            with pytest.raises(NotFound):
                await peer.transport.post(peer.device, absent, post)
            assert await peer.content(there) == b"data"
            await peer.transport.post(peer.device, there, post, proved=True)
            pending = peer.doubts.pending()
            assert pending is not None
            peer.doubts.prove(pending[0], [partition])
            assert (await peer.transport.head(peer.device, there, proved=True)).size == 4

    async def test_superseded(self, peer: Peer) -> None:
        """Every kind of write can come too late; a stream hears it before its data."""
        await peer.put(key_of(1), 5, b"new")
        peer.forget_rows()
        with pytest.raises(Superseded) as caught:
            await peer.put(key_of(1), 4, b"old")
        assert caught.value.timestamp == at(5)
        with pytest.raises(Superseded):
            await peer.transport.open_put(peer.device, key_of(1), record(4), 10, ROW)
        with pytest.raises(Superseded):
            await peer.transport.delete(peer.device, key_of(1), at(4), NAME, ROW)
        with pytest.raises(Superseded):
            await peer.transport.post(peer.device, key_of(1), PostRecord(at(4), {}), ROW)
        peer.check_untold()

    async def test_post_and_delete(self, peer: Peer) -> None:
        """Metadata replaced, then the object gone; the listing hears of both."""
        await peer.put(key_of(1), 1, b"data")
        await peer.transport.acknowledge(peer.device, [(key_of(1), at(1))])
        record = PostRecord(at(2), {"a": "b"}, "image/png", at(2))
        reply = await peer.transport.post(peer.device, key_of(1), record, ROW)
        now = await peer.transport.head(peer.device, key_of(1))
        assert reply == WriteReply(pending=True, info=now), "of which its row is made"
        assert now.metadata == {"a": "b"}
        posted = ObjectRow("object", at(1), 4, footer_of(b"data").etag, "image/png", False, at(2), at(2))
        peer.check_told(key_of(1), posted)
        reply = await peer.transport.delete(peer.device, key_of(1), at(3), NAME, ROW)
        assert reply == WriteReply(pending=True, existed=True)
        peer.check_told(key_of(1), ObjectRow("object", at(3), deleted=True))

    async def test_a_post_acknowledges_its_own_row_alone(self, peer: Peer) -> None:
        """Who brings a POST's row may not know of data whose rows are pending: they stay so until newer data come."""
        await peer.put(key_of(1), 1, b"data")
        await peer.transport.post(peer.device, key_of(1), PostRecord(at(2), {}), ROW)
        await peer.transport.acknowledge(peer.device, [(key_of(1), at(2))])
        assert [row.replicas for row in peer.pending.due(0.0, 1000)] == [ROW.replicas]
        await peer.put(key_of(1), 3, b"newer")
        await peer.transport.acknowledge(peer.device, [(key_of(1), at(3))])
        assert peer.pending.due(0.0, 1000) == []

    async def test_without_row(self, peer: Peer) -> None:
        """No row asked for, none sent."""
        data = b"data"
        put = peer.transport.put(peer.device, key_of(1), record(1), data, footer_of(data), None)
        assert await put == WriteReply(pending=False)
        assert await peer.transport.post(peer.device, key_of(1), PostRecord(at(2), {})) == WriteReply(pending=False)
        peer.check_untold()

    async def test_acknowledged_again_and_unasked(self, peer: Peer) -> None:
        """Acknowledging what is pending nowhere harms nobody, be it none or as many as may be named at a time."""
        await peer.put(key_of(1), 1, b"data")
        await peer.transport.acknowledge(peer.device, [])
        await peer.transport.acknowledge(peer.device, [(key_of(1), at(1))] * MAX_ACKNOWLEDGED)
        assert await peer.content(key_of(1)) == b"data"

    @pytest.mark.parametrize(
        ("footer", "error"),
        [
            (PutFooter(4, "e", footer_of(b"data").xxh3 ^ 1), ChecksumMismatch),
            (PutFooter(5, "e", footer_of(b"data").xxh3), SizeMismatch),
        ],
    )
    async def test_false_footer(self, peer: Peer, footer: PutFooter, error: type[Exception]) -> None:
        """What does not match its footer is not kept."""
        with pytest.raises(error):
            await peer.transport.put(peer.device, key_of(1), record(1), b"data", footer, ROW)
        stream = await peer.transport.open_put(peer.device, key_of(1), record(1), None, ROW)
        await stream.write(b"data")
        with pytest.raises(error):
            await stream.commit(footer)
        await stream.abort()
        assert peer.store.policies() == []
        peer.check_untold()

    async def test_sent_with_the_question(self, peer: Peer) -> None:
        """What is sent before the device has answered counts like what is sent later."""
        data = some_bytes(3_000_000)

        def begun(stream: PutStream) -> None:
            assert stream.send(data[:1_000_000])

        stream = await peer.transport.open_put(peer.device, key_of(1), record(1), len(data), ROW, begun)
        await stream.write(data[1_000_000:])
        await stream.commit(footer_of(data))
        assert await peer.content(key_of(1)) == data

    async def test_finished_with_the_question(self, peer: Peer) -> None:
        """An upload may be finished before the device has answered."""
        data, replies = some_bytes(1_500_000), list[asyncio.Future[WriteReply]]()

        def begun(stream: PutStream) -> None:
            stream.send(data)
            replies.append(asyncio.ensure_future(stream.commit(footer_of(data))))

        await peer.transport.open_put(peer.device, key_of(1), record(1), len(data), ROW, begun)
        await replies[0]
        assert await peer.content(key_of(1)) == data

    async def test_refused_what_was_sent_with_the_question(self, peer: Peer) -> None:
        """A device that refuses keeps nothing of what came with the question."""
        await peer.put(key_of(1), 5, b"newer")
        data, replies = some_bytes(1_500_000), list[asyncio.Future[WriteReply]]()

        def begun(stream: PutStream) -> None:
            stream.send(data)
            replies.append(asyncio.ensure_future(stream.commit(footer_of(data))))

        with pytest.raises(Superseded):
            await peer.transport.open_put(peer.device, key_of(1), record(4), len(data), ROW, begun)
        await asyncio.wait(replies)
        assert replies[0].cancelled() or isinstance(replies[0].exception(), SwiftletError)
        assert await peer.content(key_of(1)) == b"newer"

    async def test_abort(self, peer: Peer) -> None:
        """A stream given up leaves nothing, and the way to the device stays usable."""
        stream = await peer.transport.open_put(peer.device, key_of(1), record(1), 1_000_000, ROW)
        await stream.write(some_bytes(500_000))
        await stream.abort()
        await stream.abort()
        await peer.put(key_of(2), 1, b"data")
        assert [key.digest for key in peer.store.keys(0, 7)] == [key_of(2).digest]

    async def test_reader_stops_early(self, peer: Peer) -> None:
        """Closing a half-read stream harms nobody."""
        await peer.put(key_of(1), 1, some_bytes(3_000_000))
        stream = await peer.transport.get(peer.device, key_of(1))
        async for _ in stream.chunks():
            break
        await stream.close()
        await stream.close()
        assert await peer.content(key_of(1), 5, 6) == some_bytes(3_000_000)[5:6]

    async def test_device_trouble(self, peer: Peer) -> None:
        """The device's own errors arrive as what they are."""
        peer.store.faults.full = True
        with pytest.raises(DiskFull):
            await peer.put(key_of(1), 1, b"data")
        with pytest.raises(DiskFull):
            await peer.transport.open_put(peer.device, key_of(1), record(1), 5_000_000, ROW)
        peer.store.faults.full = False
        peer.store.faults.broken = True
        with pytest.raises(DeviceFailed):
            await peer.put(key_of(1), 1, b"data")
        with pytest.raises(DeviceFailed):
            await peer.transport.head(peer.device, key_of(1))
        with pytest.raises(DeviceFailed):
            await peer.transport.partitions(peer.device, 0)

    async def test_disk_fills_up_under_a_stream(self, peer: Peer) -> None:
        """The writer hears of it, at the latest when it commits; nothing is kept."""
        peer.store.faults.fail("write", nth=3, error=lambda: DiskFull("injected full disk"))
        with pytest.raises(DiskFull):
            await peer.stream(key_of(1), 1, some_bytes(8_000_000), None, step=1_000_000)
        assert peer.store.policies() == []

    async def test_read_error_under_a_stream(self, peer: Peer) -> None:
        """A device that fails in the middle is a failed node to the reader, never a short object."""
        await peer.put(key_of(1), 1, some_bytes(3_000_000))
        peer.store.faults.fail("read", nth=3)
        stream = await peer.transport.get(peer.device, key_of(1))
        with pytest.raises(NodeError):
            await drain(stream)
        await stream.close()

    async def test_comparison(self, peer: Peer) -> None:
        """Replicators can ask for policies, partitions, hashes and entries, and remove versions."""
        await peer.put(key_of(1), 1, b"data")
        await peer.transport.post(peer.device, key_of(1), PostRecord(at(2), {}, "x/y", at(2)))
        await peer.transport.delete(peer.device, key_of(257), at(3), NAME, None)
        await peer.transport.put(peer.device, key_of(2, 3, 9), record(1), b"", footer_of(b""), None)
        assert await peer.transport.policies(peer.device) == [0, 3]
        assert await peer.transport.partitions(peer.device, 0) == [7]
        assert await peer.transport.suffix_hashes(peer.device, 0, 7) == peer.store.suffix_hashes(0, 7)
        entries = await peer.transport.entries(peer.device, 0, 7, "001")
        assert entries == [
            Entry(key_of(1).digest, Kind.DATA, at(1), at(2), at(2)),
            Entry(key_of(257).digest, Kind.TOMBSTONE, at(3)),
        ]
        peer.forget_rows()  # a copy whose row is pending is not forgotten
        assert await peer.transport.remove(peer.device, key_of(1), entries[0])
        assert not await peer.transport.remove(peer.device, key_of(1), entries[0])
        assert await peer.transport.entries(peer.device, 0, 7, "fff") == []

    async def test_many_at_once(self, peer: Peer) -> None:
        """A hundred writers, then a hundred readers."""
        await asyncio.gather(*(peer.put(key_of(number), 1, some_bytes(number * 999)) for number in range(100)))
        found = await asyncio.gather(*(peer.content(key_of(number)) for number in range(100)))
        assert found == [some_bytes(number * 999) for number in range(100)]
