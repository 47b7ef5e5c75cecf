"""What one device has to do with its ring's partitions in one round."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.standing import Standing


@dataclass(slots=True)
class Share:
    """One device in one policy's ring.

    `bare` are the partitions that belong here and of which nothing is, `shown` which of them each peer has (by device
    id; None for a peer that could not say), `empty` those that are there with nothing in them. `proved` are, by
    device id of a peer, the partitions that were seen to be equal there in this round, and when the comparison began.
    """

    device: Device
    policy: int
    ring: Ring
    standing: Standing
    bare: frozenset[int] = frozenset()
    shown: dict[int, frozenset[int] | None] = field(default_factory=dict)
    empty: set[int] = field(default_factory=set)
    proved: dict[int, dict[int, float]] = field(default_factory=dict)

    def peers(self, partition: int) -> tuple[list[Device], bool]:
        """The partition's primaries without this device, and whether it is none of them.

        A partition that the ring does not have is nobody's: no peers, and this device none of its primaries.
        """
        primaries: Sequence[Device] = ()
        if partition < self.ring.partition_count:
            primaries = self.ring.primaries(partition)
        peers = [device for device in primaries if device.id != self.device.id]
        return peers, len(peers) == len(primaries)

    def misplaced(self, held: Iterable[int]) -> int:
        """How many of these partitions the ring puts elsewhere."""
        return sum(self.peers(partition)[1] for partition in held)

    def proved_at(self, peer: Device, partition: int) -> float | None:
        """When a comparison began that found the partition to be equal at a peer; None if none did."""
        return self.proved.get(peer.id, {}).get(partition)

    def asks(self, peer: Device, partition: int) -> bool:
        """Whether a peer may have something of a partition that is empty here."""
        shown = self.shown.get(peer.id)
        return partition not in self.bare or shown is None or partition in shown
