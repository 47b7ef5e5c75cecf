"""Fixtures of the clients' tests: one store for all of them, trees of files, and programs as subprocesses."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.standalone.cluster import Cluster, rclone_environment, start_cluster
from e2e.standalone.wire import Client

Run = Callable[..., str]
PROGRAM_TIMEOUT_S = 1500
SCALE = float(os.environ.get("CLIENTS_SCALE", "0.3"))
"""The share of files that trees have (`make clients`: all)."""


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A store that all tests share: leave its services alone."""
    data = tmp_path_factory.mktemp("cluster")
    running = start_cluster(data)
    yield running
    assert running.stop() == 0, "the store did not end well"
    shutil.rmtree(data)


@pytest.fixture(scope="session")
def client(cluster: Cluster) -> Client:
    """The bare client, to look at what programs have left."""
    return Client(cluster.endpoint, cluster.user, cluster.key)


@pytest.fixture
def run(cluster: Cluster, tmp_path: Path) -> Run:
    """Run a program that finds the store in its environment, in whichever way it looks for one; what it prints."""
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        **os.environ,
        "HOME": str(home),
        "XDG_CACHE_HOME": str(home / "cache"),
        # python-swiftclient's `swift`, and restic.
        "ST_AUTH": cluster.auth_url,
        "ST_USER": cluster.user,
        "ST_KEY": cluster.key,
        "ST_AUTH_VERSION": "1",
        "RESTIC_PASSWORD": "a password of the backup's own",
        "RCLONE_CONFIG": str(home / "rclone.conf"),
        **rclone_environment(cluster),
        # duplicity.
        "SWIFT_AUTHURL": cluster.auth_url,
        "SWIFT_USERNAME": cluster.user,
        "SWIFT_PASSWORD": cluster.key,
        "SWIFT_AUTHVERSION": "1",
    }
    (home / "rclone.conf").touch()

    def run_program(*command: str | Path) -> str:
        program = str(command[0])
        assert shutil.which(program), f"{program} is missing: hack/setup --clients installs it"
        done = subprocess.run(
            list(map(str, command)),
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROGRAM_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, f"{command} gave {done.returncode}:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout

    return run_program


def random_file(path: Path, size: int, seed: int) -> None:
    """A file that does not compress, different for every seed; its blocks differ, too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    block = random.Random(seed).randbytes(min(size, 1 << 20))
    with path.open("wb") as file:
        for start in range(0, size, 1 << 20):
            piece = block[: size - start]
            file.write((start.to_bytes(8, "big") + piece[8:])[: len(piece)])


def digests(root: Path) -> dict[str, str]:
    """MD5 of every file under `root`, by its path from there."""
    return {str(path.relative_to(root)): md5(path) for path in sorted(root.rglob("*")) if path.is_file()}


def md5(path: Path) -> str:
    """A file's MD5 in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
