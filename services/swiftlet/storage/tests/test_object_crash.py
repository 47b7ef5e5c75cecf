"""An object server that is killed in the middle of uploads: clients hear of it, nothing half is left."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

import swiftlet.storage.tests.object_child as child
from swiftlet.errors import NodeError, NotFound
from swiftlet.ring.model import Device
from swiftlet.storage.object_conformance import ROW, record
from swiftlet.store.conformance import content, footer_of, key_of, some_bytes
from swiftlet.store.failpoints import ENVIRONMENT
from swiftlet.store.plain import PlainStore
from swiftlet.transport.http_objects import HttpObjectTransport


async def start(root: Path, failpoint: str = "") -> tuple[Process, Device]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), ENVIRONMENT: failpoint}
    process = await asyncio.create_subprocess_exec(
        sys.executable, child.__file__, str(root), stdout=PIPE, env=environment
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    return process, Device(0, "one", "127.0.0.1", port, "d1", "r1", "z1", "n1", 1.0)


async def test_killed_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    process, device = await start(tmp_path)
    transport = HttpObjectTransport()
    data = some_bytes(9_000_000)
    await transport.put(device, key_of(1), record(1), b"acknowledged", footer_of(b"acknowledged"), ROW)
    stream = await transport.open_put(device, key_of(2), record(1), len(data), ROW)
    await stream.write(data[:6_000_000])
    process.kill()
    await process.wait()

    async def rest() -> None:
        await stream.write(data[6_000_000:])
        await stream.commit(footer_of(data))

    with pytest.raises(NodeError):
        await rest()
    await stream.abort()
    await transport.close()
    check(tmp_path)


@pytest.mark.parametrize("point", ["written:2", "synced:2", "before-rename:2"])
async def test_killed_while_committing(tmp_path: Path, point: str) -> None:
    process, device = await start(tmp_path, point)
    transport = HttpObjectTransport()
    await transport.put(device, key_of(1), record(1), b"acknowledged", footer_of(b"acknowledged"), ROW)
    with pytest.raises(NodeError):
        await transport.put(device, key_of(2), record(1), b"unlucky", footer_of(b"unlucky"), ROW)
    assert await process.wait() == -9
    await transport.close()
    check(tmp_path)


def check(root: Path) -> None:
    store = PlainStore(root)
    assert content(store, key_of(1)) == b"acknowledged"
    store.verify(key_of(1))
    with pytest.raises(NotFound):
        store.stat(key_of(2))
    assert os.listdir(root / "tmp") == []
    store.close()
