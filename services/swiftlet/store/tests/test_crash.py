"""A process that is killed while it writes: what it acknowledged is there, whole; nothing else half is.

Fault model: SIGKILL between any two system calls, at every named point of the store and at random moments. The
page cache survives, so this finds wrong orders and half states, not missing syncs; for those
`test_directories_are_synced_before_the_answer` looks at the calls themselves.
"""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import swiftlet.store.tests.crash_child as child
from swiftlet.model import Kind
from swiftlet.store import failpoints, plain, plain_device, plain_files
from swiftlet.store.plain import PlainStore
from swiftlet.store.protocol import Store
from swiftlet.testing.store.conformance import content, key_of, put
from swiftlet.testing.store.memory import MemoryStore

POINTS = sorted(
    {
        point
        for module in (plain, plain_device, plain_files)
        for point in re.findall(r'reach\("([a-z-]+)"\)', Path(str(module.__file__)).read_text())
    }
)
STEPS = 60


def run_child(root: Path, seed: int, failpoint: str | None, kill_after_s: float | None) -> int:
    """Run the child until it dies; how many steps it acknowledged."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    if failpoint:
        environment[failpoints.ENVIRONMENT] = failpoint
    process = subprocess.Popen(
        [sys.executable, child.__file__, str(root), str(STEPS), str(seed)],
        stdout=subprocess.PIPE,
        env=environment,
    )
    assert process.stdout is not None
    lines = [process.stdout.readline()]  # The child is at work once it has acknowledged a step.
    if kill_after_s is not None:
        time.sleep(kill_after_s)
        process.kill()
    lines += process.stdout.readlines()
    process.stdout.close()
    code = process.wait()
    assert code in (-signal.SIGKILL, 0), "the child failed on its own"
    return len([line for line in lines if line])


def visible(store: Store) -> list[tuple[object, ...]]:
    """Everything that can be seen of the child's keys."""
    found: list[tuple[object, ...]] = []
    for number in range(child.KEYS):
        key = key_of(number)
        entry = store.entries(0, 7, key.suffix)
        data = b""
        if entry and entry[0].kind is Kind.DATA:
            store.verify(key)
            data = content(store, key)
            found.append((store.stat(key).metadata, store.stat(key).content_type))
        found.append((number, tuple(entry), data))
    return found


def check(root: Path, seed: int, acknowledged: int) -> None:
    """The device holds the acknowledged steps, and the one under way either wholly or not at all."""
    steps = child.plan(STEPS, seed)
    before, after = MemoryStore(), MemoryStore()
    for step in steps[:acknowledged]:
        step.apply(before)
    for step in steps[: acknowledged + 1]:
        step.apply(after)
    store = PlainStore(root)
    try:
        assert os.listdir(root / "tmp") == []
        assert os.listdir(root / "quarantined") == []
        seen = visible(store)
        assert seen in (visible(before), visible(after))
        twin = before if seen == visible(before) else after
        assert store.suffix_hashes(0, 7) == twin.suffix_hashes(0, 7)
        put(store, key_of(0), STEPS + 1, b"life goes on")
        assert content(store, key_of(0)) == b"life goes on"
    finally:
        store.close()


@pytest.mark.parametrize("nth", [1, 9])
@pytest.mark.parametrize("point", POINTS)
def test_killed_at_a_point(tmp_path: Path, point: str, nth: int) -> None:
    acknowledged = run_child(tmp_path, seed=7, failpoint=f"{point}:{nth}", kill_after_s=None)
    assert acknowledged < STEPS or (point, nth) == ("made-directory", 9)
    check(tmp_path, 7, acknowledged)


@pytest.mark.parametrize("seed", range(5))
def test_killed_at_a_random_moment(tmp_path: Path, seed: int) -> None:
    delay_s = random.Random(seed).uniform(0, 0.08)
    check(tmp_path, seed, run_child(tmp_path, seed, failpoint=None, kill_after_s=delay_s))
