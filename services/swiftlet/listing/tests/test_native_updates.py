"""The native update table does what every table does, and a kill takes nothing from it."""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import cast

import pytest
from swiftlet_native import UpdateTable

from swiftlet.errors import DeviceFailed
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.schema import stored
from swiftlet.listing.tests import crash_taker
from swiftlet.model import DatabaseName, ObjectRow
from swiftlet.names import HashPath
from swiftlet.testing.storage.updates_conformance import TakingTable, UpdatesConformance


class TestNativeUpdates(UpdatesConformance):
    @pytest.fixture(autouse=True)
    def _directory(self, tmp_path: Path) -> None:
        self.directory = tmp_path

    def start(self) -> TakingTable:
        return cast("TakingTable", UpdateTable(self.directory, "d"))


@pytest.mark.parametrize("seed", range(3))
async def test_what_was_taken_survives_kills(tmp_path: Path, seed: int) -> None:
    randomness, taken, first = random.Random(seed), set[int](), 0
    for _ in range(3):
        heard = _heard_from_killed_taker(tmp_path, first, randomness.randrange(1, 200), randomness.random() * 0.02)
        taken.update(heard)
        first = max(taken) + 6 - max(taken) % 3
    store = ListingStore(tmp_path, HashPath(b"x"), make_table=lambda directory: UpdateTable(directory, "d"))
    try:
        id = store.id_of(0, DatabaseName("a", "c"))
        rows: list[ObjectRow] = await store.read(id, lambda database: database.rows("", "", 1_000_000))
        held = {row.name: row for row in rows}
        for number in taken:
            for row in crash_taker.rows_of(number):
                assert stored(held[row[0]].timestamp) >= row[1]
        await store.verify(id)
        assert (await store.container_info(0, "a", "c")).object_count == sum(not row.deleted for row in rows)
    finally:
        await store.close()


def _heard_from_killed_taker(root: Path, first: int, batches: int, more_s: float) -> set[int]:
    command = [sys.executable, crash_taker.__file__, str(root), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        heard = {int(line) for line in itertools.islice(process.stdout, batches)}
        time.sleep(more_s)
        process.kill()
        # The last line may be cut off.
        heard |= {int(line) for line in process.stdout if line.endswith("\n")}
    assert heard
    return heard


async def test_a_device_whose_journal_can_t_be_read_is_not_served(tmp_path: Path) -> None:
    (tmp_path / "updates").write_text("no directory")

    def make_table(directory: Path) -> UpdateTable:
        return UpdateTable(directory, "d")

    for _ in range(2):
        with pytest.raises(DeviceFailed, match="the journal of container updates can't be read"):
            ListingStore(tmp_path, HashPath(b"x"), make_table=make_table)
    (tmp_path / "updates").unlink()
    await ListingStore(tmp_path, HashPath(b"x"), make_table=make_table).close()
