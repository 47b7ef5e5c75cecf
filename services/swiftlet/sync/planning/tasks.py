"""The partitions and peers that a round is limited to, and the tasks of its sessions. No I/O."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from swiftlet.ring.model import Device
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.session.queue import HandoffReturn


@dataclass(frozen=True, slots=True)
class Selection:
    """The partitions and peers that a round is limited to; None stands for all."""

    partitions: frozenset[int] | None = None
    peers: Callable[[Device], bool] | None = None

    def of(self, partitions: Set[int]) -> set[int]:
        """Return a new set of those of these partitions that are selected."""
        return set(partitions) if self.partitions is None else set(self.partitions & partitions)

    def has_peer(self, device: Device) -> bool:
        """Whether a peer is selected."""
        return self.peers is None or self.peers(device)


EVERYTHING = Selection()


@dataclass(frozen=True, slots=True)
class SessionTask:
    """A session to hold with one peer about these partitions; `differs` tells that all of them are known to differ."""

    own: DevicePartitions
    peer: Device
    differs: bool
    partitions: Sequence[int]


@dataclass(frozen=True, slots=True)
class ReturnTask:
    """The return of a handoff that has to be held.

    `out` has the primaries whose nodes are left out of the round. `absent` has all primaries that take no part: those,
    and the ones that the round is not limited to.
    """

    own: DevicePartitions
    handoff: HandoffReturn
    out: frozenset[int]
    absent: frozenset[int]
