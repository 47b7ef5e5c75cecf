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
    """A new version on its way in; nothing is visible before `commit`. Used by one thread at a time."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append bytes; DiskFull or DeviceFailed end the writer."""
        ...

    def commit(self, record: PutRecord, footer: PutFooter) -> None:
        """Make the version durable and visible.

        Raises SizeMismatch or ChecksumMismatch when what was written is not what the footer says (nothing is
        kept), Superseded when a newer version is here (nothing is kept). A version with the timestamp of the
        one that is here is the same write: it succeeds and changes nothing.
        """
        ...

    def abort(self) -> None:
        """Drop everything written; harmless after `commit` or a second time."""
        ...


class ObjectReader(Protocol):
    """One version of an object, held readable until closed even if it is replaced or deleted meanwhile."""

    @property
    def info(self) -> ObjectInfo:
        """The merged object this reader shows."""
        ...

    def read(self, offset: int, length: int) -> bytes:
        """Bytes `[offset, offset + length)`, shorter only at the end; DeviceFailed on an I/O error."""
        ...

    def close(self) -> None:
        """Close the version; a second call does nothing."""
        ...

    def __enter__(self) -> Self:
        """Return the reader."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close the reader."""
        ...


class Store(Protocol):
    """All objects of all storage policies on one device."""

    def create(self, key: ObjectKey, size: int | None = None) -> ObjectWriter:
        """Begin a new version; `size` in bytes when known, so that a full disk is refused before the first byte.

        Raises DiskFull at the device's reserve, DeviceFailed on an I/O error.
        """
        ...

    def open(self, key: ObjectKey) -> ObjectReader:
        """The newest version for reading; NotFound (with the tombstone's timestamp if there is one)."""
        ...

    def stat(self, key: ObjectKey) -> ObjectInfo:
        """The newest version's description; NotFound as with `open`."""
        ...

    def post(self, key: ObjectKey, record: PostRecord) -> None:
        """Merge POSTed metadata.

        Raises NotFound when there is no object (a POST never precedes its PUT on a device), Superseded when a POST
        or PUT at or after its timestamp is here, unless it is the same POST, which succeeds.
        """
        ...

    def delete(self, key: ObjectKey, timestamp: Timestamp, name: str) -> None:
        """Store a tombstone, also where nothing is: a late copy of an older version must not come back.

        Raises Superseded when a newer version is here; NotFound, once the tombstone is durable, when there was no
        object to delete.
        """
        ...

    def policies(self) -> list[int]:
        """Indexes of the storage policies with anything on this device."""
        ...

    def partitions(self, policy: int) -> list[int]:
        """Partitions with anything in them, ascending."""
        ...

    def suffix_hashes(self, policy: int, partition: int) -> Mapping[str, bytes]:
        """The 16-byte set hash of each suffix with anything in it (see `swiftlet.store.sethash`)."""
        ...

    def entries(self, policy: int, partition: int, suffix: str) -> list[Entry]:
        """What is held in a suffix, by digest."""
        ...

    def keys(self, policy: int, partition: int) -> Iterator[ObjectKey]:
        """Every object and tombstone in a partition."""
        ...

    def remove(self, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy without a tombstone, unless it changed since `entry` was read; whether it went."""
        ...

    def verify(self, key: ObjectKey) -> None:
        """Read a version and check it; ChecksumMismatch after it was moved to quarantine. NotFound if absent."""
        ...

    def reclaim(self, before: Timestamp) -> int:
        """Forget tombstones older than `before`; how many went."""
        ...

    def usage(self) -> Usage:
        """Fullness of the device."""
        ...

    def counters(self) -> Mapping[str, int]:
        """What was counted since the store was opened, by name; never blocks. Empty for a store that counts nothing.

        Known names: `batches`, `quarantined`, `checkpoints`, `compacted`, `copied_bytes`, `punched_bytes`,
        `audited_bytes`, `audits`.
        """
        ...

    def close(self) -> None:
        """Release the device and its lock; open readers stay valid."""
        ...
