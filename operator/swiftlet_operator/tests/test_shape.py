"""What pods are like: words for all and for one component's own, what is added to them, and what restarts for them."""

from __future__ import annotations

from typing import Any

import pytest

from swiftlet_operator.build import build
from swiftlet_operator.manifests import Manifest
from swiftlet_operator.tests.clusters import site
from swiftlet_operator.tests.worlds import settled

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
ZONE = "topology.kubernetes.io/zone"


@pytest.fixture(scope="module")
def shaped() -> dict[str, Manifest]:
    """Workloads of the cluster that says most of its pods, by name."""
    made = build(site("shaped"))
    return {one["metadata"]["name"]: one for one in made if one["kind"] in ("StatefulSet", "Deployment")}


def pod(workload: Manifest) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def labels(workload: Manifest) -> dict[str, str]:
    found: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return found


def test_of_maps_both_count_and_the_components_of_the_same_key(shaped: dict[str, Manifest]) -> None:
    assert pod(shaped["store-fast-a"])["nodeSelector"] == {"storage": "yes", "disk": "nvme"}
    assert pod(shaped["store-metadata"])["nodeSelector"] == {"storage": "yes"}
    assert labels(shaped["store-fast-a"])["team"] == "nvme"
    assert labels(shaped["store-redis"])["team"] == "objects"
    notes = shaped["store-redis"]["spec"]["template"]["metadata"]["annotations"]
    assert notes["example.org/backup"] == "never"


def test_tolerations_of_both_count(shaped: dict[str, Manifest]) -> None:
    storage = {"key": "storage", "operator": "Exists"}
    assert pod(shaped["store-proxy"])["tolerations"] == [
        storage,
        {"key": "edge", "operator": "Equal", "effect": "NoSchedule"},
    ]
    others = [pod(one)["tolerations"] for name, one in shaped.items() if name != "store-proxy"]
    assert len(others) == 6
    assert all(one == [storage] for one in others)


def test_the_zone_is_added_to_every_term_so_that_none_leads_out_of_it(shaped: dict[str, Manifest]) -> None:
    for zone in "ab":
        terms = pod(shaped[f"store-fast-{zone}"])["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert len(terms) == 2
        ours = {"key": ZONE, "operator": "In", "values": [zone]}
        assert all(ours in term["matchExpressions"] for term in terms)
    assert terms[0]["matchExpressions"][0]["key"] == "disk"
    assert terms[1]["matchFields"] == [{"key": "metadata.name", "operator": "NotIn", "values": ["old"]}]


def test_placement_is_added_to_anti_affinity(shaped: dict[str, Manifest]) -> None:
    part = pod(shaped["store-fast-a"])["affinity"]["podAntiAffinity"]
    asked, ours = part[REQUIRED]
    assert asked["labelSelector"] == {"matchLabels": {"app": "database"}}
    assert ours["labelSelector"]["matchLabels"]["swiftlet.io/pool"] == "fast"
    assert [one["weight"] for one in part[PREFERRED]] == [10]
    assert "podAntiAffinity" not in pod(shaped["store-proxy"])["affinity"], "proxies keep nothing"


def test_of_affinity_each_part_stands_as_a_whole(shaped: dict[str, Manifest]) -> None:
    """The container servers' own word on nodes takes the place of that for all pods."""
    assert set(pod(shaped["store-container"])["affinity"]["nodeAffinity"]) == {PREFERRED}
    assert set(pod(shaped["store-metadata"])["affinity"]["nodeAffinity"]) == {REQUIRED}


def test_spread_constraints_are_ours_until_their_key_is_spoken_of(shaped: dict[str, Manifest]) -> None:
    def spread(name: str) -> dict[str, tuple[int, str]]:
        found = pod(shaped[name])["topologySpreadConstraints"]
        return {one["topologyKey"]: (one["maxSkew"], one["whenUnsatisfiable"]) for one in found}

    nodes = {"kubernetes.io/hostname": (1, "ScheduleAnyway")}
    assert spread("store-slow") == spread("store-proxy") == {ZONE: (1, "DoNotSchedule"), **nodes}
    assert spread("store-container") == {ZONE: (1, "DoNotSchedule"), **nodes, "rack": (2, "ScheduleAnyway")}
    assert spread("store-fast-a") == nodes, "a pool with zones stands where they say"
    for one in pod(shaped["store-container"])["topologySpreadConstraints"]:
        assert one["labelSelector"]["matchLabels"]["app.kubernetes.io/component"] == "container"


def test_pods_have_an_account_without_rights_and_no_token(shaped: dict[str, Manifest]) -> None:
    accounts = {name: pod(one)["serviceAccountName"] for name, one in shaped.items()}
    assert accounts.pop("store-slow") == "theirs"
    assert set(accounts.values()) == {"store-pods"}
    assert not any(pod(one)["automountServiceAccountToken"] for one in shaped.values())
    (account,) = [one for one in build(site("shaped")) if one["kind"] == "ServiceAccount"]
    assert account["metadata"]["name"] == "store-pods"
    assert account["automountServiceAccountToken"] is False


def test_all_pods_have_the_priority_class(shaped: dict[str, Manifest]) -> None:
    assert {pod(one)["priorityClassName"] for one in shaped.values()} == {"system-cluster-critical"}


def test_everybody_asks_for_something_unless_told_otherwise(shaped: dict[str, Manifest]) -> None:
    asked = {
        (one["metadata"]["name"], container["name"]): container.get("resources")
        for one in build(site("minimal"))
        if one["kind"] in ("StatefulSet", "Deployment")
        for container in pod(one)["containers"]
    }
    assert all(found is not None and set(found) == {"requests"} for found in asked.values()), asked
    assert len(asked) == 7
    cpu = sum(int(found["requests"]["cpu"].removesuffix("m")) for found in asked.values() if found)
    assert cpu == 350, "a kind of pod each; the guide's table says so"
    assert "resources" not in pod(shaped["store-slow"])["containers"][0]
    assert pod(shaped["store-slow"])["containers"][1]["resources"] == {"requests": {"cpu": "50m"}}


def test_labels_of_ours_win_even_where_nobody_refused_others() -> None:
    """An older definition may have let them in."""
    plain = site("minimal")
    stolen = plain.spec.pod_defaults.model_copy(update={"pod_labels": {"app.kubernetes.io/instance": "stolen"}})
    services = plain.spec.service_defaults.model_copy(update={"labels": {"app.kubernetes.io/component": "stolen"}})
    object.__setattr__(
        plain.cluster, "spec", plain.spec.model_copy(update={"pod_defaults": stolen, "service_defaults": services})
    )
    for one in build(plain):
        assert one["metadata"]["labels"]["app.kubernetes.io/component"] != "stolen"
        if one["kind"] in ("StatefulSet", "Deployment"):
            assert labels(one)["app.kubernetes.io/instance"] == "store"


async def test_annotations_of_services_restart_nothing() -> None:
    scene = await settled()
    scene.cluster["spec"]["serviceDefaults"] = {"annotations": {"example.org/dns": "yes"}, "labels": {"team": "a"}}
    scene.cluster["spec"]["proxy"] = {"service": {"annotations": {"example.org/lb": "x"}}}
    written = await scene.step()

    services = {f"apply Service/{name}" for name in scene.kube.names("Service")}
    assert services <= set(written)
    assert not [one for one in written if "StatefulSet" in one or "Deployment" in one]
    notes = scene.kube.find("Service", "store")["metadata"]["annotations"]
    assert (notes["example.org/dns"], notes["example.org/lb"]) == ("yes", "x")
    await scene.settle()


async def test_another_label_of_pods_goes_through_one_failure_domain_after_the_other() -> None:
    pools = [{"name": "disks", "replicas": 3, "zones": ["a", "b", "c"], "storage": {"size": "10Gi"}}]
    scene = await settled({"pools": pools})
    scene.cluster["spec"]["podDefaults"] = {"podLabels": {"team": "a"}}
    written = await scene.step()

    changed = [one for one in written if one.startswith("apply StatefulSet/store-disks-")]
    assert len(changed) <= 1
    assert scene.condition("Progressing") == ("True", "RollingOut")
    assert "apply Deployment/store-proxy" in written
    await scene.settle(12)
    for name in ("store-disks-a", "store-disks-b", "store-disks-c", "store-container"):
        assert labels(scene.kube.find("StatefulSet", name))["team"] == "a"


@pytest.mark.parametrize(
    ("field", "reason", "kind"),
    [
        ("serviceAccountName", "ServiceAccountMissing", "ServiceAccount"),
        ("priorityClassName", "PriorityClassMissing", "PriorityClass"),
    ],
)
async def test_pods_are_not_restarted_with_what_is_not_there(field: str, reason: str, kind: str) -> None:
    scene = await settled()
    scene.cluster["spec"]["podDefaults"] = {field: "theirs"}
    scene.cluster["metadata"]["generation"] += 1
    written = await scene.step()
    assert scene.condition("SpecValid") == ("False", reason)
    assert not [one for one in written if one.startswith("apply")]

    group = "v1" if kind == "ServiceAccount" else "scheduling.k8s.io/v1"
    namespace = {"namespace": "data"} if kind == "ServiceAccount" else {}
    scene.kube.put({"apiVersion": group, "kind": kind, "metadata": {"name": "theirs", **namespace}})
    await scene.settle(12)
    assert scene.condition("SpecValid") == ("True", "Valid")
    assert pod(scene.kube.find("StatefulSet", "store-disks"))[field] == "theirs"
