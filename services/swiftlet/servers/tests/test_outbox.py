"""The outbox of listing rows: what it survives, and when it gives up; and rows on their way to containers."""

from __future__ import annotations

import errno
import os
from itertools import pairwise
from pathlib import Path

import pytest

from swiftlet.boundaries.objects import ContainerUpdate, UpdateOutcome
from swiftlet.errors import DeviceFailed, DiskFull, NodeUnreachable, NotFound
from swiftlet.model import ObjectRow
from swiftlet.servers.objects import outbox as outbox_module
from swiftlet.servers.objects.outbox import Outbox
from swiftlet.servers.objects.pool import DevicePool
from swiftlet.servers.objects.row_updates import RowSender
from swiftlet.testing.storage.object_conformance import RowRecorder
from swiftlet.testing.store.conformance import at


def row(name: str = "o", moment: float = 1) -> ObjectRow:
    return ObjectRow(name, at(moment), 5, "etag", "text/plain")


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000_000.0

    def __call__(self) -> float:
        return self.now_s


def test_survives_a_restart(tmp_path: Path) -> None:
    clock = Clock()
    outbox = Outbox(tmp_path / "outbox", now_s=clock)
    outbox.add("a", "c", 0, row("ünï/çødé"))
    clock.now_s += 1
    outbox.add("a", "c", 1, ObjectRow("gone", at(2), deleted=True))
    assert Outbox(tmp_path / "outbox").waiting() == outbox.waiting()
    outbox.done(outbox.waiting()[0])
    (left,) = Outbox(tmp_path / "outbox").waiting()
    assert (left.group, left.row.name, left.row.deleted) == (("a", "c", 1), "gone", True)


def test_newest_wins(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    for moment in (2, 3, 1):
        outbox.add("a", "c", 0, row(moment=moment))
    (held,) = Outbox(tmp_path / "outbox").waiting()
    assert held.row == row(moment=3)


def test_delivery_of_an_older_row_keeps_the_newer(tmp_path: Path) -> None:
    outbox = Outbox(tmp_path / "outbox")
    outbox.add("a", "c", 0, row(moment=1))
    (old,) = outbox.waiting()
    outbox.add("a", "c", 0, row(moment=2))
    outbox.done(old)
    assert [pending.row for pending in outbox.waiting()] == [row(moment=2)]


@pytest.mark.parametrize("cut", [0, 5, 20, -1])
def test_damage_is_set_aside(tmp_path: Path, cut: int) -> None:
    outbox = Outbox(tmp_path / "outbox")
    outbox.add("a", "c", 0, row("one"))
    outbox.add("a", "c", 0, row("two"))
    victim = tmp_path / "outbox" / outbox.waiting()[0].name
    victim.write_bytes(victim.read_bytes()[:cut])
    (tmp_path / "outbox" / "7.tmp").write_bytes(b"half")
    assert [pending.row.name for pending in Outbox(tmp_path / "outbox").waiting()] == ["two"]
    assert [path.suffix for path in (tmp_path / "outbox").iterdir() if path.suffix != ".row"] == [".damaged"]


def test_another_format_is_left_alone_and_counts_until_a_newer_row_replaces_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with monkeypatch.context() as future:
        future.setattr(outbox_module, "VERSION", 2)
        made = Outbox(tmp_path, limit=2)
        made.add("a", "c", 0, row("one"))
        made.add("a", "c", 0, row("two"))
        files = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    outbox = Outbox(tmp_path, limit=2)
    assert (outbox.waiting(), len(outbox), outbox.full) == ([], 2, True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == files
    assert "has format version 2, this program understands 1: run a release" in caplog.text

    outbox.add("a", "c", 0, row("one", moment=9))
    assert ([pending.row.name for pending in outbox.waiting()], len(outbox)) == (["one"], 2)
    outbox.done(outbox.waiting()[0])
    assert len(outbox) == 1
    with monkeypatch.context() as future:
        future.setattr(outbox_module, "VERSION", 2)
        assert [pending.row.name for pending in Outbox(tmp_path).waiting()] == ["two"]


async def test_pauses_grow_and_missing_containers_are_dropped(tmp_path: Path) -> None:
    """Failures space attempts out; a container that stays missing for the reclaim age ends the wait."""
    clock, sink = Clock(), RowRecorder()
    pool = DevicePool("d1", 1, 10)
    outbox = Outbox(tmp_path / "outbox", now_s=clock)
    sender = RowSender(sink, outbox, pool, row_wait_s=1, reclaim_age_s=1000, interval_s=5, now_s=clock)
    sink.error = NodeUnreachable("down")
    assert await sender.send(ContainerUpdate("a", "c", (0,)), row()) is UpdateOutcome.QUEUED
    attempts = []
    for _ in range(200):
        before = dict(sender._pauses._pauses)
        await sender.drain()
        if sender._pauses._pauses != before:
            attempts.append(clock.now_s)
        clock.now_s += 1
    gaps = [later - earlier for earlier, later in pairwise(attempts)]
    assert gaps == [5, 10, 20, 40, 80]
    sink.error = NotFound("no such container")
    clock.now_s += 500
    assert await sender.drain() == 0
    assert len(outbox) == 1
    clock.now_s += 500
    assert await sender.drain() == 1
    assert len(outbox) == 0
    pool.close()


def test_a_full_or_failed_device_says_so_in_the_domains_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox(tmp_path)
    for number, kind in ((errno.ENOSPC, DiskFull), (errno.EIO, DeviceFailed)):

        def fail(_fd: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(kind):
            outbox.add("a", "c", 0, row())
    assert len(outbox) == 0
