"""Finds where one more replica of a partition may go, and which replica is in the wrong place.

Both questions depend only on the tiers that the partition's replicas are in, so answers are cached per *pattern*: the
sorted marks of the devices. A device's mark is its node's tier or, when the plan wants the device in every partition,
its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from swiftlet.ring.plan import Plan
from swiftlet.ring.topology import NODE_LEVEL, Topology

_REMEMBERED = 4_000_000
"""Bytes of cached answers above which all of them are dropped."""


@dataclass(frozen=True, slots=True)
class Room:
    """Devices that may take one more replica, as positions and as a mask of one byte per position."""

    devices: tuple[int, ...]
    mask: bytes


class Patterns:
    """Answers for one plan."""

    def __init__(self, topology: Topology, plan: Plan) -> None:
        """`plan` was made for `topology`."""
        self._topology = topology
        self._plan = plan
        self.mark = [leaf if plan.least[leaf] else topology.parent[leaf] for leaf in topology.leaf]
        """The mark of each device, by its position."""
        self._rooms: dict[tuple[int, ...], Room] = {}
        self._wrong: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._untouched: dict[int, list[int]] = {}
        self._limit = max(64, _REMEMBERED // (9 * max(1, len(topology.devices))))
        # Narrower tiers come later, so going backwards adds shortages up from the devices to the ring.
        self._wanted = [tier for tier in range(len(topology.parent) - 1, -1, -1) if plan.least[tier]]

    def room(self, others: Iterable[int]) -> Room:
        """Return where one more replica beside those on the devices `others` should go; the caller excludes `others`.

        Tiers below their minimum come first, then those below their maximum; if there are none, the least overfull
        ones: there is always an answer while any device with a weight is left.
        """
        mark = self.mark
        return self._room(tuple(sorted([mark[device] for device in others])))

    def misplaced(self, marks: tuple[int, ...]) -> tuple[int, ...]:
        """Return which of a partition's replicas, given by marks, can be moved to better places; none when all are well
        placed.

        If one move can't correct everything, these are the replicas whose move helps most.
        """
        wrong = self._wrong.get(marks)
        if wrong is None:
            if len(self._wrong) >= self._limit:
                self._wrong.clear()
            wrong = self._wrong[marks] = self._find_misplaced(marks)
        return wrong

    def _room(self, key: tuple[int, ...]) -> Room:
        room = self._rooms.get(key)
        if room is None:
            if len(self._rooms) >= self._limit:
                self._rooms.clear()
            count = self._count(key)
            devices = self._open(0, count, self._shortages(count))
            mask = bytearray(len(self._topology.devices))
            for device in devices:
                mask[device] = 1
            room = self._rooms[key] = Room(tuple(devices), bytes(mask))
        return room

    def _find_misplaced(self, marks: tuple[int, ...]) -> tuple[int, ...]:
        best = self._faults(marks)
        positions: list[int] = []
        for position in range(len(marks) if best else 0):
            rest = marks[:position] + marks[position + 1 :]
            devices = self._room(tuple(sorted(rest))).devices
            if not devices:
                continue
            faults = self._faults((*rest, self.mark[devices[0]]))
            if faults < best:
                best, positions = faults, []
            if faults == best and (positions or faults < self._faults(marks)):
                positions.append(position)
        return tuple(positions)

    def _faults(self, marks: Iterable[int]) -> int:
        """Return the number of replicas too many or too few, over all tiers."""
        least, most = self._plan.least, self._plan.most
        count = self._count(marks)
        over = sum([number - most[tier] for tier, number in count.items() if number > most[tier]])
        return over + sum([max(0, least[tier] - count.get(tier, 0)) for tier in self._wanted])

    def _count(self, marks: Iterable[int]) -> dict[int, int]:
        """Return the number of replicas per tier, without the tiers that have none."""
        parent = self._topology.parent
        count: dict[int, int] = {}
        for mark in marks:
            tier = mark
            while tier >= 0:
                count[tier] = count.get(tier, 0) + 1
                tier = parent[tier]
        return count

    def _shortages(self, count: dict[int, int]) -> dict[int, int]:
        """Return how many replicas each tier lacks, in itself or in the sum of the tiers under it."""
        least, parent = self._plan.least, self._topology.parent
        short: dict[int, int] = {}
        for tier in self._wanted:
            lack = max(least[tier] - count.get(tier, 0), short.get(tier, 0))
            if lack > 0:
                short[tier] = lack
                short[parent[tier]] = short.get(parent[tier], 0) + lack
        return short

    def _open(self, tier: int, count: dict[int, int], short: dict[int, int]) -> list[int]:
        """Return the devices under `tier` that may take one more replica."""
        topology, most = self._topology, self._plan.most
        if topology.device_of[tier] >= 0:
            return [topology.device_of[tier]]
        untouched = not count.get(tier)
        if untouched and tier in self._untouched:
            return self._untouched[tier]
        children = [child for child in topology.children[tier] if count.get(child, 0) < topology.capacity[child]]
        chosen = [child for child in children if child in short]
        if not chosen and topology.level[tier] == NODE_LEVEL:
            # Marks don't tell which of the interchangeable devices are taken, so the caller excludes those.
            chosen = [child for child in children if most[child]] or children
        elif not chosen:
            chosen = [child for child in children if count.get(child, 0) < most[child]]
        if not chosen and children:
            lowest = min(count.get(child, 0) - most[child] for child in children)
            chosen = [child for child in children if count.get(child, 0) - most[child] == lowest]
        devices = [device for child in chosen for device in self._open(child, count, short)]
        if untouched:
            self._untouched[tier] = devices
        return devices
