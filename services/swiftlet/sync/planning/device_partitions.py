"""The partitions of one device in one ring, as a round sees them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.planning.standing import Standing


class Places:
    """The devices on which a ring places the partitions of one of its devices; made once for each ring."""

    def __init__(self, ring: Ring, device: Device) -> None:
        """Looks at every partition of the device."""
        self.ring = ring
        self.assigned = frozenset(partition for partition, _ in ring.partitions_of(device.id))
        """Partitions that belong on the device."""
        by_peer: dict[int, list[int]] = {}
        for partition in self.assigned:
            for peer in {holder.id for holder in ring.primaries(partition)}:
                if peer != device.id:
                    by_peer.setdefault(peer, []).append(partition)
        self.by_peer = {peer: frozenset(partitions) for peer, partitions in by_peer.items()}
        """The partitions that it shares with each other device, by the device's id."""


@dataclass(slots=True)
class DevicePartitions:
    """One device in one policy's ring.

    `bare` are the partitions that belong here and of which nothing is, `empty` those that are there with nothing in
    them. `roots` are the device's, as they were read in this round and as far as nothing was moved since.
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
        return len(set(held) - self.places.assigned)

    def device_of(self, id_: int) -> Device:
        """A device of the ring by its id."""
        device = self.ring.devices[id_]
        if device is None:
            raise LookupError(f"ring {self.ring.version} has no device {id_}")
        return device
