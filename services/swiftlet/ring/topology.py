"""The tree of failure domains over a list of devices: ring > region > zone > node > device.

A `Topology` numbers devices densely by their position in the list it was given (not by id), and tiers
in preorder with the whole ring as tier 0, so that the planning code can work on plain lists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from swiftlet.ring.model import Device

LEVELS = ("ring", "region", "zone", "node", "device")
NODE_LEVEL = 3
DEVICE_LEVEL = 4

_Number = TypeVar("_Number", int, float)


class Topology:
    """Tiers as parallel lists, indexed by tier number.

    `parent` is -1 for the ring itself. `level` is an index into LEVELS. `capacity` is the number of devices under the
    tier with a weight above 0, hence the most replicas of one partition that it can take. `leaf[position]` is the tier
    of a device, and `device_of[tier]` the position of the device (-1 for wider tiers).
    """

    def __init__(self, devices: Sequence[Device]) -> None:
        """Build the tree; the order of tiers depends on names and ids only, not on the order of `devices`."""
        self.devices = tuple(devices)
        self.parent = [-1]
        self.children: list[list[int]] = [[]]
        self.level = [0]
        self.device_of = [-1]
        self.leaf = [0] * len(self.devices)
        tiers: dict[tuple[str, ...], int] = {(): 0}
        order = sorted(
            range(len(self.devices)),
            key=lambda i: (devices[i].region, devices[i].zone, devices[i].node, devices[i].id),
        )
        for position in order:
            device = self.devices[position]
            path = (device.region, device.zone, device.node)
            above = 0
            for depth in range(1, NODE_LEVEL + 1):
                key = path[:depth]
                tier = tiers.get(key)
                if tier is None:
                    tier = tiers[key] = self._add(above, depth)
                above = tier
            self.leaf[position] = self._add(above, DEVICE_LEVEL)
            self.device_of[self.leaf[position]] = position
        self.node_of = [self.parent[leaf] for leaf in self.leaf]
        self.capacity = self.sums([1 if device.weight > 0 else 0 for device in self.devices])

    def _add(self, parent: int, level: int) -> int:
        tier = len(self.parent)
        self.parent.append(parent)
        self.children.append([])
        self.children[parent].append(tier)
        self.level.append(level)
        self.device_of.append(-1)
        return tier

    def sums(self, per_device: Sequence[_Number]) -> list[_Number]:
        """Return per tier the sum of a quantity that is given per device position."""
        total = [per_device[0] - per_device[0]] * len(self.parent)
        for position, leaf in enumerate(self.leaf):
            total[leaf] = per_device[position]
        for tier in range(len(self.parent) - 1, 0, -1):  # In preorder, children come after their parent.
            total[self.parent[tier]] += total[tier]
        return total

    def join_level(self, a: int, b: int) -> int:
        """Return the level of the narrowest tier that two different devices share: 0 = only the ring, 3 = the same
        node.
        """
        tier, other = self.leaf[a], self.leaf[b]
        while tier != other:
            tier, other = self.parent[tier], self.parent[other]
        return self.level[tier]
