"""NetworkPolicies: pods are reached by, and reach, only what they need.

One table says what needs what. Both sides follow from it: the ingress of the pods that are reached and the egress of
those that reach them. Kubelets' probes come from the pods' own nodes, which NetworkPolicies always let through.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from swiftlet.crd import NetworkPeer, NetworkSpec, StorageClusterSpec
from swiftlet_operator.build.pods import component_labels
from swiftlet_operator.build.site import (
    API_PORT,
    CONTAINER,
    CONTAINER_NATIVE_PORT,
    CONTAINER_PORT,
    MANAGEMENT_PORT,
    METADATA,
    METADATA_MANAGEMENT_PORT,
    METADATA_PORT,
    OBJECT_NATIVE_PORT,
    OBJECT_PORT,
    PROXY,
    REDIS,
    REDIS_PORT,
    REPLICATOR_PORT,
    STORAGE,
    Site,
)
from swiftlet_operator.manifests import COMPONENT_LABEL, INSTANCE_LABEL, NAME_LABEL, NETWORK_POLICY, Manifest

_OPERATOR = {NAME_LABEL: "swiftlet-operator", COMPONENT_LABEL: "operator"}
"""The labels that the chart gives the operator's pods."""
_PROMETHEUS = {"app.kubernetes.io/name": "prometheus"}
DNS_PORTS = (53, 5353)
"""The ports of DNS; servers of some distributions listen at the second one, behind a Service with the first."""

Rule = dict[str, Any]

_OF_DATA = {
    STORAGE: (OBJECT_PORT, OBJECT_NATIVE_PORT, REPLICATOR_PORT),
    CONTAINER: (CONTAINER_PORT, CONTAINER_NATIVE_PORT, REPLICATOR_PORT),
    REDIS: (REDIS_PORT,),
}
REACHES: Mapping[str, Mapping[str, tuple[int, ...]]] = {
    # Servers of devices have a replicator beside them, which speaks with all others and with Redis.
    STORAGE: _OF_DATA,
    CONTAINER: _OF_DATA,
    # Whoever moves containers to another policy does so from a proxy's pod, and asks all services for their status.
    PROXY: {
        STORAGE: (OBJECT_PORT, OBJECT_NATIVE_PORT, REPLICATOR_PORT),
        CONTAINER: (CONTAINER_PORT, CONTAINER_NATIVE_PORT, REPLICATOR_PORT),
        PROXY: (MANAGEMENT_PORT,),
        METADATA: (METADATA_MANAGEMENT_PORT,),
    },
    METADATA: {CONTAINER: (CONTAINER_PORT,)},
    REDIS: {},
}
"""For each component, the components that its pods connect to, and their ports."""
_TELLS = {STORAGE: (OBJECT_PORT, OBJECT_NATIVE_PORT)}
"""What metadata servers connect to besides, with direct access: they tell object servers what these have missed, and
which grants have ended.
"""


_MEMBERS = {STORAGE: _OF_DATA[STORAGE], CONTAINER: _OF_DATA[CONTAINER]}
"""The ports of servers of devices that all members of a federation reach."""


def build_network(site: Site) -> list[Manifest]:
    """Return one policy for each component with pods, none where the spec wants none."""
    if site.spec.network.policies == "disabled":
        return []
    return [_policy(site, component) for component in _components(site)]


def problems(spec: StorageClusterSpec) -> Iterator[str]:
    """Yield what is wrong with networks in the spec, as far as only their numbers show it."""
    for field, peer in _peers(spec):
        block = peer.ip_block
        if block is None:
            continue
        wrong = [text for text in (block.cidr, *block.excluded) if _network(text) is None]
        if wrong:
            yield f"{field}: {', '.join(wrong)} is no network; write one such as 10.1.0.0/16"
            continue
        yield from (
            f"{field}: except {text} is not a part of {block.cidr}; correct one of them"
            for text in block.excluded
            if not _is_part(text, block.cidr)
        )


def _peers(spec: StorageClusterSpec) -> Iterator[tuple[str, NetworkPeer]]:
    network = spec.network
    yield from (("spec.network.clients", one) for one in network.clients)
    yield from (("spec.directAccess.clients", one) for one in spec.direct_access.clients)
    if spec.federation is not None:
        yield from (("spec.federation.peers", one) for one in spec.federation.peers)
    yield from (("spec.network.dns", one) for one in network.dns)
    yield from (("spec.network.scrapers", one) for one in network.scrapers)
    yield from ((f"spec.network.extraEgress {rule.name}", one) for rule in network.extra_egress for one in rule.to)


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False)
    except ValueError:
        return None


def _is_part(inner: str, outer: str) -> bool:
    """Return whether a network is within another one and smaller than it, as the API server requires."""
    part, whole = _network(inner), _network(outer)
    if isinstance(part, ipaddress.IPv4Network) and isinstance(whole, ipaddress.IPv4Network):
        return part.subnet_of(whole) and part.prefixlen > whole.prefixlen
    if isinstance(part, ipaddress.IPv6Network) and isinstance(whole, ipaddress.IPv6Network):
        return part.subnet_of(whole) and part.prefixlen > whole.prefixlen
    return False


def _reaches(site: Site, component: str) -> Mapping[str, tuple[int, ...]]:
    """Return what a component's pods connect to in this cluster."""
    if component == METADATA and site.spec.direct_access.enabled:
        return {**REACHES[component], **_TELLS}
    return REACHES[component]


def _components(site: Site) -> list[str]:
    """Return the components that have pods."""
    found = [STORAGE, CONTAINER]
    found += [PROXY] if site.spec.proxy.replicas else []
    found += [METADATA] if site.spec.metadata.replicas else []
    return found + ([REDIS] if site.has_embedded_redis else [])


def _policy(site: Site, component: str) -> Manifest:
    spec: dict[str, Any] = {
        "podSelector": {"matchLabels": component_labels(site, component)},
        "policyTypes": ["Ingress"],
        "ingress": _ingress(site, component),
    }
    if site.spec.network.policies == "full":
        spec |= {"policyTypes": ["Ingress", "Egress"], "egress": _egress(site, component)}
    return site.object(NETWORK_POLICY, site.child(component), component, {"spec": spec})


def _ingress(site: Site, component: str) -> list[Rule]:
    """Return who may connect: the cluster's own pods, clients, and monitoring."""
    needed: dict[tuple[int, ...], list[Rule]] = {}
    for source in _components(site):
        if ports := _reaches(site, source).get(component):
            needed.setdefault(ports, []).append(_own_pods(site, source))
    found = [_rule("from", sources, *ports) for ports, sources in needed.items()]
    found += [_rule("from", [watcher], *ports) for watcher in _watchers(site) if (ports := _told_at(site, component))]
    return [*found, *_clients(site, component), *_members(site, "from", component in _MEMBERS, component)]


def _members(site: Site, side: str, is_meant: bool, target: str) -> list[Rule]:
    """Return the rule for pods of other members of a federation: they and servers of devices reach each other."""
    federation = site.spec.federation
    if federation is None or not is_meant:
        return []
    return [_rule(side, [one.manifest for one in federation.peers], *_MEMBERS[target])]


def _clients(site: Site, component: str) -> list[Rule]:
    ports = {PROXY: API_PORT, METADATA: METADATA_PORT} | ({STORAGE: API_PORT} if _has_sumo(site) else {})
    clients = [one.manifest for one in site.spec.network.clients]
    found = [_rule("from", clients, ports[component])] if component in ports else []
    native = {STORAGE: OBJECT_NATIVE_PORT, METADATA: METADATA_PORT}
    if site.spec.direct_access.enabled and component in native:
        direct = [one.manifest for one in site.spec.direct_access.clients] or clients
        found += [one for one in (_rule("from", direct, native[component]),) if one not in found]
    return found


def _egress(site: Site, component: str) -> list[Rule]:
    """Return what may be reached: DNS, the cluster's own pods, an external Redis, and what the spec adds."""
    network = site.spec.network
    there = _components(site)
    reached = {target: ports for target, ports in _reaches(site, component).items() if target in there}
    found = [_rule("to", [_own_pods(site, target)], *ports) for target, ports in reached.items()]
    if REDIS in REACHES[component] and REDIS not in there:
        found += _external_redis(site)
    if component != REDIS:
        found.insert(0, _names(network))
    found += [
        rule
        for target in (STORAGE, CONTAINER)
        for rule in _members(site, "to", target in _reaches(site, component), target)
    ]
    for rule in network.extra_egress:
        if not rule.components or component in rule.components:
            found.append(_extra([one.manifest for one in rule.to], [one.manifest for one in rule.ports]))
    return found


def _names(network: NetworkSpec) -> Rule:
    ports = [{"port": port, "protocol": protocol} for port in DNS_PORTS for protocol in ("UDP", "TCP")]
    return _extra([one.manifest for one in network.dns], ports)


def _external_redis(site: Site) -> list[Rule]:
    """Return a rule for its address, or for its port anywhere if it has a name, as rules can't have names."""
    address = site.spec.redis.address
    if site.spec.redis.mode != "external" or address is None:
        return []
    host, _, port = address.rpartition(":")
    try:
        ip = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return [_rule("to", [], int(port))]
    return [_rule("to", [{"ipBlock": {"cidr": f"{ip}/{ip.max_prefixlen}"}}], int(port))]


def _told_at(site: Site, component: str) -> tuple[int, ...]:
    """Return the ports of a component's pods that serve `/statusz` and `/metrics`."""
    sumo = (MANAGEMENT_PORT,) if _has_sumo(site) else ()
    ports = {
        STORAGE: (OBJECT_PORT, REPLICATOR_PORT, *sumo),
        CONTAINER: (CONTAINER_PORT, REPLICATOR_PORT),
        PROXY: (MANAGEMENT_PORT,),
        METADATA: (METADATA_MANAGEMENT_PORT,),
    }
    return ports.get(component, ())


def _has_sumo(site: Site) -> bool:
    """Return whether storage pods serve the API, too."""
    return any(PROXY in pool.roles for pool in site.spec.pools)


def _watchers(site: Site) -> list[Rule]:
    """Return the operator, which reads every service's `/statusz`, and with monitoring the readers of metrics."""
    watchers = []
    if site.operator_namespace is not None:
        watchers.append(_in_namespace(site.operator_namespace, _OPERATOR))
    if site.spec.monitoring.enabled:
        watchers += [one.manifest for one in site.spec.network.scrapers] or [_anywhere(_PROMETHEUS)]
    return watchers


def _own_pods(site: Site, component: str) -> Rule:
    labels = {NAME_LABEL: "swiftlet", INSTANCE_LABEL: site.name, COMPONENT_LABEL: component}
    return {"podSelector": {"matchLabels": labels}}


def _anywhere(labels: dict[str, str]) -> Rule:
    return {"namespaceSelector": {}, "podSelector": {"matchLabels": labels}}


def _in_namespace(namespace: str, labels: dict[str, str]) -> Rule:
    place = {"matchLabels": {"kubernetes.io/metadata.name": namespace}}
    return {"namespaceSelector": place, "podSelector": {"matchLabels": labels}}


def _rule(side: str, peers: Sequence[Rule], *ports: int) -> Rule:
    """Return a rule for TCP connections to or from these peers at these ports; without peers it allows everybody."""
    rule: Rule = {side: list(peers)} if peers else {}
    return {**rule, "ports": [{"port": port, "protocol": "TCP"} for port in ports]}


def _extra(peers: Iterable[Rule], ports: Iterable[Rule]) -> Rule:
    """Return a rule of egress without empty fields, because an empty field means everything."""
    return {name: value for name, value in (("to", list(peers)), ("ports", list(ports))) if value}
