"""`swiftlet bench degrade` with the modes that ship for a store on this machine: a process is killed and comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.standalone.cluster import Cluster
from e2e.standalone.conftest import Stores
from swiftlet.bench.results import Result, read_result


@pytest.fixture
def store(round_stores: Stores, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """A store that is proved, and whose rounds follow each other soon."""
    with round_stores.lent(request) as cluster:
        cluster.wait_until_proved()
        yield cluster


def degrade(store: Cluster, out: Path, *options: str) -> tuple[Result, str]:
    """Run it as a user does, with the programs of this environment; its result, and what it printed."""
    command = [sys.executable, "-m", "swiftlet.main", "bench", "degrade", "degraded", "--store", str(store.ready_file)]
    small = ["--set", "objects=50", "--set", "closed.think_s=0.2", "--seconds", "2", "--json", str(out)]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        [*command, *small, *options], capture_output=True, text=True, check=False, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return read_result(out), done.stdout


def test_an_object_server_is_killed_and_the_store_is_whole_again(store: Cluster, tmp_path: Path) -> None:
    before = store.pids
    options = ("--modes", "local", "--only", "object server", "--html", str(tmp_path / "page.html"))
    result, printed = degrade(store, tmp_path / "out.json", *options)
    after = store.pids
    assert {name for name in before if after.get(name) != before[name]} == {"object-1"}
    _, broken, mended = result.steps
    # Two of three copies are left.
    assert [step.total.failures for step in result.steps] == [{}, {}, {}]
    assert broken.first_success_s is not None
    assert mended.is_whole, printed
    assert "object server, broken" in printed
    assert (tmp_path / "page.html").read_text("utf-8").count("<svg") == 2


def test_a_frozen_server_goes_on(store: Cluster, tmp_path: Path) -> None:
    before = store.pids
    result, printed = degrade(store, tmp_path / "out.json", "--modes", "local", "--only", "frozen object server")
    assert store.pids == before
    assert result.steps[-1].is_whole, printed
