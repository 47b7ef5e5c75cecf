"""Too few replicas, fragments or zones, and places that hold too much."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from swiftlet.advice.pitfalls.subject import NOTE, SMALL_STORE, WARNING, Finding, Subject, counted
from swiftlet.advice.redundancy import copies
from swiftlet.advice.sizing import MAX_PART_POWER, PARTITIONS, part_power

MANY_PARTITIONS = 20_000
"""Partitions of a device above which rounds take long for nothing."""
_UNEVEN = 1.1


def two_replicas(subject: Subject) -> Iterator[Finding]:
    """Check policies with fewer than three replicas."""
    for policy in {one.field: one for one in subject.cluster.policies}.values():
        kept = policy.redundancy
        if kept.is_coded or kept.pieces >= 3:
            continue
        whole, needed, of_three = math.floor(kept.pieces), kept.quorum, copies(3).quorum
        faster = ", so nothing is faster" if needed == of_three else ""
        reason = (
            f"a write waits for {needed} of {whole} copies, and of three it would wait for {of_three}{faster}; it "
            f"fails while one of a partition's devices is away, and {counted(whole, 'lost disk')} can lose objects"
        )
        yield Finding(WARNING, "two-replicas", policy.field, reason, "3")


def coding(subject: Subject) -> Iterator[Finding]:
    """Check policies with erasure coding: what they survive, and whether other devices can stand in."""
    cluster = subject.cluster
    for policy in cluster.policies:
        kept = policy.redundancy
        if not kept.is_coded:
            continue
        pools = [pool for pool in cluster.holding if not policy.pools or pool.name in policy.pools]
        devices = sum(pool.pods * pool.devices for pool in pools)
        if kept.may_be_lost < 2:
            reason = (
                f"{kept} survive {counted(kept.may_be_lost, 'lost device')}, and three copies survive two; "
                f"a write waits for {kept.quorum} of {kept.pieces:g} devices"
            )
            change = "parity: 2 or more, in another policy: a coding can't be changed"
            yield Finding(WARNING, "little-parity", policy.field, reason, change)
        if devices <= kept.pieces:
            reason = (
                f"an object has {kept.pieces:g} fragments on as many devices, and the policy has "
                f"{counted(devices, 'device')}: none stands in for one that is away, and what was on it stays lost "
                "until it is back"
            )
            change = f"pods for {kept.pieces + 1:g} devices or more"
            yield Finding(WARNING, "few-devices", "spec.pools[].replicas", reason, change)
        zones = {(pool.region, zone) for pool in pools for zone in pool.zones}
        if len(zones) > 1 and all(pool.zones for pool in pools) and not kept.places_lost(len(zones)):
            reason = (
                f"{kept.pieces:g} fragments in {counted(len(zones), 'zone')} are {math.ceil(kept.pieces / len(zones))} "
                f"in one of them, and {kept.may_be_lost} may be lost: with a zone away objects can't be read"
            )
            change = f"{kept.least_pods} zones or more, or a policy with more parity"
            yield Finding(WARNING, "few-zones", "spec.pools[].zones", reason, change)


def few_zones(subject: Subject) -> Iterator[Finding]:
    """Check whether every copy of a listing, and of an object that is not coded, can have a zone of its own."""
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
    # A zone may have several fragments of a coded object, as many as its weight is for.
    if len(cluster.zones) < cluster.replicas or cluster.policy.redundancy.is_coded:
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
    pieces = cluster.policy.redundancy.pieces
    each = 2**cluster.part_power * pieces / devices
    if each < PARTITIONS and cluster.part_power < MAX_PART_POWER:
        reason = (
            f"{devices:,.0f} devices have {each:.0f} partitions each: they fill unevenly, and only few others restore "
            "a lost one"
        )
        wanted = part_power(cluster.devices, growth, pieces)
        yield Finding(WARNING, "low-part-power", "spec.rings.partPower", reason, f"{wanted}, in a new store")
    elif each > MANY_PARTITIONS and cluster.devices >= SMALL_STORE:
        reason = f"{devices:,.0f} devices have {each:,.0f} partitions each: rounds compare more than they have to"
        wanted = part_power(cluster.devices, growth * 10, pieces)
        yield Finding(NOTE, "high-part-power", "spec.rings.partPower", reason, f"{wanted}, in a new store")
