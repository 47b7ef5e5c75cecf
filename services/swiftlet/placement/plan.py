"""Read plans: the order in which the devices of one partition are asked. Pure.

A read asks primaries, then handoffs in ring order. The nearest primaries come first (`Place`), and those that are as
near as each other in random order, which spreads the load. Devices that failed lately are asked last: skipped while
others can answer, but used when they are all that is left.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from swiftlet.placement.quorums import Quorum
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device

Suppressed = Callable[[Device], bool]
"""A function that tells whether a device failed so often lately that others should be asked first."""
Rest = tuple[tuple[Device, ...], frozenset[int]]
"""The devices of a plan after the first ones, and the ids of those in it that are handoffs."""


def never(_device: Device) -> bool:
    """Return False: nobody is suppressed."""
    return False


@dataclass(frozen=True, slots=True)
class Place:
    """Where a service is, by the names of regions and zones in rings; without a region all devices are as near."""

    region: str | None = None
    zone: str | None = None
    """The zone in the region; equal names in two regions are two zones."""

    def distance(self, device: Device) -> int:
        """Return 0 for a device in the same zone, 1 for one in the same region, 2 for others."""
        if self.region is None:
            return 0
        if device.region != self.region:
            return 2
        return 0 if device.zone == self.zone else 1


ANYWHERE = Place()


class LazyPlan:
    """What plans have in common: behind the first devices there are others, and handoffs among them.

    Nearly every request ends at the first devices, so the others are searched for only when they are needed.
    """

    __slots__ = ("_find", "_found", "quorum")

    def __init__(self, quorum: Quorum, find: Callable[[], Rest]):
        """`find` returns the other devices, and the ids of all devices in the plan that are not primaries."""
        self.quorum = quorum
        self._find = find
        self._found: Rest | None = None

    @property
    def rest(self) -> tuple[Device, ...]:
        """The other devices, in the order in which they are asked."""
        return self._all()[0]

    @property
    def handoffs(self) -> frozenset[int]:
        """Ids of the devices that are not primaries."""
        return self._all()[1]

    def _all(self) -> Rest:
        if self._found is None:
            self._found = self._find()
        return self._found


def nobody() -> Rest:
    """Return no other devices."""
    return (), frozenset()


class ReadPlan(LazyPlan):
    """The devices of a read in the order in which they are asked: the `first`, then the `rest`."""

    __slots__ = ("first",)

    def __init__(self, first: Sequence[Device], quorum: Quorum, find: Callable[[], Rest] = nobody):
        """`find` is as of `LazyPlan`."""
        super().__init__(quorum, find)
        self.first = first

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return all devices of the plan, in the order in which they are asked."""
        return (*self.first, *self.rest)

    def __iter__(self) -> Iterator[Device]:
        """Yield the devices in the order in which they are asked."""
        yield from self.first
        yield from self.rest


def ids_of(devices: Sequence[Device]) -> frozenset[int]:
    """Return the ids of devices."""
    return frozenset(device.id for device in devices)


def standing_in(ring: Ring, partition: int, count: int, region: str | None = None) -> list[Device]:
    """Return the first `count` handoffs of a partition, or those of one region."""
    handoffs = ring.handoffs(partition)
    return list(islice(handoffs if region is None else (d for d in handoffs if d.region == region), count))


def plan_read(
    ring: Ring,
    partition: int,
    suppressed: Suppressed = never,
    shuffle: Callable[[list[Device]], None] = random.shuffle,
    behind: Collection[int] = (),
    place: Place = ANYWHERE,
) -> ReadPlan:
    """Return the plan of a read from a place: the nearest primaries first, shuffled where they are as near, then as
    many handoffs, and suppressed devices at the very end.

    Primaries with an id in `behind` come after those that lack nothing, however near they are.
    """
    primaries = list(ring.primaries(partition))
    shuffle(primaries)
    if behind or place is not ANYWHERE:
        primaries.sort(key=lambda device: (device.id in behind, place.distance(device)))
    late = [device for device in primaries if suppressed(device)]

    def rest() -> Rest:
        spares = standing_in(ring, partition, len(primaries))
        late_spares = [device for device in spares if suppressed(device)]
        return (*(d for d in spares if d not in late_spares), *late, *late_spares), ids_of(spares)

    first = [device for device in primaries if device not in late] if late else primaries
    return ReadPlan(first, Quorum.of(primaries), rest)
