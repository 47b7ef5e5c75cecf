"""The modes of a round, which determine the peers of each device, as pure functions over a partition's replica ring.

`batched` is the default. The others are there to be measured against it: `lightsync` is the proposal of "On the
Synchronization Bottleneck of OpenStack Swift-Like Cloud Storage Systems" (TPDS 2018), `all_to_all` is what OpenStack
Swift does, and `star` (primary and backups) and `chain` are two others that the paper compares.
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
    """No hash of ours: the answer has all suffix hashes of one partition."""


Neighbours = Callable[[Sequence[int], int], tuple[int, ...]]
"""A function of the healthy holders in ring order and one of them; it returns those that this one compares
itself with.
"""


def _clockwise(healthy: Sequence[int], local: int) -> tuple[int, ...]:
    return (healthy[(healthy.index(local) + 1) % len(healthy)],)


def _everybody(healthy: Sequence[int], local: int) -> tuple[int, ...]:
    return tuple(device for device in healthy if device != local)


def _hub(healthy: Sequence[int], local: int) -> tuple[int, ...]:
    """Return the neighbours in a star: the first holder is the hub; all others compare themselves with it alone."""
    return _everybody(healthy, local) if local == healthy[0] else (healthy[0],)


def _chained(healthy: Sequence[int], local: int) -> tuple[int, ...]:
    """Return the next and the previous holder of a chain.

    If devices only pushed down the chain, its head would be left behind.
    """
    place = healthy.index(local)
    return tuple(healthy[place + 1 : place + 2]) + tuple(healthy[max(0, place - 1) : place])


@dataclass(frozen=True, slots=True)
class Mode:
    """A way of doing rounds; `pull` tells whether what is newer at the neighbour is fetched as well."""

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
"""The mode `batched` as replicators use it: each device compares with all other holders.

The status report speaks for each device alone, so it needs proofs from all of them.
"""
MODES = {mode.name: mode for mode in (BATCHED, LIGHTSYNC, ALL_TO_ALL, STAR, CHAIN)}

ROUND_MODES = {**MODES, THOROUGH.name: THOROUGH}
"""The modes that a replicator can be configured with."""


def neighbours(mode: Mode, holders: Sequence[int], local: int, failed: Collection[int]) -> tuple[int, ...]:
    """Return the ids of the devices that `local` compares itself with.

    `holders` are in ring order; failed ones are skipped, and the next one takes their place. `local` itself counts as
    healthy. Raises ValueError when it is not one of the holders.
    """
    if local not in holders:
        raise ValueError(f"device {local} is not one of the holders {list(holders)}")
    healthy = [device for device in holders if device == local or device not in failed]
    return mode.neighbours(healthy, local) if len(healthy) > 1 else ()
