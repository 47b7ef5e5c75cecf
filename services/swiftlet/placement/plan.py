"""Read and write plans: the order in which the devices of one partition are asked. Pure.

A write goes to the partition's primaries; a primary in trouble is replaced by the next handoff, so that the number of
copies is right from the first moment. A read asks primaries, then handoffs in ring order. The nearest primaries come
first (`Place`), and those that are as near as each other in random order, which spreads the load. Devices that failed
lately are asked last: skipped while others can answer, but used when they are all that is left.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass

from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device

Suppressed = Callable[[Device], bool]
"""A function that tells whether a device failed so often lately that others should be asked first."""
Rest = tuple[tuple[Device, ...], frozenset[int]]
"""The devices of a plan after the first ones, and the ids of those in it that are handoffs."""


def _never(_device: Device) -> bool:
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


def write_quorum(replicas: int) -> int:
    """Return how many durable copies acknowledge a write: floor(r/2) + 1, so that two quorums always share a copy."""
    return replicas // 2 + 1


class WritePlan:
    """One write: `slots[i]` is replica i's first choice, `spares` replace devices in trouble, in order.

    Most writes need no spares, so these are searched for only when they are needed.
    """

    __slots__ = ("_find", "_found", "quorum", "slots")

    def __init__(self, slots: tuple[Device, ...], quorum: int, find: Callable[[], Rest] = lambda: ((), frozenset())):
        """`find` returns the spares, and the ids of all devices in the plan that are not primaries."""
        self.slots = slots
        self.quorum = quorum
        self._find = find
        self._found: Rest | None = None

    def _rest(self) -> Rest:
        if self._found is None:
            self._found = self._find()
        return self._found

    @property
    def spares(self) -> tuple[Device, ...]:
        """The devices that replace those in trouble."""
        return self._rest()[0]

    @property
    def handoffs(self) -> frozenset[int]:
        """Ids of the devices that are not primaries."""
        return self._rest()[1]


class ReadPlan:
    """The devices of a read in the order in which they are asked; `handoffs` are the ids of those that are not
    primaries.

    Nearly every read ends at one of the `first` devices, so handoffs are searched for only when they are needed.
    """

    __slots__ = ("_find", "_found", "first", "quorum")

    def __init__(self, first: Sequence[Device], quorum: int, find: Callable[[], Rest] = lambda: ((), frozenset())):
        """`find` returns the devices after the first ones, and the ids of the handoffs."""
        self.first = first
        self.quorum = quorum
        self._find = find
        self._found: Rest | None = None

    def _rest(self) -> Rest:
        if self._found is None:
            self._found = self._find()
        return self._found

    @property
    def handoffs(self) -> frozenset[int]:
        """Ids of the devices that are not primaries."""
        return self._rest()[1]

    @property
    def devices(self) -> tuple[Device, ...]:
        """Return all devices of the plan, in the order in which they are asked."""
        return (*self.first, *self._rest()[0])

    def __iter__(self) -> Iterator[Device]:
        """Yield the devices in the order in which they are asked."""
        yield from self.first
        yield from self._rest()[0]


def _ids(devices: list[Device]) -> frozenset[int]:
    return frozenset(device.id for device in devices)


def _spares(ring: Ring, partition: int, count: int) -> list[Device]:
    found: list[Device] = []
    for device in ring.handoffs(partition):
        if len(found) == count:
            break
        found.append(device)
    return found


def plan_write(ring: Ring, partition: int, suppressed: Suppressed = _never) -> WritePlan:
    """Return the plan of a write: primaries as slots, and as many handoffs as spares.

    Suppressed devices change places with spares that are not suppressed.
    """
    primaries = ring.primaries(partition)
    if any(suppressed(device) for device in primaries):
        return _with_spares(primaries, _spares(ring, partition, len(primaries)), suppressed)

    def find() -> Rest:
        spares = _spares(ring, partition, len(primaries))
        return tuple(sorted(spares, key=suppressed)), _ids(spares)

    return WritePlan(primaries, write_quorum(len(primaries)), find)


def _with_spares(primaries: Sequence[Device], spares: list[Device], suppressed: Suppressed) -> WritePlan:
    sound = [device for device in spares if not suppressed(device)]
    slots: list[Device] = []
    last: list[Device] = []
    for device in primaries:
        if suppressed(device) and sound:
            last.append(device)
            slots.append(sound.pop(0))
        else:
            slots.append(device)
    last.extend(device for device in spares if suppressed(device))
    rest = (*sound, *last), _ids(spares)
    return WritePlan(tuple(slots), write_quorum(len(primaries)), lambda: rest)


def plan_read(
    ring: Ring,
    partition: int,
    suppressed: Suppressed = _never,
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
        spares = _spares(ring, partition, len(primaries))
        late_spares = [device for device in spares if suppressed(device)]
        return (*(d for d in spares if d not in late_spares), *late, *late_spares), _ids(spares)

    first = [device for device in primaries if device not in late] if late else primaries
    return ReadPlan(first, write_quorum(len(primaries)), rest)
