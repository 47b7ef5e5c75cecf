"""`ObjectTransport` within one process: calls stores directly, with faults between caller and device.

For tests and simulators of the layers above the transport. Devices keep the rows of their writes pending. Each device
has a `Link`, whose faults may be set at any time: slow, unreachable, silent until the caller's timeout, busy, or lost
in the middle of a transfer. Errors of a store arrive as they would over the wire: always as domain errors.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar, cast

from swiftlet_native import Doubts, Hasher

from swiftlet.boundaries.objects import (
    MAX_ACKNOWLEDGED,
    ContainerUpdate,
    Marks,
    PendingDoubt,
    RunEnd,
    RunPart,
    Verdict,
    WriteReply,
)
from swiftlet.errors import (
    NodeBusy,
    NodeError,
    NodeTimeout,
    NodeUnreachable,
    NotFound,
    Superseded,
    SwiftletError,
    Unproved,
)
from swiftlet.model import Entry, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.ring.model import Device
from swiftlet.servers.objects.doubts import judge
from swiftlet.servers.objects.sync_copies import read_copies, take_copies
from swiftlet.servers.shared.sync_answers import PlacedBy, answer_sync, nowhere
from swiftlet.store.protocol import ObjectReader, ObjectWriter, Store
from swiftlet.testing.storage.memory_pending import MemoryPending
from swiftlet.timestamp import Timestamp
from swiftlet.transport.wire import WireError, error_from_wire, error_to_wire

T = TypeVar("T")

_CHUNK_BYTES = 64 * 1024


def row_name(name: str, row: ContainerUpdate) -> str:
    """Return the object's own name in `/account/container/object`. Raises WireError when it is in another container."""
    prefix = f"/{row.account}/{row.container}/"
    if not name.startswith(prefix):
        raise WireError("the row's container is not the one in the object's name")
    return name[len(prefix) :]


@dataclass(slots=True)
class Link:
    """The faults of the connection to one device; none at first."""

    delay_s: float = 0.0
    """Seconds before each call reaches the device."""
    unreachable: bool = False
    silent: bool = False
    """Calls are never answered; they end with NodeTimeout after the transport's timeout."""
    busy: bool = False
    lose_after_bytes: int | None = None
    """Transfers break off with NodeTimeout behind this byte of an object, wherever they began; nothing is committed."""
    calls: int = 0
    """The number of calls so far, including refused ones, without acknowledgements, which nobody waits for."""
    loses_acknowledgements: bool = False
    """Whether the device never gets acknowledgements of its pending updates."""


class MemoryObjectTransport:
    """Stores by the device's name on its node (`host:port/device`), each with a link of its own."""

    def __init__(
        self,
        stores: Mapping[str, Store],
        patience_s: float = 0.05,
        pending: dict[str, MemoryPending] | None = None,
    ) -> None:
        """Connect to stores.

        `stores` is by `Device.address`; a device without one is unreachable. `pending` has their pending updates, by
        address too; missing devices are added with their first row.
        """
        self._stores = stores
        self._pending = {} if pending is None else pending
        self._patience_s = patience_s
        self._links: dict[str, Link] = {}
        self.has_runs = False
        """Whether devices support runs."""
        self.doubts: dict[str, Doubts] = {}
        """Doubts of devices by address; those that are missing have none."""
        self.placed: Callable[[Device], PlacedBy] = lambda device: nowhere
        """Returns how the rings of each device's server place that device."""

    def link(self, device: Device) -> Link:
        """Return the link to a device."""
        return self._links.setdefault(device.address, Link())

    async def _reach(self, device: Device) -> Store:
        self.link(device).calls += 1
        return await self._reach_uncounted(device)

    async def _reach_uncounted(self, device: Device) -> Store:
        link = self.link(device)
        await asyncio.sleep(link.delay_s)
        if link.unreachable or device.address not in self._stores:
            raise NodeUnreachable(f"{device.address} is unreachable")
        if link.silent:
            await asyncio.sleep(self._patience_s)
            raise NodeTimeout(f"{device.address} did not answer within {self._patience_s:g} s")
        if link.busy:
            raise NodeBusy(f"{device.address} has too many requests at work")
        return self._stores[device.address]

    async def _call(self, device: Device, operation: Callable[[Store], T]) -> T:
        store = await self._reach(device)
        try:
            return operation(store)
        except SwiftletError as error:
            raise _over_the_wire(error) from error

    def _admit(self, device: Device, row: ContainerUpdate | None) -> None:
        """Raise NodeBusy when a row could not be kept."""
        if row is not None and self._pending_of(device).full:
            raise NodeBusy(f"{device.address} has too many pending updates of listings")

    def _pending_of(self, device: Device) -> MemoryPending:
        return self._pending.setdefault(device.address, MemoryPending())

    def _keep(
        self, device: Device, key: ObjectKey, written: tuple[Timestamp, str], row: ContainerUpdate | None, post: bool
    ) -> bool:
        """Keep the row of what was `written` (when, and with which name), if there is one."""
        if row is None or not row.replicas:
            return False
        row_name(written[1], row)
        self._pending_of(device).add(key, *written, row.replicas, post)
        return True

    async def put(
        self,
        device: Device,
        key: ObjectKey,
        record: PutRecord,
        body: bytes,
        footer: PutFooter,
        row: ContainerUpdate | None,
    ) -> WriteReply:
        """Store a small object."""
        stream = await self._open(device, key, record, len(body), row)
        await stream.write(body)
        return await stream.commit(footer)

    async def open_put(
        self,
        device: Device,
        key: ObjectKey,
        record: PutRecord,
        size: int | None,
        row: ContainerUpdate | None,
        begun: Callable[[MemoryPutStream], object] | None = None,
    ) -> MemoryPutStream:
        """Begin a large object; what is sent on the stream that `begun` gets waits for the device's answer."""
        if begun is None:
            return await self._accepted(device, key, record, size, row)
        waiting = WaitingPutStream()
        # It does what its Protocol says, and nobody asks it for more.
        begun(cast("MemoryPutStream", waiting))
        try:
            stream = await self._accepted(device, key, record, size, row)
        except BaseException as error:
            waiting.end(error)
            raise
        waiting.go_on(stream)
        return stream

    async def _accepted(
        self, device: Device, key: ObjectKey, record: PutRecord, size: int | None, row: ContainerUpdate | None
    ) -> MemoryPutStream:

        def check(store: Store) -> None:
            try:
                newest = store.stat(key).timestamp
            except NotFound as error:
                newest = error.timestamp or record.timestamp
            if newest > record.timestamp:
                raise Superseded(f"{record.name} is already at {newest}", newest)

        await self._call(device, check)
        return await self._open(device, key, record, size, row)

    async def _open(
        self, device: Device, key: ObjectKey, record: PutRecord, size: int | None, row: ContainerUpdate | None
    ) -> MemoryPutStream:
        self._admit(device, row)
        writer = await self._call(device, lambda store: store.create(key, size))

        def durable() -> WriteReply:
            return WriteReply(self._keep(device, key, (record.timestamp, record.name), row, post=False))

        return MemoryPutStream(device, self.link(device), writer, record, durable)

    async def judge(self, device: Device, verdict: Verdict) -> PendingDoubt | None:
        """Tell a device which of its partitions are doubted or proved."""
        await self._reach(device)
        doubts = self.doubts.setdefault(device.address, Doubts())
        judge(doubts, verdict)
        pending = doubts.pending()
        return None if pending is None else PendingDoubt(*pending)

    def _check_proved(self, device: Device, key: ObjectKey) -> None:
        """Raise Unproved while the device may have missed a write of the partition."""
        doubts = self.doubts.get(device.address)
        if doubts is not None and doubts.has(key.policy, key.partition):
            raise Unproved(f"{device.address} may have missed writes of partition {key.partition}")

    async def get(
        self, device: Device, key: ObjectKey, start: int = 0, stop: int | None = None, *, proved: bool = False
    ) -> MemoryGetStream:
        """Read bytes `[start, stop)`."""

        def operation(store: Store) -> ObjectReader:
            if proved:
                self._check_proved(device, key)
            return store.open(key)

        reader = await self._call(device, operation)
        return MemoryGetStream(device, self.link(device), reader, start, stop)

    def runs(self, device: Device) -> bool:
        """Return whether the device answers runs, which `has_runs` sets."""
        return self.has_runs

    def open_run(self, parts: Sequence[RunPart], marks: Marks) -> MemoryRun:
        """Begin a run over these parts."""
        return MemoryRun(self, parts, marks)

    async def head(self, device: Device, key: ObjectKey, *, proved: bool = False) -> ObjectInfo:
        """Return an object's description."""

        def operation(store: Store) -> ObjectInfo:
            if proved:
                self._check_proved(device, key)
            return store.stat(key)

        return await self._call(device, operation)

    async def post(
        self,
        device: Device,
        key: ObjectKey,
        record: PostRecord,
        row: ContainerUpdate | None = None,
        *,
        proved: bool = False,
    ) -> WriteReply:
        """Replace an object's metadata."""

        def operation(store: Store) -> ObjectInfo:
            try:
                store.post(key, record)
            except NotFound:
                if proved:
                    self._check_proved(device, key)
                raise
            except Superseded:
                self._owe_handed_on(device, store, key, record, row)
                raise
            return store.stat(key)

        self._admit(device, row)
        info = await self._call(device, operation)
        pending = self._keep(device, key, (record.timestamp, info.name), row, post=True)
        return WriteReply(pending, info=info if pending else None)

    def _owe_handed_on(
        self, device: Device, store: Store, key: ObjectKey, record: PostRecord, row: ContainerUpdate | None
    ) -> None:
        """Keep the row of a POST that came after a newer one, if its content type is the current one from now on."""
        info = store.stat(key)
        typed = record.content_type is not None and info.content_type_timestamp == record.content_type_timestamp
        if row is not None and row.replicas and typed and info.content_type_timestamp > info.timestamp:
            self._pending_of(device).add(key, info.meta_timestamp, info.name, row.replicas, post=True)

    async def delete(
        self, device: Device, key: ObjectKey, timestamp: Timestamp, name: str, row: ContainerUpdate | None
    ) -> WriteReply:
        """Store a tombstone for an object."""

        def operation(store: Store) -> bool:
            try:
                store.delete(key, timestamp, name)
            except NotFound:
                return False
            return True

        self._admit(device, row)
        existed = await self._call(device, operation)
        return WriteReply(self._keep(device, key, (timestamp, name), row, post=False), existed)

    async def acknowledge(self, device: Device, written: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Behaves as `ObjectTransport.acknowledge` requires."""
        if len(written) > MAX_ACKNOWLEDGED:
            raise ValueError(f"{len(written)} versions are more than {MAX_ACKNOWLEDGED} at a time")
        await self._reach_uncounted(device)
        if not self.link(device).loses_acknowledgements:
            self._pending_of(device).acknowledge(written)

    async def policies(self, device: Device) -> list[int]:
        """Return the storage policies with data on the device."""
        return await self._call(device, lambda store: store.policies())

    async def partitions(self, device: Device, policy: int) -> list[int]:
        """Return the partitions that are not empty."""
        return await self._call(device, lambda store: store.partitions(policy))

    async def suffix_hashes(self, device: Device, policy: int, partition: int) -> Mapping[str, bytes]:
        """Return the set hash of each suffix."""
        return await self._call(device, lambda store: store.suffix_hashes(policy, partition))

    async def entries(self, device: Device, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Return the device's entries in a suffix."""
        return await self._call(device, lambda store: store.entries(policy, partition, suffix))

    async def ask(self, device: Device, message: bytes) -> bytes:
        """Return the answer to a question of a sync session."""
        return await self._call(device, lambda store: answer_sync(store, message, self.placed(device)))

    async def read_copies(self, device: Device, wanted: bytes) -> bytes:
        """Return copies of many objects."""
        copies = await self._call(device, lambda store: read_copies(store, wanted))
        self._passes(device, len(copies), there=False)
        _check_loss(device, self.link(device), len(copies))
        return copies

    async def take_copies(self, device: Device, copies: bytes) -> bytes:
        """Store copies on a device; if the request is lost, none is stored."""
        self._passes(device, len(copies), there=True)
        _check_loss(device, self.link(device), len(copies))
        return await self._call(device, lambda store: take_copies(store, copies))

    def _passes(self, device: Device, size: int, *, there: bool) -> None:
        """Bytes of copies go to a device, or come from there. Does nothing; for subclasses that count them."""

    async def remove(self, device: Device, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy."""
        return await self._call(device, lambda store: store.remove(key, entry))

    async def close(self) -> None:
        """Do nothing; the stores belong to the caller."""


def _over_the_wire(error: SwiftletError) -> SwiftletError:
    """Return the error as a client of the node sees it."""
    return error_from_wire(*error_to_wire(error))


def _check_loss(device: Device, link: Link, moved: int) -> None:
    if link.lose_after_bytes is not None and moved > link.lose_after_bytes:
        raise NodeTimeout(f"{device.address} was lost in the middle of a transfer")


class MemoryPutStream:
    """The upload of a large object to one device."""

    def __init__(
        self,
        device: Device,
        link: Link,
        writer: ObjectWriter,
        record: PutRecord,
        durable: Callable[[], WriteReply],
    ) -> None:
        """Begin an upload; `durable` makes the reply to a durable write."""
        self._device = device
        self._link = link
        self._writer = writer
        self._record = record
        self._durable = durable
        self._moved = 0

    @property
    def waiting(self) -> int:
        """Return 0: everything is handed over at once."""
        return 0

    def send(self, chunk: bytes | memoryview) -> bool:
        """Hand over a chunk; there is never room at once."""
        self._moved += len(chunk)
        self._on_the_way(lambda: self._writer.write(chunk))
        return False

    async def room(self) -> None:
        """Let others go on."""
        await asyncio.sleep(0)

    async def write(self, chunk: bytes | memoryview) -> None:
        """Hand over a chunk, and let others go on."""
        self.send(chunk)
        await self.room()

    async def commit(self, footer: PutFooter) -> WriteReply:
        """Finish; returns once durable."""
        await asyncio.sleep(self._link.delay_s)
        self._on_the_way(lambda: self._writer.commit(self._record, footer))
        return self._durable()

    def _on_the_way(self, step: Callable[[], None]) -> None:
        try:
            _check_loss(self._device, self._link, self._moved)
            if self._link.unreachable:
                raise NodeUnreachable(f"{self._device.address} went away")
            step()
        except NodeError:
            self._writer.abort()
            raise
        except SwiftletError as error:
            self._writer.abort()
            raise _over_the_wire(error) from error

    async def abort(self) -> None:
        """Abort; the device keeps nothing."""
        self._writer.abort()


class WaitingPutStream:
    """The upload of a large object to a device that has not said yet whether it takes it."""

    def __init__(self) -> None:
        """Keep what is sent until the device has answered."""
        self._sent: list[bytes] = []
        self._stream: asyncio.Future[MemoryPutStream] = asyncio.get_running_loop().create_future()
        # A refusal is what the caller of `open_put` is told; whoever sends need not ask.
        self._stream.add_done_callback(lambda stream: stream.cancelled() or stream.exception())

    def go_on(self, stream: MemoryPutStream) -> None:
        """The device takes the object: hand over what it was sent."""
        self._stream.set_result(stream)
        for chunk in self._sent:
            with contextlib.suppress(SwiftletError):
                stream.send(chunk)

    def end(self, error: BaseException) -> None:
        """The device does not take it."""
        if isinstance(error, Exception):
            self._stream.set_exception(error)
        else:
            self._stream.cancel()

    @property
    def waiting(self) -> int:
        """Return 0: it waits where nobody counts it."""
        return 0

    def send(self, chunk: bytes | memoryview) -> bool:
        """Hand over a chunk, or keep it."""
        if self._stream.done():
            return self._stream.result().send(chunk)
        self._sent.append(bytes(chunk))
        return True

    async def room(self) -> None:
        """Let others go on."""
        await asyncio.sleep(0)

    async def write(self, chunk: bytes | memoryview) -> None:
        """Hand over a chunk, and let others go on."""
        self.send(chunk)
        await self.room()

    async def commit(self, footer: PutFooter) -> WriteReply:
        """Finish when the device has answered."""
        return await (await asyncio.shield(self._stream)).commit(footer)

    async def abort(self) -> None:
        """Abort; the device keeps nothing."""
        if self._stream.done() and not self._stream.cancelled() and self._stream.exception() is None:
            await self._stream.result().abort()


class MemoryGetStream:
    """The download of an object from one device."""

    def __init__(self, device: Device, link: Link, reader: ObjectReader, start: int, stop: int | None) -> None:
        """Begin a download; the stream owns `reader`."""
        self._device = device
        self._link = link
        self._reader = reader
        self._stop = reader.info.size if stop is None else min(stop, reader.info.size)
        self._start = start
        self.hasher = Hasher(md5=False)

    @property
    def info(self) -> ObjectInfo:
        """Return the object as this device has it."""
        return self._reader.info

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the requested bytes. Raises NodeError if they end early."""
        position = self._start
        while position < self._stop:
            await asyncio.sleep(0)
            piece = self._read(position, min(_CHUNK_BYTES, self._stop - position))
            position += len(piece)
            self.hasher.update(piece)
            yield piece
        await self.close()

    def _read(self, position: int, length: int) -> bytes:
        limit = self._link.lose_after_bytes
        if limit is not None:
            length = max(1, min(length, limit - position))
        _check_loss(self._device, self._link, position + length)
        if self._link.unreachable:
            raise NodeUnreachable(f"{self._device.address} went away")
        try:
            return self._reader.read(position, length)
        except SwiftletError as error:
            raise NodeError(f"{self._device.address} ended early: {error}") from error

    async def close(self) -> None:
        self._reader.close()


class MemoryRun:
    """Reads parts one after the other, without reading ahead."""

    def __init__(self, transport: MemoryObjectTransport, parts: Sequence[RunPart], marks: Marks) -> None:
        """Begin without requesting anything."""
        self._transport = transport
        self._parts = parts
        self._marks = marks
        self._closed = False
        self.end: RunEnd | None = None

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield bytes up to the first error."""
        for done, part in enumerate(self._parts):
            sent, info = 0, None
            try:
                stream = await self._transport.get(part.device, part.key, part.start, part.stop, proved=True)
                if self._closed or not self._expected(part, stream.info):
                    self.end = RunEnd(done)
                    return
                async for chunk in stream.chunks():
                    info = stream.info
                    sent += len(chunk)
                    yield chunk
            except SwiftletError as error:
                self.end = RunEnd(done, sent, info, error)
                return
        self.end = RunEnd(len(self._parts))

    def _expected(self, part: RunPart, info: ObjectInfo) -> bool:
        sound = part.stop <= info.size and part.size in (None, info.size) and part.etag in (None, info.etag)
        marks = self._marks
        marked = not info.metadata.keys().isdisjoint(marks.metadata) or not info.sysmeta.keys().isdisjoint(
            marks.sysmeta
        )
        return sound and "X-Delete-At" not in info.metadata and not (part.unmarked and marked)

    async def close(self) -> None:
        self._closed = True
