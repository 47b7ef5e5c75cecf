"""The first layout of a ring, by dealing.

A block of m partitions with k replicas has m*k slots. Put them on a line, replica after replica, and let every
device cover a stretch of it, the devices of one tier side by side: since a partition's slots stand m apart, a
tier that covers its planned share of the line has the floor or the ceiling of that share of every partition
(systematic sampling). Each block lays its tiers and devices out in a new random order, so that over many
blocks every pair of devices meets about as often as any other.

A block costs time in proportion to the devices, not to the slots.
"""

from __future__ import annotations

from array import array
from random import Random

from swiftlet.ring.plan import Plan
from swiftlet.ring.topology import Topology

_MAX_BLOCK = 1024
"""The largest number of partitions in a block; larger ones are dealt faster but repeat the same neighbours
more often.
"""


def deal(topology: Topology, plan: Plan, rng: Random) -> list[array[int]]:
    """Return one array of device positions per replica, each `plan.partitions` long.

    Tiers are exactly as planned in every partition; totals per device are within a few of their quota.
    """
    rows = [array("H") for _ in range(plan.replicas)]
    dealer = _Dealer(topology, plan, rng)
    size = 8
    while size < min(len(topology.devices), _MAX_BLOCK):
        size *= 2
    for start in range(0, plan.partitions, size):
        count = min(size, plan.partitions - start)
        line = dealer.line(start + count, count)
        for replica, row in enumerate(rows):
            row.extend(line[replica * count : (replica + 1) * count])
    return rows


class _Dealer:
    """Keeps what every tier has been given so far, so that later blocks make up for roundings."""

    def __init__(self, topology: Topology, plan: Plan, rng: Random) -> None:
        self._children = [[child for child in children if plan.quota[child]] for children in topology.children]
        self._device_of = topology.device_of
        self._plan = plan
        self._random = rng.random
        self._given = [0] * len(topology.parent)

    def line(self, end: int, count: int) -> array[int]:
        """Return the slots of the `count` partitions before partition `end`."""
        line = array("H")
        self._lay(0, count * self._plan.replicas, end, count, line)
        return line

    def _lay(self, tier: int, amount: int, end: int, count: int, line: array[int]) -> None:
        device = self._device_of[tier]
        if device >= 0:
            line.extend([device] * amount)
            return
        plan, quota, given, random = self._plan, self._plan.quota, self._given, self._random
        total = plan.partitions
        children = self._children[tier]
        shares = [quota[child] * count // total for child in children]
        missing = amount - sum(shares)
        if missing:
            # The last replicas of the stretch go to those that are furthest behind their share so far.
            behind = sorted(
                [
                    (given[child] * total - quota[child] * end, random(), i)
                    for i, child in enumerate(children)
                    if quota[child] * count % total
                ]
            )
            for _, _, i in behind[:missing]:
                shares[i] += 1
        order = sorted([(random(), i) for i in range(len(children))])
        for _, i in order:
            share = shares[i]
            if share:
                child = children[i]
                given[child] += share
                self._lay(child, share, end, count, line)
