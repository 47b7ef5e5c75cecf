"""`swiftlet bench` against a store with all of its processes."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.standalone.cluster import Cluster, environment, start_cluster
from e2e.standalone.wire import Client
from swiftlet.advice.costs import OPERATIONS, SERVICES, read_costs
from swiftlet.bench.results import read_result
from swiftlet.main.commands.advise import measuring
from swiftlet.main.commands.cli import run, swiftlet

SCENARIO = {
    "title": "all operations",
    "containers": 2,
    "objects": 40,
    "sizes": {"weighted": [{"weight": 9, "uniform": {"least": 0, "most": "100 KB"}}, {"weight": 1, "size": "3 MB"}]},
    "operations": {"create": 2, "read": 4, "update": 1, "delete": 2, "list": 2, "head": 1},
    "closed": {"connections": [4]},
    "warm_up_s": 0,
    "count": 200,
}


@pytest.fixture(autouse=True)
def no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("OS_", "ST_", "SWIFTLET_"))]:
        monkeypatch.delenv(name)


def test_a_scenario_of_all_operations_in_closed_and_open_loop(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario, out = tmp_path / "all.yaml", tmp_path / "all.json"
    scenario.write_text(yaml.safe_dump(SCENARIO))
    options = ["--target", cluster.endpoint, "--cluster", str(cluster.data), "--prefix", "bench"]
    assert run(swiftlet, ["bench", "run", str(scenario), *options, "--json", str(out)]) == 0, capsys.readouterr()
    printed = capsys.readouterr().out
    (step,) = read_result(out).steps
    assert step.total.succeeded == 200
    assert step.usage is not None
    assert step.usage.processes > len(cluster.services)
    assert step.usage.cpu_s > 0
    for part in (*SCENARIO["operations"], "of processor time per operation"):  # type: ignore[misc]
        assert part in printed
    # The same store at a rate, with the account's URL, and with credentials of the environment.
    environment = {"ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key}
    changes = ["--set", "open.per_second=100", "--set", "count=50"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        url = f"{cluster.endpoint}/v1/AUTH_test"
        code = run(swiftlet, ["bench", "run", str(scenario), "--target", url, *changes, "--json", str(out)])
    assert code == 0, capsys.readouterr()
    assert json.loads(out.read_text())["steps"][0]["per_second"] == 100
    client = Client(cluster.endpoint, cluster.user, cluster.key)
    containers = client.call("GET", query="format=json").json()
    assert not [one["name"] for one in containers if "bench" in one["name"]]


def test_keystones_login_loads_and_breaks_the_store_that_its_catalog_names(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario, out = tmp_path / "all.yaml", tmp_path / "all.json"
    scenario.write_text(yaml.safe_dump({**SCENARIO, "count": 50}))
    project, _, user = cluster.user.partition(":")
    given = {"AUTH_URL": f"{cluster.endpoint}/v3", "USERNAME": user, "PROJECT_NAME": project, "PASSWORD": cluster.key}
    given |= {"USER_DOMAIN_NAME": "Default", "PROJECT_DOMAIN_NAME": "Default", "IDENTITY_API_VERSION": "3"}
    for name, value in given.items():
        monkeypatch.setenv(f"OS_{name}", value)
    assert run(swiftlet, ["bench", "run", str(scenario), "--json", str(out)]) == 0, capsys.readouterr()
    assert read_result(out).target == f"{cluster.endpoint}/v1/AUTH_{project}"
    url = f"{cluster.endpoint}/v1/AUTH_{project}"
    assert run(swiftlet, ["bench", "run", str(scenario), "--target", url, "--json", str(out)]) == 0
    assert read_result(out).steps[0].total.succeeded == 50
    command = ["bench", "degrade", str(scenario), "--break", "true", "--mend", "true", "--seconds", "1"]
    assert run(swiftlet, [*command, "--json", str(out)]) == 0, capsys.readouterr()
    assert all(step.total.succeeded for step in read_result(out).steps)
    capsys.readouterr()
    monkeypatch.setenv("OS_PASSWORD", "wrong")
    assert run(swiftlet, ["bench", "run", str(scenario)]) == 1
    assert "does not take the credentials" in capsys.readouterr().err


@pytest.fixture
def open_cluster(tmp_path: Path) -> Iterator[Cluster]:
    """A store whose devices clients may reach themselves."""
    running = start_cluster(tmp_path / "store", "--workers", "1", settings={"SWIFTLET_CLUSTER__DIRECT_ACCESS": "true"})
    running.wait_until_proved()
    yield running
    running.stop()


def test_all_operations_directly(open_cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    scenario, out = tmp_path / "all.yaml", tmp_path / "all.json"
    scenario.write_text(yaml.safe_dump({**SCENARIO, "threads": 2}))
    options = ["--api", "direct", "--target", open_cluster.endpoint, "--cluster", str(open_cluster.data)]
    command = ["bench", "run", str(scenario), *options, "--json", str(out)]
    assert run(swiftlet, command) == 1
    assert "set SWIFTLET_METADATA_URL" in capsys.readouterr().err
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWIFTLET_METADATA_URL", open_cluster.url("metadata"))
        assert run(swiftlet, command) == 0, capsys.readouterr()
    assert "of processor time per operation" in capsys.readouterr().out
    (step,) = read_result(out).steps
    assert step.total.succeeded == 200
    assert step.generator_cpu_s > 0
    # What goes over HTTP is told; on a machine that is busy some may, as when a device answers late.
    assert step.over_http < 20
    given = {"SWIFTLET_METADATA_URL": open_cluster.url("metadata"), "ST_USER": open_cluster.user}
    broken = ["--break", "true", "--mend", "true", "--seconds", "1", "--json", str(out)]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**given, "ST_KEY": open_cluster.key}.items():
            patch.setenv(name, value)
        assert run(swiftlet, ["bench", "degrade", str(scenario), *options[:4], *broken]) == 0, capsys.readouterr()
    assert [step.phase for step in read_result(out).steps if step.total.succeeded] == ["before", "broken", "mended"]
    client = Client(open_cluster.endpoint, open_cluster.user, open_cluster.key)
    assert client.call("GET", query="format=json").json() == []


def test_a_store_without_direct_access_is_not_measured_over_http_instead(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scenario = tmp_path / "all.yaml"
    scenario.write_text(yaml.safe_dump(SCENARIO))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SWIFTLET_METADATA_URL", cluster.url("metadata"))
        options = ["--api", "direct", "--target", cluster.endpoint, "--cluster", str(cluster.data)]
        assert run(swiftlet, ["bench", "run", str(scenario), *options]) == 1
    assert "went directly to the devices: is direct access enabled" in capsys.readouterr().err


@pytest.mark.parametrize("names", [("one",), ("one", "two"), ("one", "two", "three", "four")], ids=len)
def test_workers_and_their_coordinator(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...]
) -> None:
    count = len(names)
    scenario, out, token, short = (tmp_path / name for name in ("all.yaml", "all.json", "token", "short"))
    scenario.write_text(yaml.safe_dump({**SCENARIO, "count": 100}))
    token.write_text("a token of enough length\n")
    short.write_text("short")
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    coordinator = ["bench", "coordinator", str(scenario), "--workers", str(count), "--listen", address]
    coordinator += ["--json", str(out)]
    assert run(swiftlet, [*coordinator, "--token-file", str(short)]) == 1
    assert f"--token-file {short} has 5 characters" in capsys.readouterr().err
    worker = [sys.executable, "-m", "swiftlet.main", "bench", "worker", "--coordinator", address]
    # They come before the coordinator is there.
    credentials = {"ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key}
    workers = [
        subprocess.Popen(
            [*worker, "--token-file", str(token), "--name", name, "--target", cluster.endpoint],
            env={**environment(), **credentials},
            stdout=subprocess.PIPE,
        )
        for name in names
    ]
    assert run(swiftlet, [*coordinator, "--token-file", str(token)]) == 0, capsys.readouterr()
    for one in workers:
        printed, _ = one.communicate(timeout=60)
        assert one.returncode == 0
        assert b"all operations" in printed
    assert ("workers" in capsys.readouterr().out) == (count > 1)
    result = read_result(out)
    (step,) = result.steps
    assert (step.workers, step.connections, step.total.succeeded) == (count, 4 * count, 100 * count)
    assert set(result.environment["workers"]) == set(names)
    assert result.target == f"{cluster.endpoint}/v1/AUTH_test"


def test_unit_costs_are_measured_by_service_and_operation(
    cluster: Cluster, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As little of it as shows that everything is there; numbers of so few operations mean nothing."""
    short = {"SETTLE_S": 0.0, "REST_S": 0.1, "SLOW_S": 0.5, "LEAST_A_STEP": 20, "MOST_A_STEP": 20}
    # As many listings as of the others, so that there are some of them among so few.
    for name, value in {**short, "LISTED": 48.0}.items():
        monkeypatch.setattr(measuring, name, value)
    monkeypatch.setattr(measuring.measure, "__defaults__", ((1000, 1_100_000),))
    out = tmp_path / "costs.json"
    assert run(swiftlet, ["bench", "costs", str(cluster.ready_file), "--output", str(out), "--runs", "1"]) == 0
    assert "create, 1,100,000 bytes: 1 times 20" in capsys.readouterr().err
    known = read_costs(out.read_bytes(), "costs.json")
    assert known.cpu_s.keys() == set(SERVICES)
    assert all(operations.keys() == set(OPERATIONS) for operations in known.cpu_s.values())
    assert [size for size, _ in known.cpu_s["proxy"]["read"].points] == [1000, 1_100_000]
    assert [size for size, _ in known.cpu_s["container"]["create"].points] == [1000]
    assert all(known.memory_bytes[service] > 1 << 20 for service in SERVICES)
    assert known.measured["processors"] > 0
    assert run(swiftlet, ["bench", "costs", str(tmp_path / "none.json"), "--output", str(out)]) == 1
    assert "start a store with `swiftlet standalone" in capsys.readouterr().err
