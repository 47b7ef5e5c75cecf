"""Backups: restic and duplicity, each with a second run, a restore and its own verification."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from e2e.clients.conftest import SCALE, Run, digests, random_file
from e2e.standalone.wire import Client

FILES = int(2000 * SCALE)
KEPT = 1
"""Snapshots that are kept when old ones are forgotten."""


def make_tree(root: Path, files: int, seed: int) -> None:
    """Files as in a home directory: most of them small."""
    chooser = random.Random(seed)
    for number in range(files):
        random_file(root / f"{number % 40:02}" / f"{number}.dat", int((1 << 16) ** chooser.random()), seed + number)


def test_restic(run: Run, client: Client, tmp_path: Path) -> None:
    root = tmp_path / "home-of-somebody"
    make_tree(root, FILES, 1)
    restic = ("restic", "--repo", "swift:restic:/backups", "--quiet")
    run(*restic, "init")
    run(*restic, "backup", root)
    for path in sorted(root.rglob("*.dat"))[: FILES // 10]:
        path.unlink()
    make_tree(root / "new", FILES // 20, 9)
    run(*restic, "backup", root)
    assert len(json.loads(run(*restic, "snapshots", "--json"))) == 2

    before = len(client.call("GET", "restic", query="format=json").json())
    run(*restic, "forget", "--keep-last", str(KEPT))
    run(*restic, "prune", "--max-unused", "0")
    assert len(json.loads(run(*restic, "snapshots", "--json"))) == KEPT
    assert len(client.call("GET", "restic", query="format=json").json()) != before, "prune changed nothing"

    run(*restic, "check", "--read-data")
    run(*restic, "restore", "latest", "--target", tmp_path / "restored")
    assert digests(tmp_path / "restored" / root.relative_to("/")) == digests(root)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_duplicity(run: Run, client: Client, tmp_path: Path) -> None:
    root = tmp_path / "documents"
    make_tree(root, FILES // 4, 2)
    options = ("--no-encryption", "--volsize", "2", "--archive-dir", tmp_path / "archive")
    run("duplicity", "full", *options, root, "swift://duplicity")
    for path in sorted(root.rglob("*.dat"))[:20]:
        path.write_bytes(path.read_bytes() + b"more")
    make_tree(root / "new", 20, 9)
    run("duplicity", "incremental", *options, root, "swift://duplicity")
    names = [row["name"] for row in client.call("GET", "duplicity", query="format=json").json()]
    assert any(".difftar" in name and "-full" in name for name in names), names
    assert any("-inc." in name for name in names), names
    run("duplicity", "verify", "--compare-data", *options, "swift://duplicity", root)
    run("duplicity", "restore", *options, "swift://duplicity", tmp_path / "restored")
    assert digests(tmp_path / "restored") == digests(root)
