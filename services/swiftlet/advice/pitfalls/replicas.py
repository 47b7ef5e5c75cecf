"""Too few replicas or zones, and places that hold too much."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from swiftlet.advice.pitfalls.subject import NOTE, SMALL_STORE, WARNING, Finding, Subject, counted, quorum
from swiftlet.advice.sizing import MAX_PART_POWER, PARTITIONS, part_power

MANY_PARTITIONS = 20_000
"""Partitions of a device above which rounds take long for nothing."""
_UNEVEN = 1.1


def two_replicas(subject: Subject) -> Iterator[Finding]:
    """Check policies with fewer than three replicas."""
    for policy in {one.field: one for one in subject.cluster.policies}.values():
        if policy.replicas >= 3:
            continue
        whole, needed = math.floor(policy.replicas), quorum(policy.replicas)
        faster = ", so nothing is faster" if needed == quorum(3) else ""
        reason = (
            f"a write waits for {needed} of {whole} copies, and of three it would wait for {quorum(3)}{faster}; it "
            f"fails while one of a partition's devices is away, and {counted(whole, 'lost disk')} can lose objects"
        )
        yield Finding(WARNING, "two-replicas", policy.field, reason, "3")


def few_zones(subject: Subject) -> Iterator[Finding]:
    """Check whether every replica can have a zone of its own."""
    zones, replicas = len(subject.cluster.zones), math.ceil(subject.cluster.replicas)
    if zones and zones < replicas:
        reason = (
            f"{replicas} replicas are in {counted(zones, 'zone')}: when the zone with most of them is lost, objects "
            "can't be written, and what is read may be old"
        )
        change = f"{replicas} zones or more; with five, copies of a lost zone still find zones of their own"
        yield Finding(WARNING, "few-zones", "spec.pools[].zones", reason, change)


def uneven_zones(subject: Subject) -> Iterator[Finding]:
    """Check for a zone with more weight than replicas that it may have."""
    cluster = subject.cluster
    if len(cluster.zones) < cluster.replicas:
        return
    weights: dict[tuple[str, str], float] = defaultdict(float)
    for pool in cluster.holding:
        for number, zone in enumerate(pool.zones):
            pods = pool.pods // len(pool.zones) + (number < pool.pods % len(pool.zones))
            weights[pool.region, zone] += pods * pool.devices * pool.weight
    heaviest = max(weights, key=weights.__getitem__)
    share = weights[heaviest] / sum(weights.values())
    if share > _UNEVEN / cluster.replicas:
        reason = (
            f"zone {heaviest[1]} has {share:.0%} of all weight, and with {cluster.replicas:g} replicas in different "
            f"zones it gets {1 / cluster.replicas:.0%} of all copies at most: the rest of its disks stays empty"
        )
        yield Finding(WARNING, "uneven-zones", "spec.pools[].replicas", reason, "as many pods in each zone")


def one_pod_holds_much(subject: Subject) -> Iterator[Finding]:
    """Check whether the others can take the copies of a lost pod."""
    holding = subject.cluster.holding
    largest = max(holding, key=lambda pool: pool.devices * pool.size_bytes)
    one, total = largest.devices * largest.size_bytes, sum(pool.total_bytes for pool in holding)
    if total - one < one:
        reason = f"a pod has {one / total:.0%} of all space: when it is lost, the others can't take its copies"
        where = f"spec.pools[{largest.name}].replicas"
        yield Finding(WARNING, "one-pod-holds-much", where, reason, "more and smaller pods")


def partitions(subject: Subject) -> Iterator[Finding]:
    """Check the part power against the devices that there are, and will be."""
    cluster = subject.cluster
    growth = subject.load.growth if subject.load is not None else 1.0
    devices = max(1.0, cluster.devices * growth)
    each = 2**cluster.part_power * cluster.replicas / devices
    if each < PARTITIONS and cluster.part_power < MAX_PART_POWER:
        reason = (
            f"{devices:,.0f} devices have {each:.0f} partitions each: they fill unevenly, and only few others restore "
            "a lost one"
        )
        wanted = part_power(cluster.devices, growth, cluster.replicas)
        yield Finding(WARNING, "low-part-power", "spec.rings.partPower", reason, f"{wanted}, in a new store")
    elif each > MANY_PARTITIONS and cluster.devices >= SMALL_STORE:
        reason = f"{devices:,.0f} devices have {each:,.0f} partitions each: rounds compare more than they have to"
        wanted = part_power(cluster.devices, growth * 10, cluster.replicas)
        yield Finding(NOTE, "high-part-power", "spec.rings.partPower", reason, f"{wanted}, in a new store")
