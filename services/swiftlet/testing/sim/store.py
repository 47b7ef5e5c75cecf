"""A simulated device: its version of every object, by the real merge rules, with set hashes kept incrementally.

A write is durable when it returns, so that a crash loses only what is in transfer. An object's bytes are represented by
the timestamp of its data. Fault model: the device may answer every call with an I/O error for a while, refuse new data
as a full disk does, or be replaced by an empty one (`wipe`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from swiftlet.errors import DeviceFailed, DiskFull, NotFound, Superseded
from swiftlet.model import SUFFIX_CHARS, Entry, Kind, PostRecord
from swiftlet.store import sethash
from swiftlet.store.merge import NOTHING, State, absent, check_delete, check_put, entry_of, merge_post
from swiftlet.sync.session.roots import EMPTY_ROOT
from swiftlet.testing.sim.pending import PendingSet
from swiftlet.timestamp import ZERO, Timestamp


@dataclass(frozen=True, slots=True)
class Held:
    """The state of one object on a device, and when it last changed."""

    state: State
    post: PostRecord | None
    entry: Entry | None
    changed_s: float


@dataclass(frozen=True, slots=True)
class Parcel:
    """An object, its POST or its tombstone in transfer from one device to another."""

    digest: bytes
    data: Timestamp | None
    tombstone: Timestamp | None
    post: PostRecord | None


Watch = Callable[[int, bytes, Entry | None, Entry | None, str], None]
"""Called with every change: partition, digest, entry before and after, and the cause."""


class SimStore:
    """One device. `now_s` is simulated time, for `Held.changed_s`."""

    def __init__(self, now_s: Callable[[], float], watch: Watch) -> None:
        self.failing = False
        self.full = False
        self.pending = PendingSet(now_s)
        self._now_s = now_s
        self._watch = watch
        self._held: dict[int, dict[str, dict[bytes, Held]]] = {}
        self._sums: dict[int, dict[str, int]] = {}
        self._roots: dict[int, bytes] = {}

    def wipe(self) -> None:
        """Replace the device by an empty one."""
        self._held, self._sums, self._roots = {}, {}, {}
        self.pending = PendingSet(self._now_s)

    def _check(self) -> None:
        if self.failing:
            raise DeviceFailed("injected I/O error")

    # -- reading ---------------------------------------------------------------------------------------------

    def partitions(self) -> list[int]:
        """Return the partitions that are not empty, ascending."""
        self._check()
        return sorted(self._sums)

    def root(self, partition: int) -> bytes:
        """Return the root of a partition."""
        self._check()
        if partition not in self._sums:
            return EMPTY_ROOT
        found = self._roots.get(partition)
        if found is None:
            found = self._roots[partition] = sethash.root(self.suffix_hashes(partition))
        return found

    def suffix_hashes(self, partition: int) -> Mapping[str, bytes]:
        """Return the set hash of each suffix that is not empty."""
        self._check()
        return {suffix: sethash.to_bytes(total) for suffix, total in self._sums.get(partition, {}).items()}

    def entries(self, partition: int, suffixes: tuple[str, ...]) -> list[Entry]:
        """Return the entries of some suffixes."""
        self._check()
        held = self._held.get(partition, {})
        return [h.entry for suffix in suffixes for h in held.get(suffix, {}).values() if h.entry is not None]

    def held(self, partition: int, digest: bytes) -> Held | None:
        """Return what is held of an object; never fails, as the checker uses it too."""
        return self._held.get(partition, {}).get(_suffix(digest), {}).get(digest)

    def all(self) -> Iterator[tuple[int, Held]]:
        """Yield everything with its partition; never fails, as the checker uses it."""
        for partition, suffixes in self._held.items():
            for objects in suffixes.values():
                for held in objects.values():
                    yield partition, held

    def parcel(self, partition: int, digest: bytes) -> Parcel:
        """Return a copy to send. Raises NotFound when the object is not here."""
        self._check()
        held = self.held(partition, digest)
        if held is None or held.entry is None:
            raise NotFound(f"{digest.hex()} is not here")
        if held.entry.kind is Kind.TOMBSTONE:
            return Parcel(digest, None, held.entry.timestamp, None)
        return Parcel(digest, held.entry.timestamp, None, held.post)

    # -- writing ---------------------------------------------------------------------------------------------

    def put(self, partition: int, digest: bytes, timestamp: Timestamp, why: str) -> None:
        """Store data. Raises Superseded and DiskFull."""
        self._check()
        old = self.held(partition, digest)
        state = old.state if old else NOTHING
        if check_put(digest.hex(), state, timestamp):
            if self.full:
                raise DiskFull("injected full disk")
            post = old.post if old and old.post and old.post.timestamp > timestamp else None
            self._set(partition, digest, timestamp, None, post, why)

    def delete(self, partition: int, digest: bytes, timestamp: Timestamp, why: str) -> None:
        """Store a tombstone. Raises Superseded."""
        self._check()
        old = self.held(partition, digest)
        state = old.state if old else NOTHING
        if check_delete(digest.hex(), state, timestamp):
            post = old.post if old and old.post and old.post.timestamp > timestamp else None
            self._set(partition, digest, None, timestamp, post, why)

    def post(self, partition: int, digest: bytes, record: PostRecord, why: str) -> None:
        """Merge a POST. Raises NotFound and Superseded."""
        self._check()
        old = self.held(partition, digest)
        if old is None or not old.state.exists or old.state.data is None:
            raise absent(digest.hex(), old.state if old else NOTHING)
        merge = merge_post(old.state.data, old.post, record)
        if merge.store is not None:
            self._set(partition, digest, old.state.data, None, merge.store, why)
        if merge.superseded_by is not None:
            raise Superseded(f"{digest.hex()} has newer metadata", merge.superseded_by)

    def receive(self, partition: int, parcel: Parcel, why: str) -> None:
        """Store what another device sent, as `swiftlet.sync.moving.copies` does. Raises Superseded, NotFound and
        DiskFull.
        """
        if parcel.tombstone is not None:
            self.delete(partition, parcel.digest, parcel.tombstone, why)
        if parcel.data is not None:
            try:
                self.put(partition, parcel.digest, parcel.data, why)
            except Superseded:
                if parcel.post is not None:
                    self.post(partition, parcel.digest, parcel.post, why)
                raise
        if parcel.post is not None:
            self.post(partition, parcel.digest, parcel.post, why)

    def remove(self, partition: int, entry: Entry) -> bool:
        """Forget a handoff copy unless it changed, or its row is pending."""
        self._check()
        old = self.held(partition, entry.digest)
        if old is None or old.entry != entry or entry.digest in self.pending:
            return False
        self._forget(partition, old, "drop")
        return True

    def reclaim(self, before: Timestamp) -> None:
        """Forget tombstones with nothing newer than `before` beside them, whose rows are not pending."""
        self._check()
        for partition, held in list(self.all()):
            entry = held.entry
            if entry is not None and entry.kind is Kind.TOMBSTONE and entry.digest not in self.pending:
                newest = max(entry.timestamp, held.post.timestamp if held.post else ZERO)
                if newest < before:
                    self._forget(partition, held, "reclaim")

    def _set(
        self,
        partition: int,
        digest: bytes,
        data: Timestamp | None,
        tombstone: Timestamp | None,
        post: PostRecord | None,
        why: str,
    ) -> None:
        typed = post.content_type_timestamp if post and post.content_type is not None else ZERO
        state = State(data, tombstone, post.timestamp if post else None, typed)
        old = self.held(partition, digest)
        new = Held(state, post, entry_of(digest, state), self._now_s())
        self._account(partition, digest, old.entry if old else None, new.entry, why)
        self._held.setdefault(partition, {}).setdefault(_suffix(digest), {})[digest] = new

    def _forget(self, partition: int, old: Held, why: str) -> None:
        assert old.entry is not None
        digest = old.entry.digest
        self._account(partition, digest, old.entry, None, why)
        del self._held[partition][_suffix(digest)][digest]

    def _account(self, partition: int, digest: bytes, old: Entry | None, new: Entry | None, why: str) -> None:
        """Update set hashes: a suffix without entries has none, and a partition without suffixes is removed."""
        self._watch(partition, digest, old, new, why)
        sums = self._sums.setdefault(partition, {})
        suffix = _suffix(digest)
        total = sums.get(suffix, sethash.EMPTY)
        if old is not None:
            total = sethash.subtract(total, old)
        if new is not None:
            total = sethash.add(total, new)
        if total == sethash.EMPTY:
            sums.pop(suffix, None)
        else:
            sums[suffix] = total
        self._roots.pop(partition, None)
        if not sums:
            del self._sums[partition]


def _suffix(digest: bytes) -> str:
    return digest.hex()[-SUFFIX_CHARS:]
