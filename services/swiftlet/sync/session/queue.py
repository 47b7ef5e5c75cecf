"""The plan of a round and its order, from a ring, the held partitions, the failed nodes and random numbers; pure.

Work with rejoining neighbours comes first, so that they get what they missed before they compare it themselves. Within
that the order is random, so that the nodes of a cluster do not all begin with the same neighbour.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random

from swiftlet.ring.lookup import Ring
from swiftlet.sync.session.topology import First, Mode, neighbours


@dataclass(frozen=True, slots=True)
class Item:
    """A partition to compare with a peer."""

    peer: int
    partition: int


@dataclass(frozen=True, slots=True)
class HandoffReturn:
    """A partition that is here as a handoff, with the device ids of all its primaries."""

    partition: int
    primaries: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoundPlan:
    """The comparisons and returns of one device in one ring in a round."""

    items: tuple[Item, ...]
    handoffs: tuple[HandoffReturn, ...]


def plan(ring: Ring, device: int, held: Collection[int], failed: Collection[int], mode: Mode) -> RoundPlan:
    """Return the plan for a device that holds data of the partitions `held`, in the order of partitions.

    A partition that the device should have but does not hold is compared only if the mode pulls. A partition with a
    number above those of the ring has no primaries: it is not returned, and stays.
    """
    held = frozenset(held)
    items: list[Item] = []
    mine = sorted({partition for partition, _ in ring.partitions_of(device)}) if _known(ring, device) else []
    for partition in mine:
        if mode.pull or partition in held:
            holders = unique(holder.id for holder in ring.primaries(partition))
            items += (Item(peer, partition) for peer in neighbours(mode, holders, device, failed))
    handoffs = [
        HandoffReturn(partition, unique(holder.id for holder in ring.primaries(partition)))
        for partition in sorted(held.difference(mine))
        if partition < ring.partition_count
    ]
    return RoundPlan(tuple(items), tuple(handoffs))


def _known(ring: Ring, device: int) -> bool:
    return device < len(ring.devices) and ring.devices[device] is not None


def unique(devices: Iterable[int]) -> tuple[int, ...]:
    """Return the devices without repetitions, in the order of their first occurrence."""
    return tuple(dict.fromkeys(devices))


def ordered(items: Iterable[Item], rejoining: Collection[int], random: Random) -> list[Item]:
    """Return the items in random order, those with a rejoining peer first."""
    shuffled = list(items)
    random.shuffle(shuffled)
    return sorted(shuffled, key=lambda item: item.peer not in rejoining)


@dataclass(frozen=True, slots=True)
class SessionPlan:
    """The plan of one session: partitions to compare with one peer."""

    peer: int
    partitions: tuple[int, ...]


def session_plans(items: Sequence[Item], mode: Mode, size: int) -> Iterator[SessionPlan]:
    """Cut an ordered queue into sessions of up to `size` partitions.

    In modes in which partitions share messages, all those with one peer go together; peers come in the order in which
    they first appear. In the other modes only items that follow each other in the queue go together, so that its order
    stays.
    """
    if mode.first is First.BATCH:
        by_peer: dict[int, list[int]] = {}
        for item in items:
            by_peer.setdefault(item.peer, []).append(item.partition)
        for peer, partitions in by_peer.items():
            for start in range(0, len(partitions), size):
                yield SessionPlan(peer, tuple(partitions[start : start + size]))
        return
    start = 0
    for index in range(1, len(items) + 1):
        if index == len(items) or items[index].peer != items[start].peer or index - start == size:
            yield SessionPlan(items[start].peer, tuple(item.partition for item in items[start:index]))
            start = index
