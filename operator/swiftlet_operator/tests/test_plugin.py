"""`kubectl swiftlet` with a fake kubectl: what is shown, what counts as wrong, what is edited, what a bundle holds."""

from __future__ import annotations

import base64
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from swiftlet.ring import RingBuilder
from swiftlet.ring.codec import chunks
from swiftlet_operator.build.secrets import metadata_url
from swiftlet_operator.build.settings import DIRECTORY, FILE
from swiftlet_operator.plugin import drain
from swiftlet_operator.plugin.bundle import OPERATOR
from swiftlet_operator.plugin.devices import Place, places
from swiftlet_operator.plugin.gather import clusters_of, look
from swiftlet_operator.plugin.kubectl import Kubectl, KubectlError
from swiftlet_operator.plugin.main import main, parser
from swiftlet_operator.plugin.render import bar, size
from swiftlet_operator.tests import fake_kubectl
from swiftlet_operator.tests.clusters import SPECS, cluster, site

LABELS = {"app.kubernetes.io/instance": "store", "app.kubernetes.io/managed-by": "swiftlet-operator"}
REPOSITORY = Path(__file__).parents[3]
GOLD = {
    "conditions": [],
    "keptAs": "4+2",
    "bytesPerByte": 1.5,
    "mayBeLost": {"devices": 2, "nodes": 2, "zones": 1, "text": "2 devices, or 2 nodes, or 1 zone"},
}
"""The status of a policy with erasure coding."""
SECRET_WORD = "dGhpcy1tdXN0LW5vdC1iZS1zZWVu"
USED: dict[str, Any] = {
    "containers": [{"account": "AUTH_test", "container": "photos", "objects": 3, "bytes": 70}],
    "more": None,
    "unheard": {},
    "whole": True,
}
"""What a proxy's pod says of the containers of a policy."""


def thing(kind: str, name: str, labels: dict[str, str] | None = None, **rest: Any) -> dict[str, Any]:
    """An object in the namespace `data`."""
    metadata = {"name": name, "namespace": "data", "labels": {**LABELS, **(labels or {})}, "resourceVersion": "7"}
    return {"kind": kind, "metadata": {**metadata, **rest.pop("metadata", {})}, **rest}


def condition(type_: str, status: str, reason: str, message: str = "") -> dict[str, str]:
    """A condition."""
    return {"type": type_, "status": status, "reason": reason, "message": message}


def container(name: str, port: int) -> dict[str, Any]:
    """A service's container."""
    probe = {"httpGet": {"path": "/readyz", "scheme": "HTTPS" if name == "proxy" else "HTTP"}}
    return {"name": name, "ports": [{"containerPort": port}], "readinessProbe": probe}


def pod(name: str, node: str, **containers: int) -> dict[str, Any]:
    """A pod that is ready."""
    statuses = [{"name": one, "ready": True, "restartCount": int(one == "object")} for one in containers]
    return thing(
        "Pod",
        name,
        spec={"nodeName": node, "containers": [container(*one) for one in containers.items()]},
        status={
            "phase": "Running",
            "conditions": [condition("Ready", "True", "")],
            "containerStatuses": statuses,
        },
    )


def ring(*nodes: str) -> list[dict[str, Any]]:
    """The ring object-0 over three pods, version 1, on these nodes or node-0 to node-2."""
    builder = RingBuilder(4, 3, 1)
    for index in range(3):
        builder.add_device(
            name=f"store-disks-{index}/d0",
            host=f"store-disks-{index}",
            port=6200,
            device="d0",
            region="default",
            zone="abc"[index],
            node=nodes[index] if nodes else f"node-{index}",
            weight=100.0,
        )
    builder.rebalance(1)
    labels = {"swiftlet.io/ring": "object-0"}
    return [
        thing("ConfigMap", f"store-ring-object-0-{i}", labels, binaryData={"chunk": base64.b64encode(c).decode()})
        for i, c in enumerate(chunks(builder.ring))
    ]


def state() -> dict[str, Any]:
    """A healthy cluster."""
    facts = [
        condition("Ready", "True", "Available", "the API serves reads and writes"),
        condition("Degraded", "False", "AllReady"),
        condition("Progressing", "False", "Complete"),
        condition("RDMAAvailable", "False", "NotWanted"),
    ]
    status = {"conditions": facts, "observedGeneration": 2, "endpoint": "http://store.data.svc"}
    cluster = thing("StorageCluster", "store", metadata={"generation": 2}, spec={"pools": []}, status=status)
    about = {"version": 1, "devices": 3, "balance": 0.0, "dispersion": 0.0}
    published = {**about, "conditions": [condition("Ready", "True", "Published", "the services have the ring")]}
    reference = {"clusterRef": {"name": "store"}}
    user = {**reference, "account": "test", "user": "anna", "roles": ["admin"]}
    secret = {"annotations": {"kubectl.kubernetes.io/last-applied-configuration": SECRET_WORD}}
    objects = [
        cluster,
        *ring(),
        thing("Ring", "store-object-0", spec={**reference, "type": "object"}, status=published),
        thing("StorageUser", "anna", spec=user, status={"secretName": "anna-credentials"}),
        thing("StorageUser", "stranger", spec={"clusterRef": {"name": "other"}}),
        thing("StoragePolicy", "gold", spec={**reference, "name": "Gold", "index": 1}, status={**GOLD}),
        thing("StatefulSet", "store-disks", spec={"replicas": 3}, status={"readyReplicas": 3}),
        thing("Secret", "store-keys", metadata=secret, type="Opaque", data={"cluster-key": SECRET_WORD}),
        *(thing("Node", f"node-{i}") for i in range(3)),
        *(pod(f"store-disks-{i}", f"node-{i}", object=6200, replicator=6400) for i in range(3)),
        pod("store-proxy-x", "node-0", proxy=8080),
    ]
    raw = {}
    for i in range(3):
        common = {"version": "0.1.0", "keys": ["aabbccdd"], "rings": {"object-0": 1}}
        device = {"capacityBytes": 1000, "freeBytes": 600, "state": "serving", "reason": None, "pending": 0}
        synced = {"held": 16, "misplaced": 0, "behind": 0, "unchecked": 0, "syncedAt": 5.0, "ringVersion": 1}
        where = f"/api/v1/namespaces/data/pods/http:store-disks-{i}"
        raw[f"{where}:6200/proxy/statusz"] = json.dumps({**common, "service": "object", "devices": {"d0": device}})
        replicator = {"devices": {f"store-disks-{i}/d0": {"rings": {"object-0": synced}}}, "transports": {"http": 2}}
        raw[f"{where}:6400/proxy/statusz"] = json.dumps({**common, "service": "replicator", **replicator})
        raw[f"{where}:6200/proxy/metrics"] = "swiftlet_up 1\n"
    proxy = {"service": "proxy", "version": "0.1.0", "keys": ["aabbccdd"], "transports": {"http": 3}}
    raw["/api/v1/namespaces/data/pods/https:store-proxy-x:8080/proxy/statusz"] = json.dumps(proxy)
    logs = {"store-disks-0/object": "started\n"}
    used = {"store-proxy-x": json.dumps(USED)}
    return {"objects": objects, "raw": raw, "logs": logs, "exec": used, "denied": [], "conflicts": 0}


class Fake:
    """The fake's file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.state = state()
        self.write()

    def write(self) -> None:
        """Make the changes count."""
        self.path.write_text(json.dumps(self.state))

    def find(self, kind: str, name: str) -> dict[str, Any]:
        """One object, to be changed."""
        return next(o for o in self.state["objects"] if o["kind"] == kind and o["metadata"]["name"] == name)

    def report(self, pod: str, port: int, change: dict[str, Any] | None) -> None:
        """Change what a pod says; None silences it."""
        path = f"/api/v1/namespaces/data/pods/http:{pod}:{port}/proxy/statusz"
        if change is None:
            del self.state["raw"][path]
        else:
            self.state["raw"][path] = json.dumps({**json.loads(self.state["raw"][path]), **change})
        self.write()

    def synced(self, index: int, **change: Any) -> None:
        """Change how a device stands in its ring."""
        facts = {"held": 16, "misplaced": 0, "behind": 0, "unchecked": 0, "syncedAt": 5.0, "ringVersion": 1, **change}
        about = {"devices": {f"store-disks-{index}/d0": {"rings": {"object-0": facts}}}}
        self.report(f"store-disks-{index}", 6400, about)

    def drained(self) -> list[str]:
        """The list in the cluster's spec."""
        self.state = json.loads(self.path.read_text())
        found: list[str] = self.find("StorageCluster", "store")["spec"].get("drain", [])
        return found


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A cluster behind a `kubectl` that answers without a process, which would cost more than all else here."""
    path = tmp_path / "state.json"

    def run(command: Sequence[str], content: bytes | None, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
        assert (command[0], content) == ("kubectl", None)
        assert timeout_s > 0
        try:
            return subprocess.CompletedProcess(command, 0, fake_kubectl.answer(list(command[1:]), path).encode(), b"")
        except fake_kubectl.RefusedError as refused:
            return subprocess.CompletedProcess(command, 1, b"", str(refused).encode())

    monkeypatch.setattr("swiftlet_operator.plugin.kubectl.run", run)
    return Fake(path)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fake:
    """A cluster behind an executable `kubectl`."""
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable} -IS\n{Path(fake_kubectl.__file__).read_text('utf-8')}")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent), prepend=":")
    monkeypatch.setenv("FAKE_KUBECTL", str(tmp_path / "state.json"))
    return Fake(tmp_path / "state.json")


def test_status_shows_conditions_workloads_rings_users_and_the_tree(
    program: Fake, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "store"]) == 0

    shown = capsys.readouterr().out
    assert shown.startswith("StorageCluster data/store: ready\n")
    for text in ("http://store.data.svc", "test:anna", "anna-credentials", "store-disks", "zone a", "node node-0"):
        assert text in shown
    assert "stranger" not in shown
    assert "store-disks-0/d0  [####......]  40% of 1000 B  in sync" in shown


def test_status_shows_the_other_members_of_a_federation(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    (cluster,) = (one for one in fake.state["objects"] if one["kind"] == "StorageCluster")
    versions = {"rings": {"account": 3, "object-0": 7}, "used": {"account": 3, "object-0": 6}}
    west = {"name": "west", "heard": True, "whole": True, "leader": "east", **versions}
    cluster["status"]["federation"] = {"leader": "east", "members": [west, {"name": "south", "heard": False}]}
    cluster["spec"]["federation"] = {"name": "one", "member": "east", "leader": "east"}
    fake.state["objects"] = [one for one in fake.state["objects"] if one["kind"] != "ConfigMap"]
    fake.state["objects"] += ring("east/node-0", "west/node-0", "west/node-1")
    fake.state["raw"] = {where: said for where, said in fake.state["raw"].items() if "store-disks-2" not in where}
    fake.write()
    assert main(["rings", "store"]) == 0
    shown = capsys.readouterr().out
    assert "of member west" in shown
    assert "no report" not in shown
    assert main(["status", "store"]) == 0

    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["west", "yes", "yes", "east", "account:3", "object-0:7", "account:3", "object-0:6"] in rows
    assert ["south", "no", "no", "-", "-", "-"] in rows


def test_the_readme_shows_what_status_prints(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    for kind, name in (("StorageUser", "anna"), ("StoragePolicy", "gold")):
        fake.find(kind, name).setdefault("status", {})["conditions"] = [condition("Ready", "True", "Accepted")]
    for index, free in enumerate((1_090_000_000_000, 1_110_000_000_000, 1_100_000_000_000)):
        device = {
            "capacityBytes": 2_000_000_000_000,
            "freeBytes": free,
            "state": "serving",
            "reason": None,
            "pending": 0,
        }
        fake.report(f"store-disks-{index}", 6200, {"devices": {"d0": device}})
    assert main(["status", "store", "--namespace", "data"]) == 0

    printed = "\n".join(line.rstrip() for line in capsys.readouterr().out.rstrip().splitlines())
    readme = (REPOSITORY / "README.md").read_text("utf-8")
    shown = re.search(r"kubectl swiftlet status store --namespace data\n```\n\n```text\n(.*?)\n```", readme, re.DOTALL)
    assert shown is not None
    assert shown[1] == printed


def test_rings_shows_shares_and_states(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.synced(1, behind=7, misplaced=2)
    fake.report("store-disks-2", 6400, None)

    assert main(["rings", "store"]) == 0

    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "ring object-0, version 1: 16 partitions, 3 replicas"
    first, second, third = (line.split() for line in lines[2:5])
    assert first[:6] == ["store-disks-0/d0", "a", "node-0", "100", "16", "33.3%"]
    assert " ".join(first[-2:]) == "in sync"
    assert " ".join(second[-5:]) == "7 behind, 2 to move"
    assert " ".join(third[-2:]) == "no report"


def test_a_healthy_cluster_has_no_findings(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["health", "store"]) == 0

    shown = capsys.readouterr().out
    assert "nothing is wrong" in shown
    assert shown.count("http 2") == 3
    assert "http 3" in shown


def test_what_is_wrong_comes_first_and_sets_the_exit_code(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    cluster = fake.find("StorageCluster", "store")
    cluster["status"]["conditions"][1] = condition("Degraded", "True", "PodsNotReady", "store-disks has pods ...")
    broken = fake.find("Pod", "store-disks-2")["status"]
    broken["conditions"] = [condition("Ready", "False", "ContainersNotReady")]
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    broken["containerStatuses"][0].update(ready=False, state={"waiting": waiting})
    full = {"capacityBytes": 100, "freeBytes": 3, "state": "failed", "reason": "I/O error", "pending": 0}
    fake.report("store-disks-0", 6200, {"devices": {"d0": full}, "rings": {"object-0": 0}})
    fake.report("store-disks-1", 6200, None)
    fake.state["denied"] = ["nodes"]
    fake.write()

    assert main(["health", "store"]) == 1

    lines = capsys.readouterr().out.splitlines()
    errors = [line for line in lines if line.startswith("  ERROR")]
    warnings = [line for line in lines if line.startswith("  WARNING")]
    assert lines[1 : 1 + len(errors)] == errors
    assert any("Device store-disks-0/d0: failed: I/O error" in line for line in errors)
    assert any("97% full" in line for line in errors)
    assert any("Pod store-disks-2: ImagePull: no such image. To do: correct spec.image" in line for line in errors)
    assert any("Degraded is True (PodsNotReady)" in line for line in warnings)
    assert any("uses version 0 of ring object-0, 1 is published" in line for line in warnings)
    assert any("store-disks-1: object does not report" in line for line in warnings)
    assert any('cannot list resource "nodes"' in line for line in warnings)


def test_services_without_a_common_key_are_found(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.report("store-disks-0", 6200, {"keys": ["00000000"]})
    assert main(["health"]) == 1
    assert "no key that all services have: 00000000; aabbccdd" in capsys.readouterr().out


@pytest.mark.parametrize(
    "damage", ['{"devices": [1]}', '{"devices": {"d0": 3}, "rings": 7, "keys": 1}', "[]", "not json", ""]
)
def test_a_damaged_report_spoils_nothing_else(fake: Fake, capsys: pytest.CaptureFixture[str], damage: str) -> None:
    fake.state["raw"]["/api/v1/namespaces/data/pods/http:store-disks-0:6200/proxy/statusz"] = damage
    fake.state["raw"]["/api/v1/namespaces/data/pods/http:store-disks-0:6400/proxy/statusz"] = damage
    fake.write()
    main(["health", "store"])
    main(["rings", "store"])
    assert main(["status", "store"]) == 0
    assert "store-disks-1/d0  [####......]  40%" in capsys.readouterr().out


def test_drain_adds_to_the_list_and_undo_takes_away(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", "store-disks-0", "store-disks-1/d0"]) == 0
    assert "spec.drain is now: store-disks-0, store-disks-1/d0" in capsys.readouterr().out
    assert fake.drained() == ["store-disks-0", "store-disks-1/d0"]

    assert main(["drain", "store-disks-0/d0"]) == 0
    assert "nothing to change" in capsys.readouterr().out
    assert main(["drain", "--undo", "store-disks-1"]) == 0
    assert fake.drained() == ["store-disks-0"]


def test_an_edit_by_somebody_else_is_kept(program: Fake) -> None:
    program.state["conflicts"] = 2
    program.write()
    assert main(["drain", "store-disks-0"]) == 0
    assert program.drained() == ["store-other-9", "store-other-9", "store-disks-0"]


def test_policy_lists_the_containers_as_a_proxy_gives_them(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    told = [condition("Ready", "False", "Retiring"), condition("InUse", "True", "ContainersUseIt", "1 container")]
    fake.find("StoragePolicy", "gold")["status"]["conditions"] = told
    fake.state["exec"]["store-proxy-x"] = json.dumps({**USED, "more": "containers/1/00"})
    fake.write()
    assert main(["policy", "gold", "--limit", "1"]) == 0
    shown = capsys.readouterr().out
    assert "StoragePolicy gold: Gold, index 1" in shown
    assert "kept as 4+2 (1.5x); 2 devices, or 2 nodes, or 1 zone may be lost" in shown
    assert "InUse True ContainersUseIt: 1 container" in shown
    assert re.search(r"AUTH_test +photos +3 +70", shown)
    assert "there are more containers; --after containers/1/00" in shown
    asked = json.loads(Path(f"{fake.path}.calls").read_text().splitlines()[-1])
    command = ["swiftlet", "policy", "usage", "Gold", "--config", f"{DIRECTORY}/{FILE}", "--json", "--limit", "1"]
    assert asked[asked.index("--") + 1 :] == command
    assert main(["policy", "gold", "--after", "containers/1/00"]) == 0
    asked = json.loads(Path(f"{fake.path}.calls").read_text().splitlines()[-1])
    assert asked[-2:] == ["--after", "containers/1/00"]


def test_a_list_that_is_not_whole_or_none_at_all_is_no_success(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    answers = fake.state["exec"]
    answers["store-proxy-x"] = json.dumps({**USED, "whole": False, "unheard": {"store-container-0/db": "refused"}})
    fake.write()
    assert main(["policy", "gold"]) == 1
    shown = capsys.readouterr().out
    assert "the list may be incomplete" in shown
    assert "device store-container-0/db could not be asked: refused" in shown
    answers["store-proxy-x"] = "no list"
    fake.write()
    assert main(["policy", "gold"]) == 1
    assert "gave no list of containers: 'no list'" in capsys.readouterr().err
    fake.find("Pod", "store-proxy-x")["status"]["conditions"] = []
    fake.write()
    assert main(["policy", "gold"]) == 1
    assert "no proxy of StorageCluster store is ready" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["policy", "gold", "--limit", "0"])


def test_what_is_not_there_is_refused(program: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["drain", "store-disks-9"]) == 1
    assert 'pods "store-disks-9" not found' in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["drain", "Not/A/Pod"])
    assert main(["status", "nothing"]) == 1
    assert program.drained() == []


def test_drain_waits_until_nothing_is_held(
    fake: Fake, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain, "POLL_S", 0.01)
    assert main(["drain", "store-disks-0", "--wait", "--timeout", "0"]) == 1
    assert "16 partitions assigned, 16 held" in capsys.readouterr().out

    for one in [one for one in fake.state["objects"] if one["kind"] == "ConfigMap"]:
        fake.state["objects"].remove(one)
    fake.synced(0, held=0)
    assert main(["drain", "store-disks-0", "--wait", "--timeout", "5"]) == 0
    assert "empty: store-disks-0" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "partitions", "pending", "empty", "state"),
    [
        ({"held": 0}, 0, 0, True, "empty"),
        ({"held": 0}, 0, 3, False, "in sync"),
        ({"held": 1}, 0, 0, False, "in sync"),
        ({"held": 0}, 2, 0, False, "in sync"),
        ({"held": 0, "ringVersion": 3}, 0, 0, False, "on ring 3"),
        ({"held": 9, "behind": 4}, 9, 0, False, "4 behind"),
        ({"held": 9, "syncedAt": None}, 9, 0, False, "not compared yet"),
        (None, 0, 0, False, "no report"),
    ],
)
def test_a_device_is_empty_when_it_is_known_to_be(
    change: dict[str, Any] | None, partitions: int, pending: int, empty: bool, state: str
) -> None:
    facts = {"held": 0, "misplaced": 0, "behind": 0, "unchecked": 0, "syncedAt": 5.0, "ringVersion": 4}
    report = None if change is None else {**facts, **change}
    place = Place("object-0", 4, "p/d0", "r", "z", "n", 0.0, partitions, 48, report, pending)
    assert (place.empty, place.state) == (empty, state)


def test_a_device_that_left_the_ring_but_holds_something_is_seen(fake: Fake) -> None:
    about = {"devices": {"store-gone-0/d0": {"rings": {"object-0": {"held": 5, "misplaced": 5, "ringVersion": 1}}}}}
    fake.report("store-disks-0", 6400, about)
    kubectl = Kubectl()
    found = {one.device: one for one in places(look(kubectl, clusters_of(kubectl, "data", "store")[0]))}
    assert found["store-gone-0/d0"].state == "5 to move"


def test_a_bundle_has_everything_but_secrets_and_lists_what_failed(fake: Fake, tmp_path: Path) -> None:
    fake.state["denied"] = ["nodes"]
    fake.write()
    path = tmp_path / "bundle.tar.gz"
    assert main(["support-bundle", "-o", str(path)]) == 0

    with tarfile.open(path) as tar:
        files = {one.name.partition("/")[2]: tar.extractfile(one).read().decode() for one in tar}  # type: ignore[union-attr]
    assert SECRET_WORD not in "".join(files.values())
    assert json.loads(files["secrets.json"])[0]["keys"] == ["cluster-key"]
    assert [one["metadata"]["name"] for one in json.loads(files["storageusers.json"])] == ["anna"]
    assert files["logs/store-disks-0-object.log"] == "started\n"
    assert "logs/store-disks-0-object-previous.log" in files
    assert json.loads(files["statusz/store-disks-0-object.txt"])["service"] == "object"
    assert files["metrics/store-disks-0-object.txt"] == "swiftlet_up 1\n"
    assert {"pods.json", "statefulsets.json", "events.json", "kubectl-version.json", "storagecluster.json"} <= set(
        files
    )
    assert (
        "nodes.json: kubectl get nodes --all-namespaces --output=json: Error from server: nodes is forbidden"
        in (files["failures.txt"])
    )
    assert "metrics/store-disks-0-replicator.txt" in files["failures.txt"]


def operator(**container: Any) -> list[dict[str, Any]]:
    """The operator as the chart installs it."""
    labels = {"app.kubernetes.io/name": "swiftlet-operator", "app.kubernetes.io/component": "operator"}
    where = {"name": "swiftlet-operator-1", "namespace": "swiftlet-system", "labels": labels}
    status = {"containerStatuses": [{"name": "operator", "restartCount": 1, **container}]}
    return [
        {"kind": "Pod", "metadata": where, "spec": {"containers": [{"name": "operator"}]}, "status": status},
        {"kind": "Deployment", "metadata": {**where, "name": "swiftlet-operator"}, "spec": {"replicas": 1}},
    ]


def bundled(path: Path) -> dict[str, str]:
    with tarfile.open(path) as tar:
        return {one.name.partition("/")[2]: tar.extractfile(one).read().decode() for one in tar}  # type: ignore[union-attr]


def test_a_bundle_has_the_operators_log_and_deployment(fake: Fake, tmp_path: Path) -> None:
    fake.state["objects"] += operator()
    fake.state["logs"]["swiftlet-operator-1/operator"] = "leading\n"
    fake.write()
    assert main(["support-bundle", "-o", str(tmp_path / "bundle.tar.gz")]) == 0

    files = bundled(tmp_path / "bundle.tar.gz")
    assert files["logs/swiftlet-operator-1-operator.log"] == "leading\n"
    assert "logs/swiftlet-operator-1-operator-previous.log" in files
    assert [one["metadata"]["name"] for one in json.loads(files["operator/deployments.json"])] == ["swiftlet-operator"]
    assert [one["metadata"]["name"] for one in json.loads(files["operator/pods.json"])] == ["swiftlet-operator-1"]


def test_a_bundle_says_that_no_operator_was_found(fake: Fake, tmp_path: Path) -> None:
    assert main(["support-bundle", "-o", str(tmp_path / "bundle.tar.gz")]) == 0
    assert "operator: no pod in any namespace" in bundled(tmp_path / "bundle.tar.gz")["failures.txt"]


def test_a_bundle_of_who_may_not_see_the_operator_says_that(fake: Fake, tmp_path: Path) -> None:
    fake.state["denied"] = ["pods"]
    fake.write()
    assert main(["support-bundle", "-o", str(tmp_path / "bundle.tar.gz")]) == 0
    failures = bundled(tmp_path / "bundle.tar.gz")["failures.txt"]
    assert f"pods {OPERATOR}: " in failures
    assert "operator: no pod" not in failures


def test_the_chart_labels_the_operator_as_the_bundle_looks_for_it() -> None:
    text = (REPOSITORY / "charts/swiftlet/templates/_helpers.tpl").read_text()
    wanted = dict(one.split("=") for one in OPERATOR.split(","))
    assert wanted["app.kubernetes.io/name"] == f"swiftlet-{wanted['app.kubernetes.io/component']}"
    assert "app.kubernetes.io/name: swiftlet-{{ .component }}" in text


def commands() -> list[str]:
    """Every command of the plugin in the documents, as it would be typed: `[...]` once left out and once given."""
    found = set()
    for path in [REPOSITORY / "README.md", *(REPOSITORY / "docs").rglob("*.md")]:
        text = path.read_text()
        shown = re.findall(r"^\$ (kubectl swiftlet .+)$", text, re.MULTILINE)
        for one in shown + re.findall(r"`(kubectl swiftlet [^`]+)`", text):
            found |= {re.sub(r"\[[^]]*\]", "", one).replace("...", ""), re.sub(r"[][]", "", one).replace("...", "")}
    return sorted(found)


@pytest.mark.parametrize("command", commands())
def test_commands_of_the_documents_work_as_they_stand(
    fake: Fake, command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    places = {
        "CLUSTER": "store",
        "POD": "store-disks-2",
        "POD/DEVICE": "store-disks-2/d0",
        "NAME": "gold",
        "USER": "anna",
        "N": "4",
    }
    words = [places.get(one, one) for one in command.split()[2:]]
    fake.find("StorageCluster", "store")["spec"]["drain"] = ["store-disks-2/d0"] * ("--undo" in words)
    fake.synced(2, held=0, drained=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(drain, "wait", lambda *_: True)
    if words[0] in ("backup", "restore"):
        # They are tried on API servers, with keys and volumes (`test_backup_on_apiserver`).
        assert parser().parse_args(words).run
    elif words[0] == "bench":
        # It waits for pods; `test_plugin_bench` has some that end.
        assert parser().parse_args(words).run
    elif "advise" in words:
        # It waits for a load; `test_plugin_advise` has one.
        assert parser().parse_args(words).run
    else:
        assert main(words) == 0


def test_the_documents_show_every_command() -> None:
    shown = {one.split()[2] for one in commands()}
    assert shown >= {"status", "rings", "health", "drain", "policy", "support-bundle", "advise", "backup", "restore"}


def test_options_may_stand_before_the_command_and_after_it(fake: Fake) -> None:
    assert main(["-n", "nowhere", "status", "store", "-n", "data"]) == 0
    assert main(["--context", "prod", "-n", "data", "status", "store"]) == 0
    assert json.loads(Path(f"{fake.path}.calls").read_text().splitlines()[-1])[0] == "--context=prod"


def test_kubectl_gets_the_options_that_say_where(fake: Fake) -> None:
    assert main(["status", "store", "-n", "data", "--context", "prod", "--kubeconfig", "/k"]) == 0
    calls = [json.loads(line) for line in Path(f"{fake.path}.calls").read_text().splitlines()]
    assert all(call[:2] == ["--context=prod", "--kubeconfig=/k"] for call in calls)


def test_without_kubectl_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KubectlError, match="kubectl is not installed"):
        Kubectl().text("version")


def test_it_needs_nothing_of_the_operators_client() -> None:
    code = "import sys, swiftlet_operator.plugin.main; print(sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {"kopf", "aiohttp", "yaml", "pydantic", "prometheus_client"} & set(loaded.strip("[]'\n").split("', '"))


def test_bars_and_sizes() -> None:
    assert [bar(part) for part in (0.0, 0.42, 1.2)] == ["[..........]   0%", "[####......]  42%", "[##########] 120%"]
    assert [size(count) for count in (0, 1536, 2 << 40)] == ["0 B", "1.5 KiB", "2.0 TiB"]


def with_credentials(fake: Fake, data: dict[str, str], **spec: Any) -> None:
    """Give the user a Secret with these entries, and the cluster this spec besides its pools."""
    encoded = {name: base64.b64encode(value.encode()).decode() for name, value in data.items()}
    fake.state["objects"].append(thing("Secret", "anna-credentials", data=encoded))
    fake.find("StorageCluster", "store")["spec"].update(spec)
    fake.write()


def shown(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    """What the command prints, as the YAML that it is."""
    assert main(arguments) == 0
    return yaml.safe_load(capsys.readouterr().out)


def test_a_pod_is_told_where_the_store_is_and_mounts_the_key(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    with_credentials(fake, {"key": "s3cret"}, directAccess={"enabled": True})
    spec = {**yaml.safe_load(SPECS["minimal"]), "directAccess": {"enabled": True}}
    direct = replace(site("minimal"), cluster=cluster(spec))
    pod = shown(capsys, "client-config", "anna")["spec"]
    given = {one["name"]: one["value"] for one in pod["containers"][0]["env"]}
    assert given == {
        "SWIFTLET_CREDENTIALS": "/var/run/secrets/swiftlet",
        "ST_AUTH": "http://store.data.svc/auth/v1.0",
        "ST_USER": "test:anna",
        "SWIFTLET_METADATA_URL": metadata_url(direct),
    }
    (volume,) = pod["volumes"]
    assert volume["secret"] == {"secretName": "anna-credentials", "items": [{"key": "key", "path": "key"}]}
    assert pod["containers"][0]["volumeMounts"][0]["name"] == volume["name"]
    # The Secret itself was not read: nobody needs a right to it for this.
    assert "secrets" not in fake.path.with_name("state.json.calls").read_text()


def test_a_user_with_a_secret_of_its_own_mounts_its_entry(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    fake.find("StorageUser", "anna")["spec"]["secretRef"] = {"name": "mine", "key": "password"}
    fake.write()
    spec = shown(capsys, "client-config", "anna")["spec"]
    assert spec["volumes"][0]["secret"] == {"secretName": "mine", "items": [{"key": "password", "path": "key"}]}
    assert "SWIFTLET_METADATA_URL" not in {one["name"] for one in spec["containers"][0]["env"]}


def test_a_shell_gets_variables(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    with_credentials(fake, {"key": 'it\'s "so"\n'})
    assert main(["client-config", "anna", "-o", "env"]) == 0
    done = subprocess.run(
        ["/bin/sh", "-c", capsys.readouterr().out + '\necho "$ST_AUTH $ST_USER $ST_KEY"'],
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == 'http://store.data.svc/auth/v1.0 test:anna it\'s "so"\n'


def test_another_namespace_gets_a_secret(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    with_credentials(fake, {"key": "s3cret"}, directAccess={"enabled": True})
    made = shown(capsys, "client-config", "anna", "--output", "secret", "--for-namespace", "training")
    assert made["metadata"] == {"name": "anna-credentials", "namespace": "training"}
    assert made["stringData"] == {
        "key": "s3cret",
        "user": "test:anna",
        "authUrl": "http://store.data.svc/auth/v1.0",
        "metadataUrl": "http://store-metadata.data.svc:8090",
    }


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nobody"], '"nobody" not found'),
        (["anna", "--for-namespace", "x"], "--for-namespace goes with --output secret"),
        (["anna", "-o", "env"], '"anna-credentials" not found'),
        (["stranger"], '"other" not found'),
    ],
)
def test_what_a_client_can_not_be_given_is_told(
    fake: Fake, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert main(["client-config", *arguments]) == 1
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("data", [{}, {"key": ""}, {"key": "\n"}])
def test_a_secret_without_a_key_is_told(fake: Fake, capsys: pytest.CaptureFixture[str], data: dict[str, str]) -> None:
    with_credentials(fake, data)
    assert main(["client-config", "anna", "-o", "env"]) == 1
    assert "anna-credentials" in capsys.readouterr().err


def test_a_store_that_is_not_there_yet_has_no_clients(fake: Fake, capsys: pytest.CaptureFixture[str]) -> None:
    del fake.find("StorageCluster", "store")["status"]["endpoint"]
    fake.write()
    assert main(["client-config", "anna"]) == 1
    assert "has no status.endpoint yet" in capsys.readouterr().err
