"""The expirer over a cluster in memory, with faults on devices and databases and with itself."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path as Directory
from typing import Any

import pytest
from prometheus_client import REGISTRY

from swiftlet.errors import NotFound, Superseded
from swiftlet.expiry.expirer import ALL_EVERY, LONGEST_UPLOAD_S, Expirer, ExpiryReport, Pace
from swiftlet.expiry.queue import PAGE
from swiftlet.expiry.tasks import ACCOUNT as QUEUE
from swiftlet.expiry.tasks import CONTAINERS, Task
from swiftlet.expiry.tests.support import all_tasks, queue_of
from swiftlet.main.routing import routed_in_background
from swiftlet.model import ContainerRow, ListingQuery, ObjectRow, PostRecord
from swiftlet.names import Path
from swiftlet.placement.cluster_objects import ClusterObjects
from swiftlet.placement.routing import AnyObjects
from swiftlet.placement.tests.cluster import (
    ACCOUNT,
    CONTAINER,
    HASH_PATH,
    PATH,
    MemoryCluster,
    at,
    footer_of,
    memory_cluster,
    record_of,
)
from swiftlet.placement.tests.phases import bring
from swiftlet.policy_moves import Phase
from swiftlet.settings import PolicySection
from swiftlet.settings.expirer import ExpirerSection
from swiftlet.settings.policies import Policies

NODES = [f"h{number}:6200" for number in range(5)]
RECLAIM_S = 7 * 86400.0


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=5) as made:
        await made.make_container()
        yield made


def expirer(
    cluster: MemoryCluster,
    now: float,
    mine: list[str] = NODES,
    objects: AnyObjects | None = None,
    **settings: Any,
) -> Expirer:
    section = ExpirerSection(**({"delay_s": 0, "tasks_per_second": 100_000} | settings))
    used = objects or cluster.objects
    return Expirer(queue_of(cluster), used, section, lambda: NODES, mine, RECLAIM_S, lambda: now)


async def put(cluster: MemoryCluster, second: float, delete_at: int | None, path: Path = PATH) -> None:
    """A version as the API writes it: first the task, then the object."""
    metadata = {}
    if delete_at is not None:
        await queue_of(cluster).add(Task(delete_at, path, 0, at(second)))
        metadata["X-Delete-At"] = f"{delete_at:010d}"
    record = record_of(path, at(second), metadata)
    await cluster.objects.put(path, 0, record, b"data", footer_of(b"data"))


async def post(cluster: MemoryCluster, second: float, delete_at: int | None, path: Path = PATH) -> None:
    metadata = {}
    if delete_at is not None:
        await queue_of(cluster).add(Task(delete_at, path, 0, at(second)))
        metadata["X-Delete-At"] = f"{delete_at:010d}"
    await cluster.objects.post(path, 0, PostRecord(at(second), metadata))


async def exists(cluster: MemoryCluster, path: Path = PATH) -> bool:
    try:
        await cluster.objects.head(path, 0, newest=True)
    except NotFound:
        return False
    return True


async def listed(cluster: MemoryCluster) -> list[str]:
    _, rows = await cluster.listings.list_objects(ACCOUNT, CONTAINER, ListingQuery())
    return [row.name for row in rows]


def counts(report: ExpiryReport) -> tuple[int, int, int]:
    return report.expired, report.moot, report.failed


async def test_what_is_due_goes_and_its_row_with_it(cluster: MemoryCluster) -> None:
    await put(cluster, 10, 100)
    await put(cluster, 10, 200, Path(ACCOUNT, CONTAINER, "later"))
    assert counts(await expirer(cluster, 99.0).run_round()) == (0, 0, 0)
    assert await exists(cluster)
    report = await expirer(cluster, 130.0).run_round()
    assert counts(report) == (1, 0, 0)
    assert report.lag_s == 30.0
    assert not await exists(cluster)
    assert cluster.holders() == set()
    assert await listed(cluster) == ["later"]
    assert [task.delete_at for task in await all_tasks(cluster)] == [200]
    assert (await expirer(cluster, 130.0).run_round()).clean


async def test_containers_that_are_not_there_are_seldom_asked(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    working = expirer(cluster, 130.0)
    queue, asked = working._queue, list[str]()
    due = queue.due

    async def counted(container: str, now_s: float, after: str = "") -> tuple[list[Task], str]:
        asked.append(container)
        return await due(container, now_s, after)

    monkeypatch.setattr(queue, "due", counted)
    rounds = []
    for _ in range(ALL_EVERY + 2):
        assert (await working.run_round()).clean
        rounds.append(len(asked))
        asked.clear()
    assert rounds == [len(CONTAINERS), *[0] * (ALL_EVERY - 1), len(CONTAINERS), 0]
    await put(cluster, 10, 100)
    container = Task(100, PATH, 0, at(10)).container
    row = ContainerRow(container, at(10), reported=at(10))
    for database in cluster.databases.values():
        with contextlib.suppress(NotFound):
            partition = cluster.ring.partition_of(HASH_PATH(QUEUE))
            await database.account_info(partition, QUEUE)
            await database.update_containers(partition, QUEUE, [row])
    assert counts(await working.run_round()) == (1, 0, 0)
    assert asked == [container]


async def test_nothing_goes_before_the_delay_is_over(cluster: MemoryCluster) -> None:
    await put(cluster, 10, 100)
    assert (await expirer(cluster, 159.0, delay_s=60).run_round()).clean
    assert counts(await expirer(cluster, 160.0, delay_s=60).run_round()) == (1, 0, 0)


async def test_what_was_overwritten_survives(cluster: MemoryCluster) -> None:
    await put(cluster, 10, 100)
    await put(cluster, 20, None)
    assert counts(await expirer(cluster, 130.0).run_round()) == (0, 1, 0)
    assert await exists(cluster)
    assert await all_tasks(cluster) == []


@pytest.mark.parametrize("delete_at", [None, 500])
async def test_what_got_more_time_survives(cluster: MemoryCluster, delete_at: int | None) -> None:
    await put(cluster, 10, 100)
    await post(cluster, 20, delete_at)
    assert counts(await expirer(cluster, 130.0).run_round()) == (0, 1, 0)
    assert await exists(cluster)
    assert [task.delete_at for task in await all_tasks(cluster)] == ([] if delete_at is None else [500])


async def test_what_got_less_time_goes_earlier(cluster: MemoryCluster) -> None:
    await put(cluster, 10, 500)
    await post(cluster, 20, 100)
    assert counts(await expirer(cluster, 130.0).run_round()) == (1, 0, 0)
    assert not await exists(cluster)
    assert await listed(cluster) == []


async def test_an_object_that_was_deleted_or_never_written(cluster: MemoryCluster) -> None:
    await put(cluster, 10, 100)
    await cluster.objects.delete(PATH, 0, at(20))
    await queue_of(cluster).add(Task(100, Path(ACCOUNT, CONTAINER, "never"), 0, at(10)))
    assert counts(await expirer(cluster, 130.0).run_round()) == (0, 2, 0)
    assert await all_tasks(cluster) == []


class Between(ClusterObjects):
    """The cluster's objects, with something that happens right before an expirer's deletion."""

    def __init__(self, cluster: MemoryCluster, happens: Any) -> None:
        self.__dict__.update(cluster.objects.__dict__)
        self._happens = happens

    async def delete(self, *args: Any) -> Any:
        await self._happens()
        return await super().delete(*args)


async def test_a_version_that_comes_while_the_expirer_works_survives(cluster: MemoryCluster) -> None:
    """Also if its upload began before the time was over, and long before the expirer looked."""
    await put(cluster, 10, 100)

    async def overwrite() -> None:
        await cluster.objects.put(PATH, 0, record_of(PATH, at(50)), b"newer", footer_of(b"newer"))

    report = await expirer(cluster, 130.0, objects=Between(cluster, overwrite)).run_round()
    assert report.expired == 0
    assert await cluster.read(newest=True) == b"newer"
    assert await listed(cluster) == ["o"]
    assert counts(await expirer(cluster, 140.0).run_round()) == (0, 1, 0), "the task is moot then"


async def test_a_write_that_does_not_get_through_to_the_task_leaves_it_for_the_next_round(
    cluster: MemoryCluster,
) -> None:
    await put(cluster, 10, 100)

    async def lose() -> None:
        raise Superseded("somebody was faster", at(200))

    assert counts(await expirer(cluster, 130.0, objects=Between(cluster, lose)).run_round()) == (0, 0, 1)
    assert len(await all_tasks(cluster)) == 1


async def test_killed_between_object_and_task(cluster: MemoryCluster) -> None:
    """The object is gone, its task is still there: the next round finds nothing to delete and takes it off."""
    await put(cluster, 10, 100)
    deleted = asyncio.Event()

    class Stuck(Between):
        async def delete(self, *args: Any) -> Any:
            await ClusterObjects.delete(self, *args)
            deleted.set()
            await asyncio.Event().wait()

    objects = Stuck(cluster, None)
    round_ = asyncio.create_task(expirer(cluster, 130.0, objects=objects).run_round())
    await asyncio.wait_for(deleted.wait(), 10)
    round_.cancel()
    await asyncio.gather(round_, return_exceptions=True)
    assert not await exists(cluster)
    assert len(await all_tasks(cluster)) == 1
    assert counts(await expirer(cluster, 140.0).run_round()) == (0, 1, 0)
    assert await all_tasks(cluster) == []


async def test_two_expirers_at_once_do_what_one_does(cluster: MemoryCluster) -> None:
    for number in range(40):
        await put(cluster, 10, 100, Path(ACCOUNT, CONTAINER, f"o{number}"))
    await put(cluster, 10, None, Path(ACCOUNT, CONTAINER, "stays"))
    reports = await asyncio.gather(*(expirer(cluster, 130.0).run_round() for _ in range(2)))
    assert all(not report.failed for report in reports)
    assert await listed(cluster) == ["stays"]
    assert await all_tasks(cluster) == []
    assert await exists(cluster, Path(ACCOUNT, CONTAINER, "stays"))


async def test_devices_that_are_away_put_it_off(cluster: MemoryCluster) -> None:
    await put(cluster, 10, 100)
    with cluster.down(*cluster.primaries()[:2]):
        assert counts(await expirer(cluster, 130.0).run_round()) == (0, 0, 1)
        assert len(await all_tasks(cluster)) == 1
    assert counts(await expirer(cluster, 140.0).run_round()) == (1, 0, 0)


async def test_one_device_that_is_away_does_not(cluster: MemoryCluster) -> None:
    await put(cluster, 10, 100)
    with cluster.down(cluster.primaries()[0]):
        assert counts(await expirer(cluster, 130.0).run_round()) == (1, 0, 0)
    assert not await exists(cluster)


async def test_the_objects_listing_is_away(cluster: MemoryCluster) -> None:
    """The object goes; the row follows by the device, as with any deletion. One queue replica is away, too."""
    await put(cluster, 10, 100)
    with cluster.databases_down(cluster.container_devices()[0]):
        assert counts(await expirer(cluster, 130.0).run_round()) == (1, 0, 0)
    assert not await exists(cluster)
    assert await all_tasks(cluster) == []


async def test_the_queue_is_away(cluster: MemoryCluster) -> None:
    await put(cluster, 10, 100)
    with cluster.databases_down(*cluster.devices), pytest.raises(Exception, match=r"\S"):
        await expirer(cluster, 130.0).run_round()
    assert await exists(cluster)
    assert counts(await expirer(cluster, 130.0).run_round()) == (1, 0, 0)


async def test_the_next_one_takes_over_when_the_first_is_away(cluster: MemoryCluster) -> None:
    await put(cluster, 10, 100)

    async def by(now: float) -> list[str]:
        done = []
        for node in NODES:
            if (await expirer(cluster, now, [node], takeover_s=600).run_round()).expired:
                done.append(node)
                await put(cluster, 10 + len(done) + now, 100)
        return done

    first = await by(130.0)
    assert len(first) == 1
    assert len(await by(701.0)) == 2
    assert len(await by(1301.0)) == 3
    assert (await by(1e6))[:1] != [], "no more than three ever do"


async def test_tombstones_are_kept_long_enough(cluster: MemoryCluster) -> None:
    """An object may be years old when it goes: a tombstone as old would be forgotten before all devices have it."""
    now = 10 * 86_400
    await put(cluster, 10, 100)
    await expirer(cluster, now).run_round()
    entry = cluster.entry(cluster.primaries()[0])
    assert entry is not None
    assert entry.timestamp == at(now - LONGEST_UPLOAD_S)


async def test_many_pages(cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("swiftlet.expiry.queue.PAGE", 3)
    assert PAGE > 3
    for number in range(60):
        await put(cluster, 10, 100 + number, Path(ACCOUNT, CONTAINER, f"o{number}"))
    assert counts(await expirer(cluster, 300.0).run_round()) == (60, 0, 0)
    assert await listed(cluster) == []


async def test_rows_that_are_no_tasks_are_left_alone(cluster: MemoryCluster) -> None:
    await put(cluster, 10, 100)
    [task] = await all_tasks(cluster)
    await cluster.listings.update_rows(".expiring_objects", task.container, [ObjectRow("0000000001-x", at(5))])
    assert counts(await expirer(cluster, 130.0).run_round()) == (1, 0, 0)


async def test_a_task_that_was_queued_again_meanwhile_stays(cluster: MemoryCluster) -> None:
    await put(cluster, 10, 100)
    [old] = await all_tasks(cluster)
    await put(cluster, 20, 100)
    await queue_of(cluster).remove(old.container, [old])
    assert [task.queued for task in await all_tasks(cluster)] == [at(20)]


async def test_metrics(cluster: MemoryCluster) -> None:
    def value() -> float:
        return REGISTRY.get_sample_value("swiftlet_expirer_tasks_total", {"outcome": "expired"}) or 0.0

    before = value()
    await put(cluster, 10, 100)
    await expirer(cluster, 130.0).run_round()
    assert value() == before + 1
    assert REGISTRY.get_sample_value("swiftlet_expirer_lag_seconds") == 30.0
    assert (REGISTRY.get_sample_value("swiftlet_expirer_last_round_timestamp_seconds") or 0.0) > 1e9


async def test_the_pace_is_even() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    pace = Pace(10.0, sleep)
    for _ in range(5):
        await pace.wait()
    assert len(slept) == 4
    assert slept[-1] == pytest.approx(0.4, abs=0.1)


@pytest.mark.parametrize("phase", Phase)
@pytest.mark.parametrize("is_in", [0, 1])
@pytest.mark.parametrize("named", [0, 1])
async def test_a_task_finds_an_object_that_moves_whichever_policy_it_names(
    cluster: MemoryCluster, phase: Phase, is_in: int, named: int
) -> None:
    await bring(cluster, phase)
    metadata = {"X-Delete-At": f"{700:010d}"}
    await queue_of(cluster).add(Task(700, PATH, named, at(600)))
    await cluster.objects.put(PATH, is_in, record_of(PATH, at(600), metadata), b"data", footer_of(b"data"))
    policies = Policies([PolicySection(index=0, name="gold", default=True), PolicySection(index=1, name="silver")])
    objects = routed_in_background(cluster.objects, cluster.listings, policies)
    assert counts(await expirer(cluster, 730.0, objects=objects).run_round()) == (1, 0, 0)
    for policy in (0, 1):
        with pytest.raises(NotFound):
            await cluster.objects.head(PATH, policy, newest=True)
    assert await listed(cluster) == []
    assert await all_tasks(cluster) == []
