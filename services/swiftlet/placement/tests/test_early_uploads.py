"""Uploads whose first bytes are sent while devices are asked whether they take the object."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from swiftlet.boundaries.objects import ContainerUpdate, PutStream
from swiftlet.errors import NodeUnreachable, Superseded, Unavailable
from swiftlet.model import ObjectKey, PutRecord
from swiftlet.placement.early import EARLY_BYTES, EarlyUpload
from swiftlet.placement.tests.cluster import PATH, MemoryCluster, at, footer_of, record_of
from swiftlet.ring.model import Device
from swiftlet.testing.storage.memory_objects import MemoryPutStream, WaitingPutStream

BODY = bytes(range(256)) * 1024
LARGE = BODY * (EARLY_BYTES // len(BODY) + 2)
CHUNK = 256 * 1024


async def begin(cluster: MemoryCluster, body: bytes = BODY) -> EarlyUpload:
    upload = await cluster.objects.begin_upload(PATH, 0, record_of(PATH, at(2)), len(body))
    assert isinstance(upload, EarlyUpload)
    return upload


async def send(upload: EarlyUpload, body: bytes) -> None:
    for start in range(0, len(body), CHUNK):
        await upload.write(body[start : start + CHUNK])


async def finish(upload: EarlyUpload, body: bytes) -> None:
    await send(upload, body)
    await upload.commit(footer_of(body))


async def store(cluster: MemoryCluster, body: bytes) -> None:
    await finish(await begin(cluster, body), body)


class Silence:
    """Devices that say only when they may whether they take an object."""

    def __init__(self, cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, *devices: Device) -> None:
        """Let these devices be silent."""
        self.over = asyncio.Event()
        accepted = cluster.transport._accepted

        async def silent(
            device: Device, key: ObjectKey, record: PutRecord, size: int | None, row: ContainerUpdate | None
        ) -> MemoryPutStream:
            if device in devices:
                await self.over.wait()
            return await accepted(device, key, record, size, row)

        monkeypatch.setattr(cluster.transport, "_accepted", silent)


async def until_it_waits(task: asyncio.Task[None]) -> None:
    """Let everything go on that can."""
    for _ in range(100):
        await asyncio.sleep(0)
    assert not task.done()


@pytest.mark.parametrize("body", [BODY, LARGE])
async def test_it_reaches_all(cluster: MemoryCluster, body: bytes) -> None:
    await store(cluster, body)
    assert cluster.holders() == {device.host for device in cluster.primaries()}
    assert await cluster.read() == body
    for device in cluster.container_devices():
        assert await cluster.listed(device) == ["o"]


@pytest.mark.parametrize("body", [BODY, LARGE])
async def test_a_device_that_is_down_is_replaced_and_the_other_one_gets_all_bytes(
    cluster: MemoryCluster, body: bytes
) -> None:
    with cluster.down(cluster.primaries()[0]):
        await store(cluster, body)
    assert cluster.holders() == {device.host for device in (*cluster.primaries()[1:], cluster.handoffs()[0])}


@pytest.mark.parametrize("body", [BODY, LARGE])
async def test_a_full_device_is_replaced(cluster: MemoryCluster, body: bytes) -> None:
    cluster.store(cluster.primaries()[0]).faults.full = True
    await store(cluster, body)
    assert cluster.holders() == {device.host for device in (*cluster.primaries()[1:], cluster.handoffs()[0])}


async def test_a_device_that_is_lost_before_it_answers_is_replaced(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[PutStream] = []

    def lose(stream: WaitingPutStream, chunk: bytes) -> bool:
        if not lost or lost[0] is stream:
            lost[:] = [stream]
            raise NodeUnreachable("it was lost")
        return send_to(stream, chunk)

    send_to: Callable[[WaitingPutStream, bytes], bool] = WaitingPutStream.send
    monkeypatch.setattr(WaitingPutStream, "send", lose)
    await store(cluster, BODY)
    assert len(cluster.holders()) == 3
    assert cluster.handoffs()[0].host in cluster.holders()


async def test_too_few_devices_fail_it_and_it_is_not_known_to_be_open(cluster: MemoryCluster) -> None:
    with cluster.down(*cluster.devices):
        upload = await begin(cluster)
        with pytest.raises(Unavailable, match="2 replicas must answer, 0 did"):
            await finish(upload, BODY)
        assert not upload.is_open
        await upload.abort()
    assert cluster.holders() == set()


@pytest.mark.parametrize("body", [BODY, LARGE])
async def test_something_newer_is_found_while_devices_are_asked(cluster: MemoryCluster, body: bytes) -> None:
    for device in cluster.primaries():
        cluster.place(device, 5, b"newer")
    upload = await begin(cluster, body)
    with pytest.raises(Superseded):
        await finish(upload, body)
    assert not upload.is_open
    await upload.abort()
    assert await cluster.read() == b"newer"


async def test_more_than_is_held_waits_for_a_quorum(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    silence = Silence(cluster, monkeypatch, *cluster.primaries())
    upload = await begin(cluster, LARGE)
    await send(upload, LARGE[:EARLY_BYTES])
    task = asyncio.create_task(send(upload, LARGE[EARLY_BYTES:]))
    await until_it_waits(task)
    silence.over.set()
    await task
    await upload.commit(footer_of(LARGE))
    assert await cluster.read() == LARGE


async def test_it_is_finished_before_anybody_has_answered(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed: list[WaitingPutStream] = []
    commit = WaitingPutStream.commit

    def noted(stream: WaitingPutStream, footer: object) -> object:
        committed.append(stream)
        return commit(stream, footer)  # type: ignore[arg-type]

    monkeypatch.setattr(WaitingPutStream, "commit", noted)
    silence = Silence(cluster, monkeypatch, *cluster.primaries())
    task = asyncio.create_task(store(cluster, BODY))
    await until_it_waits(task)
    assert len(committed) == 3
    silence.over.set()
    await task
    assert len(committed) == 3
    assert len(cluster.holders()) == 3


@pytest.mark.parametrize("answered", [False, True])
async def test_what_is_given_up_leaves_nothing(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, answered: bool
) -> None:
    silence = Silence(cluster, monkeypatch, *cluster.primaries())
    upload = await begin(cluster)
    await send(upload, BODY)
    if answered:
        silence.over.set()
        await upload.opened()
    await upload.abort()
    await upload.abort()
    silence.over.set()
    assert cluster.holders() == set()
