"""Objects with erasure coding on the devices of their places, all of them at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from swiftlet.boundaries.objects import ContainerUpdate
from swiftlet.errors import SwiftletError
from swiftlet.model import ObjectInfo, ObjectKey, PutRecord
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Coding, Device
from swiftlet.timestamp import Timestamp

PLACES = 32
"""The number of partitions of a store for each partition of the ring: one for each place."""
Refused = tuple[Device, SwiftletError]
"""A device that gave no good answer, and why."""
PendingRow = tuple[int, Device]
"""A place's number, and the device that has the write's row pending for it."""


@dataclass(frozen=True, slots=True)
class CodedPlaces:
    """Where an object's fragments are: fragment i is on the device at place i, or on one that stands in for it."""

    key: ObjectKey
    coding: Coding
    ring: Ring
    at: Sequence[Device]
    """The device at each place."""
    spares: Sequence[Device]
    """Devices that stand in for others, the first one first."""

    def key_at(self, place: int) -> ObjectKey:
        """Return the key under which a device keeps the fragment of a place."""
        return replace(self.key, partition=PLACES * self.key.partition + place)


@dataclass(frozen=True, slots=True)
class CodedEnd:
    """How a write has ended."""

    verdict: Literal["acknowledged", "failed", "unknown"]
    """Whether it is durable on a quorum of devices, never happened, or may turn out to have happened."""
    past: Timestamp | None
    """The newest version that a device has settled instead."""
    prepared: int
    """How many devices have it durable, or something newer."""
    is_too_large: bool = False
    """Whether the object has more cells than it may have."""
    refused: Sequence[Refused] = ()


@dataclass(frozen=True, slots=True)
class CodedDeletion:
    """How a deletion has ended."""

    verdict: Literal["acknowledged", "superseded", "unknown"]
    """Whether it is durable on a quorum of devices, an object is newer, or too few have answered."""
    existed: bool
    """Whether there was an object."""
    newer: Timestamp | None = None
    """The timestamp of the object that is newer."""
    refused: Sequence[Refused] = ()
    pending: Sequence[PendingRow] = ()


class CodedPutStream(Protocol):
    """An object that is being coded, and sent to the devices of its places."""

    async def write(self, chunk: bytes | memoryview) -> None:
        """Code and send a chunk; return when there is room for the next one (back-pressure).

        Raises CodedWriteEnded when nothing more is taken.
        """
        ...

    async def commit(self, etag: str) -> CodedEnd:
        """Finish; return once it is known how the write has ended."""
        ...

    def pending(self) -> Sequence[PendingRow]:
        """Return the rows that devices have pending by now; more of them come after the write's end."""
        ...

    async def abort(self) -> None:
        """Give up; no device keeps anything. A second call, or one after `commit`, does nothing."""
        ...


class CodedGetStream(Protocol):
    """A range of an object that is put together from its fragments."""

    @property
    def info(self) -> ObjectInfo:
        """The object, without the xxh3 of its bytes, which fragments do not have."""
        ...

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield the requested bytes, checked. Raises TooFewFragments and NodeError if they end early."""
        ...

    async def close(self) -> None:
        """Stop; a second call does nothing."""
        ...


class CodedWriteEnded(Exception):
    """A write has ended before its body; `end` says how."""

    def __init__(self, end: CodedEnd) -> None:
        """`end` says what became of the write."""
        super().__init__(end.verdict)
        self.end = end


@dataclass
class TooFewFragments(Exception):
    """A version can't be put together, or it can't be told which one is the newest."""

    refused: Sequence[Refused] = field(default=())


class CodedTransport(Protocol):
    """Writes and reads objects with erasure coding."""

    async def open_coded_put(
        self, places: CodedPlaces, record: PutRecord, size: int | None, rows: Sequence[ContainerUpdate]
    ) -> CodedPutStream:
        """Begin an object; `rows` says for each place what its device keeps of the row. Whether devices are there is
        seen by `write` and `commit`.
        """
        ...

    async def delete_coded(
        self, places: CodedPlaces, timestamp: Timestamp, name: str, rows: Sequence[ContainerUpdate]
    ) -> CodedDeletion:
        """Put a tombstone at each place; return how that has ended. `name` is `/account/container/object`, and `rows`
        says for each place what its device keeps of the row.
        """
        ...

    async def get_coded(
        self, places: CodedPlaces, first: Sequence[int], start: int, stop: int | None
    ) -> CodedGetStream:
        """Read bytes `[start, stop)` of the newest version; a `stop` behind the end stands for the end.

        The places in `first` are asked what the newest version is, in their order. Raises NotFound with the tombstone's
        timestamp, and TooFewFragments.
        """
        ...
