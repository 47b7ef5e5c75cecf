"""The partitions that a device shares with others by one ring, and their roots, kept from one question to the next.

A question about a pair names no partitions, so they are looked up in the ring, once for each pair. The roots are kept
with them: at the next question only those are read anew that have changed.

Fault model: a peer may ask about any pair and leave out any devices. The memory is bounded: what was not asked about
for the longest time is dropped, and made again when it is asked about.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from threading import Lock

from swiftlet_native import PairRoots, sync_shared

from swiftlet.ring.lookup import Ring
from swiftlet.sync.session.pair_messages import Pair

_TIMES = 2
"""How many times as many partitions are kept as a device has in common with all others."""


class PairTable:
    """The pairs of one device in one ring. It may be used from several threads."""

    def __init__(self, ring: Ring, own: int) -> None:
        """`own` is the number of the ring's partitions on the device."""
        self._rows = ring.rows
        self._room = _TIMES * len(ring.rows) * own
        self._known: OrderedDict[Pair, PairRoots] = OrderedDict()
        self._kept = 0
        self._lock = Lock()

    def of(self, pair: Pair) -> PairRoots:
        """Return the pair's partitions, with the roots that were known at the last question."""
        if not pair.clockwise:
            low, high = sorted((pair.asker, pair.answerer))
            pair = replace(pair, asker=low, answerer=high, skipped=())
        with self._lock:
            found = self._known.get(pair)
            if found is None:
                found = self._known[pair] = PairRoots(
                    sync_shared(self._rows, pair.asker, pair.answerer, pair.skipped, pair.clockwise)
                )
                self._kept += len(found)
            self._known.move_to_end(pair)
            while self._kept > self._room and len(self._known) > 1:
                _, dropped = self._known.popitem(last=False)
                self._kept -= len(dropped)
            return found
