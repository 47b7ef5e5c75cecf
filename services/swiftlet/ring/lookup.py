"""The read-only ring: from digest to partition, and from partition to devices.

A ring is immutable. It has one list of devices, and an array of 16-bit device ids per replica: a ring of 2^18
partitions with 3 replicas takes 1.5 MiB.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from swiftlet.ring.model import DIGEST_SIZE, Device, RingError, check_shape, row_lengths

_SEARCH = 8
"""How many slots are searched per device and kind of tier before handoffs are taken in plain order."""
_STRIDE = 0.6180339887498949
"""The distance between two slots of that search, as a share of the ring: the golden section scatters them most."""


class Ring:
    """The assignment of partitions to devices.

    `version` counts rebalances. `devices[id]` is None for ids that are not in use (any more). `replica_count` may be
    fractional: the partitions with the lowest numbers then have one replica more.
    """

    __slots__ = (
        "_levels",
        "_rows",
        "_shift",
        "_weighted",
        "devices",
        "part_power",
        "partition_count",
        "regions",
        "replica_count",
        "version",
    )

    def __init__(
        self,
        version: int,
        part_power: int,
        replica_count: float,
        devices: Sequence[Device | None],
        rows: Sequence[array[int]],
    ) -> None:
        """`rows[replica][partition]` is a device id; rows are as long as `row_lengths` says. Raises RingError
        otherwise.
        """
        check_shape(part_power, replica_count)
        if [len(row) for row in rows] != row_lengths(part_power, replica_count):
            raise RingError("the size of the assignment table does not match part_power and replicas")
        for index, device in enumerate(devices):
            if device is not None and device.id != index:
                raise RingError(
                    f"device {device.name!r} has id {device.id} but is at position {index} of the list of devices"
                )
        for row in rows:
            for id_ in set(row):
                if id_ >= len(devices) or devices[id_] is None:
                    raise RingError(f"the assignment table names device id {id_}, which is not among the devices")
        self.version = version
        self.part_power = part_power
        self.replica_count = float(replica_count)
        self.partition_count = 1 << part_power
        self.devices: tuple[Device | None, ...] = tuple(devices)
        self._rows = tuple(rows)
        self._shift = 32 - part_power
        present = [device for device in self.devices if device is not None]
        self._weighted = sum(bool(device.weight) for device in present)
        self.regions = frozenset(device.region for device in present if device.weight)
        """The regions that have devices which are not being drained."""
        self._levels: tuple[tuple[Callable[[Device], object], int], ...] = tuple(
            (tier, len({tier(device) for device in present})) for tier in (_region, _zone, _node)
        )

    def partition_of(self, digest: bytes) -> int:
        """Return the partition of a 16-byte digest: its top `part_power` bits. Raises ValueError for another length."""
        if len(digest) != DIGEST_SIZE:
            raise ValueError(f"a digest has {DIGEST_SIZE} bytes, not {len(digest)}")
        return int.from_bytes(digest[:4], "big") >> self._shift

    def primaries(self, partition: int) -> tuple[Device, ...]:
        """Return the devices that hold the partition, in replica order. Raises IndexError for an unknown partition."""
        devices = self.devices
        return tuple([devices[row[partition]] for row in self._holding(partition)])  # type: ignore[misc]

    def place_of(self, partition: int, device_id: int) -> int | None:
        """Return the number of the replica of a partition that a device holds, None when it holds none.

        In a policy with erasure coding it is the number of the fragment that the device keeps. A device that takes over
        a replica takes over its number, and those of the other holders stay.
        """
        return next((place for place, row in enumerate(self._holding(partition)) if row[partition] == device_id), None)

    def replica_ring(self, partition: int) -> tuple[Device, ...]:
        """Return the partition's holders clockwise, the last one followed by the first.

        Clockwise is by ascending replica number, the same order as `primaries`: a device that takes over a replica
        takes over its place, so all the other holders keep their neighbours.
        """
        return self.primaries(partition)

    def clockwise(self, partition: int, device_id: int) -> Device:
        """Return the next holder clockwise from one holder (itself when it is the only one). Raises KeyError for
        others.
        """
        holders = self.primaries(partition)
        for index, device in enumerate(holders):
            if device.id == device_id:
                return holders[(index + 1) % len(holders)]
        raise KeyError(f"device {device_id} holds no replica of partition {partition}")

    def handoffs(self, partition: int) -> Iterator[Device]:
        """Yield every other device once, in the order in which they stand in for a failed primary.

        First come devices in regions not yet used, then in unused zones, on unused nodes, then the rest, and devices
        without weight (being drained) last. Within that the order is that of ring slots scattered over the ring from
        the partition on: fixed for a ring, different between partitions, and in proportion to weights. Nothing is
        computed before it is needed.
        """
        holders = self.primaries(partition)
        taken = {device.id for device in holders}
        devices = self.devices
        for tier, tiers in self._levels:
            used = {tier(device) for device in holders}
            used.update([tier(devices[id_]) for id_ in taken])  # type: ignore[arg-type]
            if len(used) == tiers:
                continue
            # The search may miss tiers that hold very little; they are found in plain order afterwards.
            for device in chain(self._scattered(partition), self._rotated(partition)):
                if device.id in taken or not device.weight or tier(device) in used:
                    continue
                used.add(tier(device))
                taken.add(device.id)
                yield device
                if len(used) == tiers:
                    break
        # In a small ring there is nothing left to find here, and a search would take long.
        if sum(bool(devices[id_].weight) for id_ in taken) < self._weighted:  # type: ignore[union-attr]
            for device in self._scattered(partition):
                if device.id not in taken and device.weight:
                    taken.add(device.id)
                    yield device
        rest = [device for device in self._rotated(partition) if device.id not in taken]
        rest.sort(key=lambda device: not device.weight)
        yield from rest

    def may_hold(self, partition: int) -> tuple[Device, ...]:
        """Return the devices on which writes may have left an object of a partition: its primaries, and of the handoffs
        the first in each region, as many as there are primaries.
        """
        holders = list(self.primaries(partition))
        wanted = dict.fromkeys(self.regions, len(holders))
        for device in self.handoffs(partition):
            if wanted.get(device.region):
                wanted[device.region] -= 1
                holders.append(device)
            if not any(wanted.values()):
                break
        return tuple(holders)

    def partitions_of(self, device_id: int) -> Iterator[tuple[int, int]]:
        """Yield (partition, replica) for all that a device holds, by replica, then partition. Raises KeyError for an
        unknown id.
        """
        self.device(device_id)
        return self._partitions_of(device_id)

    def device(self, device_id: int) -> Device:
        """Return the device with this id. Raises KeyError when there is none."""
        found = self.devices[device_id] if 0 <= device_id < len(self.devices) else None
        if found is None:
            raise KeyError(f"there is no device {device_id} in ring version {self.version}")
        return found

    @property
    def rows(self) -> tuple[array[int], ...]:
        """The assignment table, `rows[replica][partition]` = device id; not to be changed."""
        return self._rows

    def __eq__(self, other: object) -> bool:
        """Return whether all that a ring file has is equal."""
        if not isinstance(other, Ring):
            return NotImplemented
        return (self.version, self.part_power, self.replica_count, self.devices, self._rows) == (
            other.version,
            other.part_power,
            other.replica_count,
            other.devices,
            other._rows,
        )

    def __hash__(self) -> int:
        return hash((self.version, self.part_power, self.replica_count))

    def __repr__(self) -> str:
        return f"Ring(version={self.version}, part_power={self.part_power}, replica_count={self.replica_count})"

    def _holding(self, partition: int) -> tuple[array[int], ...]:
        if not 0 <= partition < self.partition_count:
            raise IndexError(f"partition {partition} is outside 0..{self.partition_count - 1}")
        rows = self._rows
        return rows if partition < len(rows[-1]) else rows[:-1]

    def _scattered(self, partition: int) -> Iterator[Device]:
        """Yield the holders of slots spread over the ring; devices come up repeatedly."""
        rows, devices, count = self._rows, self.devices, self.partition_count
        step = int(count * _STRIDE) | 1
        for turn in range(min(count, _SEARCH * len(devices))):
            partition = (partition + step) % count
            row = rows[turn % len(rows)]
            if partition < len(row):
                yield devices[row[partition]]  # type: ignore[misc]

    def _rotated(self, partition: int) -> Iterator[Device]:
        """Yield all devices by id, beginning with a different one for every partition."""
        devices = self.devices
        for turn in range(len(devices)):
            device = devices[(turn + partition) % len(devices)]
            if device is not None:
                yield device

    def _partitions_of(self, device_id: int) -> Iterator[tuple[int, int]]:
        for replica, row in enumerate(self._rows):
            partition = -1
            while True:
                try:
                    partition = row.index(device_id, partition + 1)
                except ValueError:
                    break
                yield partition, replica


def _region(device: Device) -> object:
    return device.region


def _zone(device: Device) -> object:
    return device.region, device.zone


def _node(device: Device) -> object:
    return device.region, device.zone, device.node
