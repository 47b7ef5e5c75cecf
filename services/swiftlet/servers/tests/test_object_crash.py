"""An object server that is killed in the middle of uploads: clients hear of it, nothing half is left."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path

import pytest

import swiftlet.servers.tests.object_child as child
from swiftlet.errors import NodeError, NotFound
from swiftlet.ring.model import Device
from swiftlet.store.native import NativeStore
from swiftlet.testing.storage.object_conformance import ROW, record
from swiftlet.testing.store.conformance import content, footer_of, key_of, some_bytes
from swiftlet.transport.tests.test_native_objects import client_of, device_at

FAILPOINT = "SWIFTLET_STORE_FAILPOINT"
"""Environment variable that names the point at which a store kills its process."""


async def start(root: Path, failpoint: str = "") -> tuple[Process, Device, int]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), FAILPOINT: failpoint}
    process = await asyncio.create_subprocess_exec(
        sys.executable, child.__file__, str(root), stdout=PIPE, env=environment
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    return process, *device_at(port)


async def test_killed_in_the_middle_of_a_stream(tmp_path: Path) -> None:
    process, device, offset = await start(tmp_path)
    data = some_bytes(9_000_000)
    async with client_of(offset, patience_s=30.0) as transport:
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
    check(tmp_path)


@pytest.mark.parametrize("point", ["batch-decided:2", "batch-written:2", "batch-synced:2"])
async def test_killed_while_committing(tmp_path: Path, point: str) -> None:
    process, device, offset = await start(tmp_path, point)
    async with client_of(offset, patience_s=30.0) as transport:
        await transport.put(device, key_of(1), record(1), b"acknowledged", footer_of(b"acknowledged"), ROW)
        with pytest.raises(NodeError):
            await transport.put(device, key_of(2), record(1), b"unlucky", footer_of(b"unlucky"), ROW)
        assert await process.wait() == -9
    # What was written outlives the process that wrote it: then it is there as a whole, although nobody was told.
    check(tmp_path, {"batch-written:2": b"unlucky", "batch-synced:2": b"unlucky"}.get(point))


def check(root: Path, second: bytes | None = None) -> None:
    store = NativeStore(root)
    assert content(store, key_of(1)) == b"acknowledged"
    store.verify(key_of(1))
    if second is not None:
        assert content(store, key_of(2)) == second
    else:
        with pytest.raises(NotFound):
            store.stat(key_of(2))
    assert list(root.glob("large/*/*")) == []
    assert store.check() == []
    store.close()
