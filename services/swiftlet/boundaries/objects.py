"""Objects on one device of another server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from swiftlet_native import Hasher

from swiftlet.errors import SwiftletError
from swiftlet.model import (
    Entry,
    ObjectInfo,
    ObjectKey,
    PostRecord,
    PutFooter,
    PutRecord,
)
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp

MAX_ACKNOWLEDGED = 1000
"""The largest number of versions that one `ObjectTransport.acknowledge` may name."""
MAX_RUN = 1024
"""The largest number of parts of one run."""


@dataclass(frozen=True, slots=True)
class ContainerUpdate:
    """Asks the object server to keep the write's row for these replicas (by index) of the container."""

    account: str
    container: str
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteReply:
    """A write that is durable on the device."""

    pending: bool = False
    """Whether the device keeps a row, durably with the write's record: a pending update.

    The writer brings it to the container's replicas and acknowledges it (`ObjectTransport.acknowledge`); if nobody
    does, the device brings it by itself later. False when no row was requested, or the write changed nothing.
    """
    existed: bool = True
    """For DELETE, whether there was an object to delete."""
    info: ObjectInfo | None = None
    """For POST, the object as it is since, of which its row is made, where the device keeps one."""


MAX_SENT_BYTES = 4 << 20
"""The largest number of bytes that are sent to a device at a time."""


def pieces_of(chunk: bytes | memoryview) -> Iterator[bytes | memoryview]:
    """Yield a chunk in pieces that can be sent at a time; an empty one as it is."""
    if len(chunk) <= MAX_SENT_BYTES:
        yield chunk
        return
    view = memoryview(chunk)
    for start in range(0, len(view), MAX_SENT_BYTES):
        yield view[start : start + MAX_SENT_BYTES]


class PutStream(Protocol):
    """A large object that is being sent to one device."""

    @property
    def waiting(self) -> int:
        """The bytes that were given and are not sent yet, as far as the sender knows."""
        ...

    def send(self, chunk: bytes | memoryview) -> bool:
        """Begin to send a chunk of up to `MAX_SENT_BYTES`; return whether there is room for the next one."""
        ...

    async def room(self) -> None:
        """Return when there is room for the next chunk (back-pressure)."""
        ...

    async def write(self, chunk: bytes | memoryview) -> None:
        """Send a chunk of any size; return when there is room for the next one."""
        ...

    async def commit(self, footer: PutFooter) -> WriteReply:
        """Finish; return once the object is durable.

        Raises Superseded, ChecksumMismatch, SizeMismatch, DiskFull and NodeError.
        """
        ...

    async def abort(self) -> None:
        """Give up; the device keeps nothing. A second call, or one after `commit`, does nothing."""
        ...


class GetStream(Protocol):
    """An object that is being read from one device."""

    @property
    def info(self) -> ObjectInfo:
        """The object as this device has it."""
        ...

    @property
    def hasher(self) -> Hasher:
        """The xxh3 of the bytes that were yielded so far."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the requested bytes. Raises NodeError if they end early."""
        ...

    async def close(self) -> None:
        """Stop and release the connection; a second call does nothing."""
        ...


@dataclass(frozen=True, slots=True)
class RunPart:
    """Bytes `[start, stop)` of one object on one device, and conditions on the object."""

    device: Device
    key: ObjectKey
    start: int
    stop: int
    size: int | None = None
    """The whole object's size in bytes, when it must be this."""
    etag: str | None = None
    """The whole object's entity tag, unquoted, when it must be this."""
    unmarked: bool = True
    """Whether the object must have none of the run's `Marks`."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Names of metadata that an object has if it stands for something else than its own bytes."""

    metadata: tuple[str, ...] = ()
    sysmeta: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How far a run came, and why it ended."""

    done: int
    """The number of parts that were passed on completely."""
    sent: int = 0
    """The number of bytes of the next part that were passed on."""
    info: ObjectInfo | None = None
    """The object that these bytes are of; None when there are none."""
    error: SwiftletError | None = None
    """The error of the device or of the call.

    None when everything was passed on, when the next object does not meet its conditions or is perhaps too old to be
    shown, or when the run was closed.
    """


class Run(Protocol):
    """Parts of many objects that are read as one stream; the next parts are requested ahead."""

    end: RunEnd | None
    """Known once `chunks` has ended."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes in order, checked; the first deviation ends them without an error."""
        ...

    async def close(self) -> None:
        """Stop; a second call does nothing."""
        ...


MAX_PLACES = 2048
"""The largest number of partitions in one `Verdict`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is known about partitions of a device, each a policy and a number; together at most `MAX_PLACES`."""

    doubted: Sequence[tuple[int, int]] = ()
    """Partitions that missed a write that was acknowledged."""
    proved: Sequence[tuple[int, int]] = ()
    """Partitions that were compared since `epoch` was read, and lack nothing."""
    epoch: int = 0
    whole: bool = False
    """Whether no partition that belongs on the device lacks anything, by comparisons since `epoch` was read."""


@dataclass(frozen=True, slots=True)
class PendingDoubt:
    """The doubt about a device, which may lack something that was acknowledged."""

    epoch: int
    """The number that a proof has to name that begins now."""
    age_s: float
    """Seconds since the youngest doubt began."""


class DoubtTransport(Protocol):
    """Tells devices what they have missed, and what is proved to be there again."""

    async def judge(self, device: Device, verdict: Verdict) -> PendingDoubt | None:
        """Send a verdict on partitions to a device; return what is in doubt after that, None when nothing is."""
        ...


class SyncTransport(Protocol):
    """Reads the contents of devices in the terms of sync sessions: entries in suffixes of partitions."""

    async def policies(self, device: Device) -> list[int]:
        """Return the storage policies with anything on the device."""
        ...

    async def partitions(self, device: Device, policy: int) -> list[int]:
        """Return the partitions with anything in them on the device."""
        ...

    async def suffix_hashes(self, device: Device, policy: int, partition: int) -> Mapping[str, bytes]:
        """Return the set hash of each suffix."""
        ...

    async def ask(self, device: Device, message: bytes) -> bytes:
        """Return the answer to a question of a sync session (`swiftlet.sync.session.messages`). Raises NodeError."""
        ...

    async def remove(self, device: Device, key: ObjectKey, entry: Entry) -> bool:
        """Remove a handoff copy, as `Store.remove` does."""
        ...


class ReplicaTransport(Protocol):
    """Replicas of objects on other nodes' devices, one at a time: what members and guests can ask for."""

    async def put(
        self,
        device: Device,
        key: ObjectKey,
        record: PutRecord,
        body: bytes,
        footer: PutFooter,
        row: ContainerUpdate | None,
    ) -> WriteReply:
        """Store a small object in one round trip. Raises the errors of `PutStream.commit`."""
        ...

    async def open_put(
        self,
        device: Device,
        key: ObjectKey,
        record: PutRecord,
        size: int | None,
        row: ContainerUpdate | None,
        begun: Callable[[PutStream], object] | None = None,
    ) -> PutStream:
        """Begin a large object; return once the device accepts it. Raises Superseded and DiskFull if it does not.

        `begun` is called with the stream before the device has answered. What is sent then arrives with the question,
        and comes to nothing if the device refuses.
        """
        ...

    async def get(
        self, device: Device, key: ObjectKey, start: int = 0, stop: int | None = None, *, proved: bool = False
    ) -> GetStream:
        """Read bytes `[start, stop)`; a `stop` behind the end stands for the end.

        Raises NotFound with the tombstone's timestamp. With `proved` it raises Unproved while the partition is in
        doubt, whatever the device has.
        """
        ...

    async def head(self, device: Device, key: ObjectKey, *, proved: bool = False) -> ObjectInfo:
        """Return the description of an object. Raises NotFound and Unproved as `get` does."""
        ...

    async def post(
        self,
        device: Device,
        key: ObjectKey,
        record: PostRecord,
        row: ContainerUpdate | None = None,
        *,
        proved: bool = False,
    ) -> WriteReply:
        """Replace metadata. The row carries the changed content type and time to the listing.

        Raises NotFound and Superseded; with `proved`, Unproved instead of NotFound while the partition is in doubt.
        """
        ...

    async def delete(
        self, device: Device, key: ObjectKey, timestamp: Timestamp, name: str, row: ContainerUpdate | None
    ) -> WriteReply:
        """Store a tombstone. Raises Superseded when a newer version is there."""
        ...


class SentWrite(Protocol):
    """A write that was sent to several devices at once, by one call."""

    @property
    def replies(self) -> Sequence[WriteReply]:
        """What the devices have answered, in their order, once all of them have done it."""
        ...

    async def settle(self, quorum: int, patience_s: float) -> float | None:
        """Return None once all devices have done it.

        Otherwise return early for how many seconds to wait for the others once `quorum` of them have: at the first
        device that has not done it, or when one lets others wait for half of the patience.
        """
        ...

    async def reply(self, index: int) -> WriteReply:
        """Return what a device answers. Raises the errors of `PutStream.commit`."""
        ...

    def cancel(self) -> None:
        """Wait for nothing any more; devices may do it all the same."""
        ...


class WriteTransport(Protocol):
    """Sends one write to several devices at once."""

    async def put_all(
        self,
        devices: Sequence[Device],
        key: ObjectKey,
        record: PutRecord,
        body: bytes,
        footer: PutFooter,
        rows: Sequence[ContainerUpdate],
    ) -> SentWrite | None:
        """Store a small object at these devices, each with its row; None when they have to be asked one by one."""
        ...

    async def delete_all(
        self,
        devices: Sequence[Device],
        key: ObjectKey,
        timestamp: Timestamp,
        name: str,
        rows: Sequence[ContainerUpdate],
    ) -> SentWrite | None:
        """Store a tombstone at these devices, each with its row; None when they have to be asked one by one."""
        ...


class ObjectTransport(ReplicaTransport, SyncTransport, DoubtTransport, Protocol):
    """Objects on other nodes' devices."""

    async def entries(self, device: Device, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Return the device's entries in a suffix."""
        ...

    async def acknowledge(self, device: Device, written: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Acknowledge the rows of up to `MAX_ACKNOWLEDGED` versions, so that the device no longer keeps them as
        pending.

        A newer version's row stays pending. The message may be repeated, and may be lost: then the device delivers the
        row once more.
        """
        ...

    def runs(self, device: Device) -> bool:
        """Return whether parts on this device can be in a run, as far as is known."""
        ...

    def open_run(self, parts: Sequence[RunPart], marks: Marks) -> Run:
        """Begin a run of up to `MAX_RUN` parts on devices for which `runs` is true."""
        ...

    async def read_copies(self, device: Device, wanted: bytes) -> bytes:
        """Return copies of many objects (`swiftlet.sync.moving.copies_wire`). Raises NodeError for a
        malformed answer.
        """
        ...

    async def take_copies(self, device: Device, copies: bytes) -> bytes:
        """Store copies on a device, durably, and return the outcome of each. Raises NodeError when the server takes
        none.
        """
        ...

    async def close(self) -> None:
        """Close the cached connections."""
        ...
