"""The plan of a round: what the planner hands over to the executor. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from swiftlet.ring.model import Device
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.ledger import PartitionLedger
from swiftlet.sync.planning.tasks import Selection
from swiftlet.sync.session.queue import HandoffReturn


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The partitions that were not compared because a node is unreachable."""

    own: DevicePartitions
    peer: Device
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """What there is to do for one own device in one ring."""

    ledger: PartitionLedger
    """What has to be compared with whom, and what proofs have shown already; who executes the plan goes on with it."""
    concluded: frozenset[int]
    """Partitions that need no session: all are proved or left out."""
    left_out: tuple[LeftOut, ...]
    returns: tuple[HandoffReturn, ...]
    """Handoffs that go back to their primaries."""

    @property
    def own(self) -> DevicePartitions:
        """The partitions of the device that does the round."""
        return self.ledger.own


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """What there is to do for all own devices and policies."""

    selection: Selection
    first: frozenset[str]
    """Nodes that are back, whose partitions come first."""
    devices: tuple[DevicePlan, ...]
