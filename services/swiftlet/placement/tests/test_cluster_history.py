"""Random writes on a cluster whose devices come and go: what was acknowledged is what a newest read returns.

Fault model: at most one device at a time can't be reached, is silent, busy, full or broken, or is lost in the middle
of transfers; it may come back at any moment with what it had. That is a minority of any partition's replicas, so
everything must also go on being acknowledged. In the second history two devices of six are down at a time: reads and
writes may then be refused (a refused write may have happened all the same), but what is answered must be true. In
between, replicators bring copies home.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path as Directory

import pytest

from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import PostRecord
from swiftlet.names import Path
from swiftlet.placement.tests.cluster import (
    ACCOUNT,
    CONTAINER,
    MemoryCluster,
    at,
    footer_of,
    memory_cluster,
    record_of,
)
from swiftlet.ring.model import Device
from swiftlet.sync.replicator import Replicator
from swiftlet.testing.storage.memory_objects import MemoryObjectTransport

STEPS = 250
PATHS = [Path(ACCOUNT, CONTAINER, f"o{n}") for n in range(6)]
AILMENTS = ("unreachable", "busy", "silent", "lossy", "full", "broken")


@dataclass(frozen=True)
class Seen:
    """An object as a reader sees it; `body` None when there is none."""

    body: bytes | None
    metadata: tuple[tuple[str, str], ...] = ()


NOTHING = Seen(None)


@dataclass
class Model:
    """For each object everything that a newest read may return; one thing only unless writes were refused."""

    possible: dict[Path, set[Seen]] = field(default_factory=lambda: {path: {NOTHING} for path in PATHS})

    def wrote(self, path: Path, seen: Seen, acknowledged: bool) -> None:
        """A PUT or DELETE."""
        self.possible[path] = {seen} if acknowledged else self.possible[path] | {seen}

    def posted(self, path: Path, metadata: tuple[tuple[str, str], ...], acknowledged: bool) -> None:
        """A POST, which changes only what exists; replicas that missed a deletion may take one in vain."""
        after = {seen if seen.body is None else Seen(seen.body, metadata) for seen in self.possible[path]}
        self.possible[path] = after if acknowledged else self.possible[path] | after


class History:
    """One run from a seed."""

    def __init__(self, cluster: MemoryCluster, seed: int, most_down: int) -> None:
        self.cluster = cluster
        self.random = random.Random(seed)
        self.most_down = most_down
        self.model = Model()
        self.second = 10.0
        self.ailing: list[Device] = []
        self.refused = self.checked = 0

    def fault(self) -> None:
        """Heal somebody or let somebody fall ill."""
        if self.ailing and (len(self.ailing) == self.most_down or self.random.random() < 0.5):
            self.heal(self.ailing.pop(self.random.randrange(len(self.ailing))))
        if len(self.ailing) < self.most_down and self.random.random() < 0.7:
            device = self.random.choice([d for d in self.cluster.devices if d not in self.ailing])
            self.ailing.append(device)
            self.ail(device, self.random.choice(AILMENTS))

    def ail(self, device: Device, ailment: str) -> None:
        """Make a device ill."""
        if ailment in {"full", "broken"}:
            setattr(self.cluster.store(device).faults, ailment, True)
        elif ailment == "lossy":
            self.cluster.transport.link(device).lose_after_bytes = self.random.randrange(1, 3000)
        else:
            setattr(self.cluster.transport.link(device), ailment, True)

    def heal(self, device: Device) -> None:
        """Make a device well."""
        self.cluster.store(device).faults.clear()
        link = self.cluster.transport.link(device)
        link.unreachable = link.silent = link.busy = False
        link.lose_after_bytes = None

    async def step(self) -> None:
        """One thing that happens."""
        self.second += 1
        path = self.random.choice(PATHS)
        kind = self.random.choices(
            ("put", "upload", "post", "delete", "read", "fault", "sync"), (6, 4, 3, 3, 6, 6, 0.3)
        )
        if kind == ["fault"]:
            self.fault()
        elif kind == ["read"]:
            await self.check(path)
        elif kind == ["sync"]:
            await self.sync()
        else:
            acknowledged = await self.write(kind[0], path)
            self.refused += not acknowledged
            assert acknowledged or self.most_down > 1, "a single device in trouble must not fail a write"

    async def write(self, kind: str, path: Path) -> bool:
        """A write of some kind; whether it was acknowledged."""
        if kind == "post":
            return await self.post(path)
        body = None if kind == "delete" else self.random.randbytes(self.random.randrange(4000))
        try:
            if body is None:
                await self.cluster.objects.delete(path, 0, at(self.second))
            elif kind == "put":
                await self.cluster.put(self.second, body, path)
            else:
                await self.upload(path, body)
        except Unavailable:
            self.model.wrote(path, Seen(body), acknowledged=False)
            return False
        self.model.wrote(path, Seen(body), acknowledged=True)
        return True

    async def upload(self, path: Path, body: bytes) -> None:
        """A streamed PUT."""
        upload = await self.cluster.objects.upload(path, 0, record_of(path, at(self.second)), len(body))
        for start in range(0, len(body), 1000):
            await upload.write(body[start : start + 1000])
        await upload.commit(footer_of(body))

    async def post(self, path: Path) -> bool:
        """A POST; that of an object that is not there is answered 404."""
        metadata = {"X-Object-Meta-N": str(self.second)}
        try:
            await self.cluster.objects.post(path, 0, PostRecord(at(self.second), metadata))
        except NotFound:
            # A quorum of replicas is without it; one that missed a deletion may have taken the POST unseen.
            assert self.most_down > 1 or NOTHING in self.model.possible[path]
            self.model.posted(path, tuple(metadata.items()), acknowledged=False)
            return True
        except Unavailable:
            self.model.posted(path, tuple(metadata.items()), acknowledged=False)
            # A stale replica may refuse with "not found" as well, so that one device in trouble is enough for this.
            return self.most_down == 1
        # Two replicas that missed a PUT may take a POST on top of older data; it shows once they have the newer.
        self.model.posted(path, tuple(metadata.items()), acknowledged=self.most_down == 1)
        return True

    async def check(self, path: Path) -> None:
        """A newest read must return something possible, which is then certain."""
        try:
            download = await self.cluster.objects.get(path, 0, newest=True)
            body = b"".join([chunk async for chunk in download.chunks()])
            seen = Seen(body, tuple(download.info.metadata.items()))
        except NotFound:
            seen = NOTHING
        except Unavailable:
            assert self.most_down > 1, "a single device in trouble must not fail a read"
            return
        assert seen in self.model.possible[path], path
        self.checked += 1

    async def sync(self) -> None:
        """A round of every device's replicator."""
        for device in self.cluster.devices:
            await replicator(self.cluster.transport, self.cluster, device).run_round([0])

    async def end(self) -> None:
        """Everybody is well again: after a few rounds all replicas agree on something possible."""
        while self.ailing:
            self.heal(self.ailing.pop())
        for path in PATHS:
            await self.check(path)
        for _ in range(3):
            await self.sync()
        for path in PATHS:
            await self.check(path)
            entries = {self.cluster.entry(device, self.cluster.key(path)) for device in self.cluster.primaries(path)}
            assert len(entries) == 1, path


def replicator(transport: MemoryObjectTransport, cluster: MemoryCluster, device: Device) -> Replicator:
    """The replicator of one device."""
    return Replicator(lambda ring: [device], cluster.rings.objects, transport)


async def run(root: Directory, seed: int, devices: int, most_down: int) -> History:
    async with memory_cluster(root, devices=devices, patience_s=0.0) as cluster:
        await cluster.make_container()
        history = History(cluster, seed, most_down)
        for _ in range(STEPS):
            await history.step()
        await history.end()
    return history


@pytest.mark.parametrize("seed", range(4))
async def test_with_one_device_in_trouble_everything_is_acknowledged_and_kept(tmp_path: Directory, seed: int) -> None:
    history = await run(tmp_path, seed, devices=5, most_down=1)
    assert history.checked > STEPS // 10


@pytest.mark.parametrize("seed", range(4))
async def test_with_two_devices_in_trouble_what_is_answered_is_true(tmp_path: Directory, seed: int) -> None:
    history = await run(tmp_path, 100 + seed, devices=6, most_down=2)
    assert history.checked > STEPS // 20
