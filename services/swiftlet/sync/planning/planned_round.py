"""The plan of a round, which the planner gives to the executor. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

from swiftlet.ring.model import Device
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.ledger import PartitionLedger
from swiftlet.sync.planning.tasks import Selection
from swiftlet.sync.session.queue import HandoffReturn


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Partitions that were not compared with a peer because its node is unreachable."""

    own: DevicePartitions
    peer: Device
    partitions: frozenset[int]


@dataclass(frozen=True, slots=True)
class DevicePlan:
    """What there is to do for one own device in one ring."""

    ledger: PartitionLedger
    """The comparisons to make, with the proofs so far. The executor enters its results here."""
    concluded: frozenset[int]
    """Partitions that need no session: they are proved or left out."""
    left_out: tuple[LeftOut, ...]
    returns: tuple[HandoffReturn, ...]
    """Handoffs that have to be returned to their primaries."""

    @property
    def own(self) -> DevicePartitions:
        """The partitions of the device that does the round."""
        return self.ledger.own


@dataclass(frozen=True, slots=True)
class PlannedRound:
    """The work of a round for all own devices and policies."""

    selection: Selection
    first: frozenset[str]
    """Names of nodes that are back; the partitions shared with them come first."""
    devices: tuple[DevicePlan, ...]
