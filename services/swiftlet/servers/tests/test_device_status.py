"""What servers know of their devices: fullness, failures, and silence."""

from __future__ import annotations

import asyncio
import json
import struct
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient, TestServer
from prometheus_client import REGISTRY
from structlog.testing import capture_logs
from swiftlet_native import xxh3_64

from swiftlet.errors import ChecksumMismatch, DeviceFailed
from swiftlet.main.services.object import open_stores
from swiftlet.model import Usage
from swiftlet.servers.objects.object_server import ObjectServer, add_object_routes
from swiftlet.servers.shared import device_status
from swiftlet.servers.shared.device_status import SILENT_S, DeviceStatus
from swiftlet.settings import ObjectSection
from swiftlet.testing.storage.object_conformance import RowRecorder
from swiftlet.testing.store.conformance import key_of, put
from swiftlet.testing.store.faulty_native import FaultyNativeStore
from swiftlet.testing.store.memory import MemoryStore
from swiftlet.web.app import create_base_app
from swiftlet.web.statusz import STATUS


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - conditions of other parties set no event
            await asyncio.sleep(0.005)


def looker(*answers: Usage | Exception) -> Callable[[], Awaitable[Usage]]:
    left = list(answers)

    async def look() -> Usage:
        answer = left.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    return look


async def test_a_device_before_and_after_it_was_looked_at() -> None:
    status = DeviceStatus("d0")
    assert status.fields()["state"] == "failed"
    look = looker(Usage(100, 40), DeviceFailed("input/output error"), RuntimeError("a bug"), Usage(100, 30))
    await status.look(look)
    assert status.fields() == {"capacityBytes": 100, "freeBytes": 40, "state": "serving", "reason": None}
    with capture_logs() as logs:
        await status.look(look)
    assert status.fields() == {
        "capacityBytes": 100,
        "freeBytes": 40,
        "state": "failed",
        "reason": "input/output error",
    }
    assert [entry["event"] for entry in logs] == ["a device has failed"]
    await status.look(look)
    assert status.reason == "RuntimeError('a bug')"
    await status.look(look)
    assert status.fields() == {"capacityBytes": 100, "freeBytes": 30, "state": "serving", "reason": None}


async def test_a_device_that_does_not_answer_has_failed_until_it_does() -> None:
    now = [0.0]
    status = DeviceStatus("d0", now_s=lambda: now[0])
    await status.look(looker(Usage(100, 40)))
    answer = asyncio.get_running_loop().create_future()
    looking = asyncio.create_task(status.look(lambda: answer))
    await asyncio.sleep(0)
    now[0] = SILENT_S - 1
    assert status.reason is None
    now[0] = SILENT_S
    assert status.fields()["state"] == "failed"
    answer.set_result(Usage(100, 40))
    await looking
    assert status.reason is None


async def test_an_object_server_tells_of_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_status, "LOOK_S", 0.01)
    stores = {"d0": MemoryStore(), "d1": MemoryStore()}
    server = ObjectServer(stores, RowRecorder(), unused={"d2": "it is not mounted"})
    app = create_base_app("object", trust_request_ids=True)
    app[STATUS].add("devices", server.status)
    add_object_routes(app, server)
    async with TestClient(TestServer(app)) as client:

        async def devices() -> dict[str, dict[str, object]]:
            return dict(json.loads(await (await client.get("/statusz")).read())["devices"])

        await until(lambda: all(device.status.reason is None for device in server.devices.values()))
        usage = stores["d0"].usage()
        sound = {
            "capacityBytes": usage.total_bytes,
            "freeBytes": usage.free_bytes,
            "state": "serving",
            "reason": None,
            "pending": None,
            "pendingOldestSeconds": None,
            "unproved": None,
            "unprovedSeconds": None,
            "partitionsProved": None,
            "partitionsDoubted": 0,
        }
        gone = {
            "capacityBytes": None,
            "freeBytes": None,
            "state": "failed",
            "reason": "it is not mounted",
            "pending": None,
            "pendingOldestSeconds": None,
            "unproved": None,
            "unprovedSeconds": None,
            "partitionsProved": None,
            "partitionsDoubted": None,
        }
        assert await devices() == {"d0": sound, "d1": sound, "d2": gone}
        stores["d1"].faults.broken = True
        await until(lambda: server.devices["d1"].status.reason is not None)
        failed = {**sound, "state": "failed", "reason": "injected I/O error"}
        assert await devices() == {"d0": sound, "d1": failed, "d2": gone}
        stores["d1"].faults.clear()
        await until(lambda: server.devices["d1"].status.reason is None)


def test_devices_that_can_not_be_opened_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "d0").mkdir()
    stores, unused = open_stores(ObjectSection(devices_dir=tmp_path, devices=("d0", "d1")))
    assert list(stores) == ["d0"]
    assert list(unused) == ["d1"]
    stores["d0"].close()


def test_a_device_of_another_format_is_left_out(tmp_path: Path) -> None:
    for name in ("d0", "d1"):
        (tmp_path / name).mkdir()
    head = b"SWLTSTOR" + struct.pack(">H", 2) + bytes(22)
    (tmp_path / "d0" / "format").write_bytes(head + struct.pack(">Q", xxh3_64(head)))
    stores, unused = open_stores(ObjectSection(devices_dir=tmp_path, devices=("d0", "d1")))
    assert list(stores) == ["d1"]
    assert "version 2" in unused["d0"]
    stores["d1"].close()


async def test_what_a_store_counts_is_among_the_metrics() -> None:
    store = FaultyNativeStore()
    server = ObjectServer({"counted": store}, RowRecorder())
    device = server.devices["counted"]

    def counted(name: str) -> float | None:
        return REGISTRY.get_sample_value(f"swiftlet_object_{name}_total", {"device": "counted"})

    put(store, key_of(1), 1, b"data")
    await device.measure()
    assert counted("batches") == 1
    put(store, key_of(2), 1, b"data")
    store.flip_data(key_of(2))
    with pytest.raises(ChecksumMismatch):
        store.verify(key_of(2))
    with capture_logs() as logs:
        await device.measure()
    assert counted("batches") == 3, "the second PUT, and that the damaged object does not count"
    assert counted("quarantined") == 1
    assert [(entry["event"], entry["device"], entry["records"]) for entry in logs] == [
        ("damaged records were found and set aside", "counted", 1)
    ]
    await device.measure()
    assert counted("quarantined") == 1
    device.pool.close()
    store.close()
