"""Real clients against a running cluster: python-swiftclient and rclone."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from swiftclient.client import Connection

from e2e.standalone.cluster import Cluster, rclone_environment

FILES = 100
LARGEST = 6 << 20
LARGE = 80 << 20


def md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()


def random_file(path: Path, size: int, seed: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    block = random.Random(seed).randbytes(1 << 20)
    with path.open("wb") as file:
        for number in range(0, size, len(block)):
            piece = block[: size - number]
            file.write(number.to_bytes(8, "big")[: len(piece)] + piece[8:])


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """100 files of 0 B to 6 MiB in a few folders, most of them small, as trees are."""
    root = tmp_path_factory.mktemp("tree")
    chooser = random.Random(1)
    sizes = [0, 1, LARGEST, LARGEST - 1, 1 << 20, (1 << 20) + 1]
    sizes += [int(LARGEST ** chooser.random()) for _ in range(FILES - len(sizes))]
    for number, size in enumerate(sizes):
        random_file(root / f"dir {number % 7}" / f"f\u00fcr-{number}.bin", size, number)
    yield root
    shutil.rmtree(root)


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("big") / "large.bin"
    random_file(path, LARGE, 99)
    yield path
    path.unlink()


@pytest.fixture
def swift(cluster: Cluster) -> Iterator[Connection]:
    connection = Connection(authurl=cluster.auth_url, user=cluster.user, key=cluster.key, retries=0)
    yield connection
    connection.close()


def files_of(root: Path) -> dict[str, Path]:
    return {str(p.relative_to(root)): p for p in sorted(root.rglob("*")) if p.is_file()}


def test_swiftclient_round_trip(swift: Connection, tree: Path) -> None:
    files = files_of(tree)
    assert len(files) == FILES
    swift.put_container("swiftclient")
    for name, path in files.items():
        with path.open("rb") as file:
            assert swift.put_object("swiftclient", name, file, content_length=path.stat().st_size) == md5(path)
    headers, listing = swift.get_container("swiftclient", full_listing=True)
    assert int(headers["x-container-object-count"]) == FILES
    assert {row["name"]: (row["bytes"], row["hash"]) for row in listing} == {
        name: (path.stat().st_size, md5(path)) for name, path in files.items()
    }
    for name, path in files.items():
        got, body = swift.get_object("swiftclient", name)
        assert hashlib.md5(body, usedforsecurity=False).hexdigest() == got["etag"] == md5(path)
    for name in list(files)[:20]:
        swift.put_object("swiftclient", name, b"overwritten " + name.encode())
        assert swift.get_object("swiftclient", name)[1] == b"overwritten " + name.encode()
    for name in files:
        swift.delete_object("swiftclient", name)
    assert swift.get_container("swiftclient")[1] == []
    swift.delete_container("swiftclient")


@pytest.mark.slow
def test_swiftclient_large_file(swift: Connection, big: Path) -> None:
    swift.put_container("big")
    with big.open("rb") as file:
        etag = swift.put_object("big", "one", file, content_length=LARGE)
    assert etag == md5(big)
    headers, body = swift.get_object("big", "one", resp_chunk_size=1 << 20)
    digest = hashlib.md5(usedforsecurity=False)
    for chunk in body:
        digest.update(chunk)
    assert int(headers["content-length"]) == LARGE
    assert digest.hexdigest() == etag
    swift.delete_object("big", "one")
    swift.delete_container("big")


@pytest.fixture(scope="module")
def rclone(cluster: Cluster) -> dict[str, str]:
    """The environment in which rclone knows the cluster as `sw:`."""
    assert shutil.which("rclone"), "rclone is missing: apt-get install rclone"
    return os.environ | {
        "RCLONE_CONFIG": "/dev/null",
        **rclone_environment(cluster),
    }


def run(environment: dict[str, str], *command: str) -> str:
    done = subprocess.run(
        ["rclone", *command], env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_rclone_round_trip(rclone: dict[str, str], tree: Path, tmp_path: Path) -> None:
    run(rclone, "copy", str(tree), "sw:rclone/tree", "--transfers", "8")
    listed = run(rclone, "lsf", "-R", "--files-only", "sw:rclone/tree").splitlines()
    assert sorted(listed) == sorted(files_of(tree))
    run(rclone, "check", str(tree), "sw:rclone/tree")
    run(rclone, "copy", "sw:rclone/tree", str(tmp_path / "back"), "--transfers", "8")
    assert {n: md5(p) for n, p in files_of(tmp_path / "back").items()} == {n: md5(p) for n, p in files_of(tree).items()}
    changed = tmp_path / "back" / next(iter(files_of(tmp_path / "back")))
    changed.write_bytes(b"changed")
    run(rclone, "sync", str(tmp_path / "back"), "sw:rclone/tree")
    run(rclone, "check", str(tmp_path / "back"), "sw:rclone/tree")
    run(rclone, "purge", "sw:rclone")
    assert "rclone" not in run(rclone, "lsf", "sw:").split()


@pytest.mark.slow
def test_rclone_large_file(rclone: dict[str, str], big: Path, tmp_path: Path) -> None:
    run(rclone, "copy", str(big), "sw:rclone-big")
    run(rclone, "check", str(big.parent), "sw:rclone-big")
    run(rclone, "copy", f"sw:rclone-big/{big.name}", str(tmp_path))
    assert md5(tmp_path / big.name) == md5(big)
    run(rclone, "purge", "sw:rclone-big")
