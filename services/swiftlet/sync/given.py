"""What peers were seen to hold, so that nothing is given again to one that gives it away.

Replicators load a new ring at different moments. Until all have it, a device may be a primary in the eyes of one and a
handoff in its own: it sends home and forgets what it was given, and would be given it again in every round; two
devices that each take the other for the primary would pass a partition to and fro. So a partition that a peer held in
full and lacks records of later is not given those again: if the peer should have them, it knows so itself
and pulls them. Only after `AGAIN_S` they are given once more, in case the peer's own replicator is what is missing.

Kept for one ring; a new one begins anew. Memory: two numbers for each partition and peer.
"""

from __future__ import annotations

from swiftlet.sync.compare import IN_FLIGHT_S, Push

AGAIN_S = 600.0
"""Seconds after which records that a peer gave away, or lost without fetching them, are sent once more."""


class Given:
    """Per peer and partition of one device and ring: until when all was there, and since when some of it is gone."""

    def __init__(self) -> None:
        """Nothing was seen yet."""
        self._seen: dict[tuple[int, int], tuple[float, float | None]] = {}

    def withholds(self, peer: int, partition: int, push: Push, now_s: float) -> bool:
        """Whether a peer (its device id) that lacks this had it already, so that it is left to fetch it itself."""
        complete_s, gone_since_s = self._seen.get((peer, partition), (0.0, None))
        if not push.fresh or push.entry.timestamp.seconds >= complete_s - IN_FLIGHT_S:
            return False
        return gone_since_s is None or now_s - gone_since_s < AGAIN_S

    def compared(self, peer: int, partition: int, began_s: float, withheld: bool) -> None:
        """A comparison that began then ended with everything there, or on its way, but for what was `withheld`."""
        if not withheld:
            self._seen[peer, partition] = (began_s, None)
            return
        _, gone_since_s = self._seen.get((peer, partition), (began_s, None))
        self._seen[peer, partition] = (began_s, began_s if gone_since_s is None else gone_since_s)
