"""The boundary `Store`: one device that keeps objects.

Calls block and are safe from many threads; servers run them in their own bounded pools. One process owns a
device (`DeviceLocked` otherwise).

What every implementation promises (checked by `swiftlet.testing.store.conformance`):

- **Durable when it returns.** After `commit`, `post` or `delete` returned, the change survives the loss of
  power. Before, a reader sees the old version or the new, never a part of one.
- **Newest wins, in any order.** Versions merge by timestamp: the newest of data and tombstones decides what the
  object is; the newest POST on top of it decides its metadata; whatever set the content type last decides
  that. Applying the same records in another order or twice ends in the same state.
- **Equal state, equal hashes.** Two stores with the same entries in a suffix report the same set hash.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Protocol, Self

from swiftlet.model import Entry, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord, Usage
from swiftlet.timestamp import Timestamp


class ObjectWriter(Protocol):
    """A new version that is being written; nothing is visible before `commit`. Used by one thread at a time."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes. DiskFull and DeviceFailed end the writer."""
        ...

    def commit(self, record: PutRecord, footer: PutFooter) -> None:
        """Make the version durable and visible.

        Raises SizeMismatch or ChecksumMismatch when the written bytes differ from the footer, and Superseded when there
        is a newer version; nothing is kept then. A version with the timestamp of the existing one is the same write: it
        succeeds and changes nothing.
        """
        ...

    def abort(self) -> None:
        """Drop everything written; after `commit`, or a second time, this does nothing."""
        ...


class ObjectReader(Protocol):
    """One version of an object, which stays readable until closed even if it is replaced or deleted meanwhile."""

    @property
    def info(self) -> ObjectInfo:
        """The merged object that this reader shows."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Return the bytes `[offset, offset + length)`; fewer only at the end. Raises DeviceFailed on an I/O error."""
        ...

    def close(self) -> None:
        """Close the version; a second call does nothing."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Store(Protocol):
    """All objects of all storage policies on one device."""

    def create(self, key: ObjectKey, size: int | None = None) -> ObjectWriter:
        """Begin a new version; `size` in bytes when known, so that a full disk is refused before the first byte.

        Raises DiskFull at the device's reserve, DeviceFailed on an I/O error.
        """
        ...

    def open(self, key: ObjectKey) -> ObjectReader:
        """Return the newest version for reading. Raises NotFound, with the tombstone's timestamp if there is one."""
        ...

    def stat(self, key: ObjectKey) -> ObjectInfo:
        """Return the description of the newest version. Raises NotFound as `open` does."""
        ...

    def post(self, key: ObjectKey, record: PostRecord) -> None:
        """Merge POSTed metadata.

        Raises NotFound when there is no object (a POST never precedes its PUT on a device), Superseded when a POST
        or PUT at or after its timestamp is here, unless it is the same POST, which succeeds.
        """
        ...

    def delete(self, key: ObjectKey, timestamp: Timestamp, name: str) -> None:
        """Store a tombstone, also without an object: a late copy of an older version must not come back.

        Raises Superseded when there is a newer version; NotFound, once the tombstone is durable, when there was no
        object to delete.
        """
        ...

    def policies(self) -> list[int]:
        """Return the indexes of the storage policies with anything on this device."""
        ...

    def partitions(self, policy: int) -> list[int]:
        """Return the partitions with anything in them, ascending."""
        ...

    def suffix_hashes(self, policy: int, partition: int) -> Mapping[str, bytes]:
        """Return the 16-byte set hash of each suffix with anything in it (see `swiftlet.store.sethash`)."""
        ...

    def entries(self, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Return the entries of a suffix by digest."""
        ...

    def keys(self, policy: int, partition: int) -> Iterator[ObjectKey]:
        """Yield the key of every object and tombstone in a partition."""
        ...

    def remove(self, key: ObjectKey, entry: Entry) -> bool:
        """Remove a handoff copy without a tombstone, unless it changed since `entry` was read; return whether it was
        removed.
        """
        ...

    def verify(self, key: ObjectKey) -> None:
        """Read a version and check it.

        Raises ChecksumMismatch after moving a damaged one to quarantine, and NotFound without an object.
        """
        ...

    def reclaim(self, before: Timestamp) -> int:
        """Remove tombstones older than `before`; return how many."""
        ...

    def usage(self) -> Usage:
        """Return how full the device is."""
        ...

    def counters(self) -> Mapping[str, int]:
        """Return what was counted since the store was opened, by name; never blocks. A store that counts nothing
        returns {}.

        Known names: `batches`, `quarantined`, `checkpoints`, `compacted`, `copied_bytes`, `punched_bytes`,
        `audited_bytes`, `audits`.
        """
        ...

    def close(self) -> None:
        """Release the device and its lock; open readers stay valid."""
        ...
