"""How many devices have to answer a write before it is acknowledged: so many in all, or so many in each region."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from swiftlet.ring.model import Device


def write_quorum(replicas: int) -> int:
    """Return how many durable copies acknowledge a write: floor(r/2) + 1, so that two quorums always share a copy."""
    return replicas // 2 + 1


@dataclass(frozen=True, slots=True)
class Quorum:
    """The devices that have to answer: `count` of them wherever they are, or so many in each of `regions`."""

    count: int
    regions: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(cls, devices: Collection[Device]) -> Quorum:
        """Return the quorum that most of these devices are."""
        return cls(write_quorum(len(devices)))

    @classmethod
    def in_each_region(cls, devices: Iterable[Device]) -> Quorum:
        """Return the quorum that most of these devices are in each of their regions."""
        regions = tuple((region, write_quorum(n)) for region, n in by_region(devices).items())
        return cls(sum(needed for _, needed in regions), regions)

    def met(self, devices: Collection[Device]) -> bool:
        """Return whether these devices are enough."""
        return self._lacking(devices) is None

    def told(self, devices: Collection[Device]) -> str:
        """Return for people how many must answer, and how many have, where these devices have."""
        region, needed, found = self._lacking(devices) or (None, self.count, len(devices))
        where = "" if region is None else f"in region {region} "
        replicas = "1 replica" if needed == 1 else f"{needed} replicas"
        return f"{where}{replicas} must answer, {found} did"

    def _lacking(self, devices: Collection[Device]) -> tuple[str | None, int, int] | None:
        """Return where too few have answered, how many must and how many have; None when it is enough."""
        if not self.regions:
            return None if len(devices) >= self.count else (None, self.count, len(devices))
        found = by_region(devices)
        lacking = ((region, needed, found[region]) for region, needed in self.regions if found[region] < needed)
        return next(lacking, None)


def by_region(devices: Iterable[Device]) -> Counter[str]:
    """Return how many of these devices are in each region, in the order in which regions come up."""
    return Counter(device.region for device in devices)
