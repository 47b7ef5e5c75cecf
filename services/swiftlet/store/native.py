"""The native store: volumes, their index and group commit, in Rust; here it gets the shape of the boundary.

Format: `docs/volumes.md`. Fault model and the rest: `native/crates/store`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import swiftlet_native

from swiftlet import errors
from swiftlet.model import Entry, Kind, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord, Usage
from swiftlet.timestamp import Timestamp

_DELETE_AT = "X-Delete-At"
_ERRORS: dict[str, type[errors.SwiftletError]] = {
    kind.__name__: kind
    for kind in (
        errors.NotFound,
        errors.Superseded,
        errors.DiskFull,
        errors.DeviceFailed,
        errors.ChecksumMismatch,
        errors.SizeMismatch,
        errors.StoreFormatError,
        errors.DeviceLocked,
    )
}

_Info = tuple[bytes, int, int, bytes, int, bytes, list[tuple[bytes, bytes]], list[tuple[bytes, bytes]], int, int]


@contextmanager
def _domain(what: str) -> Iterator[None]:
    """The domain's classes for what the native side raises."""
    try:
        yield
    except swiftlet_native.StoreError as error:
        kind, text, timestamp = error.args
        message = f"{what}: {text}"
        if kind == "NotFound":
            raise errors.NotFound(message, None if timestamp is None else Timestamp(timestamp)) from None
        if kind == "Superseded":
            raise errors.Superseded(message, Timestamp(timestamp)) from None
        raise _ERRORS[kind](message) from None


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogatepass")


def _raw_pairs(texts: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(_raw(name), _raw(value)) for name, value in texts.items()]


def _text_pairs(pairs: list[tuple[bytes, bytes]]) -> dict[str, str]:
    return {_text(name): _text(value) for name, value in pairs}


def _place(key: ObjectKey) -> tuple[int, int, bytes]:
    return key.policy, key.partition, key.digest


def _delete_at(metadata: Mapping[str, str]) -> int:
    """Seconds since 1970 at which the metadata ends the object; 0 for never."""
    value = metadata.get(_DELETE_AT, "")
    return int(value) if value.isascii() and value.isdecimal() and len(value) < 19 else 0


def _info(parts: _Info) -> ObjectInfo:
    name, timestamp, size, etag, xxh3, content_type, metadata, sysmeta, meta_timestamp, type_timestamp = parts
    return ObjectInfo(
        _text(name),
        Timestamp(timestamp),
        size,
        _text(etag),
        xxh3,
        _text(content_type),
        _text_pairs(metadata),
        _text_pairs(sysmeta),
        Timestamp(meta_timestamp),
        Timestamp(type_timestamp),
    )


@dataclass(frozen=True, slots=True)
class VolumeStats:
    """One volume in numbers."""

    number: int
    compaction: bool
    """Whether compaction writes it."""
    sealed: bool
    """Whether nothing will be added any more."""
    size: int
    """Bytes in use, of whatever is held or not."""
    held: int
    """Bytes of records that count."""


class NativeWriter:
    """A new version on its way in."""

    def __init__(self, what: str, writer: swiftlet_native.StoreWriter) -> None:
        """`what` names the object in messages."""
        self._what = what
        self._writer = writer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes."""
        with _domain(self._what):
            self._writer.write(data)

    def commit(self, record: PutRecord, footer: PutFooter) -> None:
        """Make the version durable and visible."""
        with _domain(self._what):
            self._writer.commit(
                _raw(record.name),
                record.timestamp.value,
                _raw(record.content_type),
                _raw_pairs(record.metadata),
                _raw_pairs(record.sysmeta),
                _delete_at(record.metadata),
                footer.size,
                _raw(footer.etag),
                footer.xxh3,
            )

    def abort(self) -> None:
        """Drop everything written."""
        self._writer.abort()


class NativeReader:
    """One version of an object, held."""

    def __init__(self, what: str, reader: swiftlet_native.StoreReader) -> None:
        """`what` names the object in messages."""
        self._what = what
        self._reader = reader
        self._info = _info(reader.info())

    @property
    def info(self) -> ObjectInfo:
        """The merged object this reader shows."""
        return self._info

    def read(self, offset: int, length: int) -> bytes:
        """Bytes `[offset, offset + length)`, shorter only at the end."""
        with _domain(self._what):
            return self._reader.read(offset, max(0, length))

    def close(self) -> None:
        """Let go of the version."""
        self._reader.close()

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        self.close()


class NativeStore:
    """All objects on one device, in volumes."""

    def __init__(
        self,
        root: Path,
        *,
        reserve_bytes: int = 0,
        reserve_percent: float = 0.0,
        require_mount: bool = False,
        volume_bytes: int = 1 << 30,
        aggregate_below: int = 1 << 20,
        compact_bytes_per_s: int = 0,
        audit_bytes_per_s: int = 0,
        threads: bool = True,
    ) -> None:
        """Own the device mounted at `root`; the larger reserve counts. DeviceFailed, DeviceLocked, StoreFormatError.

        Compaction copies and the auditor reads so many bytes per second at most; 0 is no limit for the one and no audit
        for the other. Without `threads` no upkeep is done, and `close` leaves the index on disk as it is.
        """
        if require_mount and not os.path.ismount(root):
            raise errors.DeviceFailed(f"{root} is not a mount point; mount the device there")
        self._root = str(root)
        if reserve_percent and os.path.isdir(root):
            status = os.statvfs(root)
            total = status.f_blocks * status.f_frsize
            reserve_bytes = max(reserve_bytes, int(total * reserve_percent / 100))
        with _domain(self._root):
            self._store = swiftlet_native.Store(
                root,
                reserve_bytes=reserve_bytes,
                volume_bytes=volume_bytes,
                aggregate_below=aggregate_below,
                compact_bytes_per_s=compact_bytes_per_s,
                audit_bytes_per_s=audit_bytes_per_s,
                threads=threads,
            )

    @classmethod
    def rebuilt(cls, root: Path) -> Self:
        """Own a device, its index made anew from the volumes and written to it; without threads."""
        made = cls.__new__(cls)
        made._root = str(root)
        with _domain(made._root):
            made._store = swiftlet_native.Store.rebuild(root)
        return made

    # -- writing ---------------------------------------------------------------------------------------------

    def create(self, key: ObjectKey, size: int | None = None, aggregate_below: int | None = None) -> NativeWriter:
        """Begin a new version; up to `aggregate_below` bytes (None: the store's) it goes into a volume."""
        with _domain(key.hex):
            return NativeWriter(key.hex, self._store.create(_place(key), size, aggregate_below))

    def post(self, key: ObjectKey, record: PostRecord) -> None:
        """Merge POSTed metadata."""
        content_type = None if record.content_type is None else _raw(record.content_type)
        with _domain(key.hex):
            self._store.post(
                _place(key),
                record.timestamp.value,
                _raw_pairs(record.metadata),
                content_type,
                record.content_type_timestamp.value if content_type is not None else 0,
                _delete_at(record.metadata),
            )

    def delete(self, key: ObjectKey, timestamp: Timestamp, name: str) -> None:
        """Store a tombstone."""
        with _domain(name):
            self._store.delete(_place(key), timestamp.value, _raw(name))

    # -- reading ---------------------------------------------------------------------------------------------

    def open(self, key: ObjectKey) -> NativeReader:
        """The newest version for reading."""
        with _domain(key.hex):
            return NativeReader(key.hex, self._store.open(_place(key)))

    def stat(self, key: ObjectKey) -> ObjectInfo:
        """The newest version's description."""
        with _domain(key.hex):
            return _info(self._store.stat(_place(key)))

    # -- partitions ------------------------------------------------------------------------------------------

    def policies(self) -> list[int]:
        """Indexes of the storage policies with anything on this device."""
        with _domain(self._root):
            return sorted({policy for policy, _ in self._store.partitions()})

    def partitions(self, policy: int) -> list[int]:
        """Partitions with anything in them, ascending."""
        with _domain(self._root):
            return [partition for found, partition in self._store.partitions() if found == policy]

    def suffix_hashes(self, policy: int, partition: int) -> Mapping[str, bytes]:
        """The set hash of each suffix with anything in it."""
        with _domain(self._root):
            return {f"{suffix:03x}": total for suffix, total in self._store.suffix_hashes(policy, partition)}

    def entries(self, policy: int, partition: int, suffix: str) -> list[Entry]:
        """What is held in a suffix, by digest."""
        with _domain(self._root):
            found = self._store.entries(policy, partition, int(suffix, 16))
        return [
            Entry(digest, Kind(kind), Timestamp(timestamp), Timestamp(meta), Timestamp(content_type))
            for digest, kind, timestamp, meta, content_type in found
        ]

    def keys(self, policy: int, partition: int) -> Iterator[ObjectKey]:
        """Every object and tombstone in a partition."""
        with _domain(self._root):
            digests = self._store.digests(policy, partition)
        for digest in digests:
            yield ObjectKey(policy, partition, digest)

    # -- upkeep ----------------------------------------------------------------------------------------------

    def remove(self, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy without a tombstone, unless it changed since `entry` was read."""
        parts = (
            entry.digest,
            int(entry.kind),
            entry.timestamp.value,
            entry.meta_timestamp.value,
            entry.content_type_timestamp.value,
        )
        with _domain(key.hex):
            return self._store.remove(_place(key), parts)

    def verify(self, key: ObjectKey) -> None:
        """Read a version and check it."""
        with _domain(key.hex):
            self._store.verify(_place(key))

    def reclaim(self, before: Timestamp) -> int:
        """Forget tombstones older than `before`."""
        with _domain(self._root):
            return self._store.reclaim(before.value)

    def usage(self) -> Usage:
        """Fullness of the device."""
        with _domain(self._root):
            return Usage(*self._store.usage())

    def counters(self) -> Mapping[str, int]:
        """What was counted since the store was opened."""
        return dict(self._store.counters())

    def check(self) -> list[str]:
        """Compare index, set hashes and volumes; each difference as a sentence. Nothing may be written meanwhile."""
        with _domain(self._root):
            return self._store.check()

    def volumes(self) -> list[VolumeStats]:
        """The volumes, by number."""
        return [VolumeStats(*parts) for parts in self._store.volumes()]

    def recovery(self) -> Mapping[str, int]:
        """What the start found: `checkpoint` (1 if one was used), `records` and `bytes` read behind it, `damaged`
        records, `orphans` (large files of nobody), `dangling` (slots that pointed nowhere)."""
        return dict(self._store.recovery())

    def close(self) -> None:
        """Let go of the device and its lock; open readers stay valid."""
        with _domain(self._root):
            self._store.close()
