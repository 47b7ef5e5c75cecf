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
case "$*" in
*nodeName*metadata* | *metadata*nodeName*) printf 'store-container-0 node-1' ;;
*nodeName*) printf node-1 ;;
"get pod -o name"*) printf 'pod/one\\npod/two\\n' ;;
"get statefulset,deployment"*) printf 'statefulset/store-storage\\ndeployment/store-proxy\\n' ;;
esac
"""
STORAGE = "app.kubernetes.io/instance=store,app.kubernetes.io/component=storage"
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
        "label node -l swiftlet-bench=cordoned swiftlet-bench-",
        "wait --for=condition=Degraded=False --timeout=5s storagecluster/store",
    ],
    "proxy": [
        f"get pod -o name -l {STORAGE.replace('storage', 'proxy')}",
        "delete --force --grace-period=0 pod/one",
        "rollout status --timeout=9m deployment/store-proxy",
    ],
    "metadata server": [
        f"delete --force --grace-period=0 pod -l {STORAGE.replace('storage', 'metadata')}",
        "rollout status --timeout=9m deployment/store-metadata",
    ],
    "redis": [
        f"delete --force --grace-period=0 pod -l {STORAGE.replace('storage', 'redis')}",
        f"wait --for=condition=Ready --timeout=9m pod -l {STORAGE.replace('storage', 'redis')}",
    ],
    "rolling restart": [
        "get statefulset,deployment -o name -l app.kubernetes.io/instance=store",
        *(
            call
            for one in ("statefulset/store-storage", "deployment/store-proxy")
            for call in (
                f"rollout restart {one}",
                f"rollout status --timeout=20m {one}",
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


def test_labels_are_those_that_the_operator_gives() -> None:
    asked = " ".join(call for several in CALLS.values() for call in several)
    components = {site.STORAGE, site.CONTAINER, site.PROXY, site.METADATA, site.REDIS}
    assert set(re.findall(rf"{re.escape(COMPONENT_LABEL)}=(\w+)", asked)) == components
    assert f"{INSTANCE_LABEL}=store" in asked
