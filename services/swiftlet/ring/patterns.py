"""Where one more replica of a partition may go, and which replica stands in the wrong place.

Both questions depend only on the tiers that the partition's replicas stand in, so answers are kept per
*pattern*: the sorted marks of the devices. A device's mark is its node's tier or, when the plan wants the
device in every partition, its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from swiftlet.ring.plan import Plan
from swiftlet.ring.topology import NODE_LEVEL, Topology

_REMEMBERED = 4_000_000
"""Bytes of answers kept before they are all forgotten."""


@dataclass(frozen=True, slots=True)
class Room:
    """Devices that may take one more replica: as positions and as a mask of one byte per position."""

    devices: tuple[int, ...]
    mask: bytes


class Patterns:
    """Answers for one plan."""

    def __init__(self, topology: Topology, plan: Plan) -> None:
        """`plan` was made for `topology`."""
        self._topology = topology
        self._plan = plan
        self.mark = [leaf if plan.least[leaf] else topology.parent[leaf] for leaf in topology.leaf]
        """Per device position."""
        self._rooms: dict[tuple[int, ...], Room] = {}
        self._wrong: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._limit = max(64, _REMEMBERED // (9 * max(1, len(topology.devices))))

    def room(self, others: Iterable[int]) -> Room:
        """Where one more replica beside those on the devices `others` should go; the caller excludes `others`.

        Children below their minimum come first, then those below their maximum; if there are none, the least
        overfull ones: there is always an answer while any device with a weight is left.
        """
        mark = self.mark
        key = tuple(sorted([mark[device] for device in others]))
        room = self._rooms.get(key)
        if room is None:
            if len(self._rooms) >= self._limit:
                self._rooms.clear()
            mask = bytearray(len(self._topology.devices))
            self._open(0, self._count(key), mask)
            room = Room(tuple(i for i, open_ in enumerate(mask) if open_), bytes(mask))
            self._rooms[key] = room
        return room

    def misplaced(self, marks: tuple[int, ...]) -> tuple[int, ...]:
        """Which of a partition's replicas, given by marks, should be lifted first; empty when all stand well."""
        wrong = self._wrong.get(marks)
        if wrong is None:
            if len(self._wrong) >= self._limit:
                self._wrong.clear()
            wrong = self._wrong[marks] = tuple(self._lift(0, marks, self._count(marks)))
        return wrong

    def _count(self, marks: Iterable[int]) -> list[int]:
        count = [0] * len(self._topology.parent)
        for mark in marks:
            tier = mark
            while tier >= 0:
                count[tier] += 1
                tier = self._topology.parent[tier]
        return count

    def _open(self, tier: int, count: Sequence[int], mask: bytearray) -> None:
        topology, plan = self._topology, self._plan
        if topology.device_of[tier] >= 0:
            mask[topology.device_of[tier]] = 1
            return
        children = [child for child in topology.children[tier] if count[child] < topology.capacity[child]]
        if topology.level[tier] == NODE_LEVEL:
            # Marks don't tell which of the interchangeable devices are taken; the caller leaves those out.
            chosen = [child for child in children if plan.least[child]] or children
        else:
            chosen = [child for child in children if count[child] < plan.least[child]]
            chosen = chosen or [child for child in children if count[child] < plan.most[child]]
            if not chosen and children:
                lowest = min(count[child] - plan.most[child] for child in children)
                chosen = [child for child in children if count[child] - plan.most[child] == lowest]
        for child in chosen:
            self._open(child, count, mask)

    def _lift(self, tier: int, marks: tuple[int, ...], count: Sequence[int]) -> list[int]:
        """Positions in `marks` to choose from when one replica under `tier` is to make room for a better place."""
        topology, plan = self._topology, self._plan
        children = topology.children[tier]
        if topology.level[tier] == NODE_LEVEL:
            missing = any(plan.least[child] and not count[child] for child in children)
            return [i for i, mark in enumerate(marks) if mark == tier] if missing else []
        over = [child for child in children if count[child] > plan.most[child]]
        under = [child for child in children if count[child] < plan.least[child]]
        if over or under:
            givers = over or [child for child in children if count[child] > plan.least[child]]
            return [i for child in givers for i in self._choose(child, marks, count)]
        return [i for child in children if count[child] for i in self._lift(child, marks, count)]

    def _choose(self, tier: int, marks: tuple[int, ...], count: Sequence[int]) -> list[int]:
        """Positions in `marks` that `tier` can spare most easily."""
        topology, plan = self._topology, self._plan
        if topology.level[tier] >= NODE_LEVEL:
            return [i for i, mark in enumerate(marks) if mark == tier] or [
                i for i, mark in enumerate(marks) if topology.parent[mark] == tier
            ]
        held = [child for child in topology.children[tier] if count[child]]
        givers = [child for child in held if count[child] > plan.most[child]]
        givers = givers or [child for child in held if count[child] > plan.least[child]] or held
        return [i for child in givers for i in self._choose(child, marks, count)]
