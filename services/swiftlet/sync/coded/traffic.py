"""What repairs move: how far away devices are, and what passes the links to other regions.

Cells are read by the replicator that rebuilds, and the fragment is sent on from there, so what counts is how far other
devices are from its own ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.planning.device_partitions import nodes_in
from swiftlet.sync.planning.report import REGION_BYTES

Leg = tuple[Device, int]
"""A device, and the bytes that it has sent or got."""


@dataclass(frozen=True, slots=True)
class Vicinity:
    """A place in a ring."""

    region: str
    nodes: int
    """How many nodes of the region are in use."""
    distances: bytes
    """How far away each device is, by its id: 0 in the same zone, 1 in the same region, 2 in others."""

    @classmethod
    def of(cls, ring: Ring, own: Device) -> Vicinity:
        """Return that of a device."""
        return cls(own.region, nodes_in(ring, own.region), bytes(_distance(own, device) for device in ring.devices))


NOWHERE = Vicinity("", 0, b"")
"""That of a replicator whose devices the ring does not have."""


def _distance(own: Device, device: Device | None) -> int:
    if device is None or device.region != own.region:
        return 2
    return 0 if device.zone == own.zone else 1


class Traffic:
    """Counts what the repairs of one policy move, and holds them up as the budgets of a pace say."""

    def __init__(self, vicinity: Vicinity, pace: Pace) -> None:
        """`vicinity` is that of the replicator's devices."""
        self.vicinity = vicinity
        self._pace = pace

    async def moved(self, size_bytes: int, pulled: Iterable[Leg], pushed: Iterable[Leg]) -> None:
        """Record that so many bytes were moved: `pulled` from these devices, and `pushed` to those; return when more
        may be.
        """
        over: Counter[str] = Counter()
        for direction, legs in (("pulled", pulled), ("pushed", pushed)):
            for device, passed_bytes in legs:
                if device.region != self.vicinity.region:
                    over[device.region] += passed_bytes
                    REGION_BYTES.labels(device.region, direction).inc(passed_bytes)
        await self._pace.moved(size_bytes, over, self.vicinity.nodes)
