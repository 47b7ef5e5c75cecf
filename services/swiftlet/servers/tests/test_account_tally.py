"""Which accounts hold most: by each measure, without hidden ones, and although a database or a device is unsound."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from swiftlet.listing.pool import ListingStore
from swiftlet.model import ContainerRow
from swiftlet.servers.containers import account_tally
from swiftlet.servers.containers.account_tally import LISTED, AccountTally
from swiftlet.servers.tests.listing_cluster import HASH_PATH
from swiftlet.timestamp import Timestamp
from swiftlet.web.statusz import MAX_BYTES

NOW_S = 1_800_000_000.0


@pytest.fixture
async def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ListingStore]:
    monkeypatch.setattr(account_tally, "PAUSE_S", 0)
    made = ListingStore(tmp_path, HASH_PATH)
    yield made
    await made.close()


async def hold(store: ListingStore, account: str, containers: int, objects: int, size: int, partition: int = 1) -> None:
    """Have an account with `containers`, the first of which holds all."""
    rows = [ContainerRow(f"c{number}", Timestamp(9), reported=Timestamp(9)) for number in range(1, containers)]
    first = ContainerRow("c0", Timestamp(9), object_count=objects, bytes_used=size, reported=Timestamp(9))
    await store.update_containers(partition, account, [first, *rows])


def damage(root: Path, account: str) -> None:
    """Have garbage in the place of an account's database."""
    (file,) = root.rglob(f"{HASH_PATH(account).hex()}*.db")
    file.write_bytes(b"no database")


async def test_nothing_is_said_before_the_first_walk_and_then_what_was_held(store: ListingStore) -> None:
    tally = AccountTally({"d0": store}, 300.0, lambda: NOW_S)
    await hold(store, "AUTH_a", 2, 30, 400)
    await hold(store, "AUTH_b", 1, 5, 6, partition=7)
    await hold(store, ".reaping", 1, 1, 1)
    assert tally.report() is None
    await tally.walk()
    said = {"countedAt": NOW_S, "held": {"AUTH_a": [2, 30, 400], "AUTH_b": [1, 5, 6]}}
    assert tally.report() == said
    await hold(store, "AUTH_c", 1, 1, 1)
    assert tally.report() == said
    await tally.walk()
    assert tally.report() != said


async def test_of_many_those_are_reported_that_hold_most_by_any_measure(
    store: ListingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(account_tally, "LISTED", 1)
    monkeypatch.setattr(account_tally, "_KEPT", 4)
    for number in range(6):
        await hold(store, f"AUTH_{number}", 1 + number % 3, (number * 4) % 9, (number * 7) % 9)
    await hold(store, "AUTH_many", 9, 1, 1)
    tally = AccountTally({"d0": store}, 300.0)
    await tally.walk()
    report = tally.report()
    assert report is not None
    assert report["held"] == {"AUTH_2": [3, 8, 5], "AUTH_5": [3, 2, 8], "AUTH_many": [9, 1, 1]}


async def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    before, gone = ListingStore(tmp_path / "d1", HASH_PATH), ListingStore(tmp_path / "d0", HASH_PATH)
    await hold(before, "AUTH_a", 1, 1, 1)
    await hold(before, "AUTH_b", 1, 1, 1)
    await before.close()
    await gone.close()
    damage(tmp_path, "AUTH_a")
    again = ListingStore(tmp_path / "d1", HASH_PATH)
    tally = AccountTally({"d0": gone, "d1": again}, 300.0)
    await tally.walk()
    report = tally.report()
    assert report is not None
    assert report["held"] == {"AUTH_b": [1, 1, 1]}
    await again.close()


def test_the_longest_report_fits() -> None:
    """Names have up to 256 characters; the page escapes what is not ASCII."""
    held = {"\N{SNOWMAN}" * 85 + str(number): [2**53] * 3 for number in range(3 * LISTED)}
    assert len(json.dumps(held)) < MAX_BYTES * 3 // 4
