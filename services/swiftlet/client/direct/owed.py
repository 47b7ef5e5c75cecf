"""What a client's writes leave to the devices, rows of containers; and which devices a client does not read from."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from swiftlet.boundaries.objects import ContainerUpdate, WriteReply
from swiftlet.model import ObjectKey, ObjectRow
from swiftlet.names import Path
from swiftlet.placement.owed import ReadRow, share
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp

BEHIND_S = 600.0
"""Seconds for which a client remembers that a device has missed a write of it."""
MAX_BEHIND = 4096
"""Partitions that are remembered; of more, the oldest are forgotten."""


@dataclass(frozen=True, slots=True)
class RowOfDevices:
    """A row that the devices themselves bring to the container's replicas."""

    path: Path
    replicas: int
    slots: int

    def share(self, slot: int) -> ContainerUpdate:
        """Return the container replicas for which a slot keeps the row."""
        return share(self.path, self.replicas, slot, self.slots)

    def replied(self, slot: int, device: Device, reply: WriteReply) -> None:
        """Do nothing: the device brings the row."""

    def begin(self, row: ObjectRow) -> None:
        """Do nothing: the devices bring the row."""

    async def finish(self, row: ObjectRow | None, read: ReadRow | None = None) -> bool:
        """Return False: that there is a container, the grant says."""
        return False


@dataclass(frozen=True, slots=True)
class RowsOfDevices:
    """Makes the rows of writes by a grant, which says how many replicas a container's database has."""

    replicas: int

    def delivery(self, path: Path, key: ObjectKey, timestamp: Timestamp, slots: int) -> RowOfDevices:
        """Return the row of a write with so many slots."""
        return RowOfDevices(path, self.replicas, slots)


class Behind:
    """Which devices have missed writes of this client, so that it does not read there what was before them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any; `clock` returns monotonic seconds."""
        self._clock = clock
        self._missed: OrderedDict[tuple[int, int], dict[int, float]] = OrderedDict()

    def note(self, device: Device, policy: int, partition: int) -> None:
        """Note that a write of the partition was acknowledged, or may be, without this device."""
        place = policy, partition
        self._missed.setdefault(place, {})[device.id] = self._clock() + BEHIND_S
        self._missed.move_to_end(place)
        if len(self._missed) > MAX_BEHIND:
            self._missed.popitem(last=False)

    def behind(self, policy: int, partition: int) -> frozenset[int]:
        """Return the ids of devices that missed something of a partition."""
        if (missed := self._missed.get((policy, partition))) is None:
            return frozenset()
        now = self._clock()
        return frozenset(device for device, until in missed.items() if now < until)

    def waits(self, device: Device) -> bool:
        """Return False: what it missed is known by partition."""
        return False
