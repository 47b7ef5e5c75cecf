"""The native store, with the interface of the boundary: volumes, their index and group commit are in Rust.

`docs/volumes.md` specifies the format. The fault model and the rest are in `native/crates/store`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import swiftlet_native

from swiftlet import errors
from swiftlet.model import Entry, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord, Usage
from swiftlet.native_values import (
    delete_at,
    entry_of,
    entry_parts,
    info_of,
    key_at,
    place,
    raw,
    raw_pairs,
    text,
    version_parts,
)
from swiftlet.ring.model import Coding
from swiftlet.timestamp import Timestamp

_MARK, _VOLUMES = "format", "volumes"
"""The names of what every device of the store has after its first start, see `docs/volumes.md`."""
AGGREGATE_BELOW = 1 << 20
"""Objects up to this size, in bytes, go into a volume with others, unless their policy sets another size."""
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


def holds_store(root: Path) -> bool:
    """Return whether a device has a native store: the mark of one, or volumes that have lost their mark."""
    volumes = root / _VOLUMES
    return (root / _MARK).exists() or (volumes.is_dir() and any(volumes.iterdir()))


@contextmanager
def _domain(what: str) -> Iterator[None]:
    """Turn errors of native code into domain errors."""
    try:
        yield
    except swiftlet_native.StoreError as error:
        kind, sentence, timestamp = error.args
        message = f"{what}: {sentence}"
        if kind == "NotFound":
            raise errors.NotFound(message, None if timestamp is None else Timestamp(timestamp)) from None
        if kind == "Superseded":
            raise errors.Superseded(message, Timestamp(timestamp)) from None
        raise _ERRORS[kind](message) from None


@dataclass(frozen=True, slots=True)
class VolumeStats:
    """The numbers of one volume."""

    number: int
    compaction: bool
    """Whether compaction writes it."""
    sealed: bool
    """Whether nothing will be added to it any more."""
    size: int
    """Bytes in use, whether or not their records still count."""
    held: int
    """Bytes of records that count."""


class NativeWriter:
    """A new version that is being written."""

    def __init__(self, what: str, writer: swiftlet_native.StoreWriter) -> None:
        """`what` names the object in messages."""
        self._what = what
        self._writer = writer

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes to the object."""
        with _domain(self._what):
            self._writer.write(data)

    def commit(self, record: PutRecord, footer: PutFooter) -> None:
        """Make the version durable and visible."""
        with _domain(self._what):
            self._writer.commit(
                raw(record.name),
                record.timestamp.value,
                raw(record.content_type),
                raw_pairs(record.metadata),
                raw_pairs(record.sysmeta),
                delete_at(record.metadata),
                footer.size,
                raw(footer.etag),
                footer.xxh3,
            )

    def abort(self) -> None:
        """Drop everything that was written."""
        self._writer.abort()


class NativeReader:
    """One version of an object, which stays readable until closed."""

    def __init__(self, what: str, reader: swiftlet_native.StoreReader) -> None:
        """`what` names the object in messages."""
        self._what = what
        self._reader = reader
        self._info = info_of(reader.info())

    @property
    def info(self) -> ObjectInfo:
        """The merged object that this reader shows."""
        return self._info

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes `[offset, offset + length)`; fewer only at the end of the object."""
        with _domain(self._what):
            return self._reader.read(offset, max(0, length))

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
        aggregate_below: int = AGGREGATE_BELOW,
        compact_bytes_per_s: int = 0,
        audit_bytes_per_s: int = 0,
        threads: bool = True,
    ) -> None:
        """Take ownership of the device mounted at `root`. Raises DeviceFailed, DeviceLocked and StoreFormatError.

        Of the two reserves the larger one counts. `compact_bytes_per_s` and `audit_bytes_per_s` limit what compaction
        copies and the auditor reads; 0 stands for no limit of compaction, and for no audit. Without `threads` no upkeep
        is done, and `close` leaves the index on disk as it is.
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
        """Take ownership of a device, rebuild its index from the volumes and store it; without threads."""
        made = cls.__new__(cls)
        made._root = str(root)
        with _domain(made._root):
            made._store = swiftlet_native.Store.rebuild(root)
        return made

    # -- writing ---------------------------------------------------------------------------------------------

    def set_aggregate_below(self, limits: Mapping[int, int]) -> None:
        """From now on store objects of these policies in volumes up to these sizes, and others up to the
        store's own.
        """
        self._store.set_aggregate_below(list(limits.items()))

    def create(self, key: ObjectKey, size: int | None = None, aggregate_below: int | None = None) -> NativeWriter:
        """Begin a new version; with up to `aggregate_below` bytes (None: the policy's limit) it goes into a volume."""
        with _domain(key.hex):
            return NativeWriter(key.hex, self._store.create(place(key), size, aggregate_below))

    def post(self, key: ObjectKey, record: PostRecord) -> None:
        """Merge the metadata of a POST."""
        content_type = None if record.content_type is None else raw(record.content_type)
        with _domain(key.hex):
            self._store.post(
                place(key),
                record.timestamp.value,
                raw_pairs(record.metadata),
                content_type,
                record.content_type_timestamp.value if content_type is not None else 0,
                delete_at(record.metadata),
            )

    def delete(self, key: ObjectKey, timestamp: Timestamp, name: str) -> None:
        """Store a tombstone for an object."""
        with _domain(name):
            self._store.delete(place(key), timestamp.value, raw(name))

    # -- reading ---------------------------------------------------------------------------------------------

    def open(self, key: ObjectKey) -> NativeReader:
        """Return the newest version for reading."""
        with _domain(key.hex):
            return NativeReader(key.hex, self._store.open(place(key)))

    def stat(self, key: ObjectKey) -> ObjectInfo:
        """Return the description of the newest version."""
        with _domain(key.hex):
            return info_of(self._store.stat(place(key)))

    # -- many at a time --------------------------------------------------------------------------------------

    def read_copies(self, wanted: bytes, *, objects: int, size: int, alone: int) -> bytes:
        """Return copies of many objects, see "Copies" in `docs/sync.md`. Raises ValueError for a malformed question."""
        return swiftlet_native.read_copies(self._store, wanted, objects=objects, size=size, alone=alone)

    def take_copies(self, copies: bytes, *, objects: int) -> bytes:
        """Store copies in one group commit; return the outcome of each. Raises ValueError for garbage, and
        stores none.
        """
        return swiftlet_native.take_copies(self._store, copies, objects=objects)

    def sync_answer(self, question: bytes, ring_version: int, belongs: bytes) -> bytes | None:
        """Return the answer to a question of a sync session, see "Messages" in `docs/sync.md`.

        None means that the store can't answer this question by itself. `belongs` has a byte for each partition of the
        ring, which is not 0 where this device is a primary.
        """
        with _domain(self._root):
            return swiftlet_native.sync_answer(self._store, question, ring_version, belongs)

    def read_pair(self, policy: int, pair: swiftlet_native.PairRoots) -> None:
        """Read the roots of a pair's partitions that have changed since they were last read."""
        with _domain(self._root):
            pair.refresh(self._store, policy)

    # -- partitions ------------------------------------------------------------------------------------------

    def policies(self) -> list[int]:
        """Return the indexes of the storage policies with anything on this device."""
        with _domain(self._root):
            return sorted({policy for policy, _ in self._store.partitions()})

    def kept_as(self, policy: int) -> list[Coding | None]:
        """Return how the policy's objects are kept, by one that can be read: nothing if there is none, or else one
        coding, None for whole objects.
        """
        with _domain(self._root):
            found = self._store.kept_as(policy)
        return [None if parts is None else Coding(*parts) for parts in found]

    def partitions(self, policy: int) -> list[int]:
        """Return the partitions with anything in them, ascending."""
        with _domain(self._root):
            return [partition for found, partition in self._store.partitions() if found == policy]

    def suffix_hashes(self, policy: int, partition: int) -> Mapping[str, bytes]:
        """Return the set hash of each suffix with anything in it."""
        with _domain(self._root):
            return {f"{suffix:03x}": total for suffix, total in self._store.suffix_hashes(policy, partition)}

    def entries(self, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Return the entries of a suffix by digest."""
        with _domain(self._root):
            found = self._store.entries(policy, partition, int(suffix, 16))
        return [entry_of(parts) for parts in found]

    def keys(self, policy: int, partition: int) -> Iterator[ObjectKey]:
        """Yield the key of every object and tombstone in a partition."""
        with _domain(self._root):
            digests = self._store.digests(policy, partition)
        for digest in digests:
            yield ObjectKey(policy, partition, digest)

    # -- pending updates -------------------------------------------------------------------------------------------

    def pending_updates(self, older_than_s: float, limit: int) -> list[tuple[ObjectKey, Timestamp, int]]:
        """Return up to `limit` rows that have been pending for `older_than_s` seconds, the oldest first.

        Each has the key, the timestamp of the newest write, and a bit for each container replica that is to get the
        row.
        """
        found = self._store.pending_updates(limit, max(0.0, older_than_s))
        return [(key_at(parts), Timestamp(timestamp), bits) for parts, timestamp, bits in found]

    def pending_count(self) -> tuple[int, float]:
        """Return how many rows are pending, and for how many seconds the oldest of them has been."""
        return self._store.pending_count()

    def acknowledge(self, acknowledged: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Remove these rows, except those of objects that have been written again."""
        self._store.acknowledge(version_parts(acknowledged))

    def name(self, key: ObjectKey) -> str | None:
        """Return the name of the object or tombstone with this key; None when there is neither."""
        with _domain(key.hex):
            found = self._store.name(place(key))
        return None if found is None else text(found)

    # -- upkeep ----------------------------------------------------------------------------------------------

    def remove(self, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy without a tombstone, unless it changed since `entry` was read."""
        with _domain(key.hex):
            return self._store.remove(place(key), entry_parts(entry))

    def verify(self, key: ObjectKey) -> None:
        """Read a version and check it."""
        with _domain(key.hex):
            self._store.verify(place(key))

    def reclaim(self, before: Timestamp) -> int:
        """Forget tombstones older than `before`."""
        with _domain(self._root):
            return self._store.reclaim(before.value)

    def usage(self) -> Usage:
        """Return how full the device is."""
        with _domain(self._root):
            return Usage(*self._store.usage())

    def counters(self) -> Mapping[str, int]:
        """Return what was counted since the store was opened."""
        return dict(self._store.counters())

    def check(self) -> list[str]:
        """Compare index, set hashes and volumes; return each difference as a sentence. Nothing may be written
        meanwhile.
        """
        with _domain(self._root):
            return self._store.check()

    def volumes(self) -> list[VolumeStats]:
        """Return the volumes by number."""
        return [VolumeStats(*parts) for parts in self._store.volumes()]

    def recovery(self) -> Mapping[str, int]:
        """Return what the start found.

        The keys are `checkpoint` (1 if one was used), `records` and `bytes` read after it, `damaged` records, `orphans`
        (large files that belong to no object), and `dangling` (index slots that pointed to no record).
        """
        return dict(self._store.recovery())

    @property
    def native(self) -> swiftlet_native.Store:
        """The open store itself, for the native object server."""
        return self._store

    def close(self) -> None:
        """Release the device and its lock; open readers stay valid."""
        with _domain(self._root):
            self._store.close()
