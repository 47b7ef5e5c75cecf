"""What is refused, and in which words."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from swiftlet.crd import parse_ring, parse_storage_policy, parse_storage_quota, parse_storage_user
from swiftlet_operator.build.names import builder_map
from swiftlet_operator.build.ring_maps import BUILDER_LABEL
from swiftlet_operator.build.settings import CLUSTER_KEY, HASH_SUFFIX
from swiftlet_operator.checks import check
from swiftlet_operator.manifests import COMPONENT_LABEL
from swiftlet_operator.tests.clusters import cluster
from swiftlet_operator.tests.worlds import own
from swiftlet_operator.world import World

POOL = {"name": "disks", "replicas": 3, "storage": {"size": "10Gi"}}


def world(spec: dict[str, Any] | None = None, **parts: Any) -> World:
    """A cluster with something around it."""
    return World(cluster=cluster(spec or {"pools": [POOL]}), now_s=0, **parts)


def policy(name: str, index: int, **spec: Any) -> Any:
    """A StoragePolicy."""
    return parse_storage_policy(own("StoragePolicy", name, {"index": index, "name": name, **spec}))


def settings(*policies: tuple[int, str]) -> dict[tuple[str, str], dict[str, Any]]:
    """Live settings with these policies."""
    text = yaml.safe_dump([{"index": index, "name": name} for index, name in policies])
    live = {"kind": "ConfigMap", "metadata": {"name": "store-settings"}, "data": {"policies.yaml": text}}
    return {("ConfigMap", "store-settings"): live}


def violated(one: World) -> set[str]:
    """Reasons of what is violated."""
    return {verdict.reason for verdict in check(one) if verdict.violated}


def test_a_plain_cluster_violates_nothing() -> None:
    assert violated(world()) == set()


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({"pools": [{**POOL, "name": "proxy"}]}, "PoolNameReserved"),
        (
            {"pools": [{**POOL, "zones": ["b-c"], "name": "a"}, {**POOL, "zones": ["c"], "name": "a-b"}]},
            "PoolNamesCollide",
        ),
        ({"pools": [{**POOL, "name": "a" * 30, "zones": ["z" * 20]}]}, "NameTooLong"),
        ({"pools": [{**POOL, "roles": ["proxy"]}]}, "NoObjectPool"),
        ({"pools": [{**POOL, "replicas": 2}]}, "TooFewDevices"),
        ({"pools": [POOL], "container": {"replicas": 2}}, "TooFewContainerServers"),
        ({"pools": [{**POOL, "rdma": {"mode": "required"}}]}, "RDMAResourceMissing"),
    ],
)
def test_impossible_clusters(spec: dict[str, Any], reason: str) -> None:
    assert reason in violated(world(spec))


@pytest.mark.parametrize(
    ("policies", "before", "reason"),
    [
        ([policy("gold", 0, default=True), policy("tin", 1, default=True)], (), "TwoDefaultPolicies"),
        ([policy("gold", 0)], (), "NoDefaultPolicy"),
        ([policy("gold", 0, default=True), policy("tin", 0)], (), "PolicyIndexTwice"),
        ([policy("gold", 0, default=True, pools=["none"])], (), "PolicyPoolUnknown"),
        ([policy("gold", 0, default=True)], ((0, "gold"), (1, "tin")), "PolicyRemoved"),
        ([policy("gold", 0, default=True)], ((0, "tin"),), "PolicyIndexReused"),
    ],
)
def test_impossible_policies(policies: list[Any], before: tuple[tuple[int, str], ...], reason: str) -> None:
    assert reason in violated(world(policies=tuple(policies), children=settings(*before)))


def pools(*regions: str, roles: tuple[str, ...] = ("object", "proxy"), replicas: int = 3) -> dict[str, Any]:
    """A pool in each region."""
    return {
        "pools": [
            {**POOL, "name": region, "region": region, "roles": [*roles], "replicas": replicas} for region in regions
        ]
    }


@pytest.mark.parametrize(
    ("spec", "wanted", "reason", "advice"),
    [
        (pools("east"), {"writeQuorum": "local"}, "RegionsTooFew", "all that keep its objects are in east"),
        (pools("east"), {"writeQuorum": "each-region"}, "RegionsTooFew", "or writeQuorum to majority"),
        (
            pools("east", "west"),
            {"writeQuorum": "each-region", "pools": ["east"]},
            "RegionsTooFew",
            "set region of pools",
        ),
        (
            pools("east", "north", "west", "south"),
            {"writeQuorum": "each-region"},
            "ReplicasTooFew",
            "needs a replica in each of the 4 regions of its pools, and it has 3; raise replicas to 4",
        ),
        (
            pools("east", "west", roles=("object",)),
            {"writeQuorum": "local"},
            "RegionsWithoutProxies",
            "name the regions in proxy.regions, or add the role proxy to a pool in each region (east, west)",
        ),
        (
            pools("east", "west", roles=("object",)) | {"proxy": {"regions": ["east"]}},
            {"writeQuorum": "local"},
            None,
            "",
        ),
        (
            pools("east", "north", "west", replicas=1),
            {"writeQuorum": "local"},
            "RegionTooSmall",
            "makes 2 copies in a region before a write is acknowledged, and region east, north, west has fewer devices",
        ),
        (pools("east", "west"), {"writeQuorum": "local"}, None, ""),
        (pools("east", "north", "west"), {"writeQuorum": "each-region"}, None, ""),
        (pools("east"), {"writeQuorum": "majority"}, None, ""),
    ],
)
def test_what_write_quorums_require(
    spec: dict[str, Any], wanted: dict[str, Any], reason: str | None, advice: str
) -> None:
    found = check(world(spec, policies=(policy("gold", 0, default=True, **wanted),)))
    told = {verdict.reason: verdict.message for verdict in found if verdict.violated}
    assert set(told) == ({reason} if reason else set())
    if reason:
        assert told[reason].startswith("policy gold: ")
        assert advice in told[reason]


def test_proxies_are_in_regions_of_pools() -> None:
    found = check(world(pools("east", "west") | {"proxy": {"regions": ["west", "north"]}}))
    told = {verdict.reason: verdict.message for verdict in found if verdict.violated}
    assert list(told) == ["ProxyRegionUnknown"]
    assert told["ProxyRegionUnknown"].startswith("proxy.regions names north, which is the region of no pool")


def test_the_implicit_policy_may_get_a_name_and_stays_while_others_come() -> None:
    named = world(policies=(policy("gold", 0, default=True),), children=settings((0, "Policy-0")))
    beside = world(policies=(policy("tin", 1, default=True),), children=settings((0, "Policy-0")))

    assert violated(named) == set()
    assert violated(beside) == set()


def kept(*rings: str) -> dict[tuple[str, str], dict[str, Any]]:
    """What a deleted cluster leaves: keys, and builders of these rings."""
    keys = {CLUSTER_KEY: "eA==", HASH_SUFFIX: "eA=="}
    found: dict[tuple[str, str], dict[str, Any]] = {
        ("Secret", "store-keys"): {"kind": "Secret", "metadata": {"name": "store-keys"}, "data": keys}
    }
    for ring in rings:
        name = builder_map("store", ring, 0)
        labels = {COMPONENT_LABEL: "builder", BUILDER_LABEL: ring}
        found["ConfigMap", name] = {"kind": "ConfigMap", "metadata": {"name": name, "labels": labels}}
    return found


def test_a_restored_cluster_has_the_policies_that_its_rings_are_of() -> None:
    rings = ("account", "container", "object-0", "object-1")
    tin, gold = policy("tin", 1), policy("gold", 0, default=True)

    assert violated(world(policies=(tin,), children=kept(*rings))) == set()
    assert violated(world(policies=(gold, tin), children=kept(*rings))) == set()
    assert violated(world(policies=(tin,), children=kept("account", "container", "object-1"))) == {"NoDefaultPolicy"}
    assert violated(world(policies=(gold,), children=kept(*rings))) == {"PolicyRemoved"}
    assert violated(world(children=kept(*rings))) == {"PolicyRemoved"}


def test_a_quota_of_an_unknown_level() -> None:
    spec = {"levels": [{"name": "gold"}], "assignments": [{"account": "test", "level": "tin"}]}
    verdicts = [
        one for one in check(world(quotas=(parse_storage_quota(own("StorageQuota", "q", spec)),))) if one.violated
    ]

    assert [(one.kind, one.name, one.reason) for one in verdicts] == [("StorageQuota", "q", "LevelUnknown")]
    assert "tin" in verdicts[0].message


def test_two_users_of_one_name_and_a_missing_secret() -> None:
    users = tuple(
        parse_storage_user(own("StorageUser", name, {"account": "a", "user": "u", "secretRef": {"name": "none"}}))
        for name in ("one", "two")
    )
    found = {(one.name, one.reason) for one in check(world(users=users, secrets={"none": None})) if one.violated}

    assert found == {("two", "UserTwice"), ("one", "SecretMissing"), ("two", "SecretMissing")}


def test_two_rings_for_the_same_and_one_for_nothing() -> None:
    rings = tuple(
        parse_ring(own("Ring", name, {"type": "object", "policyIndex": index}))
        for name, index in (("a", 0), ("b", 0), ("c", 7))
    )

    assert {"RingTwice", "PolicyUnknown"} <= violated(world(ring_objects=rings))


def test_messages_are_sentences_even_for_what_is_fine() -> None:
    assert all(verdict.message for verdict in check(world()))


def test_a_policys_replicas_count_before_its_rings() -> None:
    ring = parse_ring(own("Ring", "r", {"type": "object", "policyIndex": 1, "replicas": 3}))
    few = policy("tin", 1, replicas=5)
    gold = policy("gold", 0, default=True)

    assert "TooFewDevices" in violated(world(policies=(gold, few), ring_objects=(ring,)))
    assert violated(world(policies=(gold, policy("tin", 1)), ring_objects=(ring,))) == set()
