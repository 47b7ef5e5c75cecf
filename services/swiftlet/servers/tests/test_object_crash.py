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
from swiftlet.store.failpoints import ENVIRONMENT
from swiftlet.store.kinds import StoreKind, open_store
from swiftlet.store.native import NativeStore
from swiftlet.testing.storage.object_conformance import ROW, record
from swiftlet.testing.store.conformance import content, footer_of, key_of, some_bytes
from swiftlet.transport.http_client import HttpSettings
from swiftlet.transport.http_objects import HttpObjectTransport

FAILPOINTS: dict[StoreKind, str] = {"plain": ENVIRONMENT, "native": "SWIFTLET_STORE_FAILPOINT"}
"""Environment variables that name the point at which a store kills its process."""


async def start(kind: StoreKind, root: Path, failpoint: str = "") -> tuple[Process, Device]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), FAILPOINTS[kind]: failpoint}
    process = await asyncio.create_subprocess_exec(
        sys.executable, child.__file__, kind, str(root), stdout=PIPE, env=environment
    )
    assert process.stdout is not None
    port = int(await process.stdout.readline())
    return process, Device(0, "one", "127.0.0.1", port, "d1", "r1", "z1", "n1", 1.0)


@pytest.mark.parametrize("kind", FAILPOINTS)
async def test_killed_in_the_middle_of_a_stream(tmp_path: Path, kind: StoreKind) -> None:
    process, device = await start(kind, tmp_path)
    transport = HttpObjectTransport(HttpSettings(connect_timeout_s=30.0))
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
    check(kind, tmp_path)


@pytest.mark.parametrize(
    ("kind", "point"),
    [
        ("plain", "written:2"),
        ("plain", "synced:2"),
        ("plain", "before-rename:2"),
        ("native", "batch-decided:2"),
        ("native", "batch-written:2"),
        ("native", "batch-synced:2"),
    ],
)
async def test_killed_while_committing(tmp_path: Path, kind: StoreKind, point: str) -> None:
    process, device = await start(kind, tmp_path, point)
    transport = HttpObjectTransport(HttpSettings(connect_timeout_s=30.0))
    await transport.put(device, key_of(1), record(1), b"acknowledged", footer_of(b"acknowledged"), ROW)
    with pytest.raises(NodeError):
        await transport.put(device, key_of(2), record(1), b"unlucky", footer_of(b"unlucky"), ROW)
    assert await process.wait() == -9
    await transport.close()
    # What was written outlives the process that wrote it: then it is there as a whole, although nobody was told.
    check(kind, tmp_path, {"batch-written:2": b"unlucky", "batch-synced:2": b"unlucky"}.get(point))


def check(kind: StoreKind, root: Path, second: bytes | None = None) -> None:
    store = open_store(kind, root)
    assert content(store, key_of(1)) == b"acknowledged"
    store.verify(key_of(1))
    if second is not None:
        assert content(store, key_of(2)) == second
    else:
        with pytest.raises(NotFound):
            store.stat(key_of(2))
    assert list(root.glob("tmp/*")) == []
    assert list(root.glob("large/*/*")) == []
    if isinstance(store, NativeStore):
        assert store.check() == []
    store.close()
