"""Too few or too slow disks, and weights by which some of them fill first."""

from __future__ import annotations

from collections.abc import Iterator

from swiftlet.advice.demand import device_busy
from swiftlet.advice.pitfalls.subject import (
    NOTE,
    SMALL_STORE,
    WARNING,
    Finding,
    Subject,
    counted,
    processors_of,
)
from swiftlet.advice.sizing import MAX_DISKS, database_busy

IDLE_PROCESSORS = 4
"""Processors for each device from which on they wait for it, when no load is known."""
_UNEVEN = 1.1


def few_disks(subject: Subject) -> Iterator[Finding]:
    """Check whether devices are busy before processors are."""
    cluster, taken, limit = subject.cluster, subject.demand, subject.rules.busy
    total = sum(pool.total_weight for pool in cluster.holding)
    for pool in cluster.holding:
        where, disk = f"spec.pools[{pool.name}].devicesPerPod", subject.disks.get(pool.class_name)
        if taken is not None and disk is not None:
            share, pods = pool.total_weight / total, max(1, pool.pods - 1)
            busy = {n: device_busy(taken, disk, pods * n, share) for n in range(pool.devices, MAX_DISKS + 1)}
            if busy[pool.devices] <= limit:
                continue
            enough = next((n for n, one in busy.items() if one <= limit), None)
            reason = (
                f"at the busiest time, with a pod away, each device is {busy[pool.devices]:.0%} busy, and {limit:.0%} "
                "is the limit"
            )
            change = f"{enough}, in a pool in its place" if enough else "as it is, with more pods or faster disks"
            yield Finding(WARNING, "few-disks", where, reason, change)
        elif taken is None and processors_of(pool) >= IDLE_PROCESSORS * pool.devices:
            reason = (
                f"a pod has {processors_of(pool):g} processors and {counted(pool.devices, 'device')}: processors wait "
                "for the disk, and a disk more costs less than a node more"
            )
            yield Finding(NOTE, "few-disks", where, reason, "more, in a pool in its place")


def slow_databases(subject: Subject) -> Iterator[Finding]:
    """Check the disks of container servers."""
    cluster, taken = subject.cluster, subject.demand
    where, disk = "spec.container.storage.className", subject.disks.get(cluster.container_class)
    if taken is not None and disk is not None:
        busy = database_busy(taken.rows, disk, cluster.container_pods - 1)
        if busy > subject.rules.busy:
            reason = (
                f"{taken.rows:,.0f} rows a second are merged into databases at the busiest time: with one container "
                f"server away, the disks of the others are {busy:.0%} busy"
            )
            change = "a class of faster disks, such as SSDs, or more of container.replicas"
            yield Finding(WARNING, "slow-databases", where, reason, change)
        return
    shared = [pool.name for pool in cluster.holding if pool.class_name == cluster.container_class]
    if shared and cluster.devices >= SMALL_STORE:
        reason = (
            f"databases have disks of the same class as objects (pool {', '.join(shared)}): each PUT and DELETE "
            "changes pages anywhere in them, which rotating disks do slowly, most of all for many small objects or "
            "containers"
        )
        yield Finding(NOTE, "slow-databases", where, reason, "a class of SSDs, unless this is one")


def fills_first(subject: Subject) -> Iterator[Finding]:
    """Check weights by which some devices are full while others are not."""
    holding = subject.cluster.holding
    weight, size = sum(pool.total_weight for pool in holding), sum(pool.total_bytes for pool in holding)
    ratios = [(pool.total_weight / weight / (pool.total_bytes / size), pool) for pool in holding]
    ratio, first = max(ratios, key=lambda one: one[0])
    if not any(pool.is_weighed for pool in holding) or ratio <= _UNEVEN:
        return
    if subject.load is not None and subject.raw_bytes / size * ratio <= subject.rules.full:
        return
    reason = (
        f"by weight pool {first.name} gets {ratio:.1f} times the share of copies that its size is for: it is full when "
        f"{1 / ratio:.0%} of all space is in use, and from then on copies go elsewhere"
    )
    where, change = f"spec.pools[{first.name}].weight", f"{first.size_bytes / 2**30:.0f}, its devices' size in GiB"
    yield Finding(WARNING if subject.load is not None else NOTE, "fills-first", where, reason, change)


def sumo_places(subject: Subject) -> Iterator[Finding]:
    """Check whether a write can have its quorum on sumo nodes, and whether the others can take a lost one's copies."""
    cluster = subject.cluster
    sumo = [pool for pool in cluster.holding if pool.has_proxy]
    if not sumo or len(sumo) == len(cluster.holding):
        return
    kept, places = cluster.policy.redundancy, len({(pool.region, zone) for pool in sumo for zone in pool.zones})
    needed = kept.quorum
    # A coded write waits for more devices than strong nodes alone have places for, by its nature.
    if cluster.zones and places < needed and not kept.is_coded:
        reason = (
            f"pods with the role proxy are in {counted(places, 'zone')}, and a zone has one replica of an object: no "
            f"write finds {needed} copies on them, and all writes wait for the other nodes"
        )
        where = f"spec.pools[{sumo[0].name}].zones"
        yield Finding(WARNING, "sumo-in-few-zones", where, reason, f"{needed} zones or more")
    rest = sum(pool.total_bytes for pool in cluster.holding if not pool.has_proxy)
    one = max(sumo, key=lambda pool: pool.devices * pool.size_bytes)
    if rest < one.devices * one.size_bytes:
        reason = f"all pods without the role proxy have less space than one of {one.name}: they can't take its copies"
        where = f"spec.pools[{one.name}].storage.size"
        yield Finding(WARNING, "sumo-outweighs", where, reason, "smaller, or more of the other pods")


def room(subject: Subject) -> Iterator[Finding]:
    """Check whether all of the load's objects have room."""
    cluster, limit = subject.cluster, subject.rules.full
    total = sum(pool.total_bytes for pool in cluster.holding)
    if subject.load is not None and subject.raw_bytes > total * limit:
        used = subject.raw_bytes / total
        stored = f"{subject.load.stored_bytes / 1e12:,.1f} TB in {cluster.policy.redundancy}"
        reason = f"{stored} fill devices to {used:.0%}, and {limit:.0%} is the limit"
        yield Finding(WARNING, "full", "spec.pools[].replicas", reason, f"{used / limit:.1f} times as many pods")
