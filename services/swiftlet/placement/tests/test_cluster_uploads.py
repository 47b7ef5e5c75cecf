"""Streamed uploads to a whole cluster: devices lost, slow, or unwilling at any stage."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from swiftlet.boundaries.objects import MAX_SENT_BYTES, ContainerUpdate
from swiftlet.errors import ChecksumMismatch, NodeTimeout, SizeMismatch, Superseded, Unavailable
from swiftlet.model import ObjectKey, PutFooter, PutRecord
from swiftlet.placement.fanout import drain_background
from swiftlet.placement.outcomes import Written
from swiftlet.placement.tests.cluster import PATH, MemoryCluster, at, footer_of, memory_cluster, record_of
from swiftlet.placement.transfers import ReplicatedUpload, Upload
from swiftlet.ring.model import Device
from swiftlet.testing.storage.memory_objects import MemoryPutStream

BODY = bytes(range(256)) * 1024
CHUNK = 16 * 1024


async def begin(cluster: MemoryCluster, second: float = 2) -> Upload:
    return await cluster.objects.upload(PATH, 0, record_of(PATH, at(second)), len(BODY))


async def finish(upload: Upload, halfway: Callable[[], None] = lambda: None) -> Written:
    for start in range(0, len(BODY), CHUNK):
        if start == len(BODY) // 2:
            halfway()
        await upload.write(BODY[start : start + CHUNK])
    return await upload.commit(footer_of(BODY))


async def everybody_was_told(cluster: MemoryCluster) -> None:
    for device in cluster.container_devices():
        assert await cluster.listed(device) == ["o"]


async def test_an_upload_reaches_all(cluster: MemoryCluster) -> None:
    await finish(await begin(cluster))
    assert len(cluster.holders()) == 3
    await everybody_was_told(cluster)
    assert await cluster.read() == BODY


async def test_a_device_that_is_down_from_the_start_is_replaced(cluster: MemoryCluster) -> None:
    with cluster.down(cluster.primaries()[0]):
        await finish(await begin(cluster))
    assert cluster.holders() == {device.host for device in (*cluster.primaries()[1:], cluster.handoffs()[0])}
    await everybody_was_told(cluster)


@pytest.mark.parametrize("lost", [0, 1, 2])
async def test_a_device_lost_in_the_middle_costs_a_copy_but_no_row(cluster: MemoryCluster, lost: int) -> None:
    device = cluster.primaries()[lost]

    def lose() -> None:
        cluster.transport.link(device).unreachable = True

    written = await finish(await begin(cluster), lose)
    assert not written.container_missing
    assert cluster.holders() == {other.host for other in cluster.primaries() if other is not device}
    await everybody_was_told(cluster)


async def test_a_device_lost_at_the_commit_costs_a_copy_but_no_row(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, suppress_after=1) as cluster:
        await cluster.make_container()
        broken, full, sound = cluster.primaries()
        cluster.store(broken).faults.fail("commit")
        await finish(await begin(cluster))
        assert cluster.holders() == {full.host, sound.host}
        await everybody_was_told(cluster)
        assert cluster.health.suppressed(broken)


async def test_devices_that_fail_at_the_commit_are_trouble_and_not_a_decision(cluster: MemoryCluster) -> None:
    for device in cluster.primaries()[:2]:
        cluster.store(device).faults.fail("commit")
    with pytest.raises(Unavailable, match=r"2 replicas must answer, 1 did .*injected I/O error"):
        await finish(await begin(cluster))


async def test_two_devices_lost_in_the_middle_fail_the_upload_and_leave_nothing(cluster: MemoryCluster) -> None:
    def lose() -> None:
        for device in cluster.primaries()[:2]:
            cluster.transport.link(device).lose_after_bytes = len(BODY) // 2

    with pytest.raises(Unavailable, match="was lost in the middle"):
        await finish(await begin(cluster), lose)
    assert cluster.holders() == set()
    for device in cluster.container_devices():
        assert await cluster.listed(device) == []


async def test_an_upload_that_is_given_up_leaves_nothing(cluster: MemoryCluster) -> None:
    upload = await begin(cluster)
    await upload.write(BODY)
    await upload.abort()
    await upload.abort()
    assert cluster.holders() == set()


async def test_too_few_devices_ready_fail_the_upload_before_the_first_byte(tmp_path: Path) -> None:
    async with memory_cluster(tmp_path, devices=4) as cluster:
        await cluster.make_container()
        with cluster.down(*cluster.primaries()), pytest.raises(Unavailable, match="2 replicas must answer, 1 did"):
            await begin(cluster)


async def test_a_device_that_takes_no_more_is_dropped_after_the_write_timeout(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck = cluster.primaries()[1]
    waits: list[str] = []

    async def slow(stream: MemoryPutStream) -> None:
        if stream._device == stuck:
            waits.append(stuck.name)
            await asyncio.Event().wait()

    monkeypatch.setattr(MemoryPutStream, "room", slow)
    await finish(await begin(cluster))
    assert waits == [stuck.name], "only the first chunk waited for it"
    assert cluster.holders() == {device.host for device in cluster.primaries() if device is not stuck}
    await everybody_was_told(cluster)


async def test_a_slow_device_is_waited_for_while_bytes_of_it_move(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, lefts = cluster.primaries()[1], [4, 3, 2]

    async def wait(stream: MemoryPutStream) -> None:
        if stream._device == slow and lefts:
            lefts.pop(0)
            await asyncio.Event().wait()

    monkeypatch.setattr(MemoryPutStream, "room", wait)
    monkeypatch.setattr(MemoryPutStream, "waiting", property(lambda stream: lefts[0] if lefts else 0))
    await finish(await begin(cluster))
    assert not lefts, "each wait ended by its timeout"
    assert cluster.holders() == {device.host for device in cluster.primaries()}


async def test_each_device_has_a_chunk_before_any_of_them_is_waited_for(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[tuple[str, int]] = []
    send = MemoryPutStream.send

    def sent(stream: MemoryPutStream, chunk: bytes) -> bool:
        steps.append(("sent", len(chunk)))
        return send(stream, chunk)

    async def waited(stream: MemoryPutStream) -> None:
        steps.append(("waited", 0))

    monkeypatch.setattr(MemoryPutStream, "send", sent)
    monkeypatch.setattr(MemoryPutStream, "room", waited)
    upload = await begin(cluster)
    await upload.write(bytes(MAX_SENT_BYTES + 1))
    await upload.abort()
    turns = [[("sent", size)] * 3 + [("waited", 0)] * 3 for size in (MAX_SENT_BYTES, 1)]
    assert steps == turns[0] + turns[1]


async def test_a_device_that_is_ready_too_late_is_let_go_and_blames_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with memory_cluster(tmp_path, suppress_after=1) as cluster:
        await cluster.make_container()
        late, released = cluster.primaries()[2], asyncio.Event()
        opened: list[Device] = []
        open_put = cluster.transport.open_put

        async def slow(
            device: Device, key: ObjectKey, record: PutRecord, size: int | None, row: ContainerUpdate | None
        ) -> MemoryPutStream:
            opened.append(device)
            if device == late:
                await released.wait()
            return await open_put(device, key, record, size, row)

        monkeypatch.setattr(cluster.transport, "open_put", slow)
        upload = await begin(cluster)
        released.set()
        await finish(upload)
        await drain_background(5)
        assert set(opened) == set(cluster.primaries())
        assert cluster.holders() == {device.host for device in cluster.primaries() if device is not late}
        assert not any(cluster.health.suppressed(device) for device in cluster.devices)
        await everybody_was_told(cluster)


async def test_an_upload_cancelled_while_it_opens_lets_go_of_what_is_open(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    aborted: list[str] = []
    ready: list[Device] = []
    waiting, opened = asyncio.Event(), asyncio.Event()
    stuck = cluster.primaries()[2]
    open_put, abort = cluster.transport.open_put, MemoryPutStream.abort

    async def opening(
        device: Device, key: ObjectKey, record: PutRecord, size: int | None, row: ContainerUpdate | None
    ) -> MemoryPutStream:
        if device == stuck:
            waiting.set()
            await asyncio.Event().wait()
        stream = await open_put(device, key, record, size, row)
        ready.append(device)
        if len(ready) == 2:
            asyncio.get_running_loop().call_soon(opened.set)
        return stream

    async def aborting(stream: MemoryPutStream) -> None:
        aborted.append(stream._device.name)
        await abort(stream)

    monkeypatch.setattr(cluster.transport, "open_put", opening)
    monkeypatch.setattr(MemoryPutStream, "abort", aborting)
    monkeypatch.setattr(cluster.objects, "_write_timeout_s", 60.0)
    task = asyncio.create_task(begin(cluster))
    await waiting.wait()
    await opened.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert sorted(aborted) == sorted(device.name for device in cluster.primaries()[:2])


@pytest.mark.parametrize("stage", ["open", "commit"])
async def test_superseded_by_a_quorum(cluster: MemoryCluster, stage: str) -> None:
    def overtake() -> None:
        for device in cluster.primaries()[:2]:
            cluster.place(device, 5)

    if stage == "open":
        overtake()
    with pytest.raises(Superseded) as caught:
        await finish(await begin(cluster), overtake if stage == "commit" else lambda: None)
    assert caught.value.timestamp == at(5)


@pytest.mark.parametrize("stage", ["open", "commit"])
async def test_superseded_by_a_minority_is_a_success(cluster: MemoryCluster, stage: str) -> None:
    def overtake() -> None:
        cluster.place(cluster.primaries()[0], 5)

    if stage == "open":
        overtake()
    await finish(await begin(cluster), overtake if stage == "commit" else lambda: None)
    assert len(cluster.holders()) == 3
    await everybody_was_told(cluster)


@pytest.mark.parametrize(
    ("footer", "error"),
    [
        (PutFooter(len(BODY), footer_of(BODY).etag, footer_of(b"other").xxh3), ChecksumMismatch),
        (PutFooter(len(BODY) - 1, footer_of(BODY).etag, footer_of(BODY).xxh3), SizeMismatch),
    ],
)
async def test_bytes_that_are_not_those_announced_are_refused(
    cluster: MemoryCluster, footer: PutFooter, error: type[Exception]
) -> None:
    upload = await begin(cluster)
    await upload.write(BODY)
    with pytest.raises(error):
        await upload.commit(footer)
    assert cluster.holders() == set()


async def test_one_replica_that_got_other_bytes_is_outvoted(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    garbled = cluster.primaries()[0]
    send = MemoryPutStream.send

    def garble(stream: MemoryPutStream, chunk: bytes) -> bool:
        return send(stream, bytes(len(chunk)) if stream._device == garbled else chunk)

    monkeypatch.setattr(MemoryPutStream, "send", garble)
    await finish(await begin(cluster))
    assert cluster.holders() == {device.host for device in cluster.primaries()[1:]}
    await everybody_was_told(cluster)


async def test_a_missing_container_is_reported_and_not_told_of_the_row(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.listings.delete_container("AUTH_test", "c", at(1.5))
    assert (await finish(await begin(cluster))).container_missing


async def test_a_silent_device_ends_with_its_own_timeout(cluster: MemoryCluster) -> None:
    cluster.transport.link(cluster.primaries()[0]).silent = True
    upload = await begin(cluster)
    assert isinstance(upload, ReplicatedUpload)
    assert isinstance(upload._history.troubles[0][1], NodeTimeout)
    await finish(upload)
    assert len(cluster.holders()) == 3
