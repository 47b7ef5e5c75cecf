"""How many replicas each tier should hold: weights and dispersion reconciled, rounded to whole partitions.

For partitions with k replicas:

1. A device's *weighted share* is its part of the k replicas by weight, but at most one (two replicas on one
   device protect nothing); what is cut off goes to the others.
2. *Dispersion* bounds the replicas of one partition in each tier: children of a tier fill up evenly, as far as
   they have devices.
3. `overload` says how far a device may exceed its weighted share for the sake of dispersion. Within that the
   targets are as dispersed as possible and, among those, as near to the weights as possible. With overload 0
   weights win and dispersion gives way, as in OpenStack Swift.
4. Targets are rounded top-down to whole replicas, each to one of its two neighbours.

A partition is laid out according to plan when every tier holds the floor or the ceiling of its mean number
of replicas. For a tree of tiers such a layout always exists (lay the devices in tree order on a line and take
every k-th point), so plans can be met exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from swiftlet.ring.model import RingError
from swiftlet.ring.topology import Topology

_NOISE = 1e-6
"""Replicas per ring below which a difference is rounding noise of the arithmetic."""
_EXACT = 1e-9
"""Replicas per partition below which a difference is rounding noise."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Targets for `partitions` partitions of `replicas` replicas each; lists are indexed by tier.

    `target` is the mean number of replicas of a partition in the tier. `quota` is the number of replicas that the tier
    should hold over all of these partitions: the target times the partitions, rounded. `least` and `most` bound the
    replicas of any one partition in the tier. Roundings of the quota depend on the current ring, the bounds don't.
    """

    partitions: int
    replicas: int
    target: list[float]
    quota: list[int]
    least: list[int]
    most: list[int]


def weighted_shares(weights: Sequence[float], replicas: int) -> list[float]:
    """Return the replicas of a mean partition on each device by weight alone, at most one each; their sum is
    `replicas`.

    Raises RingError when fewer than `replicas` devices have a weight above 0.
    """
    usable = sum(1 for weight in weights if weight > 0)
    if usable < replicas:
        raise RingError(
            f"replicas: {replicas} replicas need {replicas} devices with a weight above 0, there are {usable}; "
            "add devices or lower the number of replicas"
        )
    largest = max(weights)
    scaled = [weight / largest for weight in weights]
    return fill(scaled, [0.0] * len(scaled), [1.0 if weight > 0 else 0.0 for weight in scaled], float(replicas))


def fill(weights: Sequence[float], low: Sequence[float], high: Sequence[float], total: float) -> list[float]:
    """Split `total` in proportion to `weights` within bounds: clamp(x * weight, low, high) with the x that fits.

    When the bounds can't add up to `total` all of them are met as nearly as possible.
    """
    if total <= sum(low):
        return list(low)
    if total >= sum(high):
        return list(high)
    result = [0.0] * len(weights)
    free = list(range(len(weights)))
    rest = total
    while free:
        scale = sum(weights[i] for i in free)
        share = {i: rest * weights[i] / scale if scale > 0 else rest / len(free) for i in free}
        under = [i for i in free if share[i] < low[i]]
        over = [i for i in free if share[i] > high[i]]
        lack = sum(low[i] - share[i] for i in under)
        excess = sum(share[i] - high[i] for i in over)
        if not under and not over:
            for i in free:
                result[i] = share[i]
            break
        # The side that is violated more can't become feasible again when the other side is fixed.
        fixed, bound = (over, high) if excess >= lack else (under, low)
        for i in fixed:
            result[i] = bound[i]
            rest -= bound[i]
        free = [i for i in free if i not in set(fixed)]
    return result


def even_bounds(capacities: Sequence[int], least: int, most: int) -> list[tuple[int, int]]:
    """Return (fewest, most) replicas per child when a tier with `least`..`most` of them fills its children evenly."""

    def filled(level: int) -> int:
        return sum(min(capacity, level) for capacity in capacities)

    top = max(capacities, default=0)
    low = 0
    while low < top and filled(low + 1) <= least:
        low += 1
    high = low
    while high < top and filled(high) < most:
        high += 1
    return [(min(capacity, low), min(capacity, high)) for capacity in capacities]


def dispersed_most(topology: Topology, replicas: int) -> list[int]:
    """Return per tier the most replicas of one partition when the topology alone decides, whatever the weights."""
    most = [0] * len(topology.parent)
    most[0] = min(replicas, topology.capacity[0])
    for tier, children in enumerate(topology.children):
        bounds = even_bounds([topology.capacity[child] for child in children], most[tier], most[tier])
        for child, (_, high) in zip(children, bounds, strict=True):
            most[child] = high
    return most


def make_plan(
    topology: Topology, partitions: int, replicas: int, overload: float, current: Sequence[int] | None = None
) -> Plan:
    """Return the targets for `partitions` partitions with `replicas` replicas each.

    `current` (replicas now held, per device position) only decides roundings, so that a ring that is already as good as
    its plan stays as it is. Raises RingError when there are too few devices.
    """
    shares = weighted_shares([device.weight for device in topology.devices], replicas)
    limits = [min(1.0, math.ceil(share * (1 + overload) * partitions - _NOISE) / partitions) for share in shares]
    share, limit = topology.sums(shares), topology.sums(limits)
    held = topology.sums(list(current)) if current is not None else [0] * len(topology.parent)
    target = [0.0] * len(topology.parent)
    quota = [0] * len(topology.parent)
    target[0], quota[0] = float(replicas), partitions * replicas
    for tier, children in enumerate(topology.children):
        if not children:
            continue
        targets = _spread(topology, children, target[tier], share, limit)
        rounded = _round(targets, quota[tier], partitions, [held[child] for child in children])
        for child, wanted, whole in zip(children, targets, rounded, strict=True):
            target[child], quota[child] = wanted, whole
    return Plan(
        partitions=partitions,
        replicas=replicas,
        target=target,
        quota=quota,
        least=[math.floor(value + _EXACT) for value in target],
        most=[math.ceil(value - _EXACT) for value in target],
    )


def _spread(
    topology: Topology, children: list[int], total: float, share: Sequence[float], limit: Sequence[float]
) -> list[float]:
    """Split a tier's mean replicas among its children: dispersed as far as `limit` allows, then by weight."""
    bounds = even_bounds(
        [topology.capacity[child] for child in children], math.floor(total + _NOISE), math.ceil(total - _NOISE)
    )
    limits = [limit[child] for child in children]
    shares = [share[child] for child in children]
    low = [min(bound[0], room) for bound, room in zip(bounds, limits, strict=True)]
    high = [min(bound[1], room) for bound, room in zip(bounds, limits, strict=True)]
    if sum(high) < total:
        return fill(shares, high, limits, total)
    return fill(shares, low, high, total)


def _round(targets: Sequence[float], total: int, partitions: int, held: Sequence[int]) -> list[int]:
    """Return whole replicas that add up to `total`, each the floor or ceiling of its target where that is possible."""
    exact = [target * partitions for target in targets]
    whole = [math.floor(value + _NOISE) for value in exact]
    missing = total - sum(whole)
    # First come those that would otherwise have to give a replica away, then the largest remainders.
    order = sorted(
        range(len(exact)), key=lambda i: (exact[i] - whole[i] < _NOISE, held[i] <= whole[i], whole[i] - exact[i], i)
    )
    for i in order[: max(missing, 0)]:
        whole[i] += 1
    return whole
