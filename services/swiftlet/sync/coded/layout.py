"""Where a device keeps fragments, by a ring: which partitions of its store are its own places', and whose are others.

A store has 32 partitions for each of the ring's, one for each place. No I/O.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from swiftlet.boundaries.coded import COPIES, PLACES, CodedPlaces
from swiftlet.model import ObjectKey
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Coding, Device


@dataclass(frozen=True, slots=True)
class Spot:
    """A device, and the place whose fragments it is asked about."""

    device: Device
    place: int


@dataclass(frozen=True, slots=True)
class CodedRing:
    """The ring of a policy, and how its objects are coded."""

    policy: int
    ring: Ring
    coding: Coding

    def places(self, partition: int, digest: bytes = b"") -> CodedPlaces:
        """Return where the fragments of an object in a ring partition are."""
        key = ObjectKey(self.policy, partition, digest)
        return CodedPlaces.in_ring(key, self.coding, self.ring)

    def key(self, store_partition: int, digest: bytes) -> ObjectKey:
        """Return the key of a fragment by the store's partition."""
        return ObjectKey(self.policy, store_partition, digest)

    def store_partitions(self, device: Device) -> list[int]:
        """Return the store's partitions of a device's own places, in order."""
        return sorted(store_partition_of(partition, place) for partition, place in self.ring.partitions_of(device.id))

    def owner(self, store_partition: int) -> Device | None:
        """Return the device whose place it is; None for one that the ring does not have."""
        partition, place = divmod(store_partition, PLACES)
        if partition >= self.ring.partition_count or place >= self.coding.fragments:
            return None
        return self.ring.primaries(partition)[place]

    def holders(self, partition: int) -> Sequence[Device]:
        """Return the devices that have copies of the small objects of a partition, by their places."""
        return self.ring.primaries(partition)[: self.coding.holders]

    def holders_after(self, device: Device, store_partition: int) -> Iterator[Device]:
        """Yield the other devices that have copies of a partition of the store, the next one clockwise first."""
        holders = self.holders(store_partition // PLACES)
        place = next(place for place, one in enumerate(holders) if one.id == device.id)
        yield from (holders[(place + step) % len(holders)] for step in range(1, len(holders)))

    def clockwise(self, store_partition: int) -> Iterator[Spot]:
        """Yield the other places of a partition, the next one clockwise first."""
        partition, place = divmod(store_partition, PLACES)
        holders: Sequence[Device] = self.ring.primaries(partition)
        for step in range(1, len(holders)):
            other = (place + step) % len(holders)
            yield Spot(holders[other], other)


@dataclass(frozen=True, slots=True)
class Shared:
    """The partitions that a device shares with another one."""

    device: Device
    own: Sequence[int]
    """Positions among the device's own partitions."""
    theirs: Sequence[int]
    """The partitions in the other one's store, in order."""


class Around(Protocol):
    """Own partitions of a device's store, and where what belongs to them is on others."""

    @property
    def own(self) -> Sequence[int]:
        """The partitions of the device's store, in order."""
        ...

    @property
    def others(self) -> Sequence[Shared]:
        """The partitions that each other device shares."""
        ...


class Surroundings:
    """The own partitions of a device, and where their other places are; made once for each ring."""

    def __init__(self, coded: CodedRing, store_partitions: Sequence[int]) -> None:
        """`store_partitions` are own ones of the device, in order."""
        self.ring = coded.ring
        self.own = store_partitions
        self.first = [at for at, store_partition in enumerate(store_partitions) if store_partition % PLACES == 0]
        """Positions of those at whose first place the device is."""
        found: dict[int, tuple[Device, list[tuple[int, int]]]] = {}
        for at, store_partition in enumerate(store_partitions):
            for spot in coded.clockwise(store_partition):
                _, pairs = found.setdefault(spot.device.id, (spot.device, []))
                pairs.append((store_partition_of(store_partition // PLACES, spot.place), at))
        self.others = [
            Shared(device, [at for _, at in sorted(pairs)], sorted(theirs for theirs, _ in pairs))
            for device, pairs in found.values()
        ]
        """The partitions that the device shares with each other one."""


class HoldersAround:
    """The partitions of copies that belong on a device, and who else has these copies; made once for each ring."""

    def __init__(self, coded: CodedRing, device: Device, chosen: Collection[int] | None = None) -> None:
        """Only of `chosen` partitions of the ring, if they are given."""
        self.ring = coded.ring
        self._coded = coded
        self._device = device
        held = sorted(
            (partition, place)
            for partition, place in coded.ring.partitions_of(device.id)
            if place < coded.coding.holders and (chosen is None or partition in chosen)
        )
        self.own = [store_partition_of(partition, COPIES) for partition, _ in held]
        self.fragments = [store_partition_of(partition, place) for partition, place in held]
        """The partitions of the device's fragments of the same objects."""
        self.first = [at for at, (_, place) in enumerate(held) if place == 0]
        """Positions of those at whose first place the device is."""
        found: dict[int, tuple[Device, list[int]]] = {}
        for at, store_partition in enumerate(self.own):
            for other in self.others_of(store_partition):
                found.setdefault(other.id, (other, []))[1].append(at)
        self.others = [Shared(other, shared, [self.own[at] for at in shared]) for other, shared in found.values()]

    def others_of(self, store_partition: int) -> list[Device]:
        """Return who else has the copies of a partition, the next one clockwise first."""
        return list(self._coded.holders_after(self._device, store_partition))


def store_partition_of(partition: int, place: int) -> int:
    """Return the store's partition of a place of a ring partition."""
    return PLACES * partition + place
