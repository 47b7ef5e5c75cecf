"""Random writes on a cluster whose devices keep their rows pending: in the end the listing says what there is.

Fault model: object servers can't be reached or are silent, container servers can't be reached or answer into the void,
acknowledgements get lost, and a proxy dies in the middle of a write. When all are well again, devices deliver what is
pending and replicators bring copies home; the container's replicas together (as their sync merges them) then list
exactly the objects that there are, each field as the object has it, and no device has an update pending.

`UPDATE_SEEDS` is the number of histories, `UPDATE_SEED` the first one's seed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from pathlib import Path as Directory

import pytest

from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import DatabaseName, ObjectRow, PostRecord
from swiftlet.names import Path
from swiftlet.placement.rows.row_delivery import RowWaits
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, at, footer_of, memory_cluster, record_of
from swiftlet.placement.tests.test_cluster_history import replicator
from swiftlet.ring.model import Device
from swiftlet.servers.objects.pending_delivery import PENDING_FOR_S
from swiftlet.testing.storage.memory_listing import Fault

SEEDS = int(os.environ.get("UPDATE_SEEDS", "6"))
SEED = int(os.environ.get("UPDATE_SEED", "0"))
STEPS = 150
PATHS = [Path(ACCOUNT, CONTAINER, f"o{n}") for n in range(8)]


class RowHistory:
    """One run from a seed."""

    def __init__(self, cluster: MemoryCluster, seed: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.second = 10.0
        self.most_pending = 0

    async def step(self) -> None:
        """One thing that happens."""
        self.second += 1
        kind = self.random.choices(("write", "killed", "fault", "deliver"), (10, 2, 4, 1))[0]
        if kind == "fault":
            self.fault()
        elif kind == "deliver":
            await self.cluster.deliver_pending(PENDING_FOR_S + 1)
        else:
            await self.write(killed=kind == "killed")
        self.most_pending = max(self.most_pending, sum(map(self.cluster.pending_count, self.cluster.devices)))

    def fault(self) -> None:
        """Object servers and container servers fall ill or get well."""
        self.heal()
        for device in self.random.sample(self.cluster.devices, 2):
            setattr(self.cluster.transport.link(device), self.random.choice(("unreachable", "silent")), True)
        for device in self.random.sample(self.cluster.devices, self.random.randrange(5)):
            self.cluster.listing_transport.faults[device.name] = self.random.choice(list(Fault))
        for device in self.random.sample(self.cluster.devices, 2):
            self.cluster.transport.link(device).loses_acknowledgements = True

    def heal(self) -> None:
        """Everybody gets well."""
        self.cluster.listing_transport.faults.clear()
        for device in self.cluster.devices:
            link = self.cluster.transport.link(device)
            link.unreachable = link.silent = link.loses_acknowledgements = False

    async def write(self, killed: bool) -> None:
        """A write of some kind, which its client may see fail, or whose proxy dies somewhere in the middle."""
        path, second = self.random.choice(PATHS), self.second
        body = self.random.randbytes(self.random.randrange(3000))
        kind = self.random.choice(("put", "put", "upload", "copy", "post", "delete"))
        writing = asyncio.ensure_future(self.of_kind(kind, path, second, body))
        if killed:
            for _ in range(self.random.randrange(40)):
                await asyncio.sleep(0)
            writing.cancel()
        with contextlib.suppress(Unavailable, NotFound, asyncio.CancelledError):
            await writing

    async def of_kind(self, kind: str, path: Path, second: float, body: bytes) -> None:
        """Begin a write."""
        objects = self.cluster.objects
        if kind == "put":
            await self.cluster.put(second, body, path)
        elif kind == "copy":
            await self.copy(self.random.choice(PATHS), path, second)
        elif kind == "delete":
            await objects.delete(path, 0, at(second))
        elif kind == "post":
            typed = self.random.random() < 0.5
            record = PostRecord(at(second), {}, f"type/{second}", at(second)) if typed else PostRecord(at(second), {})
            await objects.post(path, 0, record)
        else:
            upload = await objects.upload(path, 0, record_of(path, at(second)), len(body))
            await upload.write(body)
            await upload.commit(footer_of(body))

    async def copy(self, source: Path, path: Path, second: float) -> None:
        """What there is under one name becomes that of another one."""
        download = await self.cluster.objects.get(source, 0)
        body = b"".join([bytes(chunk) async for chunk in download.chunks()])
        await self.cluster.put(second, body, path)

    async def end(self) -> None:
        """Everybody is well; deliveries and replicators come round."""
        self.heal()
        await self.cluster.router.drain(10)
        await self.cluster.deliver_pending(PENDING_FOR_S + 1)
        assert not self.cluster.hosts_with_pending()
        for _ in range(3):
            for device in self.cluster.devices:
                await replicator(self.cluster.transport, self.cluster, device).run_round([0])

    async def listed(self) -> dict[str, ObjectRow]:
        """What the container's replicas know together, removed rows included."""
        found: dict[str, ObjectRow] = {}
        for device in self.cluster.container_devices():
            for row in await self.rows_of(device):
                found[row.name] = row.merged(found.get(row.name, row))
        return found

    async def rows_of(self, device: Device) -> list[ObjectRow]:
        """All rows of one replica."""
        partition = self.cluster.container_partition()
        id = self.cluster.databases[device.name].id_of(partition, DatabaseName(ACCOUNT, CONTAINER))
        page = await self.cluster.listing_transport.compare_rows(device, id, "", "", b"")
        assert page is not None
        assert page.upto == ""
        return [row for row in page.rows if isinstance(row, ObjectRow)]


@pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS))
async def test_the_listing_says_what_there_is(tmp_path: Directory, seed: int) -> None:
    async with memory_cluster(tmp_path, devices=6) as cluster:
        cluster.router._waits = RowWaits(row_wait_s=0.02, straggler_wait_s=0.01)
        cluster.transport._patience_s = 0.001
        await cluster.make_container()
        history = RowHistory(cluster, seed)
        for _ in range(STEPS):
            await history.step()
        assert history.most_pending > 5
        await history.end()
        rows = await history.listed()
        for path in PATHS:
            row = rows.get(path.obj or "")
            try:
                info = await cluster.objects.head(path, 0, newest=True)
            except NotFound:
                assert row is None or row.deleted
            else:
                assert row == ObjectRow.of(path.obj or "", info)
