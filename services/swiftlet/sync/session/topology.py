"""The modes of a round, which determine the peers of each device, as pure functions over a partition's replica ring.

`batched` is the default. The others are what is measured against it: `lightsync` and `all_to_all` as in "On the
Synchronization Bottleneck of OpenStack Swift-Like Cloud Storage Systems" (TPDS 2018) and in the original, `star`
(primary and backups) and `chain` as the same paper compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum


class First(Enum):
    """The content of the first message about a partition."""

    BATCH = "batch"
    """One hash over the roots of many partitions."""
    ROOT = "root"
    """The root of one partition."""
    SUFFIXES = "suffixes"
    """Nothing: the answer is all of one partition's suffix hashes."""


Neighbours = Callable[[Sequence[int], int], tuple[int, ...]]
"""From the healthy holders in ring order, and one of them, to those that it compares itself with."""


def _clockwise(healthy: Sequence[int], local: int) -> tuple[int, ...]:
    return (healthy[(healthy.index(local) + 1) % len(healthy)],)


def _everybody(healthy: Sequence[int], local: int) -> tuple[int, ...]:
    return tuple(device for device in healthy if device != local)


def _hub(healthy: Sequence[int], local: int) -> tuple[int, ...]:
    """The first holder is the hub: it brings everybody what it has, the others bring theirs to it."""
    return _everybody(healthy, local) if local == healthy[0] else (healthy[0],)


def _chained(healthy: Sequence[int], local: int) -> tuple[int, ...]:
    """The next one down the chain, and the one before: a chain that only pushed down would leave its head behind."""
    place = healthy.index(local)
    return tuple(healthy[place + 1 : place + 2]) + tuple(healthy[max(0, place - 1) : place])


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of doing rounds; `pull`: whether what is newer at the neighbour is fetched, too."""

    name: str
    neighbours: Neighbours
    first: First
    pull: bool = False


BATCHED = Mode("batched", _clockwise, First.BATCH, pull=True)
LIGHTSYNC = Mode("lightsync", _clockwise, First.ROOT)
ALL_TO_ALL = Mode("all_to_all", _everybody, First.SUFFIXES)
STAR = Mode("star", _hub, First.ROOT)
CHAIN = Mode("chain", _chained, First.ROOT)
THOROUGH = Mode("batched", _everybody, First.BATCH, pull=True)
"""`batched` as replicators do it: proofs from all other holders, as the status report speaks for each device alone."""
MODES = {mode.name: mode for mode in (BATCHED, LIGHTSYNC, ALL_TO_ALL, STAR, CHAIN)}

ROUND_MODES = {**MODES, THOROUGH.name: THOROUGH}
"""The modes that a replicator can be configured with."""


def neighbours(mode: Mode, holders: Sequence[int], local: int, failed: Collection[int]) -> tuple[int, ...]:
    """Device ids that `local` compares itself with; `holders` in ring order, failed ones skipped clockwise.

    `local` itself counts as healthy. ValueError when it is none of the holders.
    """
    if local not in holders:
        raise ValueError(f"device {local} is not one of the holders {list(holders)}")
    healthy = [device for device in holders if device == local or device not in failed]
    return mode.neighbours(healthy, local) if len(healthy) > 1 else ()
