"""Suffix hashes and entries in the bytes that came: native code compares those, and values are decoded only when read.

A round asks about thousands of partitions, and most suffixes and objects in the answers are equal on both sides. Native
code finds what differs (`native/crates/store/src/differences.rs`). `swiftlet.sync.session.compare` has the same rules
for values, and is used wherever one side is not packed.

Fault model: `swiftlet_native` parses a peer's answer to its end before it is packed. For an answer that it does not
understand it returns None. Then the message is decoded as all others are, and the error tells what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import overload

import swiftlet_native

from swiftlet.model import Entry, Kind
from swiftlet.native_values import EntryParts
from swiftlet.store.sethash import HASH_SIZE
from swiftlet.timestamp import ZERO, Timestamp

_SUFFIXES = tuple(f"{number:03x}" for number in range(4096))
_NUMBERS = {suffix: number for number, suffix in enumerate(_SUFFIXES)}
_KINDS = {kind.value: kind for kind in Kind}
_ITEM = 2 + HASH_SIZE

Parts = tuple[int, bool, int, bytes]
"""Parts of one partition: its number, whether the answerer is a primary, the number of items, and the items."""


def entry_of(parts: EntryParts) -> Entry:
    """Return the entry as a value. Few objects have a POST, so that mostly the two further timestamps are not made."""
    digest, kind, timestamp, meta, content_type = parts
    if meta or content_type:
        return Entry(digest, _KINDS[kind], Timestamp(timestamp), Timestamp(meta), Timestamp(content_type))
    return Entry(digest, _KINDS[kind], Timestamp(timestamp), ZERO, ZERO)


class PackedHashes(Mapping[str, bytes]):
    """The suffix hashes of a partition by suffix, in ascending order."""

    __slots__ = ("_raw", "_values")

    def __init__(self, raw: bytes) -> None:
        """`raw` has each suffix in 2 bytes and then its hash, in order; native code has checked it."""
        self._raw = raw
        self._values: dict[str, bytes] | None = None

    def differing(self, theirs: PackedHashes, both: bool) -> list[str]:
        """Return, in order, the suffixes that are here and that the other side lacks or has another hash for.

        With `both` the result includes the suffixes that only the other side has.
        """
        return [_SUFFIXES[number] for number in swiftlet_native.sync_differing(self._raw, theirs._raw, both)]

    @property
    def _dict(self) -> dict[str, bytes]:
        if self._values is None:
            raw = self._raw
            self._values = {
                _SUFFIXES[raw[at] << 8 | raw[at + 1]]: raw[at + 2 : at + _ITEM] for at in range(0, len(raw), _ITEM)
            }
        return self._values

    def __getitem__(self, suffix: str) -> bytes:
        return self._dict[suffix]

    def __iter__(self) -> Iterator[str]:
        return iter(self._dict)

    def __len__(self) -> int:
        return len(self._raw) // _ITEM

    def __eq__(self, other: object) -> bool:
        if isinstance(other, PackedHashes):
            return self._raw == other._raw
        return Mapping.__eq__(self, other)

    __hash__ = None  # type: ignore[assignment]  # As other mappings.


class PackedEntries(Sequence[Entry]):
    """The entries of one partition, in the order in which they came."""

    __slots__ = ("_count", "_raw", "_values")

    def __init__(self, raw: bytes, count: int) -> None:
        """`raw` has `count` encoded entries; native code has checked it."""
        self._raw = raw
        self._count = count
        self._values: tuple[Entry, ...] | None = None

    def in_order(self, suffixes: Sequence[str]) -> bool:
        """Return whether the entries are in the order of (suffix, digest) and all in these suffixes, which have to
        ascend.
        """
        return swiftlet_native.sync_in_order(self._raw, [_NUMBERS[suffix] for suffix in suffixes])

    def newer_than(self, theirs: PackedEntries) -> list[tuple[EntryParts, int, bool]] | None:
        """Return what the other side lacks of these entries, None when either side is out of order.

        Each item has the entry, the part of it that is lacking (1 data, 2 tombstone, 3 POST), and whether the other
        side has nothing of the object.
        """
        return [] if self._raw == theirs._raw else swiftlet_native.sync_newer(self._raw, theirs._raw)

    @property
    def _tuple(self) -> tuple[Entry, ...]:
        if self._values is None:
            self._values = tuple([entry_of(parts) for parts in swiftlet_native.sync_entries(self._raw)])
        return self._values

    @overload
    def __getitem__(self, index: int) -> Entry: ...

    @overload
    def __getitem__(self, index: slice) -> tuple[Entry, ...]: ...

    def __getitem__(self, index: int | slice) -> Entry | tuple[Entry, ...]:
        return self._tuple[index]

    def __len__(self) -> int:
        return self._count

    def __eq__(self, other: object) -> bool:
        """Return whether `other` has the same entries in the same order."""
        if isinstance(other, PackedEntries):
            return self._raw == other._raw
        return isinstance(other, tuple) and self._tuple == other

    def __hash__(self) -> int:
        return hash(self._tuple)
