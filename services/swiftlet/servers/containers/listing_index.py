"""A device's databases in the terms of sync sessions: partitions, roots, suffix hashes, entries.

All of it is in memory, from the fingerprints that the store keeps with every commit: a question opens no file. At the
first question everything on the device is read once, which takes about a quarter of a millisecond per database; until
that is done questions are answered with `Unavailable`, after a short wait. Every `RELIST_S` the directories are read
once more, so that what was removed without the store is noticed.

Memory: that of `swiftlet.listing.fingerprints`, a root for each partition that was asked about, and a list of those
that have changed.

Fault model: a database that can't be read and is not damaged (another program's format) keeps its place with a
fingerprint that no other has, so that it never counts as equal. A damaged one is in quarantine, and is not here. A
device that fails answers nothing more.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Callable, Mapping, Sequence

from swiftlet_native import PairRoots

from swiftlet.errors import NotFound, StoreFormatError, SwiftletError, Unavailable
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseId, DatabaseKind, Entry
from swiftlet.servers.containers.root_changes import RootChanges
from swiftlet.store import sethash
from swiftlet.sync.databases.entries import entry_of
from swiftlet.sync.session.entries import suffix_of
from swiftlet.web.logs import get_logger

RELIST_S = 300.0
"""Seconds after which the directories are read again."""
WAIT_S = 3.0
"""Seconds for which a question waits for the first read; shorter than the timeout of the asking side."""
_AT_ONCE = 8
"""The number of databases that are opened at a time."""
_LOOKED_AT = 128
"""The number of databases whose fingerprints are learned at a time, without opening them for use."""
_PAUSE_EVERY = 64
_log = get_logger("listing_sync")


class ListingIndex:
    """The index of one device's databases; runs in one event loop."""

    def __init__(self, store: ListingStore, clock: Callable[[], float] = time.monotonic) -> None:
        """Create the index; nothing is read before the first question. `clock` returns monotonic seconds."""
        self._store = store
        self._clock = clock
        self._looks: dict[DatabaseKind, asyncio.Task[None]] = {}
        self._looked_s: dict[DatabaseKind, float] = {}
        self._roots: dict[tuple[DatabaseKind, int], bytes] = {}
        self._changes = {kind: RootChanges() for kind in DatabaseKind}
        self._unreadable: dict[DatabaseKind, dict[int, set[bytes]]] = {kind: {} for kind in DatabaseKind}
        self._nobodys = secrets.token_bytes(sethash.HASH_SIZE)
        store.fingerprints.follow(self._changed)

    def _changed(self, kind: DatabaseKind, partition: int) -> None:
        self._roots.pop((kind, partition), None)
        self._changes[kind].add(partition)

    async def ready(self, kind: DatabaseKind) -> None:
        """Wait until all databases of a kind are known. Raises Unavailable if that takes long, and errors of the
        device.
        """
        self._store.require()
        look = self._looks.get(kind)
        if look is None and self._is_old(kind):
            look = self._looks[kind] = asyncio.get_running_loop().create_task(self._look(kind))
            # A read that nobody waits for has logged its error.
            look.add_done_callback(lambda done: done.cancelled() or done.exception())
        if kind in self._looked_s or look is None:
            return
        done, _ = await asyncio.wait([look], timeout=WAIT_S)
        if not done:
            raise Unavailable(
                f"the databases of {self._store.device} are still being read for the first time; try again later"
            )
        look.result()

    def _is_old(self, kind: DatabaseKind) -> bool:
        looked_s = self._looked_s.get(kind)
        return looked_s is None or self._clock() - looked_s >= RELIST_S

    async def close(self) -> None:
        """End reads that are in progress."""
        looks = list(self._looks.values())
        for look in looks:
            look.cancel()
        await asyncio.gather(*looks, return_exceptions=True)

    async def _look(self, kind: DatabaseKind) -> None:
        try:
            await self._look_at_all(kind)
            self._looked_s[kind] = self._clock()
        except SwiftletError as error:
            _log.warning(
                "the databases of a device can't be listed",
                device=self._store.device,
                kind=kind.value,
                error=str(error),
            )
            raise
        finally:
            del self._looks[kind]

    async def _look_at_all(self, kind: DatabaseKind) -> None:
        store = self._store
        partitions = await store.partitions(kind)
        unknown: dict[int, list[DatabaseId]] = {}
        waiting = 0
        for partition in sorted({*partitions, *store.fingerprints.partitions(kind), *self._unreadable[kind]}):
            known = set(store.fingerprints.of(kind, partition))
            listed = await store.databases(kind, partition)
            for digest in known.difference(id.digest for id in listed):
                store.fingerprints.drop(DatabaseId(kind, partition, digest))
            left = [id for id in listed if id.digest not in known]
            if not left:
                self._set_unreadable(kind, partition, set())
                continue
            unknown[partition] = left
            waiting += len(left)
            if waiting >= _LOOKED_AT:
                await self._learn(kind, unknown)
                unknown, waiting = {}, 0
        await self._learn(kind, unknown)

    async def _learn(self, kind: DatabaseKind, unknown: Mapping[int, Sequence[DatabaseId]]) -> None:
        """Learn the fingerprints of these databases, which are all of their partitions that have none."""
        every = [id for ids in unknown.values() for id in ids]
        for start in range(0, len(every), _LOOKED_AT):
            await self._store.learn(every[start : start + _LOOKED_AT])
        for partition, ids in unknown.items():
            left = [id for id in ids if self._store.fingerprints.get(id) is None]
            unreadable: set[bytes] = set()
            for start in range(0, len(left), _AT_ONCE):
                some = left[start : start + _AT_ONCE]
                found = await asyncio.gather(*(self._is_readable(id) for id in some))
                unreadable.update(id.digest for id, readable in zip(some, found, strict=True) if not readable)
            self._set_unreadable(kind, partition, unreadable)

    async def _is_readable(self, id: DatabaseId) -> bool:
        """Read and so learn a database's fingerprint; return False when the database exists but can't be read."""
        try:
            await self._store.fingerprint(id)
        except NotFound:
            return True
        except StoreFormatError as error:
            _log.warning("a database can't be compared", database=str(id), error=str(error))
            return id not in await self._store.databases(id.kind, id.partition)
        return True

    def _set_unreadable(self, kind: DatabaseKind, partition: int, digests: set[bytes]) -> None:
        if digests:
            self._unreadable[kind][partition] = digests
        elif self._unreadable[kind].pop(partition, None) is None:
            return
        self._changed(kind, partition)

    # What is known once `ready` has returned.

    def partitions(self, kind: DatabaseKind) -> list[int]:
        """Return the partitions with databases, ascending."""
        return sorted({*self._store.fingerprints.partitions(kind), *self._unreadable[kind]})

    async def prepare(self, kind: DatabaseKind, partitions: Sequence[int]) -> None:
        """Compute the roots that are not known, with pauses for other work."""
        for count, partition in enumerate(partitions):
            if count % _PAUSE_EVERY == 0:
                await asyncio.sleep(0)
            self.root(kind, partition)

    async def read_pair(self, kind: DatabaseKind, pair: PairRoots) -> None:
        """Read the roots of a pair's partitions that have changed since they were last read, with pauses for other
        work. What changes in a pause is read next time.
        """
        position, changed = self._changes[kind].since(pair.position)
        for count, partition in enumerate(pair.members if changed is None else changed):
            if count % _PAUSE_EVERY == 0 and count:
                await asyncio.sleep(0)
            pair.put(partition, self.root(kind, partition))
        pair.position = position

    def root(self, kind: DatabaseKind, partition: int) -> bytes:
        """Return one hash over all databases of a partition."""
        known = self._roots.get((kind, partition))
        if known is None:
            known = sethash.root(self.suffix_hashes(kind, partition))
            if self._store.fingerprints.of(kind, partition) or partition in self._unreadable[kind]:
                self._roots[kind, partition] = known
        return known

    def suffix_hashes(self, kind: DatabaseKind, partition: int) -> dict[str, bytes]:
        """Return the set hash of each suffix."""
        sums: dict[str, int] = {}
        for entry in self.entries(kind, partition):
            suffix = suffix_of(entry)
            sums[suffix] = sethash.add(sums.get(suffix, sethash.EMPTY), entry)
        return {suffix: sethash.to_bytes(total) for suffix, total in sums.items()}

    def entries(self, kind: DatabaseKind, partition: int) -> list[Entry]:
        """Return all databases of a partition."""
        known = self._store.fingerprints.of(kind, partition)
        found = [entry_of(digest, fingerprint) for digest, fingerprint in known.items()]
        found += [
            entry_of(digest, self._nobodys)
            for digest in self._unreadable[kind].get(partition, ())
            if digest not in known
        ]
        return found
