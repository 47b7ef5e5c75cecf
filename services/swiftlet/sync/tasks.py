"""What rounds are confined to, and what they do at a time. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from swiftlet.ring.model import Device
from swiftlet.sync.device_partitions import DevicePartitions


@dataclass(frozen=True, slots=True)
class Selection:
    """What a round is confined to: some partitions, and some peers; None for all."""

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
    """What one peer has proved. `whole`: what is not proved is known to differ; `out`: the peer is left out."""

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
    """What was not compared because a node is out of reach."""

    own: DevicePartitions
    peer: Device
    partitions: frozenset[int]
