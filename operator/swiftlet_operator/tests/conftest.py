"""A real API server for the operator's tests; where its binary is not, tests that need it are left out, aloud.

Tests ask for it by the fixture `apiserver` and are marked `apiserver`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from swiftlet_operator.tests.apiserver import FIX, ApiServer, hyperkube, kube_bin, running

CRDS = Path(__file__).resolve().parents[3] / "crds"

_left_out = pytest.StashKey[int]()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what needs an API server when there is no binary for one."""
    if hyperkube() is not None:
        return
    left_out = [item for item in items if item.get_closest_marker("apiserver")]
    items[:] = [item for item in items if not item.get_closest_marker("apiserver")]
    config.stash[_left_out] = len(left_out)
    config.hook.pytest_deselected(items=left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what was left out and how to have it."""
    if count := config.stash.get(_left_out, 0):
        terminalreporter.write_line(
            f"{count} tests against an API server left out: no hyperkube in {kube_bin()}; {FIX}"
        )


@pytest.fixture(scope="session")
def apiserver() -> Iterator[ApiServer]:
    """A real API server with our CRDs in it, shared by all tests: take a namespace of your own."""
    binary = hyperkube()
    assert binary is not None, "tests that need an API server carry @pytest.mark.apiserver"
    with running(binary) as server:
        server.install_crds(CRDS)
        yield server
