"""The condition `RegionsEqual`: whether what was written is in all regions but for the last minutes. Pure.

It is True only by what replicators have proved. A region that can't be reached is behind from the time of its last
proof on; while too little is reported to know, the condition is Unknown.
"""

from __future__ import annotations

from swiftlet.crd import Fact
from swiftlet_operator.build.site import CONTAINER, STORAGE
from swiftlet_operator.durations import roughly
from swiftlet_operator.lag import Lag, Told, lags
from swiftlet_operator.manifests import COMPONENT_LABEL, labels_of, name_of
from swiftlet_operator.reports import told_of_regions
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

TYPE = "RegionsEqual"
LAG_S = 300.0
"""Seconds by which two regions may be behind each other without being told to be."""


def regions_equal(world: World) -> Fact:
    """Return whether all regions have what was written more than `LAG_S` ago."""
    pools = sorted({pool.region for pool in world.cluster.spec.pools} | _others(world))
    found = lags(_told(world))
    if len(pools) < 2 and not found:
        if unheard := _unheard(world):
            return Fact(
                TYPE, "Unknown", "NotHeard", f"{named(unheard)} has not told yet in which regions its pools are"
            )
        return Fact(
            TYPE, "False", "NotWanted", f"all pools are in region {pools[0]}" if pools else "there are no pools"
        )
    behind = [one for one in found if _is_behind(one, world.now_s)]
    if behind:
        return Fact(TYPE, "False", "RegionsBehind", "; ".join(_said(one, world.now_s) for one in behind))
    pods = [pod for pod in world.pods if labels_of(pod).get(COMPONENT_LABEL) in (STORAGE, CONTAINER)]
    silent = sorted(name_of(pod) for pod in pods if world.report(name_of(pod), "replicator") is None)
    unknown = [one.named for one in found if one.equal_at_s is None]
    if unknown or not found:
        which = "; ".join(unknown) or ", ".join(pools)
        return Fact(TYPE, "Unknown", "NotCompared", f"no replicator has compared all of {which} since its start")
    if silent:
        return Fact(TYPE, "Unknown", "NotReported", f"the replicator of {named(silent)} does not report")
    return Fact(TYPE, "True", "Equal", f"what was written is in all regions but for the last {roughly(LAG_S)}")


def _others(world: World) -> set[str]:
    """Return the regions of the devices of other members of the federation, as far as they are known."""
    said = [heard.statement for heard in world.federated.heard.values() if heard.statement is not None]
    return {device.region for one in said for device in one.devices}


def _unheard(world: World) -> list[str]:
    """Return the members of the federation that have told of no device."""
    federation = world.cluster.spec.federation
    members = () if federation is None else federation.members
    said = {one.name: world.federated.said(one.name) for one in members}
    return sorted(name for name, one in said.items() if one is None or not one.devices)


def _told(world: World) -> list[Told]:
    reports = [services["replicator"] for services in world.reports.values() if "replicator" in services]
    return [one for report in reports for one in told_of_regions(report)]


def _is_behind(lag: Lag, now_s: float) -> bool:
    return lag.equal_at_s is not None and now_s - lag.equal_at_s > LAG_S


def _said(lag: Lag, now_s: float) -> str:
    assert lag.equal_at_s is not None
    age = roughly(now_s - lag.equal_at_s)
    known = f"; {lag.objects} records are known to be lacking" if lag.objects else ""
    known += f", about {lag.size_bytes / 1e6:,.1f} MB of data" if known and lag.size_bytes else ""
    return f"{lag.named}: what was written in the last {age} may be in one of them only (ring {lag.ring}{known})"
