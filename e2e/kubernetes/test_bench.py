"""`kubectl swiftlet bench`: pods load the example's store, their result comes home, and nothing of them is left. And
`kubectl swiftlet advise` about that store.
"""

from __future__ import annotations

import itertools
import json
import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from e2e.kubernetes.conftest import EXAMPLES, Store
from e2e.kubernetes.kube import Namespace, eventually
from swiftlet.bench.results import read_result
from swiftlet_operator.plugin.bench_manifests import RUN_LABEL
from swiftlet_operator.plugin.main import main

GONE_WITHIN_S = 180
WATCHED_BYTES = 20_000
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
    """Return the name of the StorageUser of the example."""
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


@contextmanager
def in_use(store: Store) -> Iterator[None]:
    """Objects of one size are written and read for the length of the block, twice as often read."""
    over = threading.Event()

    def use() -> int:
        with store.client() as swift:
            swift.put_container("watched")
            for number in itertools.count():
                if over.is_set():
                    return number
                swift.put_object("watched", f"{number}", bytes(WATCHED_BYTES))
                for _ in range(2):
                    swift.get_object("watched", f"{number}")
        raise AssertionError("numbers have no end")

    with ThreadPoolExecutor(1) as pool:
        used = pool.submit(use)
        try:
            yield
        finally:
            over.set()
        assert used.result()


def test_advice_about_a_live_cluster_has_the_load_that_it_watched(
    store: Store, capsys: pytest.CaptureFixture[str]
) -> None:
    with in_use(store):
        code = main(["advise", store.name, "--seconds", "20", "--namespace", store.namespace.name])
    shown = capsys.readouterr().out
    print(shown)
    # 1: it found a pitfall that is a warning.
    assert code in (0, 1), shown
    assert shown.startswith(f"StorageCluster {store.name}: ")
    # All pages of metrics were read.
    assert "NOTE" not in shown
    asked = re.search(r"^asked    create ([0-9.]+)/s, read ([0-9.]+)/s.*: (.*)/s in, (.*)/s out$", shown, re.MULTILINE)
    assert asked, shown


def test_a_wrong_scenario_is_refused_with_its_field_and_leaves_nothing(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "wrong.yaml"
    scenario.write_text(json.dumps({**SCENARIO, "operations": {"creaet": 1}}))
    where = ["--namespace", store.namespace.name]
    assert main(["bench", str(scenario), "--user", user(), "--cpu", "100m", *where]) == 1
    assert "operations.creaet" in capsys.readouterr().err
    wait_until_nothing_is_left(store.namespace)
