"""Set hashes of a device's partitions, loaded when first asked for and kept right by every write.

The directory is the truth. A partition's hashes are counted from its file names once and then changed along
with it: a write renames its file and changes the hash under the same partition lock, so that a count never
sees one without the other. Whoever is unsure (an I/O error, a quarantined file) forgets the partition, and it
is counted again.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from swiftlet.model import Entry, ObjectKey
from swiftlet.store import sethash

_STRIPES = 256


@dataclass(slots=True)
class _Suffix:
    """How many entries a suffix has, and their set hash."""

    count: int = 0
    total: int = sethash.EMPTY


_Partition = dict[str, _Suffix]


class SuffixHashes:
    """The hashes of up to `limit` partitions; the ones not used for longest are forgotten."""

    def __init__(self, count: Callable[[int, int], Iterable[tuple[str, Entry]]], limit: int = 8192) -> None:
        """`count(policy, partition)` gives every entry on the device with its suffix."""
        self._count = count
        self._limit = limit
        self._known: OrderedDict[tuple[int, int], _Partition] = OrderedDict()
        self._mutex = threading.Lock()
        self._locks = [threading.RLock() for _ in range(_STRIPES)]

    def lock(self, policy: int, partition: int) -> threading.RLock:
        """Return the lock to hold while the partition's directories change."""
        return self._locks[hash((policy, partition)) % _STRIPES]

    def change(self, key: ObjectKey, old: Entry | None, new: Entry | None) -> None:
        """Replace an object's entry. The caller holds the partition's lock."""
        with self._mutex:
            suffixes = self._known.get((key.policy, key.partition))
        if suffixes is None or old == new:
            return
        suffix = suffixes.setdefault(key.suffix, _Suffix())
        if old is not None:
            suffix.count -= 1
            suffix.total = sethash.subtract(suffix.total, old)
        if new is not None:
            suffix.count += 1
            suffix.total = sethash.add(suffix.total, new)
        if not suffix.count:
            del suffixes[key.suffix]

    def forget(self, policy: int, partition: int) -> None:
        """Count the partition again when it is next asked for."""
        with self.lock(policy, partition), self._mutex:
            self._known.pop((policy, partition), None)

    def get(self, policy: int, partition: int) -> dict[str, bytes]:
        """The set hash of each suffix with anything in it."""
        with self.lock(policy, partition):
            with self._mutex:
                suffixes = self._known.get((policy, partition))
                if suffixes is not None:
                    self._known.move_to_end((policy, partition))
            if suffixes is None:
                suffixes = self._load(policy, partition)
            return {name: sethash.to_bytes(suffix.total) for name, suffix in suffixes.items()}

    def _load(self, policy: int, partition: int) -> _Partition:
        suffixes: _Partition = {}
        for name, entry in self._count(policy, partition):
            suffix = suffixes.setdefault(name, _Suffix())
            suffix.count += 1
            suffix.total = sethash.add(suffix.total, entry)
        with self._mutex:
            self._known[policy, partition] = suffixes
            while len(self._known) > self._limit:
                self._known.popitem(last=False)
        return suffixes
