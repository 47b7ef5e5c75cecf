"""Answers about many partitions, kept in the bytes that came; native code compares two of them in one call.

`swiftlet.sync.session.packed` decides the same for one partition, and `swiftlet.sync.session.compare` for decoded
values, by the same rules. Sessions use those wherever one side is not such an answer
(`swiftlet.sync.session.many_partitions`).

The fault model is that of `swiftlet.sync.session.packed`.
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
    """The suffix hashes of each partition in an answer, as mappings; they are decoded when the first one is read."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes, count: int) -> None:
        """`raw` is the encoded answer, and `count` the number of partitions in it."""
        super().__init__(count)
        self.raw = raw

    def _make(self) -> tuple[Mapping[str, bytes], ...]:
        return tuple([one.hashes for one in _suffixes(self.raw)])


class PackedSuffixes(Lazy[SuffixHashes]):
    """The suffix hashes of an answer, kept as its bytes and decoded when the first value is read."""

    __slots__ = ("empty", "partitions", "primary", "raw")

    def __init__(self, raw: bytes, partitions: Sequence[int], primary: bool, empty: Sequence[int]) -> None:
        """`raw` is the encoded answer about `partitions`.

        `primary` tells whether the sender is a primary of all of them; `empty` lists those that hold nothing.
        """
        super().__init__(len(partitions))
        self.raw = raw
        self.empty = empty
        self.partitions = tuple(partitions)
        self.primary = primary

    def _make(self) -> tuple[SuffixHashes, ...]:
        return _suffixes(self.raw)

    @property
    def hashes(self) -> PackedHashMaps:
        """The suffix hashes of each partition, without the partition's number."""
        return PackedHashMaps(self.raw, len(self))


class PackedEntryLists(Lazy[Sequence[Entry]]):
    """The entries of each partition in an answer; they are decoded when the first one is read."""

    __slots__ = ("raw",)

    def __init__(self, raw: bytes, count: int) -> None:
        """`raw` is the encoded answer, and `count` the number of partitions in it."""
        super().__init__(count)
        self.raw = raw

    def _make(self) -> tuple[Sequence[Entry], ...]:
        return tuple([one.entries for one in _listings(self.raw)])


class PackedListings(Lazy[Listing]):
    """The entries of an answer, kept as its bytes and decoded when the first value is read."""

    __slots__ = ("partitions", "primary", "raw")

    def __init__(self, raw: bytes, partitions: Sequence[int], primary: bool) -> None:
        """`raw` is the encoded answer about `partitions`; `primary` tells whether the sender is a primary of all of
        them.
        """
        super().__init__(len(partitions))
        self.raw = raw
        self.partitions = tuple(partitions)
        self.primary = primary

    def _make(self) -> tuple[Listing, ...]:
        return _listings(self.raw)

    @property
    def entries(self) -> PackedEntryLists:
        """The entries of each partition, without the partition's number."""
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
    """Return the decoded answer; one about many partitions keeps its bytes. Raises WireError for a malformed answer."""
    if (heads := swiftlet_native.sync_suffix_heads(answer)) is not None:
        policy, ring, partitions, primary, empty = heads
        return Suffixes(policy, ring, PackedSuffixes(answer, partitions, primary, empty))
    if (heads := swiftlet_native.sync_listing_heads(answer)) is not None:
        policy, ring, partitions, primary, _ = heads
        return ManyEntries(policy, ring, PackedListings(answer, partitions, primary))
    return decode_reply(answer)


def all_primary(found: Sequence[SuffixHashes] | Sequence[Listing]) -> bool:
    """Return whether the sender of an answer takes itself for a primary of all partitions in it."""
    return found.primary if isinstance(found, PackedSuffixes | PackedListings) else all(one.primary for one in found)


def partitions_in(found: Sequence[SuffixHashes] | Sequence[Listing]) -> tuple[int, ...]:
    """Return the partitions that an answer is about."""
    return (
        found.partitions
        if isinstance(found, PackedSuffixes | PackedListings)
        else tuple(one.partition for one in found)
    )


def hashes_in(found: Sequence[SuffixHashes]) -> Sequence[Mapping[str, bytes]]:
    """Return the suffix hashes of each partition in an answer, in its order."""
    return found.hashes if isinstance(found, PackedSuffixes) else [one.hashes for one in found]


def without_hashes(found: Sequence[SuffixHashes]) -> Iterable[int]:
    """Return the partitions in an answer that hold nothing."""
    return found.empty if isinstance(found, PackedSuffixes) else [one.partition for one in found if not one.hashes]


def entries_in(found: Sequence[Listing]) -> Sequence[Sequence[Entry]]:
    """Return the entries of each partition in an answer, in its order."""
    return found.entries if isinstance(found, PackedListings) else [one.entries for one in found]


def differing_packed(
    mine: Sequence[Mapping[str, bytes]], theirs: Sequence[SuffixHashes], both: bool
) -> tuple[tuple[int, ...], PackedWanted] | None:
    """Return the partitions that are equal, and the suffixes that differ in the others.

    None means that an argument is not packed, and that the caller has to compare values.
    """
    if not (isinstance(mine, PackedHashMaps) and isinstance(theirs, PackedSuffixes)):
        return None
    found = swiftlet_native.sync_differing_many(mine.raw, theirs.raw, both)
    return None if found is None else (tuple(found[0]), PackedWanted(*found[1:]))


def fits(found: Sequence[Listing], wanted: Sequence[Wanted]) -> bool:
    """Return whether the answer is about the first of the wanted partitions, with entries of wanted suffixes in order.

    False also means that an argument is not packed, so that the entries have to be checked one by one.
    """
    if not (isinstance(found, PackedListings) and isinstance(wanted, PackedWanted)):
        return False
    return swiftlet_native.sync_fits(found.raw, wanted.partitions, wanted.suffixes)


class PackedPushes(Lazy[tuple[int, Push]]):
    """Objects to bring, each with its partition, as native code found them; decoded when the first one is read."""

    __slots__ = ("_raw",)

    def __init__(self, raw: bytes) -> None:
        """`raw` is the result of `swiftlet_native.sync_lacked`: records of a fixed size."""
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
        """Return one pair of partition and object, or a slice of them; a slice in steps of 1 stays packed."""
        if not isinstance(index, slice):
            return self.values[index]
        start, stop, step = index.indices(len(self))
        return self.values[index] if step != 1 else PackedPushes(self._raw[start * _PUSH.size : stop * _PUSH.size])

    @property
    def partitions(self) -> list[int]:
        """The partition of each object."""
        return [partition for (partition,) in _PARTITION.iter_unpack(self._raw)]

    @property
    def needs(self) -> list[Need]:
        """The needs of the other side for each object."""
        return [NEEDS[need & ~_FRESH] for need in self._raw[4 :: _PUSH.size]]

    def copies(self, policy: int) -> tuple[bytes, bytes]:
        """Return the encoded question for the copies of these objects, and which of them are tombstones.

        `swiftlet.sync.moving.copies_wire` specifies both.
        """
        return swiftlet_native.sync_copies(policy, self._raw)


def partitions_of(objects: Sequence[tuple[int, Push]]) -> list[int]:
    """Return the partition of each object."""
    return objects.partitions if isinstance(objects, PackedPushes) else [partition for partition, _ in objects]


def needs_of(objects: Sequence[tuple[int, Push]]) -> list[Need]:
    """Return what the other side needs of each object."""
    return objects.needs if isinstance(objects, PackedPushes) else [push.need for _, push in objects]


def lacked_packed(
    mine: Iterable[object], theirs: Iterable[object], now_s: float, forgotten_s: float
) -> PackedPushes | None:
    """Return the objects that `theirs` lacks of `mine` and that are due now; either may be `Listing`s or lists of
    entries.

    None means that an argument is not packed, and that the caller has to compare values.
    """
    if not (
        isinstance(mine, PackedEntryLists | PackedListings) and isinstance(theirs, PackedEntryLists | PackedListings)
    ):
        return None
    since_s, until_s = now_s - IN_FLIGHT_S, now_s + AHEAD_S
    found = swiftlet_native.sync_lacked(mine.raw, theirs.raw, since_s, until_s, forgotten_s)
    return None if found is None else PackedPushes(found)
