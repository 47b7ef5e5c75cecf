"""The partitions of one device in one ring, as a round sees them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.planning.standing import Standing
from swiftlet.sync.session.pair_messages import Pair
from swiftlet.sync.session.pair_search import SharedPartitions, shared_by


class Places:
    """The devices on which a ring places the partitions of one of its devices; made once for each ring."""

    def __init__(self, ring: Ring, device: Device) -> None:
        """Look up all partitions of the device, which takes time in proportion to their number."""
        self.ring = ring
        self._device = device.id
        self._shared: dict[int, SharedPartitions | None] = {}
        self.assigned = frozenset(partition for partition, _ in ring.partitions_of(device.id))
        """The partitions that the ring puts on the device."""
        by_peer: dict[int, set[int]] = {}
        for row in ring.rows:
            for partition in self.assigned:
                # The last row may be shorter than the others.
                if partition < len(row):
                    by_peer.setdefault(row[partition], set()).add(partition)
        by_peer.pop(device.id, None)
        self.regions = {one.id: one.region for one in ring.devices if one is not None}
        """The region of each device, by its id."""
        self.nodes = nodes_in(ring, device.region)
        """How many nodes of the device's region are in use."""
        self.has_far = any(region != device.region for region in self.regions.values())
        """Whether there are devices in other regions."""
        self.by_peer = {peer: frozenset(partitions) for peer, partitions in by_peer.items()}
        """The partitions that the device shares with each other device, by the id of that device."""

    def shared_with(self, peer: int) -> SharedPartitions | None:
        """Return all partitions that the device shares with another one, for questions that do not name them."""
        if peer not in self._shared:
            pair = Pair(self._device, peer)
            self._shared[peer] = shared_by(pair, self.by_peer[peer], self.ring.part_power)
        return self._shared[peer]


def nodes_in(ring: Ring, region: str) -> int:
    """Return how many nodes of a region are in use."""
    near = (one for one in ring.devices if one is not None and one.region == region and one.weight > 0)
    return len({(one.host, one.node) for one in near})


@dataclass(slots=True)
class DevicePartitions:
    """The partitions of one device in the ring of one policy, as a round works with them.

    `bare` are the partitions that belong here and that the device does not have; `empty` are those that it has without
    any entry. `roots` are the device's, as read in this round; the root of a partition is removed when something in it
    moves.
    """

    device: Device
    policy: int
    places: Places
    standing: Standing
    bare: frozenset[int] = frozenset()
    empty: set[int] = field(default_factory=set)
    roots: dict[int, bytes] = field(default_factory=dict)

    @property
    def ring(self) -> Ring:
        """The ring that the round began under."""
        return self.places.ring

    def peers(self, partition: int) -> tuple[list[Device], bool]:
        """Return the primaries of a partition other than this device, and whether this device is none of its primaries.

        A partition with a number above those of the ring has no peers, and this device is none of its primaries.
        """
        primaries: Sequence[Device] = ()
        if partition < self.ring.partition_count:
            primaries = self.ring.primaries(partition)
        peers = [device for device in primaries if device.id != self.device.id]
        return peers, len(peers) == len(primaries)

    def misplaced(self, held: Iterable[int]) -> int:
        """Return how many of these partitions the ring puts on other devices only."""
        return len(set(held) - self.places.assigned)

    def device_of(self, id_: int) -> Device:
        """Return the device of the ring with this id. Raises LookupError when there is none."""
        device = self.ring.devices[id_]
        if device is None:
            raise LookupError(f"ring {self.ring.version} has no device {id_}")
        return device
