"""What `kubectl swiftlet status` and `health` show of pods that don't run, as a person reads it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from swiftlet_operator.plugin.main import main
from swiftlet_operator.tests.test_plugin import LABELS, Fake, condition, fake, thing
from swiftlet_operator.tests.test_trouble import ELSEWHERE, NO_IMAGE, NO_SECRET, UNBOUND
from swiftlet_operator.tests.troubles import ZONE, event, volume, waiting

__all__ = ["fake"]

GOLDEN = Path(__file__).parent / "golden" / "plugin"
POOL = {"swiftlet.io/pool": "disks", "app.kubernetes.io/component": "storage"}
STARTING = "3 of 3 pods of pool disks are being started"


def away(fake: Fake, name: str, node: str | None, **status: Any) -> None:
    """A pod that was made long ago and does not run."""
    one = fake.find("Pod", name)
    one["metadata"] |= {"uid": f"uid-of-{name}", "creationTimestamp": "2026-01-01T07:00:00Z"}
    one["metadata"]["labels"] = {**LABELS, **POOL}
    one["status"] = {"phase": "Pending", **status}
    if node is None:
        del one["spec"]["nodeName"]


def unscheduled(message: str) -> list[dict[str, str]]:
    return [condition("PodScheduled", "False", "Unschedulable", message)]


def in_trouble(fake: Fake) -> None:
    """A claim without a class, a relabelled node, and a mount that fails."""
    # The records are about pods alone.
    others = ("StoragePolicy", "StorageQuota", "StorageUser")
    fake.state["objects"] = [one for one in fake.state["objects"] if one["kind"] not in others]
    fake.find("StatefulSet", "store-disks")["metadata"]["labels"] = {**LABELS, **POOL}
    fake.find("StatefulSet", "store-disks")["status"] = {"readyReplicas": 0}
    away(fake, "store-disks-0", None, conditions=unscheduled(UNBOUND))
    away(fake, "store-disks-1", None, conditions=unscheduled(ELSEWHERE))
    away(fake, "store-disks-2", "node-2", containerStatuses=[waiting("ContainerCreating")])
    claim = {"metadata": {"uid": "uid-of-d0-store-disks-0"}, "spec": {"storageClassName": "nope"}}
    bound = {"spec": {"storageClassName": "fast", "volumeName": "pv-1"}, "status": {"phase": "Bound"}}
    mount = event("Pod", "store-disks-2", "FailedMount", NO_SECRET)
    for index in range(3):
        fake.find("Node", f"node-{index}")["metadata"]["labels"] = {ZONE: "bcd"[index]}
    fake.state["objects"] += [
        thing("PersistentVolumeClaim", "d0-store-disks-0", POOL, status={"phase": "Pending"}, **claim),
        thing("PersistentVolumeClaim", "d0-store-disks-1", POOL, **bound),
        {**volume(), "metadata": {"name": "pv-1"}},
        {"kind": "StorageClass", "metadata": {"name": "fast"}},
        {**mount, "metadata": {"name": "e", "namespace": "data"}},
    ]
    fake.find("StorageCluster", "store")["status"]["conditions"] = [
        condition("Ready", "False", "NoSuchStorageClass", "StorageAvailable: ..."),
        condition("PodsHealthy", "False", "NoSuchStorageClass", "..."),
    ]


def starting(fake: Fake) -> None:
    """Pods of a new cluster that are being made."""
    in_trouble(fake)
    fake.state["objects"] = [
        one
        for one in fake.state["objects"]
        if one["kind"] not in ("PersistentVolumeClaim", "Event", "ConfigMap", "Ring")
    ]
    for index in range(3):
        name = f"store-disks-{index}"
        fake.find("Pod", name)["status"] = {
            "phase": "Pending",
            "containerStatuses": [waiting("ContainerCreating"), waiting("ContainerCreating", name="replicator")],
        }
        fake.find("Pod", name)["spec"]["nodeName"] = f"node-{index}"
    fake.find("StorageCluster", "store")["status"]["conditions"] = [
        condition("Ready", "False", "Starting", f"StorageAvailable: {STARTING}"),
        condition("PodsHealthy", "Unknown", "Starting", STARTING),
    ]


SHOWN: dict[str, tuple[Callable[[Fake], None], str, int]] = {
    "trouble-status.txt": (in_trouble, "status", 0),
    "trouble-health.txt": (in_trouble, "health", 1),
    "starting-status.txt": (starting, "status", 0),
    "starting-health.txt": (starting, "health", 0),
}


@pytest.mark.parametrize("name", SHOWN)
def test_it_is_shown_as_recorded(fake: Fake, capsys: pytest.CaptureFixture[str], name: str) -> None:
    play, command, code = SHOWN[name]
    play(fake)
    fake.write()

    assert main([command, "store"]) == code

    shown = capsys.readouterr().out
    if os.environ.get("UPDATE_GOLDEN"):
        GOLDEN.mkdir(parents=True, exist_ok=True)
        (GOLDEN / name).write_text(shown, encoding="utf-8")
    assert shown == (GOLDEN / name).read_text(encoding="utf-8")


def test_the_records_name_cause_sentence_and_field() -> None:
    text = (GOLDEN / "trouble-health.txt").read_text(encoding="utf-8")
    for part in ("NoSuchStorageClass", "NodeRelabelled", f"Mount: {NO_SECRET}", "spec.pools[name=disks]", f"{ZONE}=a"):
        assert part in text
    assert "ERROR" not in (GOLDEN / "starting-health.txt").read_text(encoding="utf-8")
    assert NO_IMAGE not in text


def test_what_may_not_be_read_is_said_and_the_rest_is_shown(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    in_trouble(fake)
    fake.state["denied"] = ["persistentvolumes", "storageclasses.storage.k8s.io", "events"]
    fake.write()
    assert main(["health", "store"]) == 1
    shown = capsys.readouterr().out
    assert 'cannot list resource "events"' in shown
    assert "Unschedulable: 0/3 nodes are available: 1 node(s) had volume node affinity conflict" in shown
