"""What the operator tells Prometheus about clusters: conditions and the age of keys."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prometheus_client import REGISTRY

from swiftlet.errors import SettingsError
from swiftlet_operator.main import options_of
from swiftlet_operator.manifests import CLUSTER
from swiftlet_operator.metrics import ClusterNumbers, exported
from swiftlet_operator.plan.keys import MADE_AT, key_made_s
from swiftlet_operator.tests.test_keys import Play
from swiftlet_operator.tests.worlds import Scene

STORE = {"swiftlet_namespace": "data", "swiftlet_cluster": "store"}


@pytest.fixture
def scene() -> Iterator[Scene]:
    made = Scene()
    with exported(made.clusters):
        yield made
    assert REGISTRY.get_sample_value("swiftlet_operator_clusters") is None


def condition(type_: str) -> float | None:
    return REGISTRY.get_sample_value("swiftlet_operator_condition", {**STORE, "type": type_})


async def test_conditions_are_shown_as_they_are_told(scene: Scene) -> None:
    await scene.step()
    told = {one["type"]: one["status"] for one in scene.cluster["status"]["conditions"]}
    assert len(told) > 10
    assert {"True", "False"} <= set(told.values())
    for type_, status in told.items():
        assert condition(type_) == {"True": 1.0, "False": 0.0, "Unknown": -1.0}[status], type_
    assert REGISTRY.get_sample_value("swiftlet_operator_clusters") == 1


async def test_an_unreadable_cluster_is_shown_as_not_ready(scene: Scene) -> None:
    await scene.step()
    scene.cluster["spec"]["pools"] = "none"
    await scene.step()
    assert condition("Ready") == 0.0


async def test_a_cluster_that_is_gone_is_shown_no_more(scene: Scene) -> None:
    await scene.step()
    scene.kube.objects.pop((CLUSTER.kind, "data", "store"))
    await scene.step()
    assert condition("Ready") is None
    assert REGISTRY.get_sample_value("swiftlet_operator_clusters") == 0


def test_who_does_not_lead_shows_no_cluster(scene: Scene) -> None:
    scene.clusters.show("data", "store", ClusterNumbers({"Ready": "True"}, 5.0))
    assert condition("Ready") == 1.0
    scene.leads = False
    assert condition("Ready") is None
    assert REGISTRY.get_sample_value("swiftlet_operator_clusters") == 0


def test_only_clusters_that_a_sweep_has_found_are_kept(scene: Scene) -> None:
    scene.clusters.show("data", "store", ClusterNumbers({"Ready": "True"}))
    scene.clusters.show("data", "other", ClusterNumbers({"Ready": "True"}))
    scene.clusters.keep([("data", "other"), ("data", "new")])
    assert condition("Ready") is None
    assert REGISTRY.get_sample_value("swiftlet_operator_clusters") == 1


def test_a_key_is_as_old_as_its_secret_until_a_new_one_is_made() -> None:
    assert key_made_s(None) is None
    made = {"metadata": {"name": "store-keys", "creationTimestamp": "2027-01-15T08:00:00Z"}}
    assert key_made_s(made) == 1_800_000_000.0
    assert key_made_s({"metadata": {"name": "store-keys"}}) is None
    assert key_made_s({"metadata": {"name": "store-keys", "annotations": {MADE_AT: "7"}}}) == 7.0

    play = Play.begin()
    play.step()
    assert key_made_s(play.live) == play.now_s


async def test_the_age_of_the_cluster_key_is_shown(scene: Scene) -> None:
    await scene.step()
    scene.kube.find("Secret", "store-keys")["metadata"]["creationTimestamp"] = "2027-01-15T08:00:00Z"
    await scene.step()
    shown = REGISTRY.get_sample_value("swiftlet_operator_cluster_key_timestamp_seconds", STORE)
    assert shown == 1_800_000_000.0


def test_labels_for_prometheus_are_read_and_refused_when_they_are_none() -> None:
    environ = {"SWIFTLET_IMAGE": "i", "POD_NAMESPACE": "ops"}
    assert options_of(environ).defaults.monitoring_labels == {}
    found = options_of({**environ, "MONITORING_LABELS": "release=prom,example.org/team=a"}).defaults
    assert found.monitoring_labels == {"release": "prom", "example.org/team": "a"}
    for text in ("release", "=x", "release=a b", "a/b/c=d"):
        with pytest.raises(SettingsError, match="MONITORING_LABELS"):
            options_of({**environ, "MONITORING_LABELS": text})
