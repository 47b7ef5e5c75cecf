"""Random PUT, POST, DELETE and COPY with kills: then every replica of the listing says what there is.

Faults are those of `test_pending_updates_history`. When all are well again and what is pending is delivered, two rounds
of databases make each replica equal to the objects, totals included, and the listing audit finds nothing. Then rows are
damaged at random, and one pass of the audit puts them right.

In other histories audits run while the writes do, and what they see of these is a second old.

`AUDIT_SEEDS` is the number of histories, `AUDIT_SEED` the first one's seed.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path as Directory
from typing import Any

import pytest

from swiftlet.errors import NotFound
from swiftlet.model import ObjectRow
from swiftlet.placement.rows.row_delivery import RowWaits
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, at, memory_cluster
from swiftlet.placement.tests.test_pending_updates_history import PATHS, RowHistory
from swiftlet.servers.tests.database_rounds import Rounds
from swiftlet.sync.audit.tests.auditing import NOW_S, SETTINGS, Auditors, container_id, rows_of

SEEDS = int(os.environ.get("AUDIT_SEEDS", "10"))
SEED = int(os.environ.get("AUDIT_SEED", "0"))
GROUPS = 10
STEPS = 25


async def truth_of(cluster: MemoryCluster) -> dict[str, ObjectRow]:
    """The rows of all objects as their devices have them."""
    found: dict[str, ObjectRow] = {}
    for path in PATHS:
        name = path.obj or ""
        try:
            found[name] = ObjectRow.of(name, await cluster.objects.head(path, 0, newest=True))
        except NotFound:
            continue
    return found


async def assert_equal(cluster: MemoryCluster, truth: dict[str, ObjectRow]) -> None:
    """Each replica lists and counts exactly these."""
    for device in cluster.container_devices():
        assert await rows_of(cluster, device) == truth
        place = device, cluster.container_partition(), ACCOUNT, CONTAINER
        info = await cluster.listing_transport.container_info(*place)
        assert (info.object_count, info.bytes_used) == (len(truth), sum(row.size for row in truth.values()))


async def damage(cluster: MemoryCluster, choices: random.Random) -> None:
    """Make rows wrong, on one replica or on several."""
    for device in choices.sample(cluster.container_devices(), choices.randrange(1, 4)):
        for row in (await rows_of(cluster, device)).values():
            ways: list[dict[str, Any]] = [
                {},
                {"size": choices.randrange(5000)},
                {"etag": choices.randbytes(16).hex()},
                {"content_type": f"type/{choices.random()}"},
                {"timestamp": at(choices.randrange(1, 900)), "etag": "0" * 32},
                {"timestamp": at(choices.randrange(1, 900)), "deleted": True},
            ]
            wrong = replace(row, **choices.choice(ways)).plain
            await cluster.listing_transport.replace_rows(device, container_id(cluster), [(row, wrong)])
        ghost = ObjectRow(f"ghost{choices.randrange(3)}", at(choices.randrange(1, 900)), 5, "e" * 32, "t")
        place = device, cluster.container_partition(), ACCOUNT, CONTAINER
        await cluster.listing_transport.update_rows(*place, [ghost])


@asynccontextmanager
async def history_of(root: Directory, seed: int) -> AsyncIterator[RowHistory]:
    """A cluster in which nothing has happened yet."""
    async with memory_cluster(root, devices=6) as cluster:
        cluster.router._waits = RowWaits(row_wait_s=0.02, straggler_wait_s=0.01)
        cluster.transport._patience_s = 0.001
        await cluster.make_container()
        yield RowHistory(cluster, seed)


async def calm_down(history: RowHistory) -> dict[str, ObjectRow]:
    """All is delivered, and two rounds of databases have been; the rows that there should be."""
    await history.end()
    cluster = history.cluster
    for _ in range(2):
        for device in cluster.devices:
            await Rounds(cluster.listing_transport, device, cluster.rings.container).run_once()
    return await truth_of(cluster)


async def run(root: Directory, seed: int) -> None:
    """One history."""
    async with history_of(root, seed) as history:
        cluster = history.cluster
        for _ in range(STEPS):
            await history.step()
        truth = await calm_down(history)
        await assert_equal(cluster, truth)
        auditors = Auditors(cluster)
        assert await auditors.run_once() == 0
        await damage(cluster, random.Random(seed))
        await auditors.run_once()
        await assert_equal(cluster, truth)
        assert await auditors.run_once() == 0


async def run_with_audits(root: Directory, seed: int) -> None:
    """One history in which passes of the audit overlap with writes."""
    async with history_of(root, seed) as history:
        cluster, auditors = history.cluster, Auditors(history.cluster)
        passing: asyncio.Task[int] | None = None
        for _ in range(STEPS):
            auditors.now_s = history.second + SETTINGS.min_age_s
            if passing is None or passing.done():
                passing = asyncio.ensure_future(auditors.run_once())
            await history.step()
        assert passing is not None
        await passing
        truth = await calm_down(history)
        auditors.now_s = NOW_S
        await auditors.run_once()
        await assert_equal(cluster, truth)
        assert await auditors.run_once() == 0


@pytest.mark.parametrize("history", [run, run_with_audits])
@pytest.mark.parametrize("group", range(GROUPS))
async def test_listings_equal_objects_after_kills(
    tmp_path: Directory, group: int, history: Callable[[Directory, int], Awaitable[None]]
) -> None:
    for seed in range(SEED + group, SEED + SEEDS, GROUPS):
        (tmp_path / str(seed)).mkdir()
        try:
            await history(tmp_path / str(seed), seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}") from error
