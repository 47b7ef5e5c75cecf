"""The outbox of listing rows: what it survives, and when it gives up; and rows on their way to containers."""

from __future__ import annotations

import asyncio
import errno
import os
from array import array
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import cast

import pytest

from swiftlet.errors import DeviceFailed, DiskFull, NodeUnreachable, NotFound
from swiftlet.model import ObjectRow
from swiftlet.names import HashPath
from swiftlet.peers import ListingTransport, RowFate, RowUpdate
from swiftlet.placement.row_lanes import RowLanes
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.storage.object_conformance import RowRecorder
from swiftlet.storage.outbox import Outbox
from swiftlet.storage.pool import DevicePool
from swiftlet.storage.row_updates import RowSender
from swiftlet.store.conformance import at


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


async def test_pauses_grow_and_missing_containers_are_dropped(tmp_path: Path) -> None:
    """Failures space attempts out; a container that stays missing for the reclaim age ends the wait."""
    clock, sink = Clock(), RowRecorder()
    pool = DevicePool("d1", 1, 10)
    outbox = Outbox(tmp_path / "outbox", now_s=clock)
    sender = RowSender(sink, outbox, pool, row_wait_s=1, reclaim_age_s=1000, interval_s=5, now_s=clock)
    sink.error = NodeUnreachable("down")
    assert await sender.send(RowUpdate("a", "c", (0,)), row()) is RowFate.QUEUED
    attempts = []
    for _ in range(200):
        before = sender._pauses.copy()
        await sender.drain()
        if sender._pauses != before:
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


class SlowListing:
    """Counts requests, each of which takes a moment."""

    def __init__(self) -> None:
        self.batches: list[tuple[str, int]] = []
        self.error: Exception | None = None

    async def update_rows(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow]
    ) -> None:
        await asyncio.sleep(0.01)
        if self.error is not None:
            raise self.error
        self.batches.append((device.name, len(rows)))


def container_rows(listing: SlowListing) -> RowLanes:
    devices = [Device(i, f"d{i}", "h", 1, f"d{i}", "r", f"z{i}", "n", 1.0) for i in range(3)]
    ring = Ring(1, 1, 3.0, devices, [array("H", [i, i]) for i in range(3)])
    return RowLanes(lambda: ring, cast(ListingTransport, listing), HashPath(b"p", b"s"))


async def test_rows_that_come_together_go_together() -> None:
    listing = SlowListing()
    rows = container_rows(listing)
    await asyncio.gather(*(rows.send("a", "c", 1, row(str(number))) for number in range(50)))
    assert sum(count for _, count in listing.batches) == 50
    assert len(listing.batches) <= 2
    assert {name for name, _ in listing.batches} == {"d1"}


async def test_failure_reaches_all_who_wait_and_the_next_try_works() -> None:
    listing = SlowListing()
    listing.error = NotFound("no such container")
    rows = container_rows(listing)
    results = await asyncio.gather(*(rows.send("a", "c", 0, row(str(n))) for n in range(5)), return_exceptions=True)
    assert all(isinstance(result, NotFound) for result in results)
    listing.error = None
    await rows.send("a", "c", 0, row())
    assert listing.batches == [("d0", 1)]


async def test_one_who_stops_waiting_harms_nobody() -> None:
    listing = SlowListing()
    rows = container_rows(listing)
    impatient = asyncio.create_task(rows.send("a", "c", 0, row("impatient")))
    patient = asyncio.create_task(rows.send("a", "c", 0, row("patient")))
    await asyncio.sleep(0)
    impatient.cancel()
    await patient
    assert sum(count for _, count in listing.batches) >= 1


def test_a_full_or_failed_device_says_so_in_the_domains_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outbox = Outbox(tmp_path)
    for number, kind in ((errno.ENOSPC, DiskFull), (errno.EIO, DeviceFailed)):

        def fail(_fd: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(kind):
            outbox.add("a", "c", 0, row())
    assert len(outbox) == 0
