"""Random histories of a container whose rows are partly taken natively: each read shows the newest of all that was
answered, whatever failed in between.
"""

from __future__ import annotations

import asyncio
import random
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import cast

import pytest
from swiftlet_native import UpdateTable as NativeTable

from swiftlet.errors import DiskFull, NotEmpty
from swiftlet.listing import folding
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.handle import Limits
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseId, DatabaseName, ListingQuery, ObjectRow
from swiftlet.names import HashPath
from swiftlet.testing.storage.memory_updates import MemoryJournal, MemoryUpdates
from swiftlet.testing.storage.updates_conformance import TakingTable, packed_row
from swiftlet.timestamp import Timestamp

PLACE = (0, "a", "c")
STEPS = 120
NAMES = [f"o{number}" for number in range(12)]


class History:
    """A store, and what its container has to show."""

    def __init__(self, root: Path, seed: int, native: bool) -> None:
        self.root = root
        self.random = random.Random(seed)
        self.native = native
        self.journal = MemoryJournal()
        self.known: dict[str, tuple[int, bool]] = {}
        """By name the timestamp, and whether it was removed."""
        self.clock = 10
        self.taken = 0

    async def start(self) -> None:
        def make(directory: Path) -> TakingTable:
            table = NativeTable(directory, "d") if self.native else MemoryUpdates(self.journal)
            self.table = cast("TakingTable", table)
            return self.table

        limits = Limits(open_databases=2)
        self.store = ListingStore(self.root, HashPath(b"x"), limits, "d", make, fold_after_s=0.003)
        self.running = asyncio.ensure_future(self.store.run_folding())

    async def stop(self) -> None:
        self.running.cancel()
        await asyncio.gather(self.running, return_exceptions=True)
        await self.store.close()

    @property
    def id(self) -> DatabaseId:
        return self.store.id_of(0, DatabaseName("a", "c"))

    def _row(self) -> tuple[str, int, bool]:
        self.clock += 1
        # Some rows come late: newer ones are known already.
        at = self.clock - self.random.choice([0, 0, 0, 5]) * 2 + 1
        return self.random.choice(NAMES), at, self.random.random() < 0.4

    def _note(self, name: str, at: int, deleted: bool) -> None:
        known = self.known.get(name)
        if known is None or (at, deleted) > known:
            self.known[name] = at, deleted

    async def take(self) -> None:
        rows = [self._row() for _ in range(self.random.randrange(1, 6))]
        if await asyncio.to_thread(self.table.take, *PLACE, [packed_row(*_fields(row)) for row in rows]):
            self.taken += 1
            for row in rows:
                self._note(*row)

    async def bring(self) -> None:
        rows = [self._row() for _ in range(self.random.randrange(1, 6))]
        later = self.random.random() < 0.5
        objects = [ObjectRow(name, Timestamp(at), 1, "etag", "text/plain", deleted).plain for name, at, deleted in rows]
        await self.store.update_rows(*PLACE, objects, later)
        for row in rows:
            self._note(*row)

    async def post(self) -> None:
        self.clock += 1
        await self.store.post_container(*PLACE, Timestamp(self.clock), {"K": str(self.clock)})

    async def read(self) -> None:
        info, page = await self.store.list_objects(*PLACE, ListingQuery())
        wanted = sorted(name for name, (_, deleted) in self.known.items() if not deleted)
        assert [entry.name for entry in page] == wanted
        assert info.object_count == len(wanted)

    async def compare(self) -> None:
        before = await self.store.fingerprint(self.id)
        held: list[ObjectRow] = await self.store.read(self.id, lambda database: database.rows("", "", 1000))
        assert {row.name: (row.timestamp.value, row.deleted) for row in held} == self.known
        assert await self.store.fingerprint(self.id) == before

    async def delete(self) -> None:
        self.clock += 20
        live = [name for name, (_, deleted) in self.known.items() if not deleted]
        if live:
            with pytest.raises(NotEmpty):
                await self.store.delete_container(*PLACE, Timestamp(self.clock))
        else:
            await self.store.delete_container(*PLACE, Timestamp(self.clock))
            self.clock += 1
            await self.store.put_container(*PLACE, Timestamp(self.clock), {}, None, 0)

    async def others(self) -> None:
        for number in range(3):
            await self.store.put_container(0, "a", f"other {number}", Timestamp(1), {}, None, 0)

    async def full(self) -> None:
        """For a moment nothing can be committed."""
        with pytest.MonkeyPatch.context() as patch:

            def fails(_: ContainerDb) -> None:
                raise DiskFull("no space left on the device")

            patch.setattr(ContainerDb, "commit", fails)
            await self.take()
            await asyncio.sleep(0.006)

    async def pause(self) -> None:
        await asyncio.sleep(self.random.random() * 0.01)

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def kill(self) -> None:
        """Go on with the journal as it is now; the databases have at least what was committed until then."""
        directory, copy = self.root / "updates", self.root.with_name("copy")
        if self.native:
            shutil.copytree(directory, copy)
        else:
            files = {number: list(rows) for number, rows in self.journal.files.items()}
            left = MemoryJournal(files, self.journal.current + 1)
        await self.stop()
        if self.native:
            shutil.rmtree(directory)
            copy.rename(directory)
        else:
            self.journal = left
        await self.start()


def _fields(row: tuple[str, int, bool]) -> tuple[str, int, int, bool]:
    return row[0], row[1], 1, row[2]


@pytest.fixture
async def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "SWEEP_S", 0.01)
    # Rows that can't be merged are reported there.
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)


@pytest.mark.parametrize("native", [False, True], ids=["twin", "native"])
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.usefixtures("quick")
async def test_each_read_shows_the_newest_of_all_that_was_answered(tmp_path: Path, seed: int, native: bool) -> None:
    history = History(tmp_path / "d", seed, native)
    await history.start()
    try:
        await history.store.put_container(*PLACE, Timestamp(1), {}, None, 0)
        for _ in range(STEPS):
            step = history.random.choice(_STEPS)
            await step(history)
        await history.read()
        await history.compare()
        await history.store.verify(history.id)
        assert history.taken > STEPS // 20
    finally:
        await history.stop()


_STEPS: list[Callable[[History], Awaitable[None]]] = [
    *[History.take] * 8,
    *[History.bring] * 4,
    *[History.read] * 4,
    *[History.pause] * 4,
    *[History.compare] * 2,
    History.post,
    History.delete,
    History.others,
    History.full,
    History.restart,
    History.kill,
]
