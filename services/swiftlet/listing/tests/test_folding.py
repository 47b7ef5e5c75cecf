"""Rows that native code has taken: nobody misses them, and nothing loses them."""

from __future__ import annotations

import asyncio
import errno
import socket
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest

from swiftlet.errors import DeviceFailed, DiskFull, NotEmpty, NotFound
from swiftlet.folds import FOLDS_A_DEVICE
from swiftlet.listing import folding, late_sync, pool, shards
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.faults import DamagedDatabase
from swiftlet.listing.folding import Folding, due_in_s
from swiftlet.listing.handle import Limits
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.updates import Place, UpdateTable
from swiftlet.listing.writer import Summary
from swiftlet.model import DatabaseId, DatabaseName, ListingQuery, ObjectRow
from swiftlet.names import HashPath
from swiftlet.testing.storage.memory_updates import FOLD_ROWS, MemoryJournal, MemoryUpdates
from swiftlet.testing.storage.updates_conformance import packed_row
from swiftlet.timestamp import ZERO, Timestamp

PLACE = (0, "a", "c")
HASH_PATH = HashPath(b"x")
NEVER_S = 3600.0


class Device:
    """A device with a store and its table; `restart` is as after a kill if the store was not closed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.journal = MemoryJournal()
        self.stores: list[ListingStore] = []

    def start(self, fold_after_s: float = NEVER_S, limits: Limits | None = None) -> ListingStore:
        def make(_directory: Path) -> MemoryUpdates:
            self.table = MemoryUpdates(self.journal)
            return self.table

        store = ListingStore(self.root, HASH_PATH, limits, "d", make, fold_after_s)
        self.stores.append(store)
        return store

    async def started(self, fold_after_s: float = NEVER_S, limits: Limits | None = None) -> ListingStore:
        """Return a store with an open container."""
        store = self.start(fold_after_s, limits)
        await store.put_container(*PLACE, Timestamp(1), {}, None, 0)
        await store.update_rows(*PLACE, [ObjectRow("first", Timestamp(2), 1)])
        return store

    def take(self, name: str, at: int = 3, size: int = 1, deleted: bool = False) -> None:
        assert self.table.take(*PLACE, [packed_row(name, at, size, deleted)])

    def killed(self) -> None:
        """Leave the journal as a kill of the process at this moment would; the databases keep what is committed."""
        self.journal = MemoryJournal({number: list(rows) for number, rows in self.journal.files.items()}, 100)

    def is_open(self) -> bool:
        """Whether rows are taken for a container."""
        return self.table.status()["open"] == 1


def _due_or_never(place: Place, waiting: int, after_s: float, now_s: float) -> float:
    """By the clock, but with `NEVER_S` never: the moments of an hour begin in one test of thousands."""
    return after_s if after_s == NEVER_S else due_in_s(place, waiting, after_s, now_s)


@pytest.fixture
async def device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Device]:
    monkeypatch.setattr(folding, "due_in_s", _due_or_never)
    made = Device(tmp_path / "d")
    yield made
    for store in made.stores:
        if "is closed" not in str(store._failed):
            async with asyncio.timeout(10):
                await store.close()


def id_of(store: ListingStore) -> DatabaseId:
    return store.id_of(0, DatabaseName("a", "c"))


async def names(store: ListingStore) -> list[str]:
    return [entry.name for entry in (await store.list_objects(*PLACE, ListingQuery()))[1]]


async def test_only_a_container_with_rows_of_its_own_is_open(device: Device) -> None:
    """From its creation on, as who makes it is going to write to it; or after its first rows."""
    store = device.start()
    assert not device.is_open()
    await store.put_container(*PLACE, Timestamp(1), {}, None, 0)
    assert device.is_open()
    await store.close()
    store = device.start()
    assert not device.is_open()
    await store.post_container(*PLACE, Timestamp(2), {"K": "u"})
    assert not device.is_open(), "nobody has written there since"
    await store.update_rows(*PLACE, [ObjectRow("o", Timestamp(2), 1)])
    assert device.is_open()
    await store.post_container(*PLACE, Timestamp(3), {"K": "v"})
    assert device.is_open(), "it is opened again"
    await store.update_rows(*PLACE, [ObjectRow("o", Timestamp(3), deleted=True)])
    await store.delete_container(*PLACE, Timestamp(4))
    assert not device.is_open()
    with pytest.raises(NotFound):
        await store.update_rows(*PLACE, [ObjectRow("o", Timestamp(5), 1)])
    assert not device.is_open()


async def test_no_row_is_taken_while_another_write_waits(device: Device) -> None:
    store = await device.started()
    writing = asyncio.ensure_future(store.post_container(*PLACE, Timestamp(3), {"K": "v"}))
    await asyncio.sleep(0)
    assert not device.is_open()
    await writing
    assert device.is_open()
    rows = asyncio.ensure_future(store.update_rows(*PLACE, [ObjectRow("o", Timestamp(2), 1)]))
    aside = asyncio.ensure_future(store.write(id_of(store), lambda _: None, aside=True))
    await asyncio.sleep(0)
    assert device.is_open(), "rows merge in any order"
    await rows
    await aside


async def merge_all(store: ListingStore) -> None:
    """Merge what native code has taken, in all databases at a time."""
    assert store.table is not None
    await asyncio.gather(*(store._handle(store._id_at(place)).fold() for place in store.table.databases()))


READS: dict[str, Callable[[ListingStore], object]] = {
    "totals": lambda store: store.container_info(*PLACE),
    "listing": lambda store: store.list_objects(*PLACE, ListingQuery()),
    "summary": lambda store: store.read(id_of(store), Summary.of),
    "shard's state": lambda store: store.read(id_of(store), shards.look),
    "report": lambda store: store.read(id_of(store), lambda database: database.account_row(Timestamp(9))),
    "digest": lambda store: store.fingerprint(id_of(store)),
    "write": lambda store: store.post_container(*PLACE, Timestamp(3), {"K": "v"}),
    "recount": lambda store: store.write(id_of(store), lambda database: database.mend_counts()),
}


@pytest.mark.parametrize("what", READS)
async def test_whoever_asks_sees_what_was_taken_before(device: Device, what: str) -> None:
    store = await device.started()
    await store.fingerprint(id_of(store))
    device.take("second")
    device.take("first", 9, deleted=True)
    await READS[what](store)  # type: ignore[misc]
    assert device.table.databases() == []
    with sqlite3.connect(next(device.root.rglob("*.db"))) as plain:
        assert [name for (name,) in plain.execute("SELECT name FROM live")] == ["second"]
        assert plain.execute("SELECT row_count FROM info").fetchone() == (1,)
    plain.close()
    summary = await store.read(id_of(store), Summary.of)
    assert await store.fingerprint(id_of(store)) == summary.fingerprint
    await store.verify(id_of(store))


async def test_who_does_not_ask_for_totals_has_nothing_merged(device: Device) -> None:
    store = await device.started()
    assert (await store.container_info(*PLACE)).object_count == 1
    device.take("second")
    assert (await store.container_info(*PLACE, merged=False)).object_count == 1
    assert device.table.databases() == [PLACE]
    assert (await store.container_info(*PLACE)).object_count == 2


async def test_readers_at_once_share_a_fold(device: Device) -> None:
    store = await device.started()
    commits: list[DatabaseId] = []
    store.follow(lambda id, _: commits.append(id))
    device.take("second")
    found = await asyncio.gather(*(names(store) for _ in range(20)))
    assert found == [["first", "second"]] * 20
    assert len(commits) == 1


async def test_a_reader_that_goes_away_leaves_the_others_their_fold(device: Device) -> None:
    store = await device.started()
    device.take("second")
    first, second = asyncio.ensure_future(names(store)), asyncio.ensure_future(names(store))
    await asyncio.sleep(0)
    first.cancel()
    assert await second == ["first", "second"]


async def test_a_read_during_a_fold_waits_for_what_came_after_its_beginning(device: Device) -> None:
    store = await device.started()
    device.take("second")
    merge, took = ContainerDb.merge_rows, list[int]()

    def merging(database: ContainerDb, rows: object, forgotten: Timestamp = ZERO) -> object:
        if not took:
            device.take("third")
        took.append(1)
        return merge(database, rows, forgotten)  # type: ignore[arg-type]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ContainerDb, "merge_rows", merging)
        fold = asyncio.ensure_future(merge_all(store))
        while not took:  # noqa: ASYNC110 - the thread has no event
            await asyncio.sleep(0.001)
        assert await names(store) == ["first", "second", "third"]
        await fold


async def test_a_container_with_rows_in_the_table_is_not_empty(device: Device) -> None:
    store = await device.started()
    await store.update_rows(*PLACE, [ObjectRow("first", Timestamp(3), deleted=True)])
    device.take("second")
    with pytest.raises(NotEmpty):
        await store.delete_container(*PLACE, Timestamp(9))
    assert await names(store) == ["second"]
    device.take("second", 4, deleted=True)
    await store.delete_container(*PLACE, Timestamp(9))
    assert not device.is_open()


async def test_rows_of_a_container_that_is_gone_are_dropped(device: Device) -> None:
    store = await device.started()
    device.take("second")
    device.killed()
    await store.update_rows(*PLACE, [ObjectRow(name, Timestamp(8), deleted=True) for name in ("first", "second")])
    await store.delete_container(*PLACE, Timestamp(9))
    await store.close()
    store = device.start()
    assert device.table.has(*PLACE)
    with pytest.raises(NotFound):
        await store.container_info(*PLACE)
    assert not device.table.has(*PLACE)
    assert await store.read(id_of(store), lambda database: database.head.totals.rows) == 0


async def test_rows_of_a_database_that_was_removed_are_dropped(device: Device) -> None:
    store = await device.started()
    device.take("second")
    device.killed()
    await merge_all(store)
    assert await store.remove(id_of(store), await store.fingerprint(id_of(store)))
    assert not device.is_open()
    await store.close()
    store = device.start()
    assert device.table.has(*PLACE)
    store.start_folding()
    await _until(lambda: not device.table.has(*PLACE))
    with pytest.raises(NotFound):
        await store.container_info(*PLACE)


async def test_a_database_is_not_removed_with_rows_that_its_fingerprint_lacks(device: Device) -> None:
    store = await device.started()
    fingerprint = await store.fingerprint(id_of(store))
    device.take("second")
    assert not await store.remove(id_of(store), fingerprint)
    assert await names(store) == ["first", "second"]


async def test_a_split_container_is_closed_and_old_rows_of_it_are_strays(device: Device) -> None:
    store = await device.started()
    device.take("second")
    device.killed()

    def split(database: ContainerDb) -> int:
        return shards.add_points(database, Timestamp(5), ["m"], True)

    assert await store.write(id_of(store), split) == 1
    assert not device.is_open()
    await store.update_rows(*PLACE, [ObjectRow("b", Timestamp(2), 1)])
    assert not device.is_open()
    await store.close()
    store = device.start()
    assert await store.read(id_of(store), lambda database: database.find("second").name) == "second"
    assert not device.is_open()


async def _until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not true():  # noqa: ASYNC110 - the twin has no event
            await asyncio.sleep(0.005)


async def test_rows_are_merged_a_while_after_the_first_of_them(device: Device) -> None:
    store = await device.started(fold_after_s=0.05)
    commits: list[DatabaseId] = []
    store.follow(lambda id, _: commits.append(id))
    store.start_folding()
    device.take("second")
    device.take("third")
    await _until(lambda: not device.table.has(*PLACE))
    assert len(commits) == 1
    device.take("fourth")
    await _until(lambda: not device.table.has(*PLACE))
    assert await names(store) == ["first", "fourth", "second", "third"]


async def test_many_rows_are_merged_at_once(device: Device) -> None:
    store = await device.started()
    store.start_folding()
    device.take("first one")
    await asyncio.sleep(0.01)
    device.table.take(*PLACE, [packed_row(f"{n:06}") for n in range(FOLD_ROWS)])
    await _until(lambda: not device.table.has(*PLACE))
    assert (await store.container_info(*PLACE)).object_count == FOLD_ROWS + 2


async def test_a_start_merges_what_a_kill_has_left(device: Device) -> None:
    before = await device.started()
    device.take("second")
    device.killed()
    await before.close()
    store = device.start()
    assert device.table.databases() == [PLACE]
    store.start_folding()
    await _until(lambda: not device.table.has(*PLACE))
    assert await names(store) == ["first", "second"]


async def test_the_end_merges_all_and_leaves_an_empty_journal(device: Device) -> None:
    store = await device.started()
    device.take("second")
    assert device.journal.files
    await store.close()
    assert device.table.closed_for == "the server ends"
    assert device.journal.files == {}
    store = device.start()
    assert device.table.databases() == []
    assert await names(store) == ["first", "second"]


async def test_rows_that_do_not_fit_go_back_and_are_merged_later(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await device.started()
    merge = ContainerDb.merge_rows
    device.take("second")

    def full(*_: object) -> None:
        raise DiskFull("no space left on the device")

    monkeypatch.setattr(ContainerDb, "commit", full)
    with pytest.raises(DiskFull):
        await names(store)
    with pytest.raises(DiskFull):
        await store.container_info(*PLACE)
    assert device.table.has(*PLACE)
    monkeypatch.undo()
    assert merge is ContainerDb.merge_rows
    assert await names(store) == ["first", "second"]
    await store.verify(id_of(store))


async def test_a_full_device_takes_no_rows_and_merges_those_that_it_has(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await device.started()
    device.take("second")
    monkeypatch.setattr(pool, "_ROOM_KNOWN_S", 0.0)
    monkeypatch.setattr(store, "limits", Limits(reserve_bytes=1 << 62))
    store._room_known_until_s = 0.0
    with pytest.raises(DiskFull):
        await store.update_rows(*PLACE, [ObjectRow("third", Timestamp(3), 1)])
    assert not device.is_open()
    assert await names(store) == ["first", "second"]
    monkeypatch.undo()
    store._room_known_until_s = 0.0
    await store.update_rows(*PLACE, [ObjectRow("third", Timestamp(3), 1)])
    assert device.is_open()


async def test_rows_of_a_damaged_database_go_with_it(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await device.started()
    device.take("second")

    def damaged(*_: object) -> None:
        raise DamagedDatabase("the database is damaged")

    with monkeypatch.context() as patch:
        patch.setattr(ContainerDb, "merge_rows", damaged)
        with pytest.raises(DamagedDatabase):
            await names(store)
    assert not device.table.has(*PLACE)
    assert not device.is_open()
    with pytest.raises(NotFound):
        await names(store)
    await store.put_container(*PLACE, Timestamp(1), {}, None, 0)
    await store.update_rows(*PLACE, [ObjectRow("third", Timestamp(3), 1)])
    assert device.is_open()
    device.take("fourth")
    assert await names(store) == ["fourth", "third"]


async def test_a_failed_device_takes_no_rows_and_keeps_those_that_it_has_in_the_journal(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await device.started()
    device.take("second")

    def failed(*_: object) -> None:
        raise OSError(errno.EIO, "I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(ContainerDb, "merge_rows", failed)
        with pytest.raises(DeviceFailed):
            await names(store)
    assert not device.is_open()
    await store.close()
    store = device.start()
    assert await names(store) == ["first", "second"]


async def test_a_journal_that_fails_takes_the_device_out_of_service(device: Device) -> None:
    store = await device.started()
    store.start_folding()
    device.table.fail("it can't be synced")
    await _until(lambda: store._failed is not None)
    assert not device.is_open()
    with pytest.raises(DeviceFailed, match="can't be synced"):
        await names(store)


async def test_the_journal_stays_until_the_logs_are_synced(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    may_sync, sync = threading.Event(), late_sync._datasync

    def held(path: Path) -> None:
        assert may_sync.wait(60)
        sync(path)

    monkeypatch.setattr(late_sync, "_datasync", held)
    store = await device.started()
    device.take("second")
    assert await names(store) == ["first", "second"]
    shortening = asyncio.ensure_future(store.shorten_journal())
    await asyncio.sleep(0)
    assert device.journal.files, "the log was not synced yet"
    may_sync.set()
    await shortening
    assert device.journal.files == {}


async def test_the_journal_stays_after_a_sync_that_failed(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    store = await device.started()
    device.take("second")

    def failing(_path: Path) -> None:
        raise OSError(errno.ENOSPC, "no space")

    with monkeypatch.context() as patch:
        patch.setattr(late_sync, "_datasync", failing)
        await merge_all(store)
        await store.shorten_journal()
    assert device.journal.files
    await store.shorten_journal()
    await store.close()
    assert device.journal.files


async def _others(store: ListingStore, count: int) -> None:
    """Create and use so many other containers, whose rows native code takes from then on."""
    for number in range(count):
        await store.put_container(0, "a", f"other {number}", Timestamp(1), {}, None, 0)
        await store.update_rows(0, "a", f"other {number}", [ObjectRow("o", Timestamp(2), 1)])


async def test_rows_are_taken_for_a_database_that_is_closed_for_others(device: Device) -> None:
    store = await device.started(limits=Limits(open_databases=2))
    async with asyncio.timeout(30):
        # It is closed once its log was synced, which is some time after its rows were merged.
        while any(handle.id.digest == HASH_PATH("a", "c") for handle in store._handles.values()):
            await _others(store, 6)
    device.take("second")
    assert await names(store) == ["first", "second"]
    assert PLACE in device.table._open, "and goes on so after it was opened again"
    await store.post_container(*PLACE, Timestamp(3), {"K": "v"})
    assert PLACE in device.table._open


async def test_too_many_databases_are_not_open_to_native_code(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "TAKEN_FOR", 2)
    store = await device.started(limits=Limits(open_databases=2))
    device.take("second")
    async with asyncio.timeout(30):
        while PLACE in device.table._open or device.table.has(*PLACE):
            await _others(store, 6)
    assert len(device.table._open) <= 2 * 2 + 1
    assert await names(store) == ["first", "second"]


async def test_a_database_has_one_writer_while_more_are_folded_than_may_be_open(device: Device) -> None:
    """Two would each count on their own: all are folded while proxies ask for totals."""
    store = await device.started(limits=Limits(open_databases=2))
    await _others(store, 12)
    for number in range(8):
        for other in range(12):
            assert device.table.take(0, "a", f"other {other}", [packed_row(f"{number}", 3, 1, False)])
        asked = (store.container_info(0, "a", f"other {other}") for other in range(12))
        found = await asyncio.gather(merge_all(store), *asked)
        assert [info.object_count for info in found[1:] if info is not None] == [number + 2] * 12
    assert len(store._handles) <= 12 + 1


NOW_S = 1_800_000_000.25


@pytest.mark.parametrize("waiting", [0, 1, 25, 26, 100, 990, 1_600, 50_000])
def test_replicas_are_folded_at_the_same_moments(waiting: int) -> None:
    """Whatever their partition's number, and whenever their first row came."""
    longest_s = min(32, 2 ** max(0, (waiting - 1) // 25).bit_length())
    moments = set()
    for late_s in (0.0, 0.3, 0.99):
        in_s = due_in_s((3, "a", "c"), waiting, 1.0, NOW_S + late_s)
        assert 0 < in_s <= longest_s
        moments.add(round(NOW_S + late_s + in_s, 3))
    assert len(moments) <= 2
    assert all((moment - min(moments)) % longest_s == 0 for moment in moments)
    assert due_in_s((9, "a", "c"), waiting, 1.0, NOW_S) == due_in_s((3, "a", "c"), waiting, 1.0, NOW_S)


def test_replicas_on_devices_with_unlike_much_to_do_meet_at_the_later_moments() -> None:
    for name in map(str, range(50)):
        late = NOW_S + due_in_s((3, "a", name), 990, 1.0, NOW_S)
        moment = NOW_S
        while moment < late - 1e-3:
            moment += due_in_s((3, "a", name), 110, 1.0, moment + 1e-6)
        assert moment == pytest.approx(late, abs=1e-3)


@pytest.mark.parametrize("waiting", [100, 800])
def test_many_databases_are_folded_one_after_the_other(waiting: int) -> None:
    in_s = [due_in_s((3, "a", str(number)), waiting, 1.0, NOW_S) for number in range(waiting)]
    each_second = [sum(second < one <= second + 1 for one in in_s) for second in range(64)]
    assert max(each_second) < 2 * FOLDS_A_DEVICE


async def test_the_clock_folds_each_database_once(device: Device) -> None:
    folded: list[str] = []
    rows = _Rows(3 * FOLDS_A_DEVICE)
    clock = Folding(cast("UpdateTable", rows), lambda place: folded.append(place[2]), print, 0.1)
    clock.start()
    await _until(lambda: len(folded) == 3 * FOLDS_A_DEVICE)
    assert len(set(folded)) == 3 * FOLDS_A_DEVICE
    clock.stop()
    rows.close()


async def test_rows_that_came_during_a_fold_wait_for_the_next_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whichever of both the loop hears of first, the end of the fold or the first row since it began."""
    monkeypatch.setattr(folding, "due_in_s", _due_or_never)
    folded: list[str] = []
    rows = _Rows(1)
    clock = Folding(cast("UpdateTable", rows), lambda place: folded.append(place[2]), print, NEVER_S)
    clock.start()
    clock.folded((0, "a", "0"))
    await _until(lambda: not rows._due)
    assert folded == []
    clock.stop()
    rows.close()


class _Rows:
    """A table in which many containers get their first row at once."""

    def __init__(self, count: int) -> None:
        self._due = [(0, "a", str(number)) for number in range(count)]
        self._bell, self._rope = socket.socketpair()
        self._rope.send(b"x")

    def fileno(self) -> int:
        return self._bell.fileno()

    def close(self) -> None:
        self._bell.close()
        self._rope.close()

    def failed(self) -> None:
        return None

    def has(self, *_place: object) -> bool:
        return True

    def databases(self) -> list[Place]:
        return []

    def due(self) -> list[tuple[Place, bool]]:
        self._bell.recv(1)
        due, self._due = self._due, []
        return [(place, False) for place in due]


async def test_what_could_not_be_merged_is_tried_again(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folding, "SWEEP_S", 0.02)
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    store = await device.started(fold_after_s=0.01)
    running = asyncio.ensure_future(store.run_folding())
    with monkeypatch.context() as patch:

        def full(*_: object) -> None:
            raise DiskFull("no space left on the device")

        patch.setattr(ContainerDb, "commit", full)
        device.take("second")
        await _until(lambda: bool(reported))
        await asyncio.sleep(0.1)
    assert len(reported) == 1, "it is logged once"
    await _until(lambda: not device.table.has(*PLACE))
    assert await names(store) == ["first", "second"]
    await _until(lambda: device.journal.files == {})
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
