"""Fixtures of `make filesystem`: a store, and environments with the client's wheel in them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from e2e.standalone.cluster import Cluster, start_cluster
from hack.releasing import client

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".cache"
LIBRARIES = CACHE / "filesystem" / "venv"
"""Where the libraries are that use the file system."""
BARE = CACHE / "client" / "venv"
"""Where nothing is but what the wheel needs."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A store that all tests share."""
    running = start_cluster(tmp_path_factory.mktemp("cluster") / "store")
    yield running
    assert running.stop() == 0, "the store did not end well"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client's wheel, installed into both environments."""
    built = client.build(tmp_path_factory.mktemp("wheel"))
    for environment in (LIBRARIES, BARE):
        install = [
            "pip",
            "install",
            "-q",
            "--disable-pip-version-check",
            "--no-deps",
            "--no-index",
            "--force-reinstall",
        ]
        subprocess.run([environment / "bin/python", "-m", *install, str(built)], check=True)
    return built


@pytest.fixture
def login(cluster: Cluster) -> Mapping[str, str]:
    """The environment of a program that uses the store: nothing of this project's."""
    kept = {name: os.environ[name] for name in ("HOME", "LANG", "PATH", "TMPDIR") if name in os.environ}
    return {**kept, "ST_AUTH": cluster.auth_url, "ST_USER": cluster.user, "ST_KEY": cluster.key}
