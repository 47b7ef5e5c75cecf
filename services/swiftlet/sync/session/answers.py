"""Answers about many partitions as they came, and what two of them differ in: one call for all partitions.

What is here is decided for one partition in `swiftlet.sync.session.packed` and by values in
`swiftlet.sync.session.compare`, by the same rules; sessions turn to those wherever one side is no such answer
(`swiftlet.sync.session.many_partitions`).

Fault model: as `swiftlet.sync.session.packed`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import overload

import swiftlet_native

from swiftlet.model import Entry
from swiftlet.sync.session.compare import AHEAD_S, IN_FLIGHT_S, NEEDS, Need, Push
from swiftlet.sync.session.lazy import Lazy
from swiftlet.sync.session.messages import Listing, ManyEntries, Reply, Suffixes, SuffixHashes, decode_reply
from swiftlet.sync.session.packed import PackedEntries, PackedHashes, entry_of
from swiftlet.sync.session.wanted import PackedWanted, Wanted

_PUSH = struct.Struct(">IBB16sQQQ")
_PARTITION = struct.Struct(f">I{_PUSH.size - 4}x")
_FRESH = 0x80


class PackedHashMaps(Lazy[Mapping[str, bytes]]):
    """The suffix hashes of each partition in an answer."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes, count: int) -> None:
        """`raw` is the answer, about so many partitions."""
        super().__init__(count)
        self.raw = raw

    def _make(self) -> tuple[Mapping[str, bytes], ...]:
        return tuple([one.hashes for one in _suffixes(self.raw)])


class PackedSuffixes(Lazy[SuffixHashes]):
    """The suffix hashes of an answer, as bytes."""

    __slots__ = ("empty", "partitions", "primary", "raw")

    def __init__(self, raw: bytes, partitions: Sequence[int], primary: bool, empty: Sequence[int]) -> None:
        """`raw` is the answer, by a primary of all of these partitions if `primary`; nothing is in the `empty` ones."""
        super().__init__(len(partitions))
        self.raw = raw
        self.empty = empty
        self.partitions = tuple(partitions)
        self.primary = primary

    def _make(self) -> tuple[SuffixHashes, ...]:
        return _suffixes(self.raw)

    @property
    def hashes(self) -> PackedHashMaps:
        """Return those of each partition separately."""
        return PackedHashMaps(self.raw, len(self))


class PackedEntryLists(Lazy[Sequence[Entry]]):
    """The entries of each partition in an answer."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes, count: int) -> None:
        """`raw` is the answer, about so many partitions."""
        super().__init__(count)
        self.raw = raw

    def _make(self) -> tuple[Sequence[Entry], ...]:
        return tuple([one.entries for one in _listings(self.raw)])


class PackedListings(Lazy[Listing]):
    """The entries of an answer, as bytes."""

    __slots__ = ("partitions", "primary", "raw")

    def __init__(self, raw: bytes, partitions: Sequence[int], primary: bool) -> None:
        """Take the same arguments as `PackedSuffixes`."""
        super().__init__(len(partitions))
        self.raw = raw
        self.partitions = tuple(partitions)
        self.primary = primary

    def _make(self) -> tuple[Listing, ...]:
        return _listings(self.raw)

    @property
    def entries(self) -> PackedEntryLists:
        """Return those of each partition separately."""
        return PackedEntryLists(self.raw, len(self))


def _suffixes(raw: bytes) -> tuple[SuffixHashes, ...]:
    many = swiftlet_native.sync_suffixes(raw)
    assert many is not None, "it was one when the answer was packed"
    return tuple([SuffixHashes(partition, primary, PackedHashes(part)) for partition, primary, _, part in many[2]])


def _listings(raw: bytes) -> tuple[Listing, ...]:
    many = swiftlet_native.sync_listings(raw)
    assert many is not None, "it was one when the answer was packed"
    return tuple([Listing(partition, primary, PackedEntries(part, n)) for partition, primary, n, part in many[2]])


def decode_packed(answer: bytes) -> Reply:
    """An answer decoded; where it is about many partitions, as it came. WireError."""
    if (heads := swiftlet_native.sync_suffix_heads(answer)) is not None:
        policy, ring, partitions, primary, empty = heads
        return Suffixes(policy, ring, PackedSuffixes(answer, partitions, primary, empty))
    if (heads := swiftlet_native.sync_listing_heads(answer)) is not None:
        policy, ring, partitions, primary, _ = heads
        return ManyEntries(policy, ring, PackedListings(answer, partitions, primary))
    return decode_reply(answer)


def all_primary(found: Sequence[SuffixHashes] | Sequence[Listing]) -> bool:
    """Whether who answered takes itself for a primary of all partitions in the answer."""
    return found.primary if isinstance(found, PackedSuffixes | PackedListings) else all(one.primary for one in found)


def partitions_in(found: Sequence[SuffixHashes] | Sequence[Listing]) -> tuple[int, ...]:
    """The partitions that an answer is about."""
    return (
        found.partitions
        if isinstance(found, PackedSuffixes | PackedListings)
        else tuple(one.partition for one in found)
    )


def hashes_in(found: Sequence[SuffixHashes]) -> Sequence[Mapping[str, bytes]]:
    """The suffix hashes of each partition alone."""
    return found.hashes if isinstance(found, PackedSuffixes) else [one.hashes for one in found]


def without_hashes(found: Sequence[SuffixHashes]) -> Iterable[int]:
    """Partitions in which nothing is."""
    return found.empty if isinstance(found, PackedSuffixes) else [one.partition for one in found if not one.hashes]


def entries_in(found: Sequence[Listing]) -> Sequence[Sequence[Entry]]:
    """The entries of each partition alone."""
    return found.entries if isinstance(found, PackedListings) else [one.entries for one in found]


def differing_packed(
    mine: Sequence[Mapping[str, bytes]], theirs: Sequence[SuffixHashes], both: bool
) -> tuple[tuple[int, ...], PackedWanted] | None:
    """Partitions that are the same, and the suffixes that differ of the others; None where values have to be asked."""
    if not (isinstance(mine, PackedHashMaps) and isinstance(theirs, PackedSuffixes)):
        return None
    found = swiftlet_native.sync_differing_many(mine.raw, theirs.raw, both)
    return None if found is None else (tuple(found[0]), PackedWanted(*found[1:]))


def fits(found: Sequence[Listing], wanted: Sequence[Wanted]) -> bool:
    """Whether entries are those of the first of these partitions, and in order; False also where nobody knows."""
    if not (isinstance(found, PackedListings) and isinstance(wanted, PackedWanted)):
        return False
    return swiftlet_native.sync_fits(found.raw, wanted.partitions, wanted.suffixes)


class PackedPushes(Lazy[tuple[int, Push]]):
    """Objects to bring, with their partitions."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        """Take the result of native code."""
        super().__init__(len(raw) // _PUSH.size)
        self._raw = raw

    def _make(self) -> tuple[tuple[int, Push], ...]:
        return tuple(
            [
                (partition, Push(entry_of((digest, kind, *moments)), NEEDS[need & ~_FRESH], bool(need & _FRESH)))
                for partition, need, kind, digest, *moments in _PUSH.iter_unpack(self._raw)
            ]
        )

    @overload
    def __getitem__(self, index: int) -> tuple[int, Push]: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[tuple[int, Push]]: ...

    def __getitem__(self, index: int | slice) -> tuple[int, Push] | Sequence[tuple[int, Push]]:
        """One of them, or a slice of them."""
        if not isinstance(index, slice):
            return self.values[index]
        start, stop, step = index.indices(len(self))
        return self.values[index] if step != 1 else PackedPushes(self._raw[start * _PUSH.size : stop * _PUSH.size])

    @property
    def partitions(self) -> list[int]:
        """The partition of each."""
        return [partition for (partition,) in _PARTITION.iter_unpack(self._raw)]

    @property
    def needs(self) -> list[Need]:
        """Return what is needed of each."""
        return [NEEDS[need & ~_FRESH] for need in self._raw[4 :: _PUSH.size]]

    def copies(self, policy: int) -> tuple[bytes, bytes]:
        """The question for their copies, and those that are tombstones: see `swiftlet.sync.moving.copies_wire`."""
        return swiftlet_native.sync_copies(policy, self._raw)


def partitions_of(objects: Sequence[tuple[int, Push]]) -> list[int]:
    """The partition of each."""
    return objects.partitions if isinstance(objects, PackedPushes) else [partition for partition, _ in objects]


def needs_of(objects: Sequence[tuple[int, Push]]) -> list[Need]:
    """Return what is needed of each."""
    return objects.needs if isinstance(objects, PackedPushes) else [push.need for _, push in objects]


def lacked_packed(
    mine: Iterable[object], theirs: Iterable[object], now_s: float, forgotten_s: float
) -> PackedPushes | None:
    """Return what they lack of mine and is old enough; None where values have to be compared. Either may be `Listing`s
    or entries.
    """
    if not (
        isinstance(mine, PackedEntryLists | PackedListings) and isinstance(theirs, PackedEntryLists | PackedListings)
    ):
        return None
    since_s, until_s = now_s - IN_FLIGHT_S, now_s + AHEAD_S
    found = swiftlet_native.sync_lacked(mine.raw, theirs.raw, since_s, until_s, forgotten_s)
    return None if found is None else PackedPushes(found)
