"""Rounds between devices in one process: what is missing goes over, handoffs are returned, trouble stays local."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path as Directory

import pytest

from swiftlet.errors import NodeTimeout
from swiftlet.model import Entry, Kind, ObjectKey, PostRecord, PutRecord
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, at, memory_cluster
from swiftlet.ring.model import Device
from swiftlet.sync.moving.copies import SMALL_BYTES
from swiftlet.sync.planning.report import RoundReport
from swiftlet.sync.replicator import Replicator
from swiftlet.sync.session.messages import AskEntries, decode_request
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport
from swiftlet.testing.store.faulty_native import FaultyNativeStore
from swiftlet.testing.store.memory import MemoryStore

NAMES = [Path(ACCOUNT, CONTAINER, f"o{n}") for n in range(12)]


@pytest.fixture(params=[MemoryStore, FaultyNativeStore], ids=["memory", "native"])
async def cluster(request: pytest.FixtureRequest, tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=5) as made:
        made.stores.update({address: request.param() for address in made.stores})
        made.transport = MemoryObjectTransport(made.stores, patience_s=0.0)
        yield made
        for store in made.stores.values():
            store.close()


async def round_of(cluster: MemoryCluster, *devices: Device) -> RoundReport:
    """One round of one replicator that works for these devices."""
    worker = Replicator(lambda ring: devices, cluster.rings.objects, cluster.transport)
    return await worker.run_round([0])


async def round_of_all(cluster: MemoryCluster) -> RoundReport:
    """One round of a replicator per device, one after the other; the sum of what they did."""
    total = RoundReport()
    for device in cluster.devices:
        report = await round_of(cluster, device)
        for name in ("compared", "in_sync", "failed", "pushed", "pulled", "removed"):
            setattr(total, name, getattr(total, name) + getattr(report, name))
    return total


async def test_a_missing_object_is_pushed_with_all_that_belongs_to_it(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    cluster.place(first, 2, b"x" * 1000)
    cluster.store(first).post(cluster.key(), PostRecord(at(3), {"X-Object-Meta-A": "3"}, "text/html", at(3)))
    cluster.store(first).post(cluster.key(), PostRecord(at(4), {"X-Object-Meta-B": "4"}))
    report = await round_of(cluster, first)
    assert (report.compared, report.pushed, report.failed, report.clean) == (2, 2, 0, False)
    for device in (second, third):
        assert cluster.info(device) == cluster.info(first)
        assert cluster.entry(device) == cluster.entry(first)
    assert await cluster.read() == b"x" * 1000
    again = await round_of_all(cluster)
    assert again.clean
    assert (again.pushed, again.compared) == (0, 6)


async def test_only_metadata_is_pushed_when_the_data_are_there(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    for device in (first, second, third):
        cluster.place(device, 2)
    cluster.place_post(first, 3, {"X-Object-Meta-A": "3"})
    cluster.store(second).faults.fail("create", times=100)
    report = await round_of(cluster, first)
    assert (report.pushed, report.failed) == (2, 0)
    assert cluster.info(second) == cluster.info(first) == cluster.info(third)


async def test_metadata_and_content_type_cross_each_other(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    for device in (first, second, third):
        cluster.place(device, 2)
    cluster.store(first).post(cluster.key(), PostRecord(at(5), {"X-Object-Meta-A": "5"}))
    cluster.store(second).post(cluster.key(), PostRecord(at(4), {"X-Object-Meta-B": "4"}, "text/html", at(4)))
    await round_of_all(cluster)
    await round_of_all(cluster)
    assert (await round_of_all(cluster)).clean
    for device in (first, second, third):
        info = cluster.info(device)
        assert info is not None
        assert (info.metadata, info.content_type) == ({"X-Object-Meta-A": "5"}, "text/html")
        assert (info.meta_timestamp, info.content_type_timestamp) == (at(5), at(4))


async def test_tombstones_are_pushed_to_those_with_older_data_and_to_those_with_nothing(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    cluster.place(second, 2)
    cluster.place_tombstone(first, 3)
    assert (await round_of(cluster, first)).pushed == 2
    for device in (second, third):
        assert cluster.entry(device) == Entry(cluster.key().digest, Kind.TOMBSTONE, at(3))
    assert (await round_of_all(cluster)).clean


@pytest.mark.parametrize("who", [0, 1], ids=["deleted", "missed"])
async def test_a_deletion_with_the_timestamp_of_data_reaches_who_has_these(cluster: MemoryCluster, who: int) -> None:
    """Who moves a version to another policy deletes it so, and one device may have missed that."""
    for device in cluster.primaries():
        cluster.place(device, 2)
    first, missed, third = cluster.primaries()
    for device in (first, third):
        cluster.place_tombstone(device, 2)
    report = await round_of(cluster, (first, missed)[who])
    assert (report.pushed, report.pulled, report.failed) == ((1, 0, 0), (0, 1, 0))[who]
    for device in (first, missed, third):
        assert cluster.entry(device) == Entry(cluster.key().digest, Kind.TOMBSTONE, at(2))
    assert (await round_of_all(cluster)).clean


@pytest.mark.parametrize("older", ["data", "tombstone"])
@pytest.mark.parametrize("newer", ["data", "tombstone"])
async def test_what_is_older_never_overwrites(cluster: MemoryCluster, older: str, newer: str) -> None:
    first, second, third = cluster.primaries()
    for device, kind, second_ in ((first, older, 2.0), (second, newer, 3.0), (third, newer, 3.0)):
        if kind == "data":
            cluster.place(device, second_, kind.encode())
        else:
            cluster.place_tombstone(device, second_)
    before = cluster.entry(second)
    report = await round_of(cluster, first)
    assert (report.pushed, report.pulled, report.failed) == (0, 1, 0), "what is newer comes here instead"
    assert cluster.entry(first) == cluster.entry(second) == cluster.entry(third) == before


@pytest.mark.parametrize("is_deleted", [False, True], ids=["data", "tombstone"])
async def test_a_newer_version_that_arrives_meanwhile_wins(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    first, second, third = cluster.primaries()
    cluster.place(first, 2)
    read = cluster.transport.read_copies

    async def overtaken(device: Device, *arguments: object) -> object:
        for other in (second, third):
            if is_deleted:
                cluster.place_tombstone(other, 9)
            else:
                cluster.place(other, 9, b"newer")
        return await read(device, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster.transport, "read_copies", overtaken)
    report = await round_of(cluster, first)
    assert (report.pushed, report.failed) == (0, 0)
    for other in (second, third):
        entry = cluster.entry(other)
        assert entry is not None
        assert (entry.kind, entry.timestamp) == (Kind.TOMBSTONE if is_deleted else Kind.DATA, at(9))


async def test_an_object_that_vanishes_meanwhile_is_no_failure(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = cluster.primaries()[0]
    cluster.place(first, 2)
    read = cluster.transport.read_copies

    async def deleted(device: Device, *arguments: object) -> object:
        cluster.place_tombstone(first, 9)
        return await read(device, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster.transport, "read_copies", deleted)
    assert (await round_of(cluster, first)).failed == 0
    assert cluster.holders() == set()


@pytest.mark.parametrize("size", [0, 1, SMALL_BYTES, SMALL_BYTES + 1, 3 * SMALL_BYTES + 7])
async def test_large_objects_are_streamed(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    first = cluster.primaries()[0]
    body = random.Random(size).randbytes(size)
    cluster.place(first, 2, body)
    streamed: list[Device] = []
    open_put = cluster.transport.open_put

    async def opening(device: Device, *arguments: object) -> object:
        streamed.append(device)
        return await open_put(device, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster.transport, "open_put", opening)
    assert (await round_of(cluster, first)).pushed == 2
    assert len(streamed) == (2 if size > SMALL_BYTES else 0)
    with cluster.down(first):
        assert await cluster.read() == body


async def test_what_came_to_a_device_that_was_replaced_meanwhile_is_not_offered(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = cluster.primaries()
    for device in (first, third):
        cluster.place(device, 3, bytes(2 * SMALL_BYTES))
    get, put, put_at = cluster.transport.get, cluster.transport.put, []

    async def replaced(device: Device, *arguments: object) -> object:
        entry = cluster.entry(first)
        if device == first and entry is not None and entry.timestamp == at(3):
            assert cluster.store(first).remove(cluster.key(), entry)
            cluster.place(first, 2, b"older")
        return await get(device, *arguments)  # type: ignore[arg-type]

    async def putting(device: Device, key: ObjectKey, record: PutRecord, *arguments: object) -> object:
        put_at.append(record.timestamp)
        return await put(device, key, record, *arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster.transport, "get", replaced)
    monkeypatch.setattr(cluster.transport, "put", putting)
    assert (await round_of(cluster, first)).failed == 0
    assert at(2) not in put_at
    monkeypatch.undo()
    assert (await round_of(cluster, first)).failed == 0
    assert cluster.entry(first) == cluster.entry(second) == cluster.entry(third)


async def test_an_upload_that_breaks_off_leaves_nothing_and_comes_with_the_next_round(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    cluster.place(first, 2, bytes(2 * SMALL_BYTES))
    cluster.transport.link(second).lose_after_bytes = SMALL_BYTES
    report = await round_of(cluster, first)
    assert (report.pushed, report.failed) == (1, 1)
    assert cluster.info(second) is None
    assert cluster.info(third) is not None
    cluster.transport.link(second).lose_after_bytes = None
    assert (await round_of(cluster, first)).pushed == 1
    assert (await round_of(cluster, first)).clean


@pytest.mark.parametrize("ailment", ["unreachable", "silent", "busy", "broken"])
async def test_a_failing_peer_does_not_stop_the_round(cluster: MemoryCluster, ailment: str) -> None:
    working, failing = cluster.devices[:2]
    mine = [path for path in NAMES if working in cluster.primaries(path)]
    for path in mine:
        cluster.place(working, 2, path=path)
    if ailment == "broken":
        cluster.store(failing).faults.broken = True
    else:
        setattr(cluster.transport.link(failing), ailment, True)
    report = await round_of(cluster, working)
    assert report.failed
    assert not report.clean
    cluster.store(failing).faults.clear()
    for path in mine:
        assert cluster.holders(path) == {d.host for d in cluster.primaries(path) if d != failing}


@pytest.mark.parametrize("operation", ["scan", "open"])
async def test_a_failing_local_device_does_not_stop_the_round_of_another(
    cluster: MemoryCluster, operation: str
) -> None:
    sound, failing = cluster.devices[:2]
    for path in NAMES:
        for device in (sound, failing):
            if device in cluster.primaries(path):
                cluster.place(device, 2, path=path)
    cluster.store(failing).faults.fail(operation, times=10_000)
    assert (await round_of(cluster, sound, failing)).failed
    for path in NAMES:
        if sound in cluster.primaries(path):
            others = {d.host for d in cluster.primaries(path) if d != failing}
            assert others <= cluster.holders(path)


def in_one_partition(cluster: MemoryCluster, count: int) -> list[Path]:
    """Names of objects that fall into the same partition as the one of the other tests."""
    partition = cluster.key().partition
    names = (Path(ACCOUNT, CONTAINER, f"p{n}") for n in range(10_000))
    return [path for path in names if cluster.key(path).partition == partition][:count]


async def test_a_damaged_object_does_not_hold_up_those_behind_it(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    paths = in_one_partition(cluster, 8)
    for path in paths:
        cluster.place(first, 2, path=path)
    damaged = paths[3]
    cluster.store(first).flip_data(cluster.key(damaged))
    report = await round_of(cluster, first)
    assert report.pushed == 14
    # A store that checks before it serves has set it aside when it is asked: then there is nothing to push.
    assert report.failed in (0, 2)
    for path in paths:
        assert (cluster.info(second, path) is not None) is (path != damaged)
        assert (cluster.info(third, path) is not None) is (path != damaged)


async def test_a_full_peer_still_gets_its_tombstones(cluster: MemoryCluster) -> None:
    first, second, third = cluster.primaries()
    paths = in_one_partition(cluster, 6)
    for number, path in enumerate(paths):
        cluster.place(second, 1, path=path)
        cluster.place(third, 1, path=path)
        if number % 2:
            cluster.place_tombstone(first, 2, path)
        else:
            cluster.place(first, 2, b"newer", path)
    cluster.store(second).faults.full = True
    report = await round_of(cluster, first)
    assert (report.pushed, report.failed) == (9, 1)
    for path in paths[1::2]:
        assert cluster.info(second, path) is None


class TestHandoffs:
    """Copies that stand in for those of primaries."""

    async def test_they_are_returned_and_forgotten(self, cluster: MemoryCluster) -> None:
        handoff = cluster.handoffs()[0]
        cluster.place(handoff, 2)
        cluster.place_post(handoff, 3, {"X-Object-Meta-A": "3"})
        report = await round_of(cluster, handoff)
        assert (report.pushed, report.removed, report.failed) == (3, 1, 0)
        assert cluster.entry(handoff) is None
        for device in cluster.primaries():
            info = cluster.info(device)
            assert info is not None
            assert info.metadata == {"X-Object-Meta-A": "3"}
        again = await round_of_all(cluster)
        assert again.clean
        assert again.compared == 6, "the handoff has nothing to compare any more"

    async def test_tombstones_are_returned_too(self, cluster: MemoryCluster) -> None:
        handoff = cluster.handoffs()[0]
        for device in cluster.primaries():
            cluster.place(device, 2)
        cluster.place_tombstone(handoff, 3)
        report = await round_of(cluster, handoff)
        assert (report.pushed, report.removed) == (3, 1)
        assert cluster.holders() == set()
        assert cluster.entry(handoff) is None

    async def test_older_ones_are_forgotten_without_a_push(self, cluster: MemoryCluster) -> None:
        handoff = cluster.handoffs()[0]
        cluster.place(handoff, 2)
        for device in cluster.primaries()[:2]:
            cluster.place(device, 3, b"newer")
        cluster.place_tombstone(cluster.primaries()[2], 4)
        report = await round_of(cluster, handoff)
        assert (report.pushed, report.removed) == (0, 1)

    @pytest.mark.parametrize("lost", [0, 1, 2])
    @pytest.mark.parametrize("ailment", ["unreachable", "silent", "busy"])
    async def test_they_stay_while_one_primary_is_away(self, cluster: MemoryCluster, lost: int, ailment: str) -> None:
        handoff, away = cluster.handoffs()[0], cluster.primaries()[lost]
        cluster.place(handoff, 2)
        setattr(cluster.transport.link(away), ailment, True)
        for pushed in (2, 0):
            report = await round_of(cluster, handoff)
            assert (report.pushed, report.removed) == (pushed, 0)
            assert cluster.info(handoff) is not None
        setattr(cluster.transport.link(away), ailment, False)
        report = await round_of(cluster, handoff)
        assert (report.pushed, report.removed) == (1, 1)
        assert cluster.holders() == {device.host for device in cluster.primaries()}

    async def test_while_they_wait_they_take_tombstones(self, cluster: MemoryCluster) -> None:
        handoff, (away, second, third) = cluster.handoffs()[0], cluster.primaries()
        cluster.place(handoff, 2)
        for device in (second, third):
            cluster.place_tombstone(device, 3)
        with cluster.down(away):
            report = await round_of(cluster, handoff)
        assert report.removed == 0
        assert cluster.entry(handoff) == Entry(cluster.key().digest, Kind.TOMBSTONE, at(3))
        for device in (second, third):
            entry = cluster.entry(device)
            assert entry is not None
            cluster.store(device).remove(cluster.key(), entry)
        await round_of(cluster, handoff)
        assert cluster.holders() == set(), "also after the others have forgotten it"

    @pytest.mark.parametrize("ailment", ["broken", "full"])
    async def test_they_stay_while_one_primary_cannot_take_them(self, cluster: MemoryCluster, ailment: str) -> None:
        handoff = cluster.handoffs()[0]
        cluster.place(handoff, 2)
        setattr(cluster.store(cluster.primaries()[1]).faults, ailment, True)
        report = await round_of(cluster, handoff)
        assert (report.pushed, report.removed) == (2, 0)
        assert report.failed
        assert cluster.info(handoff) is not None

    async def test_they_stay_when_a_primary_fails_between_the_push_and_the_proof(
        self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handoff = cluster.handoffs()[0]
        cluster.place(handoff, 2)
        first, *_ = cluster.primaries()
        ask = cluster.transport.ask
        asked: list[str] = []

        async def failing_ask(device: Device, message: bytes) -> bytes:
            asked.extend([device.name] * (device == first and isinstance(decode_request(message), AskEntries)))
            if device == first and len(asked) > 1:
                raise NodeTimeout("no proof")
            return await ask(device, message)

        monkeypatch.setattr(cluster.transport, "ask", failing_ask)
        report = await round_of(cluster, handoff)
        assert (report.pushed, report.removed, report.failed) == (3, 0, 1)
        assert cluster.info(handoff) is not None
        monkeypatch.setattr(cluster.transport, "ask", ask)
        assert (await round_of(cluster, handoff)).removed == 1

    async def test_one_that_changes_meanwhile_stays(
        self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        handoff = cluster.handoffs()[0]
        cluster.place(handoff, 2)
        remove = cluster.transport.remove

        async def overtaken(*arguments: object) -> bool:
            cluster.place(handoff, 3, b"newer")
            return await remove(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(cluster.transport, "remove", overtaken)
        assert (await round_of(cluster, handoff)).removed == 0
        info = cluster.info(handoff)
        assert info is not None
        assert info.timestamp == at(3)

    async def test_what_was_written_around_a_lost_device_comes_home(self, cluster: MemoryCluster) -> None:
        away = cluster.devices[0]
        with cluster.down(away):
            for number, path in enumerate(NAMES):
                await cluster.put(10 + number, str(path).encode(), path)
        await round_of_all(cluster)
        assert (await round_of_all(cluster)).clean
        for path in NAMES:
            assert cluster.holders(path) == {device.host for device in cluster.primaries(path)}


def scatter(cluster: MemoryCluster, chooser: random.Random) -> None:
    """Some history of each object, of which every device has seen some part."""
    for path in NAMES:
        events = [(chooser.choice(("data", "data", "post", "tombstone")), second) for second in range(2, 10)]
        for device in (*cluster.primaries(path), *cluster.handoffs(path)):
            for kind, second in chooser.sample(events, chooser.randrange(len(events))):
                _apply(cluster, device, path, kind, second)


def _apply(cluster: MemoryCluster, device: Device, path: Path, kind: str, second: int) -> None:
    entry = cluster.entry(device, cluster.key(path))
    if kind == "tombstone":
        if entry is None or entry.timestamp < at(second):
            cluster.place_tombstone(device, second, path)
    elif kind == "data":
        if entry is None or entry.timestamp < at(second):
            cluster.place(device, second, f"{path} {second}".encode(), path)
    elif entry is not None and entry.kind is Kind.DATA and max(entry.timestamp, entry.meta_timestamp) < at(second):
        cluster.place_post(device, second, {"X-Object-Meta-N": str(second)}, path)


def newest(cluster: MemoryCluster, path: Path) -> Entry | None:
    """The newest data or tombstone of an object anywhere, without metadata."""
    entries = [e for device in cluster.devices if (e := cluster.entry(device, cluster.key(path)))]
    if not entries:
        return None
    best = max(entries, key=lambda entry: (entry.timestamp, entry.kind))
    return replace(best, meta_timestamp=at(0), content_type_timestamp=at(0))


@pytest.mark.parametrize("seed", range(12))
async def test_random_states_converge_within_two_rounds_and_stay(cluster: MemoryCluster, seed: int) -> None:
    scatter(cluster, random.Random(seed))
    expected = {path: newest(cluster, path) for path in NAMES}
    await round_of_all(cluster)
    assert {path: newest(cluster, path) for path in NAMES} == expected, "nothing newest is lost on the way"
    await round_of_all(cluster)
    last = await round_of_all(cluster)
    assert last.clean
    assert (last.pushed, last.removed) == (0, 0)
    for path in NAMES:
        assert newest(cluster, path) == expected[path]
        assert len({cluster.entry(device, cluster.key(path)) for device in cluster.primaries(path)}) == 1
        for device in cluster.handoffs(path):
            assert cluster.entry(device, cluster.key(path)) is None


@pytest.mark.parametrize("seed", range(6))
async def test_random_states_converge_after_rounds_with_failures(cluster: MemoryCluster, seed: int) -> None:
    chooser = random.Random(100 + seed)
    scatter(cluster, chooser)
    expected = {path: newest(cluster, path) for path in NAMES}
    for _ in range(4):
        failing = chooser.choice(cluster.devices)
        cluster.store(failing).faults.fail(chooser.choice(("commit", "scan", "open", "post", "remove")), 1, 5)
        cluster.transport.link(chooser.choice(cluster.devices)).busy = True
        await round_of_all(cluster)
        for device in cluster.devices:
            cluster.store(device).faults.clear()
            cluster.transport.link(device).busy = False
        assert {path: newest(cluster, path) for path in NAMES} == expected
    await round_of_all(cluster)
    await round_of_all(cluster)
    assert (await round_of_all(cluster)).clean
    assert {path: newest(cluster, path) for path in NAMES} == expected


async def test_devices_without_anything_are_clean(cluster: MemoryCluster) -> None:
    report = await round_of(cluster, *cluster.devices)
    assert (report.compared, report.clean) == (0, True)
