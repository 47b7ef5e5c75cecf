"""Manifests become views, and what is wrong with them becomes a sentence."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from swiftlet.crd import (
    KINDS,
    Resources,
    parse_resource,
    parse_ring,
    parse_storage_cluster,
    parse_storage_policy,
    parse_storage_quota,
    parse_storage_user,
)
from swiftlet.errors import SettingsError

MIB = 1024**2


def manifest(kind: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    """A resource called `one`."""
    return {"apiVersion": "swiftlet.io/v1alpha1", "kind": kind, "metadata": {"name": "one"} | metadata, "spec": spec}


def cluster(**changes: Any) -> dict[str, Any]:
    """A StorageCluster with one pool, changed."""
    spec = {"pools": [{"name": "main", "replicas": 3, "storage": {"size": "100Gi"}}]} | changes
    return manifest("StorageCluster", spec)


def test_a_cluster_says_what_was_asked_and_what_is_usual() -> None:
    parsed = parse_storage_cluster(
        manifest("StorageCluster", cluster()["spec"], namespace="media", uid="u", generation=4)
    )

    (pool,) = parsed.spec.pools
    assert parsed.key == "media/one"
    assert parsed.meta.generation == 4
    assert not parsed.meta.deleting
    assert (pool.roles, pool.zones, pool.devices_per_pod, pool.device_count) == (("object",), (), 1, 3)
    assert pool.device_weight == 100.0
    assert (parsed.spec.rings.part_power, parsed.spec.container.storage.size_bytes) == (14, 10 * 1024**3)
    assert parsed.owner_reference["uid"] == "u"


def test_camel_case_outside_snake_case_inside() -> None:
    pool = {
        "name": "fast",
        "replicas": 2,
        "devicesPerPod": 4,
        "storage": {"className": "nvme", "size": "1Ti"},
        "weight": 7,
    }

    (parsed,) = parse_storage_cluster(cluster(pools=[pool])).spec.pools

    assert (parsed.storage.class_name, parsed.device_count, parsed.device_weight) == ("nvme", 8, 7.0)


def test_a_pools_rdma_stands_for_the_clusters_as_a_whole() -> None:
    main = {"name": "main", "replicas": 3, "storage": {"size": "1Gi"}}
    off = main | {"name": "off", "rdma": {"mode": "disabled"}}
    spec = parse_storage_cluster(cluster(pools=[main, off], rdma={"mode": "required", "resource": "rdma/hca"})).spec

    assert spec.rdma_of(spec.pools[0]).wanted
    assert not spec.rdma_of(spec.pools[1]).wanted
    assert spec.pool_named("off") is spec.pools[1]
    assert spec.pool_named("none") is None


def test_pods_are_told_only_what_was_said() -> None:
    spec = parse_storage_cluster(
        cluster(proxy={"resources": {"requests": {"cpu": 2}}, "tolerations": [{"key": "edge", "tolerationSeconds": 5}]})
    ).spec

    assert spec.proxy.resources.manifest == {"requests": {"cpu": "2"}}
    assert spec.proxy.tolerations[0].manifest == {"key": "edge", "operator": "Equal", "tolerationSeconds": 5}
    assert Resources().manifest == {}


def test_the_other_kinds() -> None:
    ref = {"clusterRef": {"name": "photos"}}
    ring = parse_ring(manifest("Ring", ref | {"type": "object", "policyIndex": 1})).spec
    policy = parse_storage_policy(manifest("StoragePolicy", ref | {"index": 1, "name": "gold"})).spec
    quota = parse_storage_quota(
        manifest(
            "StorageQuota",
            ref
            | {
                "levels": [
                    {"name": "default", "containerCount": 5},
                    {"name": "L1", "containerUsage": "2Gi", "accountUsage": "5Gi"},
                ],
                "assignments": [{"account": "big", "level": "L1"}],
            },
        )
    ).spec
    user = parse_storage_user(
        manifest("StorageUser", ref | {"account": "a", "user": "u", "secretRef": {"name": "s"}})
    ).spec

    assert ring.ring_name == "object-1"
    assert parse_ring(manifest("Ring", ref | {"type": "account"})).spec.ring_name == "account"
    assert policy.aggregate_below_bytes == MIB
    default, big = quota.level_of("anybody"), quota.level_of("big")
    assert default is not None
    assert (default.container_count, default.container_usage_bytes) == (5, None)
    assert big is not None
    assert (big.container_usage_bytes, big.account_usage_bytes) == (2048 * MIB, 5120 * MIB)
    assert user.login == "a:u"
    assert user.secret_ref is not None
    assert user.secret_ref.key == "key"


def test_any_of_the_five_kinds_is_recognised() -> None:
    assert parse_resource(cluster()).kind is KINDS["StorageCluster"]
    with pytest.raises(
        SettingsError, match="kind 'Pod' does not belong to Swiftlet; the kinds are: StorageCluster, Ring"
    ):
        parse_resource({"kind": "Pod"})
    with pytest.raises(SettingsError, match=r"Ring of swiftlet.io/v1alpha1 is not a StorageCluster"):
        parse_storage_cluster(manifest("Ring", {}))


def test_names_of_a_newer_version_are_passed_over() -> None:
    assert parse_storage_cluster(cluster(shinyNewThing=True)).spec.paused is False


def test_views_are_frozen() -> None:
    spec = parse_storage_cluster(cluster()).spec
    with pytest.raises(ValidationError):
        spec.paused = True


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pools": []}, "spec.pools: tuple should have at least 1 item"),
        ({"pools": [{"name": "a", "replicas": 1}]}, "spec.pools[0].storage: missing; set it, it has no default"),
        (
            {"pools": [{"name": "a", "replicas": 1, "storage": {"size": "10XB"}}]},
            "spec.pools[0].storage.size: '10XB': string should match pattern",
        ),
        ({"proxy": {"service": {"type": "Magic"}}}, "spec.proxy.service.type: 'Magic': input should be 'ClusterIP', "),
        ({"rings": {"partPower": 40}}, "spec.rings.partPower: 40: input should be less than or equal to 22"),
        ({"deletionPolicy": "Keep"}, "spec.deletionPolicy: 'Keep': input should be 'Retain' or 'Delete'"),
    ],
)
def test_mistakes_name_the_resource_the_field_and_the_fix(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        parse_storage_cluster(cluster(**changes))

    assert str(caught.value).startswith("StorageCluster one: ")
    assert sentence in str(caught.value)
