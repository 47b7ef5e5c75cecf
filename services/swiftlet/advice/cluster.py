"""A StorageCluster as far as advice depends on it, from a manifest that has all defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from swiftlet.advice.redundancy import Redundancy, coded, copies
from swiftlet.quantities import parse_quantity, quantity_bytes

GIB = 2.0**30
DEFAULT_POLICY = "Policy-0"


@dataclass(frozen=True, slots=True)
class Share:
    """A pod asks for so much, and may use `cpu_limit` at most; None is no limit."""

    cpu: float
    cpu_limit: float | None
    memory_bytes: float


@dataclass(frozen=True, slots=True)
class PoolShape:
    """A pool. `weight` is of each device; `is_weighed` tells that the spec has one."""

    name: str
    pods: int
    devices: int
    """How many of them each pod has."""
    size_bytes: float
    class_name: str | None
    weight: float
    is_weighed: bool
    zones: tuple[str, ...]
    region: str
    has_proxy: bool
    share: Share

    @property
    def total_weight(self) -> float:
        """Return the weight of all devices."""
        return self.pods * self.devices * self.weight

    @property
    def total_bytes(self) -> float:
        """Return the size of all devices."""
        return self.pods * self.devices * self.size_bytes


@dataclass(frozen=True, slots=True)
class PolicyShape:
    """A storage policy; `pools` empty for all. `field` is where its redundancy is set."""

    field: str
    name: str
    redundancy: Redundancy
    is_default: bool = False
    pools: tuple[str, ...] = ()
    aggregate_below: float = 1 << 20


@dataclass(frozen=True, slots=True)
class ClusterShape:
    """A StorageCluster and its policies."""

    name: str
    pools: tuple[PoolShape, ...]
    policies: tuple[PolicyShape, ...]
    replicas: float
    """Copies of listings, and of objects in policies that say nothing else."""
    part_power: int
    proxy_pods: int
    """Of the Deployment; those of pools are besides these."""
    workers: int
    proxy: Share
    service_type: str
    has_ingress: bool
    ends_tls_at_ingress: bool
    has_route: bool
    container_pods: int
    container_class: str | None
    container_size_bytes: float
    container: Share

    @property
    def policy(self) -> PolicyShape:
        """Return the policy that a load is taken to have: the default one, or else the first."""
        return next((one for one in self.policies if one.is_default), self.policies[0])

    @property
    def proxies(self) -> int:
        """Return the number of proxies, those in pods of pools included."""
        return self.proxy_pods + sum(pool.pods for pool in self.pools if pool.has_proxy)

    @property
    def devices(self) -> int:
        """Return the number of devices that hold objects."""
        return sum(pool.pods * pool.devices for pool in self.holding)

    @property
    def holding(self) -> tuple[PoolShape, ...]:
        """Return the pools that are to hold objects: those with a weight."""
        return tuple(pool for pool in self.pools if pool.weight > 0)

    @property
    def zones(self) -> frozenset[tuple[str, str]]:
        """Return regions and zones that pools name; empty when one of them leaves its zones to the scheduler."""
        if any(not pool.zones for pool in self.holding):
            return frozenset()
        return frozenset((pool.region, zone) for pool in self.holding for zone in pool.zones)

    @property
    def processors(self) -> float:
        """Return the processors that all proxies can use: one a worker, and no more than their limit."""
        return self.proxies * self.processors_of_proxy

    @property
    def processors_of_proxy(self) -> float:
        """Return the processors that a proxy can use."""
        return min(float(self.workers), self.proxy.cpu_limit or float(self.workers))


def cluster_of(manifest: Mapping[str, Any], policies: Iterable[Mapping[str, Any]] = ()) -> ClusterShape:
    """Return the shape of a StorageCluster with all of its defaults, and of StoragePolicies that name it."""
    name, spec = str(manifest["metadata"]["name"]), manifest["spec"]
    proxy, container, rings = spec["proxy"], spec["container"], spec["rings"]
    replicas = float(rings["replicas"])
    ingress = proxy.get("ingress") or {}
    tls = spec.get("tls") or {}
    mine = [one for one in policies if one["spec"]["clusterRef"]["name"] == name]
    return ClusterShape(
        name=name,
        pools=tuple(_pool(pool) for pool in spec["pools"]),
        policies=tuple(_policy(one, replicas) for one in mine)
        or (PolicyShape("spec.rings.replicas", DEFAULT_POLICY, copies(replicas), is_default=True),),
        replicas=replicas,
        part_power=int(rings["partPower"]),
        proxy_pods=int(proxy["replicas"]),
        workers=int(proxy["workers"]),
        proxy=_share(proxy),
        service_type=str(proxy["service"]["type"]),
        has_ingress=bool(ingress),
        ends_tls_at_ingress=bool(ingress)
        and bool(ingress.get("tlsSecretRef") or tls.get("secretRef") or tls.get("certManager")),
        has_route=bool(proxy.get("route")),
        container_pods=int(container["replicas"]),
        container_class=container["storage"].get("className"),
        container_size_bytes=float(quantity_bytes(container["storage"]["size"])),
        container=_share(container),
    )


def _pool(pool: Mapping[str, Any]) -> PoolShape:
    size = float(quantity_bytes(pool["storage"]["size"]))
    weight = pool.get("weight")
    return PoolShape(
        name=str(pool["name"]),
        pods=int(pool["replicas"]),
        devices=int(pool["devicesPerPod"]),
        size_bytes=size,
        class_name=pool["storage"].get("className"),
        weight=size / GIB if weight is None else float(weight),
        is_weighed=weight is not None,
        zones=tuple(pool["zones"]),
        region=str(pool["region"]),
        has_proxy="proxy" in pool["roles"],
        share=_share(pool),
    )


def _policy(one: Mapping[str, Any], replicas: float) -> PolicyShape:
    spec, name = one["spec"], one["metadata"]["name"]
    own, coding = spec.get("replicas"), spec.get("erasureCoding")
    field = "spec.rings.replicas" if own is None else f"spec.replicas of StoragePolicy {name}"
    kept = copies(replicas if own is None else float(own))
    if coding is not None:
        kept, field = coded(coding["data"], coding["parity"]), f"spec.erasureCoding of StoragePolicy {name}"
    return PolicyShape(
        field=field,
        name=str(spec["name"]),
        redundancy=kept,
        is_default=bool(spec.get("default")),
        pools=tuple(spec.get("pools") or ()),
        aggregate_below=float(quantity_bytes(str(spec.get("aggregateBelow", "1Mi")))),
    )


def _share(component: Mapping[str, Any]) -> Share:
    resources = component.get("resources") or {}
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    limit = limits.get("cpu")
    # Without a request Kubernetes takes the limit for one.
    cpu = requests.get("cpu", limit if limit is not None else "0")
    memory = requests.get("memory", limits.get("memory", "0"))
    return Share(
        cpu=float(parse_quantity(str(cpu))),
        cpu_limit=float(parse_quantity(str(limit))) if limit is not None else None,
        memory_bytes=float(quantity_bytes(str(memory))),
    )
