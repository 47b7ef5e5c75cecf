"""The files of the plain store: data, then JSON, then a footer of fixed size that vouches for both.

A file is `data | metadata JSON | footer`. The footer stands last so that data can be written before anything is
known about it, and so that a file cut off anywhere lacks it. All numbers are big-endian:

    magic "SWLTPLN1" | version u16 | kind u16 | metadata length u32 | data length u64 |
    xxh3-64 of the data u64 | xxh3-64 of the metadata u64 | xxh3-64 of the footer so far u64

Kinds: 1 data (`.data`), 2 tombstone (`.ts`, no data), 3 POST (`.meta`, no data). The JSON carries the version's
name, timestamp and metadata; sizes and checksums are the footer's.

Fault model: files may be cut off at any byte, have any bit flipped, or stand under another file's name. Each
is found by the lengths, the checksums, or the timestamp in the JSON, and ends in a StoreFormatError.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from swiftlet_native import Hasher, xxh3_64

from swiftlet.errors import DeviceFailed, StoreFormatError
from swiftlet.formats import other_version
from swiftlet.model import PostRecord, PutFooter, PutRecord
from swiftlet.timestamp import ZERO, Timestamp

MAGIC = b"SWLTPLN1"
VERSION = 1
MAX_METADATA = 1024 * 1024
"""Bytes of JSON that are believed; the API's limits keep it far below."""
_FOOTER = struct.Struct(">8sHHIQQQ")
_CHECK = struct.Struct(">Q")
FOOTER_SIZE = _FOOTER.size + _CHECK.size
_READ_BYTES = 1024 * 1024
_TAIL = 4096
"""Bytes read at once from a file's end: footer and, nearly always, the whole JSON."""


class FileKind(IntEnum):
    """The kind of a file's content."""

    DATA = 1
    TOMBSTONE = 2
    POST = 3


EXTENSIONS = {FileKind.DATA: ".data", FileKind.TOMBSTONE: ".ts", FileKind.POST: ".meta"}
"""Names of the kinds on disk."""
KINDS = {extension: kind for kind, extension in EXTENSIONS.items()}


@dataclass(frozen=True, slots=True)
class Tail:
    """The JSON and the footer, which follow the data."""

    kind: FileKind
    size: int
    xxh3: int
    fields: dict[str, Any]


def file_name(timestamp: Timestamp, kind: FileKind) -> str:
    """`<timestamp>.data`, `.ts` or `.meta`."""
    return timestamp.internal + EXTENSIONS[kind]


def parse_name(name: str) -> tuple[Timestamp, FileKind] | None:
    """The inverse of `file_name`; None for a file that is not one of ours."""
    stem, dot, extension = name.rpartition(".")
    kind = KINDS.get(dot + extension)
    if kind is None:
        return None
    try:
        timestamp = Timestamp.parse(stem)
    except ValueError:
        return None
    return (timestamp, kind) if file_name(timestamp, kind) == name else None


def pack_tail(kind: FileKind, size: int, xxh3: int, fields: dict[str, Any]) -> bytes:
    """JSON and footer, to stand behind `size` bytes of data with checksum `xxh3`."""
    metadata = json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
    footer = _FOOTER.pack(MAGIC, VERSION, kind, len(metadata), size, xxh3, xxh3_64(metadata))
    return metadata + footer + _CHECK.pack(xxh3_64(footer))


def read_tail(fd: int, timestamp: Timestamp, kind: FileKind) -> Tail:
    """Read and check JSON and footer of an open file that is called `file_name(timestamp, kind)`."""
    total = os.fstat(fd).st_size
    start = max(0, total - _TAIL)
    end = os.pread(fd, total - start, start)
    if len(end) < FOOTER_SIZE:
        raise StoreFormatError(f"a file of {total} bytes is too short for its footer")
    raw, (check,) = end[-FOOTER_SIZE : -_CHECK.size], _CHECK.unpack(end[-_CHECK.size :])
    if xxh3_64(raw) != check:
        raise StoreFormatError("the footer is cut off or damaged")
    magic, version, found, length, size, xxh3, metadata_xxh3 = _FOOTER.unpack(raw)
    if magic != MAGIC:
        raise StoreFormatError(f"unknown file format {magic!r}")
    if version != VERSION:
        # Nothing is wrong with the file: it must not go to quarantine, and another replica is asked.
        raise DeviceFailed(other_version("an object's file", version, VERSION))
    if length > MAX_METADATA or size + length + FOOTER_SIZE != total:
        raise StoreFormatError(f"the footer speaks of {size} + {length} bytes, the file has {total}")
    if length + FOOTER_SIZE > len(end):
        metadata = os.pread(fd, length, size)
    else:
        metadata = end[len(end) - FOOTER_SIZE - length : len(end) - FOOTER_SIZE]
    if xxh3_64(metadata) != metadata_xxh3:
        raise StoreFormatError("the metadata is damaged")
    fields = json.loads(metadata)
    if found != kind or fields.get("timestamp") != timestamp.value:
        raise StoreFormatError("the file holds another version than its name says")
    return Tail(kind, size, xxh3, fields)


def put_fields(record: PutRecord, footer: PutFooter) -> dict[str, Any]:
    """A PUT as JSON."""
    return {
        "timestamp": record.timestamp.value,
        "name": record.name,
        "content_type": record.content_type,
        "etag": footer.etag,
        "metadata": dict(record.metadata),
        "sysmeta": dict(record.sysmeta),
    }


def put_of(tail: Tail) -> tuple[PutRecord, PutFooter]:
    """The inverse of `put_fields`."""
    fields = tail.fields
    record = PutRecord(
        fields["name"], Timestamp(fields["timestamp"]), fields["content_type"], fields["metadata"], fields["sysmeta"]
    )
    return record, PutFooter(tail.size, fields["etag"], tail.xxh3)


def post_fields(record: PostRecord) -> dict[str, Any]:
    """A POST as JSON."""
    return {
        "timestamp": record.timestamp.value,
        "metadata": dict(record.metadata),
        "content_type": record.content_type,
        "content_type_timestamp": record.content_type_timestamp.value,
    }


def post_of(fields: dict[str, Any]) -> PostRecord:
    """The inverse of `post_fields`."""
    return PostRecord(
        Timestamp(fields["timestamp"]),
        fields["metadata"],
        fields["content_type"],
        Timestamp(fields["content_type_timestamp"]) if fields["content_type"] is not None else ZERO,
    )


def tombstone_fields(timestamp: Timestamp, name: str) -> dict[str, Any]:
    """A tombstone as JSON."""
    return {"timestamp": timestamp.value, "name": name}


def data_xxh3(fd: int, tail: Tail) -> int:
    """The checksum that the data of an open file really has."""
    hasher = Hasher(md5=False, xxh3=True)
    while hasher.size < tail.size:
        data = os.pread(fd, min(_READ_BYTES, tail.size - hasher.size), hasher.size)
        if not data:
            raise StoreFormatError("the data is cut off")
        hasher.update(data)
    return hasher.xxh3_64()
