"""Objects with erasure coding on the devices of their places, all of them at once."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal, Protocol

from swiftlet.boundaries.objects import ContainerUpdate
from swiftlet.errors import SwiftletError
from swiftlet.model import ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Coding, Device
from swiftlet.timestamp import Timestamp

PLACES = 32
"""The number of partitions of a store for each partition of the ring: one for each place, and the last for copies."""
COPIES = PLACES - 1
"""Which of these has the copies of small objects."""
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

    @classmethod
    def in_ring(cls, key: ObjectKey, coding: Coding, ring: Ring, spares: int = 0) -> CodedPlaces:
        """Return where a ring has the object of a key of the ring; so many of the handoffs stand in for others."""
        return cls(key, coding, ring, ring.primaries(key.partition), list(islice(ring.handoffs(key.partition), spares)))

    def key_at(self, place: int) -> ObjectKey:
        """Return the key under which a device keeps the fragment of a place."""
        return replace(self.key, partition=PLACES * self.key.partition + place)

    def key_of_copies(self, _slot: int = 0) -> ObjectKey:
        """Return the key under which devices keep copies of the object."""
        return self.key_at(COPIES)


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
    pending: Sequence[PendingRow] = ()
    """Of a small object: the rows that devices have pending."""


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


@dataclass(frozen=True, slots=True)
class CodedPosted:
    """How metadata have ended that were posted."""

    verdict: Literal["acknowledged", "superseded", "deleted", "unknown"]
    """Whether they are durable on a quorum of devices, something is newer, the object is deleted, or too few have
    answered.
    """
    newer: Timestamp | None = None
    """The timestamp of what is newer, or of the deletion."""
    info: ObjectInfo | None = None
    """The object since, if a device has told it."""
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

    @property
    def is_small(self) -> bool:
        """Whether the object is a small one, which lies as copies."""
        ...

    @property
    def hedges(self) -> int:
        """How often others were asked in the place of a device that was late, until it is closed."""
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


CodedVersion = tuple[int, int]
"""A version of a coded object: its timestamp's value, and the generation that its proxy drew."""
DELETION = (1 << 64) - 1
"""The generation of a deletion."""
Said = Literal["done", "missing", "superseded", "outbid", "committed", "aborted", "busy", "other"]
"""The answer of a device about a fragment; see *said* in `docs/transport.md`."""


@dataclass(frozen=True, slots=True)
class ShownFragment:
    """The version of a fragment that a device shows to the devices of other places."""

    version: CodedVersion
    settled: bool
    """Whether all older versions are dead."""
    told: bytes
    """The device's answer, which other devices are told."""

    @property
    def is_deletion(self) -> bool:
        """Whether the object is deleted."""
        return self.version[1] == DELETION


@dataclass(frozen=True, slots=True)
class UnsettledFragment:
    """A version because of which a device keeps older ones."""

    key: ObjectKey
    """The key under which the device keeps the fragment."""
    version: CodedVersion
    chosen: Sequence[tuple[int, int]]
    """The devices that its proxy chose: id in the ring, incarnation; none if that is not known any more."""
    certain: bool
    """Whether the device knows that it counts."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """How the rebuild of a fragment has ended."""

    end: Said | Literal["too-few", "unproved", "failed"]
    """What the device of the place said; or fewer fragments than are needed can be read, what was made is not the
    fragment that others know, or the device could not be reached.
    """
    made: int
    """Bytes of the fragment that were made."""
    refused: Sequence[Refused] = ()
    read: Sequence[tuple[Device, int]] = ()
    """Devices, each with the bytes of cells that came from it."""


@dataclass(frozen=True, slots=True)
class Recovered:
    """How an attempt to decide about a write has ended."""

    end: Literal["committed", "aborted", "superseded", "later"]
    """What became of the write; or something newer is settled, or too few devices have answered."""
    round: int
    """With "later": the highest round that was heard of."""
    refused: Sequence[Refused] = ()


@dataclass(frozen=True, slots=True)
class References:
    """Where a device has said that objects are, which are in packs."""

    digests: frozenset[bytes]
    """The objects, of one partition."""
    told: bytes
    """What was said, for `CodedRepair.refer`."""


class CodedRepair(Protocol):
    """Compares and repairs fragments. All methods raise NodeError and the errors of the device."""

    async def show(self, device: Device, key: ObjectKey) -> ShownFragment | None:
        """Return what a device shows of a fragment."""
        ...

    async def learn(self, device: Device, key: ObjectKey, shown: ShownFragment) -> Said:
        """Tell a device what another place shows; "missing" says that it lacks the fragment."""
        ...

    async def hand_back(self, device: Device, key: ObjectKey, shown: ShownFragment) -> bool:
        """Tell a device that stands in for a place what that place shows; return whether it has dropped its own."""
        ...

    async def posted(self, device: Device, key: ObjectKey) -> bytes | None:
        """Return the newest metadata that were posted to an object, as a device tells them; None if it has none."""
        ...

    async def post(self, device: Device, key: ObjectKey, told: bytes) -> None:
        """Have a device merge what `posted` has returned of another one, unless it knows something newer."""
        ...

    async def settle(self, device: Device, key: ObjectKey, version: CodedVersion) -> Said:
        """Tell a device that older versions are dead."""
        ...

    async def rebuild(self, places: CodedPlaces, place: int, version: CodedVersion, distances: bytes = b"") -> Rebuilt:
        """Make the fragment of a place from others, or move the one of a device that stood in, and have the device at
        the place keep it.

        `distances` says how far away each device is, by its id, and none is far behind its end. Near fragments are read
        first; of devices at a distance of 2 and more, which are in other regions, as little as can be.
        """
        ...

    async def recover(
        self, places: CodedPlaces, version: CodedVersion, chosen: Sequence[tuple[int, int]], round_number: int
    ) -> Recovered:
        """Have the devices that its proxy chose decide about a write, by a ballot of this round."""
        ...

    async def unsettled(
        self, device: Device, policy: int, after: ObjectKey | None
    ) -> tuple[Sequence[UnsettledFragment], bool]:
        """Return the first versions behind a key that are not settled, in order, and whether others follow."""
        ...

    async def references(self, device: Device, key: ObjectKey, digests: Sequence[bytes]) -> References:
        """Return which objects of a partition are in packs at a device, of 1024 at most; `key` is one of any place."""
        ...

    async def refer(self, device: Device, key: ObjectKey, found: References, digests: Collection[bytes]) -> set[bytes]:
        """Have a device take these references of another one; return the objects of which it has them now. It takes
        none without its own fragment of the pack. `key` is one of its place.
        """
        ...

    async def post_referred(
        self, device: Device, key: ObjectKey, found: References, digests: Collection[bytes]
    ) -> None:
        """Have a device merge what another one has said was posted to objects in packs. `key` is one of copies."""
        ...

    def is_settled(self, coding: Coding, equal: int) -> bool:
        """Return whether older versions are dead when so many other places show a version in one round."""
        ...


@dataclass(frozen=True, slots=True)
class PackTerms:
    """Which copies a packer takes, and how large its packs are."""

    before: Timestamp
    """Copies that were written before are packed."""
    least_bytes: int
    """With fewer bytes no pack is made."""
    most_bytes: int
    """A pack has so many bytes at most."""
    live_share: float = 0.0
    """What is referred to of a pack is put into a new one if it is less than this share of it; 0 for none."""


@dataclass(frozen=True, slots=True)
class Pack:
    """A pack of small objects, which is a coded object of their partition."""

    digest: bytes
    version: CodedVersion


@dataclass(frozen=True, slots=True)
class PassedBy:
    """What a packer leaves alone, as it has not come further with it lately."""

    packs: frozenset[bytes] = frozenset()
    """Packs that not all places could adopt as a whole, by their digests."""
    copies: frozenset[tuple[bytes, int]] = frozenset()
    """Copies that places have with other bytes: digests, and the values of timestamps."""


NOTHING_PASSED_BY = PassedBy()


@dataclass(frozen=True, slots=True)
class Packed:
    """What a packer has done in a partition."""

    members: int = 0
    """Objects that are in a new pack now."""
    size: int = 0
    """Their bytes, with names and metadata."""
    finished: int = 0
    """Packs that another packer had left, and that are adopted now."""
    retired: int = 0
    """Packs that are retired now, as nobody refers to them."""
    unused: Sequence[Pack] = ()
    """Those among them that may be deleted, if all places have gone by the ring of these places meanwhile."""
    unfinished: Sequence[bytes] = ()
    """Packs that not all places could adopt as a whole, by their digests."""
    looked_at_all: bool = False
    """Whether all packs were looked at that were not passed by: those that are not unfinished need nothing."""
    left_out: Sequence[tuple[bytes, int]] = ()
    """Cold copies that places have with other bytes, so that no pack has them: digests, and values of timestamps. Those
    that were passed by are among them as long as they are there.
    """
    stopped: str | None = None
    """Why something was left for a later round."""
    rewritten: int = 0
    """Packs of which what is referred to is in a new pack."""
    reread: int = 0
    """Bytes that these packs had, dead ones too."""
    packs: int = 0
    """Packs that were there, and that somebody refers to."""
    pack_bytes: int = 0
    """Bytes of these packs, dead ones too."""
    live_bytes: int = 0
    """Bytes of their members that are referred to."""
    below: int = 0
    """Packs below the live share that are left for a later round."""


class CodedPacker(Protocol):
    """Makes packs of the copies of small objects, and finishes those that were left."""

    async def pack(
        self, places: CodedPlaces, terms: PackTerms, timestamp: Timestamp, passed_by: PassedBy = NOTHING_PASSED_BY
    ) -> Packed:
        """Finish or retire the packs that were left in a partition, and make one of its cold copies and of what is left
        of packs below the live share, with this timestamp or a later one. `places` are those of any object of the
        partition. It may be cancelled anywhere. Raises NodeError when nothing can be asked.
        """
        ...

    async def delete(self, places: CodedPlaces, pack: Pack, timestamp: Timestamp) -> None:
        """Delete a pack that may be deleted at all places. Raises NodeError when it is not at some."""
        ...


class CodedTransport(Protocol):
    """Writes and reads objects with erasure coding."""

    async def open_coded_put(
        self, places: CodedPlaces, record: PutRecord, size: int | None, rows: Sequence[ContainerUpdate]
    ) -> CodedPutStream:
        """Begin an object; `rows` says for each place what its device keeps of the row. Whether devices are there is
        seen by `write` and `commit`.
        """
        ...

    async def put_small(
        self, places: CodedPlaces, record: PutRecord, body: bytes, footer: PutFooter, rows: Sequence[ContainerUpdate]
    ) -> CodedEnd:
        """Store a small object as copies at the first places; return how that has ended. `rows` says for each of them
        what its device keeps of the row.
        """
        ...

    async def delete_coded(
        self, places: CodedPlaces, timestamp: Timestamp, name: str, rows: Sequence[ContainerUpdate]
    ) -> CodedDeletion:
        """Put a tombstone at each place; return how that has ended. `name` is `/account/container/object`, and `rows`
        says for each place what its device keeps of the row.
        """
        ...

    async def post_coded(
        self, places: CodedPlaces, of: Timestamp | None, record: PostRecord, rows: Sequence[ContainerUpdate]
    ) -> CodedPosted:
        """Put metadata at each place, on top of the version with the timestamp `of`, or on the copies of a small object
        without it; return how that has ended. `rows` says for each place what its device keeps of the row.
        """
        ...

    async def get_coded(
        self,
        places: CodedPlaces,
        first: Sequence[int],
        start: int,
        stop: int | None,
        has_small: bool = False,
        sound: int = 0,
    ) -> CodedGetStream:
        """Read bytes `[start, stop)` of the newest version; a `stop` behind the end stands for the end.

        The places in `first` are asked what the newest version is, in their order. The first `sound` of them have not
        failed, and have missed no write, as far as is known: only they are asked in the place of one that is late,
        until that one counts as standing still. `has_small` says that small objects of the policy are copies, so that
        a missing one takes the word of the places that have these. Raises NotFound with the tombstone's timestamp, and
        TooFewFragments.
        """
        ...
