"""`swiftlet bench degrade` with the modes that ship for a StorageCluster: each breaks a store in use, and mends it.

One store for all modes; the command runs on this machine as a user's does, with shorter phases.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from e2e.kubernetes.conftest import READY_WITHIN_S, new_namespace
from e2e.kubernetes.kube import Namespace, eventually, run
from e2e.kubernetes.lab import DONE_WITHIN_S, NAME, all_pods, conditions, in_sync, is_ready, lab
from swiftlet.bench.degrade.modes import Mode, read_modes, text_of
from swiftlet.bench.degrade.phases import PHASES, TASK_PHASES
from swiftlet.bench.results import read_result
from swiftlet_operator.manifests import COMPONENT_LABEL

MODES = {mode.name: mode for mode in read_modes("kubernetes")}
PHASE_S = 15
WITHIN_S = 900


@dataclass(frozen=True, slots=True)
class Lab:
    """The store, and what the command is told of it."""

    namespace: Namespace
    environ: dict[str, str]
    modes: Path

    def pods(self) -> dict[str, str]:
        """The components of its pods by the pods' identities."""
        found = [one["metadata"] for one in all_pods(self.namespace).values()]
        return {one["uid"]: one["labels"][COMPONENT_LABEL] for one in found}


@pytest.fixture(scope="module")
def store(operator: Namespace, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """Ready, with a port on every node."""
    folder = tmp_path_factory.mktemp("degrade")
    cluster, user = yaml.safe_load_all(lab())
    cluster["spec"]["proxy"]["service"] = {"type": "NodePort"}
    with new_namespace() as namespace:
        namespace.apply(yaml.safe_dump_all([cluster, user]))
        namespace.wait_until_true("storagecluster", NAME, "Ready", READY_WITHIN_S)
        namespace.wait_until_true("storageuser", "ann", "Ready", READY_WITHIN_S)
        yield Lab(namespace, environment(namespace, folder), shortened(folder))


def environment(namespace: Namespace, folder: Path) -> dict[str, str]:
    """The user's: the store's address and a login, the cluster's name, and a kubectl whose namespace is the store's."""
    config = folder / "config"
    shutil.copy(os.environ["KUBECONFIG"], config)
    run("kubectl", "--kubeconfig", str(config), "config", "set-context", "--current", f"--namespace={namespace.name}")
    login = namespace.secret("ann-credentials")
    (port,) = namespace.get("service", NAME)["spec"]["ports"]
    (address, *_) = (
        one["address"]
        for node in json.loads(run("kubectl", "get", "nodes", "--output", "json"))["items"]
        for one in node["status"]["addresses"]
        if one["type"] == "InternalIP"
    )
    return {
        **{name: value for name, value in os.environ.items() if not name.startswith(("OS_", "ST_", "SWIFTLET_"))},
        "KUBECONFIG": str(config),
        "CLUSTER": NAME,
        "ST_AUTH": f"http://{address}:{port['nodePort']}/auth/v1.0",
        "ST_USER": login["user"],
        "ST_KEY": login["key"],
    }


def shortened(folder: Path) -> Path:
    """The file that ships, with shorter phases."""
    document = yaml.safe_load(text_of("kubernetes"))
    for mode in document["modes"]:
        mode["seconds"] = PHASE_S
    path = folder / "modes.yaml"
    path.write_text(yaml.safe_dump(document))
    return path


def degrade(store: Lab, mode: str, out: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run it as a user does."""
    command = [sys.executable, "-m", "swiftlet.main", "bench", "degrade", "degraded", "--set", "objects=50"]
    options = ["--modes", str(store.modes), "--only", mode, "--json", str(out)]
    return subprocess.run(
        [*command, *options],
        capture_output=True,
        text=True,
        check=False,
        timeout=WITHIN_S,
        env={**store.environ, **environ},
    )


@contextmanager
def watched(store: Lab, seen: list[str]) -> Iterator[None]:
    """Have `seen`, at the end of the block, what the condition Degraded said within it."""
    status = '{.status.conditions[?(@.type=="Degraded")].status}{"\\n"}'
    command = store.namespace.command("get", "storagecluster", NAME, "--watch", f"--output=jsonpath={status}")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        # What it is now.
        seen.append(process.stdout.readline().strip())
        try:
            yield
        finally:
            process.terminate()
            seen += process.stdout.read().split()


def at_rest(store: Lab) -> str | None:
    """What is wrong with the store, or with nodes; None when all is as before anything was broken."""
    said = conditions(store.namespace)
    wanted = {"Ready": "True", "Degraded": "False", "PodsHealthy": "True", "NodesCordoned": "False"}
    if wrong := [name for name, status in wanted.items() if not said.get(name, "").startswith(status)]:
        return f"{wrong}: {said}"
    if late := [name for name, pod in all_pods(store.namespace).items() if not is_ready(pod)]:
        return f"{late} are not ready"
    return in_sync(store.namespace)


def cordoned() -> list[str]:
    """The nodes that take no pods, or have the label of those that the command has cordoned."""
    nodes = json.loads(run("kubectl", "get", "nodes", "--output", "json"))["items"]
    kept = [one for one in nodes if one["spec"].get("unschedulable") or "swiftlet-bench" in one["metadata"]["labels"]]
    return [one["metadata"]["name"] for one in kept]


GONE: dict[str, dict[str, int]] = {
    "pod": {"storage": 1},
    "container server": {"container": 1},
    "proxy": {"proxy": 1},
    "metadata server": {"metadata": 1},
    "redis": {"redis": 1},
    "rolling restart": {"storage": 3, "container": 3, "proxy": 2, "metadata": 1, "redis": 1},
}
"""Pods that a mode replaces, by their component, and no others. A drain takes what is on the node."""


@pytest.mark.parametrize("mode", MODES.values(), ids=list(MODES))
def test_a_mode_breaks_a_store_in_use_and_mends_it(store: Lab, mode: Mode, tmp_path: Path) -> None:
    eventually("the store is at rest", DONE_WITHIN_S, lambda: at_rest(store))
    before, seen = store.pods(), list[str]()
    with watched(store, seen):
        done = degrade(store, mode.name, tmp_path / "out.json")
    print(done.stdout, done.stderr)
    # 1: an operation failed, as those do that a killed proxy was answering.
    assert done.returncode in (0, 1), done.stderr
    result = read_result(tmp_path / "out.json")
    assert [step.phase for step in result.steps] == list(TASK_PHASES if mode.task else PHASES)
    for step in result.steps:
        assert step.total.succeeded, step.phase
        assert "corrupt" not in step.total.failures
    assert not result.steps[0].failed
    after = store.pods()
    gone = Counter(component for uid, component in before.items() if uid not in after)
    if mode.name in GONE:
        assert gone == GONE[mode.name]
    else:
        assert gone["storage"] == 1
    assert not cordoned()
    if mode.task or mode.whole is not None:
        assert result.steps[-1].is_whole, done.stdout
        # It was broken, and whole means that it was proved to be so no longer.
        assert ("True", "False") in list(pairwise(seen)), seen
    eventually("the store is at rest again", DONE_WITHIN_S, lambda: at_rest(store))


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_for_a_cluster_that_is_not_there_fails_and_breaks_nothing(store: Lab, mode: str, tmp_path: Path) -> None:
    before = store.pods()
    done = degrade(store, mode, tmp_path / "out.json", CLUSTER="nothing")
    assert done.returncode == 1
    assert f"break of {mode}: " in done.stderr
    assert "of nothing" in done.stderr, done.stderr
    assert store.pods() == before
    assert not cordoned()
