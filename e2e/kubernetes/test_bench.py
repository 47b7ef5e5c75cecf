"""`kubectl swiftlet bench`: pods load the example's store, their result comes home, and nothing of them is left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from e2e.kubernetes.conftest import EXAMPLES, Store
from e2e.kubernetes.kube import Namespace, eventually
from swiftlet.bench.results import read_result
from swiftlet_operator.plugin.bench_manifests import RUN_LABEL
from swiftlet_operator.plugin.main import main

GONE_WITHIN_S = 180
SCENARIO = {
    "title": "a little of everything",
    "containers": 2,
    "objects": 40,
    "sizes": {"uniform": {"least": 0, "most": "20 KB"}},
    "operations": {"create": 2, "read": 4, "update": 1, "delete": 1, "list": 1, "head": 1},
    "closed": {"connections": [2, 4]},
    "warm_up_s": 0,
    "count": 100,
}


def user() -> str:
    """The example's StorageUser."""
    return next(
        str(one["metadata"]["name"])
        for one in yaml.safe_load_all((EXAMPLES / "storagecluster.yaml").read_text())
        if one["kind"] == "StorageUser"
    )


def wait_until_nothing_is_left(namespace: Namespace) -> None:
    """Until no object of any run is there."""

    def left() -> str | None:
        found = namespace.kubectl("get", "jobs,pods,services,secrets", "--selector", RUN_LABEL, "--output", "name")
        return found or None

    eventually("nothing is left of the run", GONE_WITHIN_S, left)


def test_two_pods_load_a_store_and_their_result_comes_home(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, out, page = (tmp_path / name for name in ("some.yaml", "result.json", "result.html"))
    scenario.write_text(yaml.safe_dump(SCENARIO))
    where = ["--namespace", store.namespace.name]
    arguments = ["bench", str(scenario), "--user", user(), "--workers", "2", "--cpu", "100m", *where]
    code = main([*arguments, "--json", str(out), "--html", str(page)])
    shown = capsys.readouterr()
    assert code == 0, shown
    assert "a little of everything" in shown.out
    assert "2 workers" in shown.out
    result = read_result(out)
    assert [(step.workers, step.connections, step.total.succeeded) for step in result.steps] == [
        (2, 4, 200),
        (2, 8, 200),
    ]
    assert not result.lost
    assert len(result.environment["workers"]) == 2
    assert "<svg" in page.read_text()
    wait_until_nothing_is_left(store.namespace)
    with store.client() as swift:
        _, containers = swift.get_account(full_listing=True)
    assert not [one["name"] for one in containers if "bench" in one["name"]]


def test_a_wrong_scenario_is_refused_with_its_field_and_leaves_nothing(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "wrong.yaml"
    scenario.write_text(json.dumps({**SCENARIO, "operations": {"creaet": 1}}))
    where = ["--namespace", store.namespace.name]
    assert main(["bench", str(scenario), "--user", user(), "--cpu", "100m", *where]) == 1
    assert "operations.creaet" in capsys.readouterr().err
    wait_until_nothing_is_left(store.namespace)
