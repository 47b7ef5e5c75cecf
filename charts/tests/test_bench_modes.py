"""Modes of `swiftlet bench degrade` for Kubernetes: what they ask kubectl for, and that the operator makes that."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from swiftlet.bench.degrade.commands import Commands
from swiftlet.bench.degrade.modes import Mode, read_modes
from swiftlet.bench.errors import BenchError
from swiftlet_operator.build import site
from swiftlet_operator.manifests import COMPONENT_LABEL, INSTANCE_LABEL

MODES = {mode.name: mode for mode in read_modes("kubernetes")}
KUBECTL = """#!/bin/sh
echo "$@" >> "$CALLS"
[ -z "$NOTHING" ] || exit 0
case "$*" in
*nodeName*metadata* | *metadata*nodeName*) printf 'store-container-0 node-1' ;;
*nodeName*) printf node-1 ;;
"get pod -o name"*) printf 'pod/one\\npod/two\\n' ;;
"get statefulset,deployment"*) printf 'statefulset/store-storage\\ndeployment/store-proxy\\n' ;;
*unschedulable*) printf "$UNSCHEDULABLE" ;;
"get $REPLACED "*) grep -cx "get $REPLACED -o go-template=.*" "$CALLS" | sed 's/.*/7 3 3 3,7 3 & 3/' ;;
*go-template*) echo '2 1 1 1,2 1 1 1' ;;
esac
"""
STORAGE = "app.kubernetes.io/instance=store,app.kubernetes.io/component=storage"
PODS = (
    "{{.metadata.generation}} {{.spec.replicas}} {{.spec.replicas}} {{.spec.replicas}},{{.status.observedGeneration}} "
    "{{or .status.replicas 0}} {{or .status.updatedReplicas 0}} {{or .status.readyReplicas 0}}"
)
CHANGES = ("delete", "label", "cordon", "drain", "rollout")
CALLS = {
    "pod": [
        f"get pod -o name -l {STORAGE}",
        "delete --force --grace-period=0 pod/one",
        f"wait --for=condition=Ready --timeout=9m pod -l {STORAGE}",
        "wait --for=condition=Degraded=False --timeout=5s storagecluster/store",
    ],
    "node": [
        f"get pod -o jsonpath={{.items[0].spec.nodeName}} -l {STORAGE}",
        "label --overwrite node node-1 swiftlet-bench=cordoned",
        "drain node-1 --ignore-daemonsets --delete-emptydir-data --timeout=9m",
        "uncordon -l swiftlet-bench=cordoned",
        "get node -l swiftlet-bench=cordoned -o jsonpath={.items[*].spec.unschedulable}",
        "label node -l swiftlet-bench=cordoned swiftlet-bench-",
        "wait --for=condition=Degraded=False --timeout=5s storagecluster/store",
    ],
    "container server": [
        "get pod -o jsonpath={.items[0].metadata.name} {.items[0].spec.nodeName} "
        f"-l {STORAGE.replace('storage', 'container')}",
        "label --overwrite node node-1 swiftlet-bench=cordoned",
        "cordon node-1",
        "delete --force --grace-period=0 pod store-container-0",
        "uncordon -l swiftlet-bench=cordoned",
        "get node -l swiftlet-bench=cordoned -o jsonpath={.items[*].spec.unschedulable}",
        "label node -l swiftlet-bench=cordoned swiftlet-bench-",
        "wait --for=condition=Degraded=False --timeout=5s storagecluster/store",
    ],
    "proxy": [
        f"get pod -o name -l {STORAGE.replace('storage', 'proxy')}",
        "delete --force --grace-period=0 pod/one",
        "rollout status --timeout=9m deployment/store-proxy",
    ],
    "metadata server": [
        f"get pod -o name -l {STORAGE.replace('storage', 'metadata')}",
        "delete --force --grace-period=0 pod/one pod/two",
        "rollout status --timeout=9m deployment/store-metadata",
    ],
    "redis": [
        f"get pod -o name -l {STORAGE.replace('storage', 'redis')}",
        "delete --force --grace-period=0 pod/one pod/two",
        f"wait --for=condition=Ready --timeout=9m pod -l {STORAGE.replace('storage', 'redis')}",
    ],
    "rolling restart": [
        "get statefulset,deployment -o name -l app.kubernetes.io/instance=store",
        *(
            call
            for one, looks in (("statefulset/store-storage", 3), ("deployment/store-proxy", 1))
            for call in (
                f"rollout restart {one}",
                *[f"get {one} -o go-template={PODS}"] * looks,
                "wait --for=condition=Degraded=False --timeout=20m storagecluster/store",
            )
        ),
    ],
}


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a kubectl of this test notes what it was asked for."""
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(KUBECTL)
    kubectl.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("CALLS", str(tmp_path / "calls"))
    monkeypatch.setenv("REPLACED", "statefulset/store-storage")
    # Nobody waits between two looks.
    (tmp_path / "sleep").symlink_to("/bin/true")
    return tmp_path / "calls"


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
def test_each_mode_asks_for_what_it_says(mode: Mode, calls: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BenchError, match="CLUSTER: set it to the name of the StorageCluster"):
        Commands(60.0).run("break", mode.breaks)
    assert not calls.exists()
    monkeypatch.setenv("CLUSTER", "store")
    for command in filter(None, (mode.breaks, mode.mend, mode.whole)):
        Commands(60.0).run("it", command)
    assert calls.read_text().splitlines() == CALLS[mode.name]


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
def test_a_mode_that_finds_nothing_to_break_fails_and_changes_nothing(
    mode: Mode, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER", "store")
    monkeypatch.setenv("NOTHING", "1")
    with pytest.raises(BenchError, match=r"of store (is )?in this namespace"):
        Commands(60.0).run("break", mode.breaks)
    assert not [one for one in calls.read_text().splitlines() if one.startswith(CHANGES)]


@pytest.mark.parametrize("mode", [one for one in MODES.values() if "uncordon" in (one.mend or "")])
def test_a_node_that_was_not_uncordoned_keeps_its_label(
    mode: Mode, calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLUSTER", "store")
    monkeypatch.setenv("UNSCHEDULABLE", "true")
    assert mode.mend is not None
    with pytest.raises(BenchError, match="failed with exit code 1"):
        Commands(60.0).run("mend", mode.mend)
    assert not [one for one in calls.read_text().splitlines() if one.startswith("label")]


def test_labels_are_those_that_the_operator_gives() -> None:
    asked = " ".join(call for several in CALLS.values() for call in several)
    components = {site.STORAGE, site.CONTAINER, site.PROXY, site.METADATA, site.REDIS}
    assert set(re.findall(rf"{re.escape(COMPONENT_LABEL)}=(\w+)", asked)) == components
    assert f"{INSTANCE_LABEL}=store" in asked
