"""How the local databases stand: what a device holds, lacks, and since when nothing was left to do.

`docs/wire.md` defines the words, which are those of `/statusz`. No I/O: rounds of sync tell what they found.

A container that is written to differs from its replicas at most moments, and nothing is wrong. So a database that was
equal everywhere once under this ring, and is left alone because it keeps changing, counts as behind only after
`GRACE_S`; one that was never seen equal counts at once. Memory: a number per database, as for its fingerprint.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from swiftlet.model import DatabaseId
from swiftlet.ring.lookup import Ring

GRACE_S = 60.0
"""Seconds for which a database that was equal everywhere may differ while it is being written to."""


class ListingStanding:
    """One device in the ring of account or container databases."""

    def __init__(self) -> None:
        """Before the first round."""
        self.held = 0
        self.misplaced = 0
        self.behind = 0
        self.unchecked = 0
        self.ring_version = 0
        self.synced_at_s: float | None = None
        self._ring: Ring | None = None
        self._proven: set[int] = set()
        self._differing: dict[int, float] = {}

    def end(
        self,
        ring: Ring,
        began_s: float,
        *,
        agreed: Iterable[DatabaseId],
        postponed: Iterable[DatabaseId],
        failed: Collection[DatabaseId],
        missing: int,
        unchecked: Collection[int],
        held: int,
        misplaced: int,
    ) -> None:
        """A round over everything has ended.

        Databases that agree with all their peers, that differ and were left alone, that could not be completed; how
        many a peer has that are not here; partitions of which a peer could not be asked; what the device holds now.
        """
        if ring is not self._ring:
            self._ring, self._proven, self._differing = ring, set(), {}
        before, self._proven = self._proven, {hash(id) for id in agreed}
        waiting: dict[int, float] = {}
        self.behind = len(failed) + missing
        for id in postponed:
            key = hash(id)
            if key in before:
                self._proven.add(key)
                waiting[key] = self._differing.get(key, began_s)
                self.behind += began_s - waiting[key] >= GRACE_S
            else:
                self.behind += 1
        self._proven.update(before.intersection(map(hash, failed)))
        self._differing = waiting
        self.unchecked, self.held, self.misplaced = len(unchecked), held, misplaced
        self.ring_version = ring.version
        if not (self.behind or self.unchecked or misplaced):
            self.synced_at_s = began_s

    def unreadable(self, unchecked: int) -> None:
        """The device could not be asked what it holds."""
        self.unchecked = max(self.unchecked, unchecked)

    def fields(self) -> dict[str, object]:
        """The report's fields."""
        return {
            "held": self.held,
            "misplaced": self.misplaced,
            "behind": self.behind,
            "unchecked": self.unchecked,
            "syncedAt": self.synced_at_s,
            "ringVersion": self.ring_version,
        }
