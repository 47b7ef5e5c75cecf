"""Rows in real databases are damaged in every way, and one pass of the audit puts them right."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path as Directory
from typing import Any

import pytest
from prometheus_client import REGISTRY

from swiftlet.model import ObjectRow
from swiftlet.names import Path
from swiftlet.placement.moving import Move, Moved, MovingObjects
from swiftlet.placement.tests.cluster import (
    ACCOUNT,
    CONTAINER,
    MemoryCluster,
    at,
    footer_of,
    memory_cluster,
    record_of,
)
from swiftlet.placement.tests.phases import bring
from swiftlet.policy_moves import Phase
from swiftlet.ring.model import Device
from swiftlet.settings import PolicySection
from swiftlet.settings.policies import Policies
from swiftlet.sync.audit.tests.auditing import Auditors, container_id, rows_of
from swiftlet.timestamp import Timestamp

NAMES = [f"o{number}" for number in range(12)]
SIZE = len(b"data")


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    """A container with a few objects, all of them listed."""
    async with memory_cluster(tmp_path) as made:
        await made.make_container()
        for name in NAMES:
            await made.put(10, path=Path(ACCOUNT, CONTAINER, name))
        yield made


async def damage(cluster: MemoryCluster, name: str, row: ObjectRow, *devices: Device) -> None:
    """Make a replica's row (all of them, if none is named) another one."""
    for device in devices or cluster.container_devices():
        seen = (await rows_of(cluster, device))[name]
        changes = [(seen, row)]
        assert await cluster.listing_transport.replace_rows(device, container_id(cluster), changes) == 1


async def assert_right(cluster: MemoryCluster, names: list[str]) -> None:
    """All replicas list exactly these objects, each as its devices have it, and count them right."""
    for device in cluster.container_devices():
        rows = await rows_of(cluster, device)
        assert sorted(rows) == sorted(names)
        for name, row in rows.items():
            path = Path(ACCOUNT, CONTAINER, name)
            assert row == ObjectRow.of(name, await cluster.objects.head(path, 0, newest=True))
        info = await cluster.listing_transport.container_info(device, cluster.container_partition(), ACCOUNT, CONTAINER)
        assert (info.object_count, info.bytes_used) == (len(names), SIZE * len(names))


def lose(cluster: MemoryCluster, device: Device, path: Path) -> None:
    """Take an object off a device."""
    key = cluster.key(path)
    entry = cluster.entry(device, key)
    assert entry is not None
    assert cluster.store(device).remove(key, entry)


def counted(what: str, kind: str) -> float:
    """What a metric says."""
    return REGISTRY.get_sample_value(f"swiftlet_listing_audit_{what}_total", {"kind": kind}) or 0.0


async def test_nothing_is_wrong_in_a_cluster_that_is_well(cluster: MemoryCluster) -> None:
    assert await Auditors(cluster).run_once() == 0
    await assert_right(cluster, NAMES)


@pytest.mark.parametrize("everywhere", [True, False])
@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("size", {"size": 99_999}),
        ("size", {"size": 1}),
        ("etag", {"etag": "f" * 32}),
        ("etag", {"etag": "0" * 32}),
        ("content-type", {"content_type": "zzz/zzz"}),
        ("content-type", {"content_type": "aaa/aaa"}),
        ("etag", {"timestamp": at(20), "etag": "0" * 32}),
        ("time", {"meta_timestamp": at(20)}),
        ("missing", {"timestamp": at(9), "deleted": True}),
        ("missing", {"timestamp": at(20), "deleted": True}),
    ],
)
async def test_a_damaged_row_is_put_right(
    cluster: MemoryCluster, kind: str, changes: dict[str, Any], everywhere: bool
) -> None:
    device = cluster.container_devices()[0]
    row = replace((await rows_of(cluster, device))["o3"], **changes).plain
    await damage(cluster, "o3", row, *([] if everywhere else [device]))
    auditors, before = Auditors(cluster), (counted("wrong", kind), counted("mended", kind))
    assert await auditors.run_once() > 0
    assert (counted("wrong", kind), counted("mended", kind)) > before
    await assert_right(cluster, NAMES)
    assert await auditors.run_once() == 0
    await assert_right(cluster, NAMES)


@pytest.mark.parametrize("tombstones", [True, False])
async def test_a_ghost_goes(cluster: MemoryCluster, tombstones: bool) -> None:
    partition = cluster.container_partition()
    row = ObjectRow("ghost", at(30), 7, "e", "t")
    path = Path(ACCOUNT, CONTAINER, "ghost")
    for device in cluster.container_devices():
        await cluster.listing_transport.update_rows(device, partition, ACCOUNT, CONTAINER, [row])
    if tombstones:
        for device in cluster.primaries(path):
            cluster.place_tombstone(device, 31, path)
    auditors = Auditors(cluster)
    assert await auditors.run_once() > 0
    await assert_right(cluster, NAMES)
    assert await auditors.run_once() == 0


async def test_a_minority_takes_nothing_back(cluster: MemoryCluster) -> None:
    """Rows stay while one primary does not answer, or while what was written is young, or a handoff has it."""
    path = Path(ACCOUNT, CONTAINER, "o5")
    for device in cluster.primaries(path)[:2]:
        lose(cluster, device, path)
    auditors = Auditors(cluster)
    with cluster.down(cluster.primaries(path)[2]):
        assert sum([await rows.run_once() for rows in auditors.rows]) == 0
    assert await auditors.run_once() == 0
    last = cluster.primaries(path)[2]
    cluster.place(cluster.handoffs(path)[0], 10, path=path)
    lose(cluster, last, path)
    assert sum([await rows.run_once() for rows in Auditors(cluster).rows]) == 0
    for device in cluster.container_devices():
        assert "o5" in await rows_of(cluster, device)


async def test_young_rows_are_left_alone(cluster: MemoryCluster) -> None:
    row = ObjectRow("young", Timestamp.at(99_950), 7, "e", "t")
    for device in cluster.container_devices():
        await cluster.listing_transport.update_rows(device, cluster.container_partition(), ACCOUNT, CONTAINER, [row])
    auditors = Auditors(cluster)
    assert await auditors.run_once() == 0
    auditors.now_s += 60
    assert await auditors.run_once() > 0
    await assert_right(cluster, NAMES)


async def test_objects_of_a_deleted_container_are_not_listed_again(cluster: MemoryCluster) -> None:
    stamp = at(50)
    gone = [ObjectRow(name, stamp, deleted=True) for name in NAMES]
    for device in cluster.container_devices():
        place = device, cluster.container_partition(), ACCOUNT, CONTAINER
        await cluster.listing_transport.update_rows(*place, gone)
        await cluster.listing_transport.delete_container(*place, at(60))
    before = REGISTRY.get_sample_value("swiftlet_listing_audit_orphans_total") or 0.0
    assert await Auditors(cluster).run_once() == 0
    assert REGISTRY.get_sample_value("swiftlet_listing_audit_orphans_total") > before  # type: ignore[operator]


async def test_a_write_during_the_audit_wins(cluster: MemoryCluster) -> None:
    """The row changes between the look and the replacement: it stays as the write made it."""
    device = cluster.container_devices()[0]
    seen = (await rows_of(cluster, device))["o1"]
    await damage(cluster, "o1", replace(seen, size=99_999))
    auditors = Auditors(cluster)
    original = cluster.listing_transport.replace_rows
    written: list[bool] = []

    async def late(*arguments: object) -> int:
        if not written:
            written.append(True)
            await cluster.put(20, b"more", path=Path(ACCOUNT, CONTAINER, "o1"))
        return await original(*arguments)  # type: ignore[arg-type]

    cluster.listing_transport.replace_rows = late  # type: ignore[method-assign, assignment]
    await auditors.run_once()
    await assert_right(cluster, NAMES)
    assert await auditors.run_once() == 0


async def test_replicas_that_answer_are_mended_while_one_does_not(cluster: MemoryCluster) -> None:
    devices = cluster.container_devices()
    row = replace((await rows_of(cluster, devices[0]))["o2"], timestamp=at(9), deleted=True).plain
    await damage(cluster, "o2", row)
    auditors = Auditors(cluster)
    with cluster.databases_down(devices[0]):
        assert sum([await objects.run_once([0]) for objects in auditors.objects]) > 0
    for device in devices[1:]:
        assert "o2" in await rows_of(cluster, device)
    assert await auditors.run_once() > 0
    await assert_right(cluster, NAMES)


@pytest.mark.parametrize("phase", Phase)
async def test_a_container_that_moves_is_left_alone(cluster: MemoryCluster, phase: Phase) -> None:
    await bring(cluster, phase)
    moved, left = Path(ACCOUNT, CONTAINER, NAMES[0]), Path(ACCOUNT, CONTAINER, NAMES[1])

    async def no_pace(_size: int) -> None:
        return None

    assert await MovingObjects(cluster.objects, Move(0, 1, 1)).move(moved, no_pace) is Moved.MOVED
    # An older version in the source, as of a device that was away.
    await cluster.objects.put(left, 1, record_of(left, at(20)), b"newer", footer_of(b"newer"))
    before = [await rows_of(cluster, device) for device in cluster.container_devices()]
    assert all(rows[str(left.obj)].size == len(b"newer") for rows in before)
    auditors = Auditors(cluster)
    assert await auditors.run_once() == 0
    for walk in auditors.objects:
        assert await walk.run_once([1]) == 0
    assert [await rows_of(cluster, device) for device in cluster.container_devices()] == before


@pytest.mark.parametrize("phase", Phase)
async def test_a_container_that_begins_to_move_while_it_is_walked_is_left_alone_from_then_on(
    cluster: MemoryCluster, phase: Phase, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [await rows_of(cluster, device) for device in cluster.container_devices()]
    compare_really, moved = cluster.listing_transport.compare_rows, 0

    async def no_pace(_size: int) -> None:
        return None

    async def moving_meanwhile(*args: Any) -> Any:
        nonlocal moved
        await bring(cluster, phase)
        for name in NAMES[:3]:
            path = Path(ACCOUNT, CONTAINER, name)
            moved += await MovingObjects(cluster.objects, Move(0, 1, 1)).move(path, no_pace) is Moved.MOVED
        return await compare_really(*args)

    auditors = Auditors(cluster)
    with monkeypatch.context() as patched:
        patched.setattr(cluster.listing_transport, "compare_rows", moving_meanwhile)
        for walk in auditors.rows:
            assert await walk.run_once() == 0
    assert moved == 3
    after = [await rows_of(cluster, device) for device in cluster.container_devices()]
    assert [sorted(rows) for rows in after] == [sorted(rows) for rows in before] == [sorted(NAMES)] * 3


async def test_a_container_is_proved_again_once_the_policy_is_retired_that_it_left(cluster: MemoryCluster) -> None:
    await bring(cluster, Phase.SETTLED)

    async def no_pace(_size: int) -> None:
        return None

    for name in NAMES:
        await MovingObjects(cluster.objects, Move(0, 1, 1)).move(Path(ACCOUNT, CONTAINER, name), no_pace)
    first, *_ = cluster.container_devices()
    row = (await rows_of(cluster, first))[NAMES[0]]
    await damage(cluster, NAMES[0], replace(row, size=99_999))
    assert await Auditors(cluster).run_once() == 0
    policies = Policies([PolicySection(index=1, name="silver", default=True)])
    assert await Auditors(cluster, in_force=policies.move_in_force).run_once() > 0
    assert (await rows_of(cluster, first))[NAMES[0]] == row
