"""Reports how far a ring is from its weights, from the best dispersion, and from evenly spread pairs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device, replica_classes
from swiftlet.ring.plan import dispersed_most, weighted_shares
from swiftlet.ring.topology import DEVICE_LEVEL, LEVELS, Topology


@dataclass(frozen=True, slots=True)
class DeviceLoad:
    """The load of one device: replicas held, replicas by its weight, and the deviation in percent.

    The deviation of a device without weight is 0 when it is empty and infinite while it still holds anything.
    """

    device: Device
    replicas: int
    wanted: float
    deviation_percent: float


@dataclass(frozen=True, slots=True)
class PairSpread:
    """How evenly pairs of devices share partitions, for pairs whose narrowest common tier is of one level.

    `level` is that tier ("ring" for pairs across regions, "region" across zones, "zone" across nodes, "node" for two
    devices of one node). `pairs` is the number of such pairs of weighted devices. `mean` and `most` are of the
    partitions shared by a pair. `max_over_mean` is the highest ratio of the shared partitions to the expected ones,
    which are in proportion to the product of what the two devices hold; 1.0 is perfect.
    """

    level: str
    pairs: int
    mean: float
    most: int
    max_over_mean: float


@dataclass(frozen=True, slots=True)
class RingReport:
    """A ring's quality.

    `balance` is the largest deviation of a device from its weighted share, in percent of the share. `dispersion` is the
    percentage of all replicas that are not as far apart as the topology allows, and `misplaced` their number.
    `pair_spread` is the largest `max_over_mean` of the level of pairs that most partitions use (the widest spread of
    replicas), 1.0 when there are no pairs; `levels` has all levels that occur. `devices` is in order of ids.
    """

    balance: float
    dispersion: float
    misplaced: int
    pair_spread: float
    levels: tuple[PairSpread, ...]
    devices: tuple[DeviceLoad, ...]


def report(ring: Ring) -> RingReport:
    """Measure a ring; takes about half a second for 2^18 partitions with 3 replicas."""
    devices = [device for device in ring.devices if device is not None]
    position = {device.id: index for index, device in enumerate(devices)}
    topology = Topology(devices)
    loads = _loads(ring, devices)
    misplaced = _misplaced(ring, topology, position)
    levels = _pair_spreads(ring, topology, position, [load.replicas for load in loads])
    slots = sum(len(row) for row in ring.rows)
    widest = max(levels, key=lambda spread: spread.mean * spread.pairs, default=None)
    return RingReport(
        balance=max((abs(load.deviation_percent) for load in loads), default=0.0),
        dispersion=100.0 * misplaced / slots,
        misplaced=misplaced,
        pair_spread=widest.max_over_mean if widest is not None else 1.0,
        levels=levels,
        devices=loads,
    )


def _loads(ring: Ring, devices: list[Device]) -> tuple[DeviceLoad, ...]:
    held: Counter[int] = Counter()
    for row in ring.rows:
        held.update(row)
    wanted = [0.0] * len(devices)
    for start, end, replicas in replica_classes([len(row) for row in ring.rows]):
        for index, share in enumerate(weighted_shares([device.weight for device in devices], replicas)):
            wanted[index] += share * (end - start)
    return tuple(
        DeviceLoad(device, held[device.id], share, _deviation(held[device.id], share))
        for device, share in zip(devices, wanted, strict=True)
    )


def _deviation(held: int, wanted: float) -> float:
    if wanted > 0:
        return 100.0 * (held - wanted) / wanted
    return float("inf") if held else 0.0


def _misplaced(ring: Ring, topology: Topology, position: dict[int, int]) -> int:
    """Return how many replicas exceed what the topology makes necessary, per partition at its worst level."""
    node_of = {id_: topology.node_of[index] for id_, index in position.items()}
    total = 0
    for start, end, replicas in replica_classes([len(row) for row in ring.rows]):
        most = dispersed_most(topology, replicas)
        nodes = [[node_of[id_] for id_ in row[start:end]] for row in ring.rows[:replicas]]
        for pattern, count in Counter(zip(*nodes, strict=True)).items():
            total += count * _excess(topology, most, pattern)
    return total


def _excess(topology: Topology, most: list[int], nodes: tuple[int, ...]) -> int:
    held: Counter[int] = Counter()
    for node in nodes:
        tier = node
        while tier > 0:
            held[tier] += 1
            tier = topology.parent[tier]
    by_level = [0] * DEVICE_LEVEL
    for tier, count in held.items():
        by_level[topology.level[tier]] += max(0, count - most[tier])
    return max(by_level)


def _pair_spreads(ring: Ring, topology: Topology, position: dict[int, int], held: list[int]) -> tuple[PairSpread, ...]:
    shared: Counter[tuple[int, int]] = Counter()
    for index, row in enumerate(ring.rows):
        for other in ring.rows[:index]:
            for (a, b), count in Counter(zip(row, other, strict=False)).items():
                shared[(a, b) if a < b else (b, a)] += count
    size = len(topology.devices)
    pairs, product = [0] * DEVICE_LEVEL, [0] * DEVICE_LEVEL
    for a in range(size):
        for b in range(a):
            if held[a] and held[b]:
                level = topology.join_level(a, b)
                pairs[level] += 1
                product[level] += held[a] * held[b]
    total, most, crowd = [0] * DEVICE_LEVEL, [0] * DEVICE_LEVEL, [0.0] * DEVICE_LEVEL
    for (id_a, id_b), count in shared.items():
        a, b = position[id_a], position[id_b]
        level = topology.join_level(a, b)
        total[level] += count
        most[level] = max(most[level], count)
        crowd[level] = max(crowd[level], count / (held[a] * held[b]))
    return tuple(
        PairSpread(
            level=LEVELS[level],
            pairs=pairs[level],
            mean=total[level] / pairs[level],
            most=most[level],
            max_over_mean=crowd[level] * product[level] / total[level],
        )
        for level in range(DEVICE_LEVEL)
        if total[level]
    )
