"""Decides whether a database that differs is exchanged now, or left alone for a while.

The replicas of a container that is being written to differ at most moments though nothing is wrong. So a database whose
partition was equal before is left alone until it stops changing, for up to `patience_s`. One that was never seen equal
is exchanged at once: a device that comes back must not wait for a busy container to rest.

A page of rows has to be read on both sides even if it is equal, so a single lost row in a container of millions costs a
scan of it. Therefore a database that took long with a peer then rests with that peer, in proportion (`effort`).

No I/O. Memory: a few numbers for each database that differed in the last round or that rests.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from swiftlet.model import DatabaseId
from swiftlet.sync.planning.device_partitions import DevicePartitions

GRACE_S = 60.0
"""Seconds for which a database may be left alone before it is reported as not in order."""


class Word(Enum):
    """The decision about a database."""

    GO = "go"
    WAIT = "wait"
    OVERDUE = "overdue"
    """The database has to wait, and has waited for so long that this is reported."""


@dataclass(frozen=True, slots=True)
class Limits:
    """When rounds leave a changing database alone, and how much time they spend on it."""

    quiet_s: float = 3.0
    """Seconds without a change after which a database counts as unchanging."""
    patience_s: float = 30.0
    """Seconds for which a database that keeps changing is left alone."""
    effort: float = 0.05
    """Largest share of the time that goes into one database with one peer, above 0 and up to 1."""
    rest_s: float = 5.0
    """Rests that are shorter than this, in seconds, are not worth taking."""


IMPATIENT = Limits(quiet_s=0.0, patience_s=0.0, effort=1.0)
"""The patience of a round that is started by hand: none."""


@dataclass(slots=True)
class _Differing:
    fingerprint: bytes
    """The fingerprint of the peer or of this side when it was last seen."""
    same_since_s: float
    since_s: float
    seen: bool = True
    """Whether a session has asked about the database in this round."""
    agreed: bool | None = None
    """Whether both sides agreed after the last work on it; None before there was any."""
    rests_until_s: float = 0.0


class Patience:
    """The patience of one replicator over all its rounds."""

    def __init__(self, limits: Limits | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns monotonic seconds."""
        self.limits = limits or Limits()
        self._clock = clock
        self._differing: dict[tuple[str, int, DatabaseId], _Differing] = {}

    def begin(self) -> None:
        """Begin a round: databases that did not differ in the last one are forgotten, unless they rest."""
        now_s = self._clock()
        self._differing = {
            key: known for key, known in self._differing.items() if known.seen or known.rests_until_s > now_s
        }
        for known in self._differing.values():
            known.seen = False

    def judge(self, own: DevicePartitions, peer: int, id: DatabaseId, fingerprint: bytes) -> Word:
        """Decide whether to work on a database that differs from the neighbour's."""
        now_s = self._clock()
        known = self._differing.get((own.device.name, peer, id))
        if known is None:
            known = self._differing[own.device.name, peer, id] = _Differing(fingerprint, now_s, now_s)
        elif known.fingerprint != fingerprint:
            known.fingerprint, known.same_since_s = fingerprint, now_s
        known.seen = True
        waited_s = now_s - known.since_s
        rests = now_s < known.rests_until_s
        stands_still = now_s - known.same_since_s >= self.limits.quiet_s
        in_order_before = own.standing.is_checked(id.partition)
        if not rests and (stands_still or waited_s >= self.limits.patience_s or not in_order_before):
            return Word.GO
        # While a third replica is away no partition is equal everywhere, though this one is equal with this peer.
        in_order = known.agreed if known.agreed is not None else in_order_before
        return Word.WAIT if in_order and waited_s < GRACE_S else Word.OVERDUE

    def worked(self, own: DevicePartitions, peer: int, id: DatabaseId, seconds: float, agreed: bool) -> None:
        """Record for how long the database was exchanged, and whether it was equal afterwards."""
        key, now_s = (own.device.name, peer, id), self._clock()
        pause_s = seconds * (1 / self.limits.effort - 1)
        if agreed and pause_s <= self.limits.rest_s:
            self._differing.pop(key, None)
            return
        known = self._differing.setdefault(key, _Differing(b"", now_s, now_s))
        known.agreed = agreed
        if agreed:
            known.since_s = now_s
        if pause_s > self.limits.rest_s:
            known.rests_until_s = now_s + pause_s
