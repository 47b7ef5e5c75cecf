"""`kubectl swiftlet bench`: what it makes, how it follows a run, what comes home, and that nothing is left."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from swiftlet_operator.plugin import bench, bench_manifests
from swiftlet_operator.plugin.main import main

USER = {
    "kind": "StorageUser",
    "metadata": {"name": "anna", "namespace": "data"},
    "spec": {"clusterRef": {"name": "store"}, "account": "test", "user": "anna", "roles": ["admin"]},
}
STORE = {
    "kind": "StorageCluster",
    "metadata": {"name": "store", "namespace": "data"},
    "spec": {"pools": []},
    "status": {"endpoint": "http://store.data.svc"},
}
STORE_POD = {
    "metadata": {"name": "store-proxy-x", "namespace": "data"},
    "spec": {
        "imagePullSecrets": [{"name": "pull"}],
        "containers": [{"name": "proxy", "image": "registry/swiftlet:1", "imagePullPolicy": "IfNotPresent"}],
    },
}
RESULT = '{"version": 2}'


class Cluster:
    """A kubectl whose pods do what the tests say, one look after the other."""

    def __init__(self) -> None:
        self.created: list[dict[str, Any]] = []
        self.deleted: list[list[str]] = []
        self.scripts: list[str] = []
        self.coordinator: list[str | dict[str, Any]] = ["Running"]
        """Phases, or whole statuses, of its pod at each look; the last one stays."""
        self.workers: list[str | dict[str, Any]] = ["Running"]
        self.progress: list[str | BaseException] = ["1 of 1 workers, run 1 of 1\n", "0\n"]
        """What its files say at each look; the last one stays."""
        self.files = {"table": "the table\n", "errors": "", "result.json": RESULT, "result.html": "<html>"}
        self.logs = "Error: the store refuses\n"
        self.refuses_to_create: str | None = None

    def run(self, command: Sequence[str], content: bytes | None, timeout_s: float) -> Any:
        """In place of the process."""
        try:
            text, code = self.answer(list(command[1:]), content), 0
        except LookupError as error:
            text, code = str(error), 1
        return subprocess.CompletedProcess(command, code, text.encode(), text.encode() if code else b"")

    def answer(self, arguments: list[str], content: bytes | None) -> str:
        match arguments[0]:
            case "config":
                return "data"
            case "create":
                made = json.loads(content or b"")
                if made["kind"] == self.refuses_to_create:
                    raise LookupError(f"{made['kind']} is forbidden")
                self.created.append(made)
                return ""
            case "delete":
                self.deleted.append(arguments)
                return ""
            case "logs":
                return self.logs
            case "exec":
                return self.shell(arguments[-1])
            case "get":
                return json.dumps(self.get(arguments))
        raise LookupError(f"unknown: {arguments}")

    def get(self, arguments: list[str]) -> Any:
        labels = arguments[arguments.index("--selector") + 1] if "--selector" in arguments else ""
        match arguments[1]:
            case "storageusers.swiftlet.io":
                return USER
            case "storageclusters.swiftlet.io":
                return STORE
            case "jobs.batch":
                return {"metadata": {"name": arguments[2], "uid": "the-uid"}, "status": {}}
            case "pods" if "instance=store" in labels:
                return {"items": [STORE_POD]}
            case "pods":
                part = labels.rpartition("=")[2]
                phases = self.coordinator if part == "coordinator" else self.workers
                status = phases.pop(0) if len(phases) > 1 else phases[0]
                found = {"phase": status} if isinstance(status, str) else status
                return {"items": [{"metadata": {"name": f"{part}-pod"}, "status": found}]}
        raise LookupError(f"not found: {arguments}")

    def shell(self, script: str) -> str:
        self.scripts.append(script)
        if "/progress" in script:
            found = self.progress.pop(0) if len(self.progress) > 1 else self.progress[0]
            if isinstance(found, BaseException):
                raise found
            return found
        return next((text for file, text in self.files.items() if f"/{file} " in script), "")

    def made(self, kind: str, part: str = "") -> dict[str, Any]:
        return next(one for one in self.created if one["kind"] == kind and one["metadata"]["name"].endswith(part))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster()
    monkeypatch.setattr("swiftlet_operator.plugin.kubectl.run", made.run)
    monkeypatch.setattr("swiftlet_operator.plugin.bench.time.sleep", lambda _: None)
    return made


def test_a_run_is_followed_its_result_comes_home_and_nothing_is_left(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.coordinator = ["Pending", "Running"]
    out, page = tmp_path / "result.json", tmp_path / "result.html"
    arguments = ["bench", "small-download", "--user", "anna", "--workers", "4", "--runs", "5", "--set", "duration_s=9"]
    assert main([*arguments, "--json", str(out), "--html", str(page)]) == 0
    shown = capsys.readouterr()
    assert shown.out == "the table\n"
    assert shown.err == "1 of 1 workers, run 1 of 1\n"
    assert (out.read_text(), page.read_text()) == (RESULT, "<html>")
    assert [one["kind"] for one in cluster.created] == ["Job", "Secret", "Service", "Job"]
    name = cluster.made("Secret")["metadata"]["name"]
    assert [one[-3] for one in cluster.deleted] == [f"swiftlet.io/bench={name}"]
    coordinator, workers = (
        cluster.made("Job", part)["spec"]["template"]["spec"]["containers"][0] for part in ("coordinator", "worker")
    )
    for flag in ("small-download", "--workers=4", "--runs=5", "--set=duration_s=9"):
        assert flag in coordinator["command"]
    spec = cluster.made("Job", "worker")["spec"]
    assert (spec["completions"], spec["parallelism"]) == (4, 4)
    assert workers["image"] == coordinator["image"] == "registry/swiftlet:1"
    assert spec["template"]["spec"]["imagePullSecrets"] == [{"name": "pull"}]
    variables = {one["name"]: one["value"] for one in workers["env"]}
    assert variables["ST_USER"] == "test:anna"
    assert variables["ST_AUTH"] == "http://store.data.svc/auth/v1.0"
    mounted = {one["name"]: one["secret"]["secretName"] for one in spec["template"]["spec"]["volumes"]}
    assert mounted == {"run": name, "store": "anna-credentials"}


def test_the_token_is_in_the_secret_of_the_run_alone(cluster: Cluster) -> None:
    assert main(["bench", "small-upload", "--user", "anna"]) == 0
    secret = cluster.made("Secret")
    token = secret["stringData"]["token"]
    assert len(token) == 64
    others = [one for one in cluster.created if one is not secret]
    assert token not in json.dumps(others)
    for one in cluster.created[1:]:
        (owner,) = one["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Job", "the-uid")
    # Who watches this command's process list does not see it either.
    assert not any(token in script for script in cluster.scripts)


def test_a_scenario_of_a_file_goes_into_the_secret(cluster: Cluster, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("title: mine\n")
    assert main(["bench", str(file), "--user", "anna", "--keep", "--image", "other:2"]) == 0
    assert cluster.made("Secret")["stringData"]["scenario.yaml"] == "title: mine\n"
    container = cluster.made("Job", "coordinator")["spec"]["template"]["spec"]["containers"][0]
    assert container["command"][4:6] == [f"{bench_manifests.RUN_AT}/scenario.yaml", "--workers=1"]
    assert "--keep" in container["command"]
    assert container["image"] == "other:2"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.yaml"], "gone.yaml can't be read: "),
        (["small-upload", "--json", "/nowhere/x.json"], "/nowhere/x.json can't be written: there is no folder"),
    ],
)
def test_what_can_not_go_well_begins_nothing(
    cluster: Cluster, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments, "--user", "anna"]) == 1
    assert message in capsys.readouterr().err
    assert not cluster.created


@pytest.mark.parametrize("wrong", [["--workers", "0"], ["--workers", "257"], ["--cpu", "much"], ["--wait", "-1"]])
def test_wrong_options_are_refused(cluster: Cluster, wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "small-upload", "--user", "anna", *wrong])
    assert ended.value.code == 2
    assert not cluster.created


def never_fetched(cluster: Cluster) -> None:
    """Have the coordinator wait for workers for ever."""
    cluster.progress = [""]


def no_image(cluster: Cluster) -> None:
    waiting = {"reason": "ImagePullBackOff", "message": "no such image"}
    cluster.coordinator = [{"phase": "Pending", "containerStatuses": [{"state": {"waiting": waiting}}]}]


def worker_fails(cluster: Cluster) -> None:
    never_fetched(cluster)
    cluster.workers = ["Running", "Failed"]


def no_kubectl(cluster: Cluster) -> None:
    cluster.progress = [LookupError("connection refused")]


def refused(cluster: Cluster) -> None:
    cluster.refuses_to_create = "Service"


def no_result(cluster: Cluster) -> None:
    cluster.files |= {"result.json": "", "errors": "Error: 0 of 1 workers came\n"}
    cluster.progress = ["1\n"]


def half_a_result(cluster: Cluster) -> None:
    cluster.files["result.json"] = '{"version": '


@pytest.mark.parametrize(
    ("breaks", "message"),
    [
        (no_image, "coordinator-pod waits: ImagePullBackOff: no such image"),
        (worker_fails, "worker worker-pod has failed:\nError: the store refuses"),
        (no_kubectl, "connection refused"),
        (refused, "Service is forbidden"),
        (no_result, "0 of 1 workers came"),
        (half_a_result, "the result came in parts only"),
    ],
)
def test_what_goes_wrong_is_told_and_nothing_is_left(
    cluster: Cluster, breaks: Callable[[Cluster], None], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    breaks(cluster)
    assert main(["bench", "small-upload", "--user", "anna"]) == 1
    assert message in capsys.readouterr().err
    assert len(cluster.deleted) == 1


def test_why_pods_wait_is_told_once(cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    unschedulable = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "too few cpu"}
    waits: dict[str, Any] = {"phase": "Pending", "conditions": [unschedulable]}
    cluster.coordinator = [waits, waits, waits, "Running"]
    assert main(["bench", "small-upload", "--user", "anna"]) == 0
    assert capsys.readouterr().err.count("coordinator-pod waits: Unschedulable: too few cpu") == 1


def test_failures_of_kubectl_for_a_while_end_nothing(cluster: Cluster) -> None:
    lost = [LookupError("timeout") for _ in range(bench.TRIES - 1)]
    cluster.progress = ["measuring\n", *lost, "measuring\n", *lost, "0\n"]
    assert main(["bench", "small-upload", "--user", "anna"]) == 0


def test_the_coordinators_exit_code_is_that_of_the_command(cluster: Cluster, tmp_path: Path) -> None:
    cluster.progress = ["measuring\n1\n"]
    out = tmp_path / "result.json"
    assert main(["bench", "small-upload", "--user", "anna", "--json", str(out)]) == 1
    assert out.read_text() == RESULT


def test_ctrl_c_stops_the_run_which_says_what_it_has_measured(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.progress = ["measuring\n", KeyboardInterrupt(), "deleting objects\n", "130\n"]
    assert main(["bench", "small-upload", "--user", "anna"]) == 130
    shown = capsys.readouterr()
    assert "another Ctrl-C leaves them" in shown.err
    assert shown.out == "the table\n"
    assert any(script.startswith("kill -INT ") for script in cluster.scripts)
    assert len(cluster.deleted) == 1


def test_a_second_ctrl_c_deletes_the_pods_at_once(cluster: Cluster) -> None:
    cluster.progress = ["measuring\n", KeyboardInterrupt(), KeyboardInterrupt(), "0\n"]
    assert main(["bench", "small-upload", "--user", "anna"]) == 130
    assert len(cluster.deleted) == 1


def test_one_that_does_not_stop_is_left(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    moments = iter(float(second) for second in range(0, 10_000, 50))
    monkeypatch.setattr("swiftlet_operator.plugin.bench.time.monotonic", lambda: next(moments))
    cluster.progress = [KeyboardInterrupt(), "measuring\n"]
    assert main(["bench", "small-upload", "--user", "anna"]) == 1
    assert "did not end within 120 s" in capsys.readouterr().err
    assert len(cluster.deleted) == 1
