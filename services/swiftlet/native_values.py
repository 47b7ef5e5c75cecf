"""Values as they cross the border to the native package: texts as bytes, timestamps as numbers, tuples for records.

Names need not be valid Unicode, which bytes can say and the border's own texts could not.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import overload

from swiftlet.model import Entry, Kind, ObjectInfo, ObjectKey, ObjectRow
from swiftlet.timestamp import Timestamp

_DELETE_AT = "X-Delete-At"

Place = tuple[int, int, bytes]
"""Storage policy, partition, digest."""
Pairs = list[tuple[bytes, bytes]]
"""Names and values of metadata, as bytes."""
InfoParts = tuple[bytes, int, int, bytes, int, bytes, Pairs, Pairs, int, int]
"""name, timestamp, size, etag, xxh3, content type, metadata, sysmeta, timestamps of metadata and content type."""
EntryParts = tuple[bytes, int, int, int, int]
"""digest, kind, timestamps of version, metadata and content type."""


def raw(text: str) -> bytes:
    """Return a text's bytes, with lone surrogates as they are."""
    return text.encode("utf-8", "surrogatepass")


def text(data: bytes) -> str:
    """The inverse of `raw`."""
    return data.decode("utf-8", "surrogatepass")


def raw_pairs(texts: Mapping[str, str]) -> Pairs:
    """Return metadata as bytes."""
    return [(raw(name), raw(value)) for name, value in texts.items()]


def text_pairs(pairs: Pairs) -> dict[str, str]:
    """The inverse of `raw_pairs`."""
    return {text(name): text(value) for name, value in pairs}


def place(key: ObjectKey) -> Place:
    """Return an object's location as native code takes it."""
    return key.policy, key.partition, key.digest


def key_at(parts: Place) -> ObjectKey:
    """The inverse of `place`."""
    return ObjectKey(*parts)


def delete_at(metadata: Mapping[str, str]) -> int:
    """Seconds since 1970 at which the metadata ends the object; 0 for never."""
    value = metadata.get(_DELETE_AT, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else 0


def info_of(parts: InfoParts) -> ObjectInfo:
    """Return an object's description, made from native code's tuple."""
    name, timestamp, size, etag, xxh3, content_type, metadata, sysmeta, meta_timestamp, type_timestamp = parts
    return ObjectInfo(
        text(name),
        Timestamp(timestamp),
        size,
        text(etag),
        xxh3,
        text(content_type),
        text_pairs(metadata),
        text_pairs(sysmeta),
        Timestamp(meta_timestamp),
        Timestamp(type_timestamp),
    )


def entry_of(parts: EntryParts) -> Entry:
    """What is held of an object."""
    digest, kind, timestamp, meta, content_type = parts
    return Entry(digest, Kind(kind), Timestamp(timestamp), Timestamp(meta), Timestamp(content_type))


def entry_parts(entry: Entry) -> EntryParts:
    """The inverse of `entry_of`."""
    return (
        entry.digest,
        int(entry.kind),
        entry.timestamp.value,
        entry.meta_timestamp.value,
        entry.content_type_timestamp.value,
    )


def bits_of(replicas: Iterable[int]) -> int:
    """Container replicas as bits; ValueError for one that is not in 0..31."""
    bits = 0
    for replica in replicas:
        if not 0 <= replica < 32:
            raise ValueError(f"container replica {replica} is outside 0..31")
        bits |= 1 << replica
    return bits


def replicas_of(bits: int) -> tuple[int, ...]:
    """The inverse of `bits_of`, ascending."""
    return tuple(index for index in range(32) if bits >> index & 1)


def version_parts(written: Sequence[tuple[ObjectKey, Timestamp]]) -> list[tuple[Place, int]]:
    """Versions whose rows are through."""
    return [(place(key), timestamp.value) for key, timestamp in written]


class EncodedRows(Sequence[ObjectRow]):
    """Rows as native code has written them down, one as `[name, timestamp, size, etag, content type, deleted]` in JSON.

    Made into rows only for who looks at them.
    """

    __slots__ = ("_count", "_rows", "encoded")

    def __init__(self, count: int, encoded: bytes) -> None:
        """So many, with commas between them."""
        self._count = count
        self.encoded = encoded
        self._rows: list[ObjectRow] | None = None

    def _decoded(self) -> list[ObjectRow]:
        if self._rows is None:
            parts = json.loads(b"[" + self.encoded + b"]")
            self._rows = [ObjectRow(name, Timestamp(stamp), *rest) for name, stamp, *rest in parts]
        return self._rows

    def __len__(self) -> int:
        """Return the number of elements."""
        return self._count

    def __iter__(self) -> Iterator[ObjectRow]:
        """One after the other."""
        return iter(self._decoded())

    @overload
    def __getitem__(self, index: int) -> ObjectRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[ObjectRow]: ...

    def __getitem__(self, index: int | slice) -> ObjectRow | list[ObjectRow]:
        """Return an element or a slice, as of a list."""
        return self._decoded()[index]


def together(parts: Sequence[Sequence[ObjectRow]]) -> Sequence[ObjectRow]:
    """All rows in one sequence; encoded where all of them are."""
    if len(parts) == 1:
        return parts[0]
    encoded = [part for part in parts if isinstance(part, EncodedRows)]
    if parts and len(encoded) == len(parts):
        return EncodedRows(sum(map(len, encoded)), b",".join(part.encoded for part in encoded))
    return [row for part in parts for row in part]
