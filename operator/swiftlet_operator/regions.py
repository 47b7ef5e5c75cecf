"""Finds what a policy's write quorum lacks in the cluster's pools: regions, devices or proxies in them. Pure."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from swiftlet.crd import Pool
from swiftlet_operator.build.site import Policy


def problems(
    policy: Policy, holding: Sequence[Pool], proxied: Collection[str], replicas: float
) -> Iterator[tuple[str, str]]:
    """Yield a reason and a message for each thing that keeps the policy's writes from being acknowledged as it says.

    `holding` are the pools that keep its objects, `proxied` the regions that have proxies which know it.
    """
    devices: Counter[str] = Counter()
    for pool in holding:
        devices[pool.region] += pool.device_count
    if policy.write_quorum == "majority" or not devices:
        return
    wanted = f"writeQuorum {policy.write_quorum}"
    if len(devices) < 2:
        yield (
            "RegionsTooFew",
            f"{wanted} is for pools in several regions, and all that keep its objects are in {next(iter(devices))}; "
            "set region of pools, or writeQuorum to majority",
        )
    elif policy.write_quorum == "each-region" and replicas < len(devices):
        yield (
            "ReplicasTooFew",
            f"{wanted} needs a replica in each of the {len(devices)} regions of its pools, and it has {replicas:g}; "
            f"raise replicas to {len(devices)} or more, or name pools of fewer regions",
        )
    elif policy.write_quorum == "local":
        yield from _local(wanted, devices, proxied, math.ceil(replicas) // 2 + 1)


def _local(wanted: str, devices: Counter[str], proxied: Collection[str], quorum: int) -> Iterator[tuple[str, str]]:
    writing = set(proxied) & devices.keys()
    if not writing:
        yield (
            "RegionsWithoutProxies",
            f"{wanted} is for proxies that know their region; name the regions in proxy.regions, or add the "
            f"role proxy to a pool in each region ({', '.join(sorted(devices))})",
        )
    few = sorted(region for region in writing if devices[region] < quorum)
    if few:
        yield (
            "RegionTooSmall",
            f"{wanted} makes {quorum} copies in a region before a write is acknowledged, and region "
            f"{', '.join(few)} has fewer devices; add pods to its pools, or lower the replicas",
        )
