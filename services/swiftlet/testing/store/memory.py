"""The in-memory twin of a device: it answers like a store on disk, with faults on demand.

Everything exists twice: as the running process sees it, and as it would be after a power loss. A write becomes visible
first and durable when its `sync` has succeeded; `crash` drops the difference. After a failed sync the device accepts no
writes until `crash`, as a careful store on disk would do. For tests and simulators; nothing in it is slow unless it is
told to be (`faults.delay_s`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from swiftlet_native import xxh3_64

from swiftlet.errors import ChecksumMismatch, DeviceFailed, NotFound, SizeMismatch, Superseded
from swiftlet.model import Entry, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord, Usage
from swiftlet.store import sethash
from swiftlet.store.merge import State, absent, check_delete, check_put, entry_of, info_of, merge_post
from swiftlet.testing.store.faults import Faults
from swiftlet.timestamp import ZERO, Timestamp


@dataclass(frozen=True, slots=True)
class _Version:
    """A version of data with the checksum of its metadata."""

    record: PutRecord
    footer: PutFooter
    data: bytes
    check: int

    @classmethod
    def of(cls, record: PutRecord, footer: PutFooter, data: bytes) -> Self:
        """Return a version whose checksum matches its data."""
        return cls(record, footer, data, _check(record, footer))

    @property
    def sound(self) -> bool:
        """Return whether metadata and length are unchanged."""
        return self.check == _check(self.record, self.footer) and len(self.data) == self.footer.size


def _check(record: PutRecord, footer: PutFooter) -> int:
    return xxh3_64(repr((record, footer)).encode())


@dataclass(frozen=True, slots=True)
class _Held:
    """All that is held of one object."""

    version: _Version | None = None
    tombstone: Timestamp | None = None
    post: PostRecord | None = None

    @property
    def state(self) -> State:
        """Return the timestamps that decide merges."""
        post = self.post
        return State(
            self.version.record.timestamp if self.version else None,
            self.tombstone,
            post.timestamp if post else None,
            post.content_type_timestamp if post and post.content_type is not None else ZERO,
        )

    @property
    def newest(self) -> Timestamp:
        """Return the newest of all timestamps."""
        state = self.state
        return max(state.data or ZERO, state.tombstone or ZERO, state.post or ZERO)


_NOTHING = _Held()


class MemoryWriter:
    """A new version that is being written."""

    def __init__(self, store: MemoryStore, key: ObjectKey) -> None:
        """Begin a version of `key`; it ends when the store is opened anew."""
        self._store = store
        self._key = key
        self._data: bytearray | None = bytearray()
        self._generation = store.generation

    def write(self, data: bytes | bytearray | memoryview) -> None:
        try:
            self._store.faults.reach("write")
            self._live().extend(data)
        except BaseException:
            self.abort()
            raise

    def _live(self) -> bytearray:
        if self._data is None or self._generation != self._store.generation:
            raise DeviceFailed("this upload was aborted after an earlier error")
        return self._data

    def commit(self, record: PutRecord, footer: PutFooter) -> None:
        """Check and make visible, then durable."""
        try:
            data = bytes(self._live())
            if len(data) != footer.size:
                raise SizeMismatch(f"{len(data)} bytes arrived, but {footer.size} were announced")
            if xxh3_64(data) != footer.xxh3:
                raise ChecksumMismatch("the bytes that arrived do not have the checksum of those that were sent")
            self._store.install(self._key, _Version.of(record, footer, data))
        finally:
            self.abort()

    def abort(self) -> None:
        self._data = None


class MemoryReader:
    """A reader that holds one version."""

    def __init__(self, faults: Faults, info: ObjectInfo, data: bytes) -> None:
        """Hold a version; `data` are all the object's bytes."""
        self._faults = faults
        self._info = info
        self._data = data

    @property
    def info(self) -> ObjectInfo:
        """Return the object's description, merged with the newest POST."""
        return self._info

    def read(self, offset: int, length: int) -> bytes:
        """Return bytes `[offset, offset + length)`, fewer only at the end."""
        self._faults.reach("read")
        return self._data[offset : offset + max(0, length)]

    def close(self) -> None:
        """Do nothing: there is nothing to release."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: there is nothing to release."""


class MemoryStore:
    """A device in memory, with its `faults`."""

    def __init__(self, total_bytes: int = 1 << 40, faults: Faults | None = None) -> None:
        """Start empty and healthy."""
        self.faults = faults or Faults()
        self.generation = 0
        """How often the device crashed; writers of an earlier life are invalid."""
        self.quarantined: list[tuple[ObjectKey, Entry]] = []
        """What was found damaged and taken out of service."""
        self._total_bytes = total_bytes
        self._visible: dict[ObjectKey, _Held] = {}
        self._durable: dict[ObjectKey, _Held] = {}
        self._failed = False
        self._mutex = threading.RLock()

    # -- faults of a device ----------------------------------------------------------------------------------

    def crash(self) -> None:
        """Lose power and restart: what was not durable is gone, and open writers are invalid."""
        with self._mutex:
            self.generation += 1
            self._failed = False
            self._visible = dict(self._durable)

    def flip_data(self, key: ObjectKey, index: int = 0) -> None:
        """Flip the lowest bit of one byte of an object's data."""
        version = self._version(key)
        data = bytearray(version.data)
        data[index] ^= 1
        self._set_version(key, replace(version, data=bytes(data)))

    def flip_metadata(self, key: ObjectKey) -> None:
        """Damage an object's metadata."""
        version = self._version(key)
        self._set_version(key, replace(version, record=replace(version.record, content_type="\x00damaged")))

    def tear(self, key: ObjectKey, keep: int) -> None:
        """Cut an object's data off after `keep` bytes."""
        version = self._version(key)
        self._set_version(key, replace(version, data=version.data[:keep]))

    def _version(self, key: ObjectKey) -> _Version:
        version = self._visible[key].version
        assert version is not None
        return version

    def _set_version(self, key: ObjectKey, version: _Version) -> None:
        with self._mutex:
            for held in (self._visible, self._durable):
                held[key] = replace(held[key], version=version)

    # -- writing ---------------------------------------------------------------------------------------------

    def create(self, key: ObjectKey, size: int | None = None) -> MemoryWriter:
        """Begin a new version."""
        self.faults.reach("create")
        self._check_writable()
        return MemoryWriter(self, key)

    def install(self, key: ObjectKey, version: _Version) -> None:
        """Carry out a writer's last step."""
        self.faults.reach("commit")
        with self._mutex:
            held = self._visible.get(key, _NOTHING)
            moment = version.record.timestamp
            if check_put(version.record.name, held.state, moment):
                post = held.post if held.post and held.post.timestamp > moment else None
                self._apply(key, _Held(version, None, post))

    def post(self, key: ObjectKey, record: PostRecord) -> None:
        self.faults.reach("post")
        with self._mutex:
            held = self._visible.get(key, _NOTHING)
            state = held.state
            if not state.exists or state.data is None:
                raise absent(key.hex, state)
            merge = merge_post(state.data, held.post, record)
            if merge.store is not None:
                self._apply(key, replace(held, post=merge.store))
            if merge.superseded_by is not None:
                raise Superseded(f"{key.hex} has newer metadata", merge.superseded_by)

    def delete(self, key: ObjectKey, timestamp: Timestamp, name: str) -> None:
        self.faults.reach("delete")
        with self._mutex:
            held = self._visible.get(key, _NOTHING)
            state = held.state
            if check_delete(name, state, timestamp):
                post = held.post if held.post and held.post.timestamp > timestamp else None
                self._apply(key, _Held(None, timestamp, post))
            if not state.exists:
                raise NotFound(f"{name} is not here", max(timestamp, state.tombstone or timestamp))

    def _apply(self, key: ObjectKey, held: _Held | None) -> None:
        """Make a change visible, then durable; after a failed sync it is visible only."""
        self._check_writable()
        _put(self._visible, key, held)
        try:
            self.faults.reach("sync")
        except BaseException:
            self._failed = True
            raise
        _put(self._durable, key, held)

    def _check_writable(self) -> None:
        if self._failed:
            raise DeviceFailed("the device takes no writes: a sync failed")

    # -- reading ---------------------------------------------------------------------------------------------

    def open(self, key: ObjectKey) -> MemoryReader:
        """Return the newest version for reading."""
        self.faults.reach("open")
        info, data = self._load(key)
        return MemoryReader(self.faults, info, data)

    def stat(self, key: ObjectKey) -> ObjectInfo:
        """Return the newest version's description."""
        self.faults.reach("stat")
        return self._load(key)[0]

    def _load(self, key: ObjectKey) -> tuple[ObjectInfo, bytes]:
        with self._mutex:
            held = self._visible.get(key, _NOTHING)
            if held.version is not None and not held.version.sound:
                self._quarantine(key)
                held = self._visible.get(key, _NOTHING)
            if held.version is None:
                raise absent(key.hex, held.state)
            return info_of(held.version.record, held.version.footer, held.post), held.version.data

    def _quarantine(self, key: ObjectKey) -> None:
        held = self._visible[key]
        entry = entry_of(key.digest, held.state)
        assert entry is not None
        self.quarantined.append((key, entry))
        rest = replace(held, version=None)
        for copies in (self._visible, self._durable):
            _put(copies, key, rest if rest != _NOTHING else None)

    # -- partitions ------------------------------------------------------------------------------------------

    def _entries(self, wanted: Callable[[ObjectKey], bool]) -> list[tuple[ObjectKey, Entry]]:
        self.faults.reach("scan")
        with self._mutex:
            held = [(key, held.state) for key, held in self._visible.items() if wanted(key)]
        found = [(key, entry_of(key.digest, state)) for key, state in held]
        return [(key, entry) for key, entry in found if entry is not None]

    def policies(self) -> list[int]:
        """Return the indexes of the storage policies with data on this device."""
        return sorted({key.policy for key, _ in self._entries(lambda key: True)})

    def partitions(self, policy: int) -> list[int]:
        """Return the partitions that are not empty, ascending."""
        return sorted({key.partition for key, _ in self._entries(lambda key: key.policy == policy)})

    def suffix_hashes(self, policy: int, partition: int) -> Mapping[str, bytes]:
        """Return the set hash of each suffix that is not empty."""
        totals: dict[str, int] = {}
        for key, entry in self._entries(lambda key: (key.policy, key.partition) == (policy, partition)):
            totals[key.suffix] = sethash.add(totals.get(key.suffix, sethash.EMPTY), entry)
        return {suffix: sethash.to_bytes(total) for suffix, total in totals.items()}

    def entries(self, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Return what is held in a suffix, by digest."""
        found = self._entries(lambda key: (key.policy, key.partition, key.suffix) == (policy, partition, suffix))
        return sorted(entry for _, entry in found)

    def keys(self, policy: int, partition: int) -> Iterator[ObjectKey]:
        """Yield every object and tombstone in a partition."""
        found = self._entries(lambda key: (key.policy, key.partition) == (policy, partition))
        yield from sorted((key for key, _ in found), key=lambda key: (key.suffix, key.digest))

    # -- upkeep ----------------------------------------------------------------------------------------------

    def remove(self, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy, unless it changed."""
        self.faults.reach("remove")
        with self._mutex:
            if entry_of(key.digest, self._visible.get(key, _NOTHING).state) != entry:
                return False
            self._apply(key, None)
            return True

    def verify(self, key: ObjectKey) -> None:
        """Check a version's data and metadata."""
        self.faults.reach("verify")
        with self._mutex:
            held = self._visible.get(key, _NOTHING)
            if held.state.newest is None:
                raise absent(key.hex, held.state)
            version = held.version
            if version is not None and not (version.sound and xxh3_64(version.data) == version.footer.xxh3):
                self._quarantine(key)
                raise ChecksumMismatch(f"{key.hex}: damaged; moved to quarantine")

    def reclaim(self, before: Timestamp) -> int:
        """Forget tombstones older than `before`."""
        with self._mutex:
            old = [key for key, held in self._visible.items() if held.version is None and held.newest < before]
            gone = sum(self._visible[key].tombstone is not None for key in old)
            for key in old:
                self._apply(key, None)
            return gone

    def usage(self) -> Usage:
        """Return the fullness, counting data only."""
        if self.faults.broken:
            raise DeviceFailed("injected I/O error")
        with self._mutex:
            used = sum(len(held.version.data) for held in self._visible.values() if held.version)
        return Usage(self._total_bytes, 0 if self.faults.full else self._total_bytes - used, len(self._visible))

    def counters(self) -> Mapping[str, int]:
        """Return no counters: this store counts nothing."""
        return {}

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


def _put(copies: dict[ObjectKey, _Held], key: ObjectKey, held: _Held | None) -> None:
    if held is None:
        copies.pop(key, None)
    else:
        copies[key] = held
