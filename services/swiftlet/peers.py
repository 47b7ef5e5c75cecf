"""The boundaries between a caller and a storage device: `ObjectTransport` and `ListingTransport`.

One call is one request to one device; choosing devices, quorums and retries is the caller's. Every call ends
within the transport's timeouts, by an answer or by an error of `swiftlet.errors`: NodeUnreachable, NodeTimeout,
NodeBusy, NodeError for the node's own trouble (try another one), the others for what the device decided.
The current request id travels with every call (`swiftlet.context.request_id`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeAlias

from swiftlet_native import Hasher
from typing_extensions import Buffer

from swiftlet.errors import SwiftletError
from swiftlet.model import (
    AccountInfo,
    Bounds,
    Claim,
    Confirmation,
    ContainerInfo,
    ContainerRow,
    DatabaseName,
    Entry,
    Excess,
    ListingQuery,
    MetadataBounds,
    ObjectInfo,
    ObjectKey,
    ObjectRow,
    PostRecord,
    PutFooter,
    PutRecord,
    Subdir,
)
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp

MAX_ACKNOWLEDGED = 1000
"""Versions that one `ObjectTransport.acknowledge` may name."""
MAX_RUN = 1024
"""Parts of one run."""


class UpdateOutcome(Enum):
    """The outcome for the listing row of a write."""

    LISTED = "listed"
    """The container replica has it, durably."""
    QUEUED = "queued"
    """The container replica could not be asked; the row is in the device's durable outbox."""
    NO_CONTAINER = "no-container"
    """The container replica answered that there is no such container; nothing was queued."""
    PENDING = "pending"
    """The device has the row durably with its record: a pending update. Whoever wrote brings it to the container's
    replicas and acknowledges it (`ObjectTransport.acknowledge`); if nobody does, the device brings it by itself
    later."""
    NONE = "none"
    """No row was requested, or the write changed nothing."""


@dataclass(frozen=True, slots=True)
class ContainerUpdate:
    """Asks the object server to bring the write's row to these replicas (by index) of the container."""

    account: str
    container: str
    replicas: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WriteReply:
    """A write that is durable on the device."""

    row: UpdateOutcome
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
        """The rows of these versions are through: a device that answered PENDING for them keeps them no longer.

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
        """Copies of many objects (`swiftlet.sync.copies_wire`); NodeError from a server that gives none, or not so."""
        ...

    async def take_copies(self, device: Device, copies: bytes) -> bytes:
        """Store copies on a device, durably, and return the outcome of each. NodeError from a server that
        accepts none.
        """
        ...

    async def close(self) -> None:
        """Close the cached connections."""
        ...


class PageForm(Enum):
    """How a page of a container's listing may be written where its rows are."""

    JSON = "json"
    """The format of the API's JSON listings."""
    PLAIN = "plain"
    """A name and a line feed for each row."""


class ListingTransport(Protocol):
    """Account and container databases on other nodes' devices. `partition` is the database's in its own ring."""

    async def put_container(
        self,
        device: Device,
        partition: int,
        account: str,
        container: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        policy: int | None,
        default_policy: int,
        bounds: MetadataBounds | None = None,
    ) -> bool:
        """Create or update a container; True when created. An empty metadata value removes the item.

        TooMuchMetadata where what there is after the merge is more than `bounds` allow, and more than before.
        `policy` None keeps the existing container's, or `default_policy` for a new one; PolicyConflict when it
        exists with another one.
        """
        ...

    async def post_container(
        self,
        device: Device,
        partition: int,
        account: str,
        container: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> None:
        """Merge metadata items (each newest wins, an empty value removes); NotFound, TooMuchMetadata."""
        ...

    async def delete_container(
        self, device: Device, partition: int, account: str, container: str, timestamp: Timestamp
    ) -> None:
        """Delete the container; NotEmpty, NotFound."""
        ...

    async def container_info(self, device: Device, partition: int, account: str, container: str) -> ContainerInfo:
        """Totals and metadata; NotFound."""
        ...

    async def list_objects(
        self, device: Device, partition: int, account: str, container: str, query: ListingQuery
    ) -> tuple[ContainerInfo, Sequence[ObjectRow | Subdir]]:
        """One page of a container's listing with its totals, from one view of the database; NotFound."""
        ...

    async def list_text(
        self, device: Device, partition: int, account: str, container: str, query: ListingQuery, form: PageForm
    ) -> tuple[ContainerInfo, bytes | Sequence[ObjectRow | Subdir]]:
        """Return a page as `list_objects` does, as text in UTF-8 unless its rows are needed to make it; NotFound."""
        ...

    async def update_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow]
    ) -> None:
        """Merge object rows, newest wins; durable on return. NotFound when there is no such container."""
        ...

    async def bring_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool
    ) -> asyncio.Future[None] | None:
        """Send rows as `update_rows` does; with `later`, for rows that are pending until they are durable, it may
        return before.

        Then it returns what is done when they are durable, or fails when that can't be known any more.
        """
        ...

    async def put_account(
        self,
        device: Device,
        partition: int,
        account: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> bool:
        """Create or update an account; True when created. TooMuchMetadata."""
        ...

    async def post_account(
        self,
        device: Device,
        partition: int,
        account: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> None:
        """Merge metadata items; NotFound, TooMuchMetadata."""
        ...

    async def delete_account(self, device: Device, partition: int, account: str, timestamp: Timestamp) -> None:
        """Delete; NotEmpty while it has containers, NotFound."""
        ...

    async def account_info(self, device: Device, partition: int, account: str) -> AccountInfo:
        """Totals and metadata; NotFound."""
        ...

    async def list_containers(
        self, device: Device, partition: int, account: str, query: ListingQuery
    ) -> tuple[AccountInfo, Sequence[ContainerRow | Subdir]]:
        """One page of an account's listing with its totals; NotFound."""
        ...

    async def update_containers(
        self, device: Device, partition: int, account: str, rows: Sequence[ContainerRow]
    ) -> None:
        """Merge container rows and totals, newest wins; creates the account's database if it is not there."""
        ...

    async def take_claim(
        self, device: Device, partition: int, name: DatabaseName, claim: Claim, bounds: Bounds, life_s: int
    ) -> Excess | None:
        """Hold a claim on an account or container for `life_s`, or change it; why not if it does not fit. NotFound."""
        ...

    async def confirm_claim(
        self, device: Device, partition: int, name: DatabaseName, claim_id: str, row: str, at: Timestamp, report: bool
    ) -> Confirmation:
        """A write is done: its claim ends with its row. `report`: the account is told of a container's totals first."""
        ...

    async def cancel_claim(self, device: Device, partition: int, name: DatabaseName, claim_id: str) -> None:
        """End a claim whose write has failed; nothing is counted for it any more."""
        ...

    async def close(self) -> None:
        """Close the cached connections."""
        ...


Piece: TypeAlias = bytes | memoryview
"""Bytes of a body that nobody changes any more."""


class BodyBuffer(Protocol):
    """Memory that is read into. As a buffer it is what is not filled yet, to be written to."""

    def __buffer__(self, flags: int, /) -> memoryview:
        """What is not filled yet."""
        ...

    def advance(self, size: int, /) -> int:
        """So many bytes more are filled: how many are not."""
        ...

    def freeze(self, length: int, /) -> Buffer:
        """The first bytes, which nobody writes to any more; BufferError while somebody has this one as a buffer."""
        ...


class Digester(Protocol):
    """Digests a stream beside the event loop."""

    async def update(self, piece: Piece) -> None:
        """Take the next bytes; returns when there is room for more."""
        ...

    async def finish(self) -> None:
        """Returns when all of them are digested."""
        ...

    def close(self) -> None:
        """Nobody asks any more; harmless a second time."""
        ...


class Bodies(Protocol):
    """Memory for the bodies of uploads on their way through this process, limited for all of them together."""

    def buffer(self, size: int) -> BodyBuffer | None:
        """Memory for up to 1 MiB, if there is some now."""
        ...

    def wait_for_buffer(self, size: int, timeout_s: float, then: Callable[[BodyBuffer | None], None]) -> None:
        """Wait for it, first come first served; `then` is called with None when the time is over."""
        ...

    def digester(self, hasher: Hasher) -> Digester:
        """Goes on for this hasher, which nobody else feeds meanwhile."""
        ...
