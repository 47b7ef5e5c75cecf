"""What a round keeps of partitions that are not known to be equal everywhere, and what it is confined to. No I/O."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from swiftlet.ring.model import Device
from swiftlet.sync.share import Share


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
class Found:
    """What the last comparison with a peer came to."""

    done: bool = True
    proof: bool = True
    """Whether it shows that nothing is lacking here that the peer has."""
    equal: bool = False
    behind: int = 0
    unsent: int = 0


EQUAL = Found(equal=True)
NOT_DONE = Found(done=False, proof=False)


@dataclass(slots=True)
class Proofs:
    """What one peer has proved. `whole`: what is not proved is known to differ; `out`: the peer is left out."""

    peer: Device
    asked: frozenset[int]
    proved: set[int] = field(default_factory=set)
    whole: bool = False
    out: bool = False
    tries: int = 0


@dataclass(slots=True)
class Case:
    """A partition that is not known to be equal everywhere. `todo`: peers, and whether a difference is known."""

    share: Share
    partition: int
    late: bool
    todo: dict[int, bool] = field(default_factory=dict)
    found: dict[int, Found] = field(default_factory=dict)
    again: set[int] = field(default_factory=set)
    """Peers that have been compared once more."""
    waits: bool = True
    """Whether it is in a queue or a session."""


@dataclass(frozen=True, slots=True)
class Errand:
    """A session to be: cases with a peer. `differs`: all are known to differ."""

    share: Share
    peer: Device
    differs: bool
    cases: list[Case]


@dataclass(frozen=True, slots=True)
class LeftOut:
    """What was not compared because a node is out of reach."""

    share: Share
    peer: Device
    partitions: frozenset[int]
