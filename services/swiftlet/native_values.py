"""Converts values for the native package: texts to bytes, timestamps to numbers, records to tuples.

Names need not be valid Unicode; bytes can represent all of them, and the strings of the native package can't.
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
    """Return the text that `raw` turned into these bytes."""
    return data.decode("utf-8", "surrogatepass")


def raw_pairs(texts: Mapping[str, str]) -> Pairs:
    """Return metadata as bytes."""
    return [(raw(name), raw(value)) for name, value in texts.items()]


def text_pairs(pairs: Pairs) -> dict[str, str]:
    """Return the metadata that `raw_pairs` turned into these pairs."""
    return {text(name): text(value) for name, value in pairs}


def place(key: ObjectKey) -> Place:
    """Return an object's location as native code takes it."""
    return key.policy, key.partition, key.digest


def key_at(parts: Place) -> ObjectKey:
    """Return the key that `place` turned into this tuple."""
    return ObjectKey(*parts)


def delete_at(metadata: Mapping[str, str]) -> int:
    """Return the seconds since 1970 at which the object expires by its metadata; 0 for never."""
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
    """Return the entry in native code's tuple."""
    digest, kind, timestamp, meta, content_type = parts
    return Entry(digest, Kind(kind), Timestamp(timestamp), Timestamp(meta), Timestamp(content_type))


def entry_parts(entry: Entry) -> EntryParts:
    """Return an entry as native code takes it."""
    return (
        entry.digest,
        int(entry.kind),
        entry.timestamp.value,
        entry.meta_timestamp.value,
        entry.content_type_timestamp.value,
    )


def bits_of(replicas: Iterable[int]) -> int:
    """Return container replicas as bits. Raises ValueError for a number that is not in 0..31."""
    bits = 0
    for replica in replicas:
        if not 0 <= replica < 32:
            raise ValueError(f"container replica {replica} is outside 0..31")
        bits |= 1 << replica
    return bits


def replicas_of(bits: int) -> tuple[int, ...]:
    """Return the replicas of bits, ascending."""
    return tuple(index for index in range(32) if bits >> index & 1)


def version_parts(written: Sequence[tuple[ObjectKey, Timestamp]]) -> list[tuple[Place, int]]:
    """Return versions whose rows have been delivered, as native code takes them."""
    return [(place(key), timestamp.value) for key, timestamp in written]


class EncodedRows(Sequence[ObjectRow]):
    """Rows as native code has encoded them, each as `[name, timestamp, size, etag, content type, deleted]` in JSON.

    They are decoded only when somebody reads them.
    """

    __slots__ = ("_count", "_rows", "encoded")

    def __init__(self, count: int, encoded: bytes) -> None:
        """Hold `count` rows, encoded with commas between them."""
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
        """Yield the rows one after the other."""
        return iter(self._decoded())

    @overload
    def __getitem__(self, index: int) -> ObjectRow: ...

    @overload
    def __getitem__(self, index: slice) -> list[ObjectRow]: ...

    def __getitem__(self, index: int | slice) -> ObjectRow | list[ObjectRow]:
        """Return an element or a slice, as of a list."""
        return self._decoded()[index]


def together(parts: Sequence[Sequence[ObjectRow]]) -> Sequence[ObjectRow]:
    """Return all rows in one sequence, which is encoded where all parts are."""
    if len(parts) == 1:
        return parts[0]
    encoded = [part for part in parts if isinstance(part, EncodedRows)]
    if parts and len(encoded) == len(parts):
        return EncodedRows(sum(map(len, encoded)), b",".join(part.encoded for part in encoded))
    return [row for part in parts for row in part]
