"""Objects on one device of another server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

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
"""Versions that one `ObjectTransport.acknowledge` may name."""
MAX_RUN = 1024
"""Parts of one run."""


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
    """Whether the device keeps a row, durably with the write's record: a pending update. Whoever wrote brings it to the
    container's replicas and acknowledges it (`ObjectTransport.acknowledge`); if nobody does, the device brings it by
    itself later. False when no row was requested, or the write changed nothing."""
    existed: bool = True
    """For DELETE: whether there was an object to delete."""


class PutStream(Protocol):
    """A large object on its way to one device."""

    async def write(self, chunk: bytes | memoryview) -> None:
        """Hand over a chunk; returns when there is room for the next one (back-pressure)."""
        ...

    async def commit(self, footer: PutFooter) -> WriteReply:
        """Finish; returns once durable. Superseded, ChecksumMismatch, SizeMismatch, DiskFull, NodeError."""
        ...

    async def abort(self) -> None:
        """Give up; the device keeps nothing. Harmless a second time or after `commit`."""
        ...


class GetStream(Protocol):
    """An object on its way from one device."""

    @property
    def info(self) -> ObjectInfo:
        """The object as this device has it."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """The bytes asked for; NodeError if they end early."""
        ...

    async def close(self) -> None:
        """Stop and let go of the connection; harmless a second time."""
        ...


@dataclass(frozen=True, slots=True)
class RunPart:
    """Bytes `[start, stop)` of one object on one device, and what the object has to be."""

    device: Device
    key: ObjectKey
    start: int
    stop: int
    size: int | None = None
    """The whole object's size in bytes, when it must be this."""
    etag: str | None = None
    """The whole object's entity tag, unquoted, when it must be this."""
    unmarked: bool = True
    """Whether it must have none of the run's `Marks`."""


@dataclass(frozen=True, slots=True)
class Marks:
    """Names of metadata by which an object stands for something else than its own bytes."""

    metadata: tuple[str, ...] = ()
    sysmeta: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Where a run has ended."""

    done: int
    """Parts that were handed on as a whole."""
    sent: int = 0
    """Bytes of the next one that were handed on."""
    info: ObjectInfo | None = None
    """The object of which they are; None when there are none."""
    error: SwiftletError | None = None
    """What its device answered, or what became of the call. None: all was handed on, the next object is not what it
    should be or perhaps too old to be shown, or the run was closed."""


class Run(Protocol):
    """Parts of many objects on their way as one stream, the next ones asked for ahead."""

    end: RunEnd | None
    """Known once `chunks` has ended."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Bytes in order, checked; ends, without an error, at the first thing that is wrong."""
        ...

    async def close(self) -> None:
        """Stop; harmless a second time."""
        ...


MAX_PLACES = 2048
"""Partitions in one `Verdict`."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is said to a device about its partitions, each a policy and a number; together up to `MAX_PLACES`."""

    doubted: Sequence[tuple[int, int]] = ()
    """These missed a write that was acknowledged."""
    proved: Sequence[tuple[int, int]] = ()
    """These were compared since `epoch` was read, and lack nothing."""
    epoch: int = 0
    whole: bool = False
    """Whether nothing that belongs on the device lacks anything, by comparisons since `epoch` was read."""


@dataclass(frozen=True, slots=True)
class PendingDoubt:
    """A device may lack something that was acknowledged."""

    epoch: int
    """What a proof has to name that begins now."""
    age_s: float
    """Seconds since the youngest doubt began."""


class DoubtTransport(Protocol):
    """What devices have missed, and what is proved to be there again."""

    async def judge(self, device: Device, verdict: Verdict) -> PendingDoubt | None:
        """Tell a device of its partitions; what is in doubt after that, None when nothing is."""
        ...


class SyncTransport(Protocol):
    """Reads the contents of devices in the terms of sync sessions: entries in suffixes of partitions."""

    async def policies(self, device: Device) -> list[int]:
        """Storage policies with anything on the device."""
        ...

    async def partitions(self, device: Device, policy: int) -> list[int]:
        """Partitions with anything in them on the device."""
        ...

    async def suffix_hashes(self, device: Device, policy: int, partition: int) -> Mapping[str, bytes]:
        """Set hash per suffix."""
        ...

    async def ask(self, device: Device, message: bytes) -> bytes:
        """The answer to a question of a sync session (`swiftlet.sync.session.messages`); NodeError."""
        ...

    async def remove(self, device: Device, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy; see `Store.remove`."""
        ...


class ObjectTransport(SyncTransport, DoubtTransport, Protocol):
    """Objects on other nodes' devices."""

    async def entries(self, device: Device, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Return the device's entries in a suffix."""
        ...

    async def put(
        self,
        device: Device,
        key: ObjectKey,
        record: PutRecord,
        body: bytes,
        footer: PutFooter,
        row: ContainerUpdate | None,
    ) -> WriteReply:
        """Store a small object in one round trip. Errors as `PutStream.commit`."""
        ...

    async def open_put(
        self, device: Device, key: ObjectKey, record: PutRecord, size: int | None, row: ContainerUpdate | None
    ) -> PutStream:
        """Begin a large object; returns once the device said that it will take it (it may say Superseded, DiskFull)."""
        ...

    async def get(
        self, device: Device, key: ObjectKey, start: int = 0, stop: int | None = None, *, proved: bool = False
    ) -> GetStream:
        """Read bytes `[start, stop)`; a `stop` beyond the end is the end. NotFound with the tombstone's timestamp.

        With `proved` Unproved instead, whatever the device has, while the partition is in doubt.
        """
        ...

    async def head(self, device: Device, key: ObjectKey, *, proved: bool = False) -> ObjectInfo:
        """Describe an object; NotFound and Unproved as with `get`."""
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
        """Replace metadata; NotFound, Superseded. The row carries the changed content type and time to the listing.

        With `proved` Unproved instead of NotFound while the partition is in doubt.
        """
        ...

    async def delete(
        self, device: Device, key: ObjectKey, timestamp: Timestamp, name: str, row: ContainerUpdate | None
    ) -> WriteReply:
        """Store a tombstone; Superseded when a newer version is there."""
        ...

    async def acknowledge(self, device: Device, written: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """The rows of these versions are through: a device that has them pending keeps them no longer.

        Up to `MAX_ACKNOWLEDGED` at a time. A newer version's row stays pending. May be repeated, and may be lost: then
        the device delivers the row once more.
        """
        ...

    def runs(self, device: Device) -> bool:
        """Whether parts on this device can be in a run, as far as is known."""
        ...

    def open_run(self, parts: Sequence[RunPart], marks: Marks) -> Run:
        """Begin a run of up to `MAX_RUN` parts on devices that `runs`."""
        ...

    async def read_copies(self, device: Device, wanted: bytes) -> bytes:
        """Copies of many objects (`swiftlet.sync.moving.copies_wire`); NodeError when the answer has another form."""
        ...

    async def take_copies(self, device: Device, copies: bytes) -> bytes:
        """Store copies on a device, durably, and return the outcome of each. NodeError from a server that
        accepts none.
        """
        ...

    async def close(self) -> None:
        """Close the cached connections."""
        ...
