"""What `spec.network` says, before a real API server: it takes what makes sense, and the NetworkPolicies of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import yaml

from swiftlet.crd import parse_storage_cluster
from swiftlet_operator.build.network import build_network
from swiftlet_operator.manifests import CLUSTER, NETWORK_POLICY
from swiftlet_operator.tests.apiserver import ApiServer
from swiftlet_operator.tests.clusters import SPECS, manifest, site

pytestmark = pytest.mark.apiserver

APPS = {"namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a", "b"]}]}}
EVERYTHING = {
    "clients": [
        APPS,
        {"podSelector": {"matchLabels": {"app": "x"}}},
        {"ipBlock": {"cidr": "10.1.0.7/16", "except": ["10.1.4.0/24"]}},
    ],
    "dns": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"k8s-app": "kube-dns"}}}],
    "extraEgress": [
        {"name": "logs", "ports": [{"port": 4317, "endPort": 4318}, {"port": 514, "protocol": "UDP"}]},
        {
            "name": "kms",
            "components": ["proxy"],
            "to": [{"ipBlock": {"cidr": "2001:db8::/32"}}],
            "ports": [{"port": 443}],
        },
        {
            "name": "anything-there",
            "to": [{"namespaceSelector": {"matchExpressions": [{"key": "k", "operator": "Exists"}]}}],
        },
    ],
}


def make(apiserver: ApiServer, network: dict[str, Any]) -> Any:
    """The answer to a cluster with this spec.network."""
    namespace = apiserver.namespace("net")
    body = manifest(yaml.safe_load(SPECS["minimal"]) | {"network": network})
    body["metadata"] = {"name": "store", "namespace": namespace}
    return apiserver.create(f"{CLUSTER.path}/namespaces/{namespace}/{CLUSTER.plural}", body)


@pytest.mark.parametrize("network", [{}, EVERYTHING, {"policies": "ingress"}], ids=["nothing", "everything", "ingress"])
def test_the_policies_of_what_is_taken_are_taken(apiserver: ApiServer, network: dict[str, Any]) -> None:
    answer = make(apiserver, network)
    assert answer.status == 201, answer.message
    stored = parse_storage_cluster(answer.body)
    made = build_network(replace(site("minimal"), cluster=stored))
    assert len(made) == 5
    for one in made:
        path = f"{NETWORK_POLICY.path}/namespaces/{stored.meta.namespace}/{NETWORK_POLICY.plural}"
        written = apiserver.create(path, one)
        assert written.status == 201, written.message
        if network == EVERYTHING and one["metadata"]["name"] == "store-proxy":
            # Names, storage, containers, proxies, metadata servers; then the three of the spec.
            assert [len(rule.get("to", [])) for rule in written.body["spec"]["egress"]] == [1, 1, 1, 1, 1, 0, 1, 1]


@pytest.mark.parametrize(
    ("network", "says"),
    [
        ({"policies": "some"}, "Unsupported value"),
        ({"clients": [{}]}, "set ipBlock alone"),
        ({"clients": [{"ipBlock": {"cidr": "10.0.0.0/8"}, "podSelector": {}}]}, "set ipBlock alone"),
        ({"clients": [{"ipBlock": {"cidr": "objects.example.org"}}]}, "should match"),
        ({"clients": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}]}, "values must have"),
        (
            {"dns": [{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists", "values": ["x"]}]}}]},
            "values must have",
        ),
        ({"extraEgress": [{"name": "all"}]}, "would allow all outgoing"),
        ({"extraEgress": [{"name": "a", "ports": [{"port": 9, "endPort": 8}]}]}, "endPort must be"),
        ({"extraEgress": [{"name": "a", "ports": [{"port": 70000}]}]}, "less than or equal to 65535"),
        ({"extraEgress": [{"name": "a", "components": ["operator"], "ports": [{"port": 1}]}]}, "Unsupported value"),
        ({"clients": [APPS] * 33}, "must have at most 32 items"),
    ],
)
def test_what_makes_no_sense_is_refused(apiserver: ApiServer, network: dict[str, Any], says: str) -> None:
    answer = make(apiserver, network)
    assert answer.status == 422
    assert says in answer.message
