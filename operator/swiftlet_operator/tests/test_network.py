"""NetworkPolicies as a network plugin would read them: who gets through to whom, and who does not."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import yaml

from swiftlet_operator.build import Site, build
from swiftlet_operator.build.network import build_network, problems
from swiftlet_operator.manifests import Manifest
from swiftlet_operator.tests.clusters import SPECS, cluster, site
from swiftlet_operator.tests.worlds import Scene

OPERATOR = (
    "swiftlet-system",
    {"app.kubernetes.io/name": "swiftlet-operator", "app.kubernetes.io/component": "operator"},
)
PROMETHEUS = ("monitoring", {"app.kubernetes.io/name": "prometheus"})
STRANGER = ("elsewhere", {"app": "curious"})
NEIGHBOUR = ("data", {"app": "curious"})
OTHER_STORE = (
    "data",
    {
        "app.kubernetes.io/name": "swiftlet",
        "app.kubernetes.io/instance": "other",
        "app.kubernetes.io/component": "storage",
    },
)
DNS = ("kube-system", {"k8s-app": "kube-dns"})
Pod = tuple[str, dict[str, str]]
"""Namespace and labels."""
OUTSIDE = "203.0.113.9"


def with_network(name: str, **network: Any) -> Site:
    """A site with this spec.network."""
    spec = yaml.safe_load(SPECS[name]) | {"network": network}
    return replace(site(name), cluster=cluster(spec))


def policies(where: Site) -> list[Manifest]:
    return [one for one in build(where) if one["kind"] == "NetworkPolicy"]


def own(component: str) -> Pod:
    """A pod of the cluster, with the labels that its template gives it."""
    labels = {"app.kubernetes.io/name": "swiftlet", "app.kubernetes.io/instance": "store"}
    return "data", {**labels, "app.kubernetes.io/component": component}


def pod_ports(where: Site) -> dict[str, set[int]]:
    """What the pods of each component listen on."""
    found: dict[str, set[int]] = {}
    for one in build(where):
        template = one.get("spec", {}).get("template")
        if template is not None:
            component = template["metadata"]["labels"]["app.kubernetes.io/component"]
            ports = (port["containerPort"] for c in template["spec"]["containers"] for port in c["ports"])
            found.setdefault(component, set()).update(ports)
    return found


def passes(found: list[Manifest], source: Pod | str, target: Pod | str, port: int, protocol: str = "TCP") -> bool:
    """Whether a connection gets through: out of the one pod, and into the other."""
    return _side(found, source, target, port, protocol, "Egress") and _side(
        found, target, source, port, protocol, "Ingress"
    )


def _side(found: list[Manifest], pod: Pod | str, peer: Pod | str, port: int, protocol: str, side: str) -> bool:
    if isinstance(pod, str):
        return True
    concerned = [
        one["spec"]
        for one in found
        if one["metadata"]["namespace"] == pod[0]
        and side in one["spec"]["policyTypes"]
        and _labels(one["spec"]["podSelector"], pod[1])
    ]
    rules: Iterator[Any] = (rule for spec in concerned for rule in spec[side.lower()])
    key = {"Ingress": "from", "Egress": "to"}[side]
    return not concerned or any(
        (key not in rule or any(_is(one, peer, pod[0]) for one in rule[key]))
        and ("ports" not in rule or any(_at(one, port, protocol) for one in rule["ports"]))
        for rule in rules
    )


def _at(one: dict[str, Any], port: int, protocol: str) -> bool:
    return bool(one["protocol"] == protocol and one["port"] <= port <= one.get("endPort", one["port"]))


def _is(selector: dict[str, Any], peer: Pod | str, namespace: str) -> bool:
    if isinstance(peer, str):
        block = selector.get("ipBlock")
        networks = [ipaddress.ip_network(one) for one in (block or {}).get("except", [])]
        address = ipaddress.ip_address(peer)
        return (
            block is not None
            and address in ipaddress.ip_network(block["cidr"])
            and not any(address in one for one in networks)
        )
    if "ipBlock" in selector:
        return False
    place = selector.get("namespaceSelector")
    there = peer[0] == namespace if place is None else _labels(place, {"kubernetes.io/metadata.name": peer[0]})
    return there and _labels(selector.get("podSelector", {}), peer[1])


def _labels(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    wanted = selector.get("matchLabels", {})
    return wanted.items() <= labels.items() and all(
        {"In": labels.get(one["key"]) in one.get("values", []), "Exists": one["key"] in labels}[one["operator"]]
        for one in selector.get("matchExpressions", [])
    )


DATA = {"storage": {6200, 7200, 6400}, "container": {6300, 7300, 6400}, "redis": {6379}}
NEEDED = {
    "storage": DATA,
    "container": DATA,
    "proxy": {"storage": {6200, 7200, 6400}, "container": {6300, 7300, 6400}, "proxy": {8081}, "metadata": {8091}},
    "metadata": {"container": {6300}},
    "redis": {},
}


@pytest.mark.parametrize("name", SPECS)
def test_pods_of_the_cluster_reach_what_they_need_and_nothing_else(name: str) -> None:
    where = site(name)
    found = policies(where)
    listening = pod_ports(where)
    public = {8080, 8090}
    for source in listening:
        for target, ports in listening.items():
            reached = {port for port in ports if passes(found, own(source), own(target), port)}
            assert reached - public == NEEDED[source].get(target, set()), (source, target)
        for stranger in (STRANGER, NEIGHBOUR, OTHER_STORE, OUTSIDE):
            for port in (80, 443, 6200, 6300, 6443):
                assert not passes(found, own(source), stranger, port), (source, stranger, port)
        names = {(port, protocol) for port in (53, 5353) for protocol in ("UDP", "TCP")}
        asked = {one for one in names if passes(found, own(source), DNS, *one)}
        assert asked == (set() if source == "redis" else names)


@pytest.mark.parametrize("name", SPECS)
def test_only_the_api_is_open_and_only_who_watches_reaches_what_is_told_about_pods(name: str) -> None:
    where = site(name)
    found = policies(where)
    for component, ports in pod_ports(where).items():
        for stranger in (STRANGER, NEIGHBOUR, OTHER_STORE, OUTSIDE):
            open_ports = {port for port in ports if passes(found, stranger, own(component), port)}
            assert open_ports == ports & {8080, 8090}, component
        for watcher in (OPERATOR, PROMETHEUS):
            told = {port for port in ports if passes(found, watcher, own(component), port)} - {8080, 8090}
            assert told == ports & {6200, 6300, 6400, 8081, 8091}, component


def test_clients_may_be_named() -> None:
    clients = [
        {
            "namespaceSelector": {
                "matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["apps"]}]
            }
        },
        {"podSelector": {"matchLabels": {"app": "curious"}}},
        {"ipBlock": {"cidr": "203.0.113.0/24", "except": ["203.0.113.128/25"]}},
    ]
    found = policies(with_network("minimal", clients=clients))
    for component, port in (("proxy", 8080), ("metadata", 8090)):
        for client in (("apps", {}), NEIGHBOUR, OUTSIDE):
            assert passes(found, client, own(component), port)
        for client in (STRANGER, "203.0.113.200", "198.51.100.1"):
            assert not passes(found, client, own(component), port)
    sumo = policies(with_network("sumo", clients=clients))
    assert passes(sumo, NEIGHBOUR, own("storage"), 8080)
    assert not passes(sumo, NEIGHBOUR, own("storage"), 6200)
    assert not passes(sumo, STRANGER, own("storage"), 8080)


def direct(clients: list[dict[str, Any]] | None = None, **spec: Any) -> list[Manifest]:
    """The policies of a cluster with direct access."""
    access = {"enabled": True, **({"clients": clients} if clients is not None else {})}
    whole = {**yaml.safe_load(SPECS["minimal"]), "directAccess": access, **spec}
    return policies(replace(site("minimal"), cluster=cluster(whole)))


def test_direct_clients_reach_object_and_metadata_servers_and_nothing_else_of_them() -> None:
    training = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "training"}}}
    job = ("training", {"app": "job"})
    everybody = {"proxy": {8080}, "metadata": {8090}}
    listening = pod_ports(site("minimal"))

    def reached(found: list[Manifest], source: Pod) -> dict[str, set[int]]:
        ports = {c: {p for p in ports if passes(found, source, own(c), p)} for c, ports in listening.items()}
        return {component: some for component, some in ports.items() if some}

    found = direct([training])
    assert reached(found, job) == {**everybody, "storage": {7200}}
    assert reached(found, STRANGER) == everybody
    # Those who may not reach the API may be allowed to reach the devices, and the other way round.
    found = direct([training], network={"clients": [{"podSelector": {"matchLabels": {"app": "curious"}}}]})
    assert reached(found, job) == {"metadata": {8090}, "storage": {7200}}
    assert reached(found, NEIGHBOUR) == everybody
    # Without a list of their own they are those who may reach the API.
    assert reached(direct(network={"clients": [training]}), job) == {**everybody, "storage": {7200}}
    assert reached(direct(network={"clients": [training]}), STRANGER) == {}
    # Metadata servers tell object servers which grants have ended, and what writes they have missed.
    assert passes(found, own("metadata"), own("storage"), 7200)
    assert passes(found, own("metadata"), own("storage"), 6200)
    assert not passes(found, own("metadata"), own("storage"), 6400)


def test_more_may_be_reached_by_those_who_need_it() -> None:
    kms = {
        "name": "kms",
        "components": ["proxy"],
        "to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "vault"}}}],
    }
    kms |= {"ports": [{"port": 8200}]}
    logs = {"name": "logs", "ports": [{"port": 4317, "endPort": 4318}, {"port": 514, "protocol": "UDP"}]}
    found = policies(with_network("minimal", extraEgress=[kms, logs]))
    vault = ("vault", {"app": "vault"})
    assert passes(found, own("proxy"), vault, 8200)
    assert not passes(found, own("proxy"), vault, 8201)
    assert not passes(found, own("proxy"), STRANGER, 8200)
    assert not passes(found, own("metadata"), vault, 8200)
    for component in ("storage", "container", "proxy", "metadata", "redis"):
        assert passes(found, own(component), STRANGER, 4318)
        assert passes(found, own(component), OUTSIDE, 514, "UDP")
        assert not passes(found, own(component), OUTSIDE, 514)


def test_another_than_prometheus_may_read_metrics() -> None:
    found = policies(
        with_network("minimal", scrapers=[{"namespaceSelector": {}, "podSelector": {"matchLabels": STRANGER[1]}}])
    )
    for component, port in (("storage", 6200), ("container", 6300), ("proxy", 8081), ("metadata", 8091)):
        assert passes(found, STRANGER, own(component), port)
        assert passes(found, OPERATOR, own(component), port)
        assert not passes(found, PROMETHEUS, own(component), port)
    assert not passes(found, STRANGER, own("redis"), 6379)


def test_names_may_be_asked_of_some_only() -> None:
    found = policies(
        with_network(
            "minimal", dns=[{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}]
        )
    )
    assert passes(found, own("proxy"), DNS, 53, "UDP")
    assert not passes(found, own("proxy"), OUTSIDE, 53, "UDP")
    assert passes(policies(site("minimal")), own("proxy"), "169.254.20.10", 53, "UDP")


@pytest.mark.parametrize(
    ("address", "reached"),
    [
        ("203.0.113.9:6380", True),
        ("203.0.113.10:6380", False),
        ("[2001:db8::1]:6380", False),
        ("redis.example.org:6380", True),
    ],
)
def test_an_external_redis_is_reached_by_who_has_a_replicator(address: str, reached: bool) -> None:
    spec = yaml.safe_load(SPECS["external-redis"])
    spec["redis"]["address"] = address
    found = policies(replace(site("external-redis"), cluster=cluster(spec)))
    for component in ("storage", "container"):
        assert passes(found, own(component), OUTSIDE, 6380) is reached
        assert not passes(found, own(component), OUTSIDE, 6379)
    assert not passes(found, own("proxy"), OUTSIDE, 6380)


def test_an_external_redis_of_ipv6_is_one_address() -> None:
    spec = yaml.safe_load(SPECS["external-redis"])
    spec["redis"]["address"] = "[2001:db8::1]:6380"
    found = policies(replace(site("external-redis"), cluster=cluster(spec)))
    assert passes(found, own("storage"), "2001:db8::1", 6380)
    assert not passes(found, own("storage"), "2001:db8::2", 6380)


def test_policies_may_be_less_or_none() -> None:
    incoming = policies(with_network("minimal", policies="ingress"))
    assert all(one["spec"]["policyTypes"] == ["Ingress"] and "egress" not in one["spec"] for one in incoming)
    assert passes(incoming, own("proxy"), OUTSIDE, 443)
    assert not passes(incoming, STRANGER, own("storage"), 6200)
    assert build_network(with_network("minimal", policies="disabled")) == []


@pytest.mark.parametrize(
    ("block", "says"),
    [
        ({"cidr": "10.300.0.0/16"}, "10.300.0.0/16 is no network"),
        ({"cidr": "10.1.0.0/16", "except": ["10.2.0.0/24"]}, "except 10.2.0.0/24 is not a part of 10.1.0.0/16"),
        ({"cidr": "10.1.0.0/16", "except": ["10.1.0.0/16"]}, "not a part"),
        ({"cidr": "10.1.0.0/16", "except": ["2001:db8::/64"]}, "not a part"),
        ({"cidr": "10.1.0.7/16", "except": ["10.1.4.0/24"]}, ""),
        ({"cidr": "2001:db8::/32", "except": ["2001:db8:1::/48"]}, ""),
    ],
)
def test_networks_that_are_none_are_told(block: dict[str, Any], says: str) -> None:
    spec = with_network("minimal", extraEgress=[{"name": "far", "to": [{"ipBlock": block}]}]).spec
    found = list(problems(spec))
    assert len(found) == bool(says)
    if says:
        assert says in found[0]
        assert found[0].startswith("spec.network.extraEgress far: ")


def test_networks_of_direct_clients_are_checked_too() -> None:
    clients = [{"ipBlock": {"cidr": "10.1.2.3/99"}}]
    spec = {**yaml.safe_load(SPECS["minimal"]), "directAccess": {"clients": clients}}
    (told,) = problems(cluster(spec).spec)
    assert told == "spec.directAccess.clients: 10.1.2.3/99 is no network; write one such as 10.1.0.0/16"


async def test_a_network_that_is_none_leaves_what_was_accepted_in_force() -> None:
    scene = Scene("minimal")
    await scene.step()
    await scene.settle()
    before = scene.kube.find("NetworkPolicy", "store-proxy")["spec"]
    scene.cluster["spec"]["network"] = {"clients": [{"ipBlock": {"cidr": "10.1.0.0/33"}}]}
    await scene.step()
    assert scene.condition("SpecValid") == ("False", "NetworkUnusable")
    assert "spec.network.clients: 10.1.0.0/33" in scene.message("SpecValid")
    assert scene.kube.find("NetworkPolicy", "store-proxy")["spec"] == before

    scene.cluster["spec"]["network"] = {"policies": "disabled"}
    await scene.step()
    assert scene.kube.names("NetworkPolicy") == set()


def test_members_of_a_federation_reach_the_servers_of_devices_alone() -> None:
    found = policies(site("federated"))
    for port in (6200, 7200, 6400):
        assert passes(found, "10.1.2.3", own("storage"), port)
        assert passes(found, own("storage"), "10.1.2.3", port)
        assert not passes(found, OUTSIDE, own("storage"), port)
    for port in (6300, 7300, 6400):
        assert passes(found, "10.1.2.3", own("container"), port)
        assert passes(found, own("container"), "10.1.2.3", port)
    assert not passes(found, own("storage"), "10.1.2.3", 443)
    assert not passes(found, own("storage"), OUTSIDE, 6200)
    assert not passes(found, "10.1.2.3", own("redis"), 6379)
