"""The plain-file store: one file per version, in directories that anybody can look into.

    objects/<policy>/<partition>/<suffix>/<digest>/<timestamp>.data|.ts|.meta
    tmp/            files being written
    quarantined/    damaged files, for a person to look at
    .lock           held while a process owns the device

A write goes into `tmp/` on the same device, is synced, renamed to its place, and the directory synced, newly
made parents too; only then are the older files unlinked. File formats: `swiftlet.store.plain_format`.

Fault model: the process may be killed and the power lost between any two system calls; a file is either
whole in its place or not there, and a version that was replaced may still lie beside the newer one, which wins.
Disks flip bits and lose the ends of files: whatever is read is checked first (metadata on every read, data by
`verify`), and what is damaged goes to quarantine and is not served. A full or failing disk: see
`swiftlet.store.plain_device`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from swiftlet_native import Hasher

from swiftlet.errors import ChecksumMismatch, NotFound, StoreFormatError, Superseded
from swiftlet.model import Entry, ObjectInfo, ObjectKey, PostRecord, PutRecord, Usage
from swiftlet.store.failpoints import reach
from swiftlet.store.merge import absent, check_delete, check_put, info_of, merge_post
from swiftlet.store.plain_device import OBJECTS, PlainDevice
from swiftlet.store.plain_files import PlainReader, PlainWriter, write_all
from swiftlet.store.plain_format import (
    FileKind,
    data_xxh3,
    file_name,
    pack_tail,
    post_fields,
    put_of,
    read_tail,
    tombstone_fields,
)
from swiftlet.store.plain_hashes import SuffixHashes
from swiftlet.store.plain_held import Held
from swiftlet.store.plain_paths import is_hex, names_in, numbers_in, remove_empty
from swiftlet.timestamp import Timestamp

_LOCKS = 1024
_TRIES = 8
"""How often a reader that lost a race against writers starts again before it locks them out."""


class _Damaged(Exception):
    """Counting a partition came upon a damaged file."""

    def __init__(self, key: ObjectKey, name: str) -> None:
        super().__init__(f"{key.hex} {name}")
        self.key = key
        self.name = name


class PlainStore:
    """All objects on one device, as plain files."""

    def __init__(
        self,
        root: Path,
        *,
        reserve_bytes: int = 0,
        reserve_percent: float = 0.0,
        require_mount: bool = False,
    ) -> None:
        """Own the device mounted at `root`; the larger reserve counts. DeviceFailed, DeviceLocked."""
        self._device = PlainDevice(root, reserve_bytes, reserve_percent, require_mount)
        self._locks = [threading.RLock() for _ in range(_LOCKS)]
        self._hashes = SuffixHashes(self._all_entries)

    # -- writing ---------------------------------------------------------------------------------------------

    def create(self, key: ObjectKey, size: int | None = None) -> PlainWriter:
        """Begin a new version."""
        self._device.check_writable()
        self._device.check_room(size or 0)
        return PlainWriter(self._device, key, self._install)

    def _install(self, key: ObjectKey, record: PutRecord, path: str) -> bool:
        with self._lock(key):
            held = self._sound(key)
            if not check_put(record.name, held.state, record.timestamp):
                return False
            self._place(key, held, record.timestamp, FileKind.DATA, path)
            return True

    def post(self, key: ObjectKey, record: PostRecord) -> None:
        self._device.check_writable()
        with self._device.errors(), self._lock(key):
            held = self._sound(key)
            if not held.state.exists or held.state.data is None:
                raise absent(key.hex, held.state)
            merge = merge_post(held.state.data, held.post, record)
            if merge.store is not None:
                self._write_small(key, held, merge.store.timestamp, FileKind.POST, post_fields(merge.store))
            if merge.superseded_by is not None:
                raise Superseded(f"{key.hex} has newer metadata", merge.superseded_by)

    def delete(self, key: ObjectKey, timestamp: Timestamp, name: str) -> None:
        """Store a tombstone. Goes on at the reserve: deleting is what makes room."""
        self._device.check_writable()
        with self._device.errors(), self._lock(key):
            held = self._sound(key)
            if check_delete(name, held.state, timestamp):
                fields = tombstone_fields(timestamp, name)
                self._write_small(key, held, timestamp, FileKind.TOMBSTONE, fields)
            if not held.state.exists:
                raise NotFound(f"{name} is not here", max(timestamp, held.state.tombstone or timestamp))

    def _write_small(
        self, key: ObjectKey, held: Held, timestamp: Timestamp, kind: FileKind, fields: dict[str, Any]
    ) -> None:
        fd, path = self._device.temporary()
        try:
            try:
                write_all(fd, pack_tail(kind, 0, _EMPTY_XXH3, fields))
                reach("small-written")
                self._device.sync(fd)
            finally:
                os.close(fd)
            self._place(key, held, timestamp, kind, path)
        except BaseException:
            if os.path.lexists(path):
                os.unlink(path)
            raise

    def _place(self, key: ObjectKey, held: Held, timestamp: Timestamp, kind: FileKind, path: str) -> None:
        """Rename a synced file to its place, sync that, and drop what it replaces. Under the object's lock."""
        directory = held.directory
        name = file_name(timestamp, kind)
        new = held.after(timestamp, kind, path)
        try:
            with self._hashes.lock(key.policy, key.partition):
                if not held.present:
                    self._device.make_policy(key.policy)
                    self._device.make_parents(directory)
                reach("before-rename")
                os.rename(path, f"{directory}/{name}")
                self._hashes.change(key, held.entry(key.digest), new.entry(key.digest))
            reach("renamed")
            self._device.sync_directory(directory)
            reach("placed")
        except BaseException:
            self._hashes.forget(key.policy, key.partition)
            raise
        for old in held.names - new.names:
            os.unlink(f"{directory}/{old}")
            reach("unlinked")

    # -- reading ---------------------------------------------------------------------------------------------

    def open(self, key: ObjectKey) -> PlainReader:
        """The newest version for reading."""
        fd, info = self._load(key)
        return PlainReader(self._device, fd, info)

    def stat(self, key: ObjectKey) -> ObjectInfo:
        """The newest version's description."""
        fd, info = self._load(key)
        os.close(fd)
        return info

    def _load(self, key: ObjectKey) -> tuple[int, ObjectInfo]:
        """The data file, open, and the merged object; without a lock unless writers keep overtaking."""
        with self._device.errors():
            for _ in range(_TRIES):
                found = self._try_load(key, final=False)
                if found is not None:
                    return found
            with self._lock(key):
                while (found := self._try_load(key, final=True)) is None:
                    pass
                return found

    def _try_load(self, key: ObjectKey, final: bool) -> tuple[int, ObjectInfo] | None:
        """Return the object; None when a file disappeared meanwhile, or was damaged (and is now in quarantine)."""
        held = self._held(key)
        state = held.state
        if not state.exists or state.data is None:
            if held.present and not final and state.tombstone is None:
                return None  # A directory is not listed at one instant: look again, in the end under the lock.
            raise absent(key.hex, state)
        name = file_name(state.data, FileKind.DATA)
        try:
            fd = os.open(f"{held.directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            put, footer = put_of(read_tail(fd, state.data, FileKind.DATA))
            return fd, info_of(put, footer, held.post)
        except FileNotFoundError:
            os.close(fd)
            return None
        except StoreFormatError:
            os.close(fd)
            self._quarantine(key, held.damaged or name)
            return None
        except BaseException:
            os.close(fd)
            raise

    def _held(self, key: ObjectKey) -> Held:
        return Held.read(self._device.object_path(key))

    def _sound(self, key: ObjectKey) -> Held:
        """What is held, damaged POSTs set aside first. Under the object's lock."""
        while True:
            held = self._held(key)
            try:
                held.entry(key.digest)
            except StoreFormatError:
                self._quarantine(key, held.damaged or "")
            else:
                return held

    def _lock(self, key: ObjectKey) -> threading.RLock:
        return self._locks[int.from_bytes(key.digest[:4], "little") % _LOCKS]

    # -- partitions ------------------------------------------------------------------------------------------

    def policies(self) -> list[int]:
        """Indexes of the storage policies with anything on this device."""
        with self._device.errors():
            found = numbers_in(os.path.join(self._device.root, OBJECTS))
        return [policy for policy in found if self.partitions(policy)]

    def partitions(self, policy: int) -> list[int]:
        """Partitions with anything in them, ascending."""
        with self._device.errors():
            return [
                partition
                for partition in numbers_in(self._device.policy_path(policy))
                if names_in(self._device.partition_path(policy, partition))
            ]

    def suffix_hashes(self, policy: int, partition: int) -> Mapping[str, bytes]:
        """The set hash of each suffix with anything in it."""
        with self._device.errors():
            while True:
                try:
                    return self._hashes.get(policy, partition)
                except _Damaged as damaged:
                    self._quarantine(damaged.key, damaged.name)

    def entries(self, policy: int, partition: int, suffix: str) -> list[Entry]:
        """What is held in a suffix, by digest."""
        found = []
        with self._device.errors():
            for key in self._suffix_keys(policy, partition, suffix):
                entry = self._entry(key)
                if entry is not None:
                    found.append(entry)
        return sorted(found)

    def keys(self, policy: int, partition: int) -> Iterator[ObjectKey]:
        """Every object and tombstone in a partition."""
        with self._device.errors():
            for suffix in sorted(names_in(self._device.partition_path(policy, partition))):
                for key in self._suffix_keys(policy, partition, suffix):
                    if self._entry(key) is not None:
                        yield key

    def _suffix_keys(self, policy: int, partition: int, suffix: str) -> list[ObjectKey]:
        if not is_hex(suffix, 3):
            return []
        names = names_in(f"{self._device.partition_path(policy, partition)}/{suffix}")
        return [ObjectKey(policy, partition, bytes.fromhex(name)) for name in sorted(names) if is_hex(name, 32)]

    def _entry(self, key: ObjectKey) -> Entry | None:
        """What is held of an object; damaged metadata goes to quarantine."""
        for _ in range(_TRIES):
            try:
                held = self._held(key)
                entry = held.entry(key.digest)
            except FileNotFoundError:
                continue  # A POST that was replaced between the listing and the reading.
            except StoreFormatError:
                break
            if entry is not None or not held.present:
                return entry
        with self._lock(key):
            return self._sound(key).entry(key.digest)

    def _all_entries(self, policy: int, partition: int) -> Iterable[tuple[str, Entry]]:
        """Every entry with its suffix, for counting. Under the partition's lock, so it takes no object's lock."""
        for suffix in names_in(self._device.partition_path(policy, partition)):
            for key in self._suffix_keys(policy, partition, suffix):
                entry = self._count_entry(key)
                if entry is not None:
                    yield suffix, entry

    def _count_entry(self, key: ObjectKey) -> Entry | None:
        """As `_entry`; nothing is renamed into place meanwhile, but what was replaced may still go."""
        while True:
            held = self._held(key)
            try:
                return held.entry(key.digest)
            except FileNotFoundError:
                continue
            except StoreFormatError as error:
                raise _Damaged(key, held.damaged or "") from error

    # -- upkeep ----------------------------------------------------------------------------------------------

    def remove(self, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy without a tombstone, unless it changed since `entry` was read."""
        with self._device.errors(), self._lock(key):
            held = self._sound(key)
            if held.entry(key.digest) != entry:
                return False
            self._forget(key, held, entry)
            return True

    def _forget(self, key: ObjectKey, held: Held, entry: Entry | None) -> None:
        """Drop an object's files, what decides last and only once the others are durably gone."""
        names = held.in_order_of_removal()
        try:
            for name in names[:-1]:
                os.unlink(f"{held.directory}/{name}")
            if len(names) > 1:
                self._device.sync_directory(held.directory)
            with self._hashes.lock(key.policy, key.partition):
                os.unlink(f"{held.directory}/{names[-1]}")
                self._hashes.change(key, entry, None)
                self._device.sync_directory(held.directory)
                remove_empty(held.directory, levels=3)
        except BaseException:
            self._hashes.forget(key.policy, key.partition)
            raise

    def verify(self, key: ObjectKey) -> None:
        """Read a version and check it."""
        with self._device.errors():
            held = self._held(key)
            if held.state.newest is None:
                raise absent(key.hex, held.state)
            for name, (timestamp, kind) in sorted(held.files.items()):
                self._verify_file(key, held, name, timestamp, kind)

    def _verify_file(self, key: ObjectKey, held: Held, name: str, timestamp: Timestamp, kind: FileKind) -> None:
        try:
            fd = os.open(f"{held.directory}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return  # Replaced meanwhile; what replaced it gets its own turn.
        try:
            tail = read_tail(fd, timestamp, kind)
            if data_xxh3(fd, tail) != tail.xxh3:
                raise StoreFormatError("the data is damaged")
        except StoreFormatError as error:
            self._quarantine(key, name)
            raise ChecksumMismatch(f"{key.hex} {name}: {error}; moved to quarantine") from error
        finally:
            os.close(fd)

    def _quarantine(self, key: ObjectKey, name: str) -> None:
        with self._lock(key), self._hashes.lock(key.policy, key.partition):
            if name in self._held(key).names:
                self._device.quarantine(key, name)
                remove_empty(self._device.object_path(key), levels=3)
            self._hashes.forget(key.policy, key.partition)

    def reclaim(self, before: Timestamp) -> int:
        """Forget tombstones older than `before`; how many went."""
        gone = 0
        for policy in self.policies():
            for partition in self.partitions(policy):
                for suffix in names_in(self._device.partition_path(policy, partition)):
                    for key in self._suffix_keys(policy, partition, suffix):
                        gone += self._reclaim(key, before)
        return gone

    def _reclaim(self, key: ObjectKey, before: Timestamp) -> bool:
        if self._held(key).state.exists:
            return False
        with self._device.errors(), self._lock(key):
            held = self._sound(key)
            if held.state.exists or not held.files or max(held.files.values())[0] >= before:
                return False
            entry = held.entry(key.digest)
            self._forget(key, held, entry)
            return entry is not None

    def usage(self) -> Usage:
        """Fullness of the device; DeviceFailed when it takes no writes or is gone, whatever lies below its mount."""
        self._device.check_writable()
        with self._device.errors():
            os.stat(os.path.join(self._device.root, OBJECTS))
        return self._device.usage()

    def counters(self) -> Mapping[str, int]:
        """Return no counters: this store counts nothing."""
        return {}

    def close(self) -> None:
        """Release the device and its lock; open readers stay valid."""
        self._device.close()


_EMPTY_XXH3 = Hasher(md5=False, xxh3=True).xxh3_64()
