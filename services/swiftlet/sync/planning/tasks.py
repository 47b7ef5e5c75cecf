"""The selection of partitions and peers for a round, and the tasks of sessions. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from swiftlet.ring.model import Device
from swiftlet.sync.planning.device_partitions import DevicePartitions


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions and peers that a round is limited to; None for all."""

    partitions: frozenset[int] | None = None
    peers: Callable[[Device], bool] | None = None

    def has(self, partition: int) -> bool:
        """Whether a partition is selected."""
        return self.partitions is None or partition in self.partitions

    def has_peer(self, device: Device) -> bool:
        """Whether a peer is selected."""
        return self.peers is None or self.peers(device)


EVERYTHING = Selection()


@dataclass(slots=True)
class Proofs:
    """The partitions that one peer has proved. `whole`: the others are known to differ; `out`: the peer is left out."""

    peer: Device
    asked: frozenset[int]
    proved: set[int] = field(default_factory=set)
    whole: bool = False
    out: bool = False
    tries: int = 0


@dataclass(frozen=True, slots=True)
class SessionTask:
    """A session to be: partitions with a peer. `differs`: all are known to differ."""

    own: DevicePartitions
    peer: Device
    differs: bool
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """The partitions that were not compared because a node is unreachable."""

    own: DevicePartitions
    peer: Device
    partitions: frozenset[int]
