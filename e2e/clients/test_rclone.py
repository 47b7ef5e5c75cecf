"""rclone: sync, check, move, copies within the store, and a file that it uploads in segments."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from e2e.clients.conftest import SCALE, Run, digests, md5, random_file
from e2e.standalone.wire import Client

FILES = int(300 * SCALE)
LARGE = 600 << 20
SEGMENT = "100M"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files of 0 B to 1 MiB with names that have to be quoted."""
    root, chooser = tmp_path / "tree", random.Random(1)
    for number in range(FILES):
        size = 0 if number == 0 else int((1 << 20) ** chooser.random())
        random_file(root / f"dir {number % 7}" / f"für&?#%-{number}.bin", size, number)
    return root


def test_sync_check_move_and_copies_within_the_store(run: Run, client: Client, tree: Path, tmp_path: Path) -> None:
    run("rclone", "sync", tree, "sw:rclone/tree", "--transfers", "8")
    run("rclone", "check", "--download", tree, "sw:rclone/tree")

    changed, gone = sorted(path for path in tree.rglob("*.bin"))[:2]
    changed.write_bytes(b"changed")
    gone.unlink()
    run("rclone", "sync", tree, "sw:rclone/tree")
    run("rclone", "check", tree, "sw:rclone/tree")
    assert len(client.call("GET", "rclone", query="format=json").json()) == FILES - 1

    # Within one remote rclone asks the store to copy: nothing is downloaded.
    run("rclone", "copy", "sw:rclone/tree", "sw:rclone-copy/again", "--transfers", "8")
    run("rclone", "check", tree, "sw:rclone-copy/again")
    run("rclone", "move", "sw:rclone-copy/again", "sw:rclone-copy/moved", "--transfers", "8")
    names = [row["name"] for row in client.call("GET", "rclone-copy", query="format=json").json()]
    assert len(names) == FILES - 1
    assert all(name.startswith("moved/") for name in names)

    run("rclone", "sync", "sw:rclone-copy/moved", tmp_path / "back")
    assert digests(tmp_path / "back") == digests(tree)
    run("rclone", "purge", "sw:rclone")
    run("rclone", "purge", "sw:rclone-copy")
    assert "rclone" not in run("rclone", "lsf", "sw:")


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_large_file_in_segments(run: Run, client: Client, tmp_path: Path) -> None:
    large = tmp_path / "large" / "large.bin"
    random_file(large, LARGE, 5)
    run("rclone", "copy", large, "sw:rclone-large", "--swift-chunk-size", SEGMENT)
    head = client.call("HEAD", "rclone-large/large.bin").headers
    assert int(head["Content-Length"]) == LARGE
    assert "X-Object-Manifest" in head or "X-Static-Large-Object" in head
    run("rclone", "check", "--download", large.parent, "sw:rclone-large")
    run("rclone", "copy", "sw:rclone-large/large.bin", tmp_path / "back")
    assert md5(tmp_path / "back" / "large.bin") == md5(large)
    run("rclone", "purge", "sw:rclone-large")
