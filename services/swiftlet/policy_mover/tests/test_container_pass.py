"""Passes over a container that moves: what they bring to the target, what they say of the rest, and kills."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path as Directory

import pytest

from swiftlet.errors import NotFound, Unavailable
from swiftlet.expiry.tasks import DELETE_AT, Task
from swiftlet.expiry.tests.support import all_tasks, queue_of
from swiftlet.model import ObjectRow, PostRecord
from swiftlet.placement.moving import moment_after
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, at, footer_of, memory_cluster, record_of
from swiftlet.placement.tests.test_listing_audit_shards import NAMES, Split, split  # noqa: F401 - a fixture
from swiftlet.policy_mover import container_pass
from swiftlet.policy_mover.container_pass import NoLongerMoves, PassReport
from swiftlet.policy_mover.fence import Fence
from swiftlet.policy_mover.tests.moved import (
    SOURCE,
    TARGET,
    Killer,
    a_pass,
    body_of,
    in_policy,
    moving,
    path_of,
    rows,
    run,
    was_killed,
)

DUE = 5_000_000_000


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    """Six devices and the container."""
    async with memory_cluster(tmp_path) as made:
        await made.make_container()
        yield made


async def put(
    cluster: MemoryCluster, name: str, second: float, policy: int = SOURCE, metadata: Mapping[str, str] | None = None
) -> bytes:
    """An object whose body tells its version."""
    body, path = f"{name} at {second} ".encode() * 20, path_of(name)
    await cluster.objects.put(path, policy, record_of(path, at(second), metadata), body, footer_of(body))
    return body


async def test_a_pass_moves_all_objects_and_the_next_one_finds_nothing(cluster: MemoryCluster) -> None:
    bodies = {name: await put(cluster, name, number) for number, name in enumerate(["a", "ä", "dir/b"], 2)}
    await cluster.objects.post(path_of("a"), SOURCE, PostRecord(at(9), {"n": "1"}, "image/png", at(9)))
    before = await rows(cluster)
    report = await run(cluster)
    assert (report.rows, report.moved, report.bytes) == (3, 3, sum(map(len, bodies.values())))
    assert report.is_whole
    assert not report.found_nothing
    for name, body in bodies.items():
        assert await in_policy(cluster, SOURCE, name) is None
        assert await body_of(cluster, name) == body
    shown = [(row.name, row.size, row.etag, row.content_type, row.modified.normal) for row in await rows(cluster)]
    assert shown == [(row.name, row.size, row.etag, row.content_type, row.modified.normal) for row in before]
    again = await run(cluster)
    assert (again.rows, again.moved, again.bytes) == (3, 0, 0)
    assert again.found_nothing


async def test_a_pass_that_only_looks_changes_nothing(cluster: MemoryCluster) -> None:
    await put(cluster, "a", 2)
    await put(cluster, "b", 2, TARGET)
    report = PassReport()
    await a_pass(cluster, report).look()
    assert (report.rows, report.left, report.moved) == (2, 1, 0)
    assert not report.found_nothing
    assert await in_policy(cluster, SOURCE, "a") is not None


async def test_a_mover_that_is_killed_before_any_of_its_calls_is_finished_by_the_next_one(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, listings = cluster.objects, cluster.listings
    names = ["head", "get", "upload", "post", "delete"]
    transport = cluster.listing_transport
    killer = Killer(
        monkeypatch,
        *((objects, name) for name in names),
        (listings, "update_rows"),
        (transport, "compare_rows"),
        (transport, "database_state"),
    )
    kills, is_done = 0, False
    while not is_done:
        # One that expires and has a POST, one that was deleted in the target alone, one that is as it was moved before.
        second = 10.0 * kills + 2
        expiring = await put(cluster, "expiring", second, metadata={DELETE_AT: str(DUE)})
        path = path_of("expiring")
        await queue_of(cluster).add(Task(DUE, path, SOURCE, at(second)))
        await objects.post(path, SOURCE, PostRecord(at(second + 1), {"n": str(kills), DELETE_AT: str(DUE)}))
        await put(cluster, "gone", second)
        await put(cluster, "gone", second, TARGET)
        await objects.delete(path_of("gone"), TARGET, at(second + 1))
        killer.left = kills
        is_done = not await was_killed(run(cluster, concurrency=1))
        killer.left = None
        for _ in range(2):
            assert await body_of(cluster, "expiring") == expiring
            info = await moving(cluster).head(path)
            assert (info.metadata["n"], info.timestamp.normal) == (str(kills), at(second).normal)
            with pytest.raises(NotFound):
                await moving(cluster).head(path_of("gone"))
            assert [row.name for row in await rows(cluster)] == ["expiring"]
            report = await run(cluster, concurrency=1)
            assert report.is_whole
        assert report.found_nothing
        assert await in_policy(cluster, SOURCE, "expiring") is None
        assert await in_policy(cluster, SOURCE, "gone") is None
        tasks = [task for task in await all_tasks(cluster) if task.policy == TARGET]
        assert moment_after(at(second + 1)) in {task.queued for task in tasks}
        kills += 1
    assert kills > 20


async def test_an_expiring_object_has_one_task_which_names_the_target(cluster: MemoryCluster) -> None:
    path = path_of("a")
    await queue_of(cluster).add(Task(DUE, path, SOURCE, at(2)))
    await put(cluster, "a", 2, metadata={DELETE_AT: str(DUE)})
    await run(cluster)
    info = await moving(cluster).head(path)
    # Its time is that of the copy, by which whoever replaces the object removes the task.
    assert await all_tasks(cluster) == [Task(DUE, path, TARGET, info.modified)]
    await run(cluster)
    assert len(await all_tasks(cluster)) == 1


async def test_the_task_of_the_target_is_there_before_the_copy(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await put(cluster, "a", 2, metadata={DELETE_AT: str(DUE)})
    seen: list[int] = []
    real = cluster.objects.upload

    async def upload(*args: object, **more: object) -> object:
        seen.extend(task.policy for task in await all_tasks(cluster))
        return await real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster.objects, "upload", upload)
    await run(cluster)
    assert seen == [TARGET]


async def test_a_row_that_one_replica_alone_has_is_moved(cluster: MemoryCluster) -> None:
    _, *others = cluster.container_devices()
    with cluster.databases_down(*others):
        await put(cluster, "a", 2)
    report = await run(cluster)
    assert (report.moved, report.is_whole) == (1, True)


async def test_without_a_replica_of_the_listing_a_pass_is_not_whole(cluster: MemoryCluster) -> None:
    await put(cluster, "a", 2)
    first, second, third = cluster.container_devices()
    with cluster.databases_down(second):
        report = await run(cluster)
        assert (report.moved, set(report.unheard)) == (1, {second.name})
        assert not (await run(cluster)).found_nothing
    with cluster.databases_down(first, second, third), pytest.raises(Unavailable, match="no replica"):
        await run(cluster)
    assert (await run(cluster)).found_nothing


async def test_what_can_not_be_moved_is_named_and_stays_and_is_moved_by_a_later_pass(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        await put(cluster, name, 2)
    real = cluster.objects.upload

    async def upload(path: object, *args: object, **more: object) -> object:
        if path == path_of("b"):
            raise Unavailable("too few devices")
        return await real(path, *args, **more)  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(cluster.objects, "upload", upload)
        report = await run(cluster)
    assert (report.moved, report.failed, report.rows) == (2, {"b": "too few devices"}, 3)
    assert not report.is_whole
    assert await in_policy(cluster, SOURCE, "b") is not None
    assert (await run(cluster)).moved == 1
    assert (await run(cluster)).found_nothing


async def test_a_pass_in_which_everything_fails_is_broken_off(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(30):
        await put(cluster, str(number), 2)
    monkeypatch.setattr(container_pass, "MAX_FAILED", 5)

    async def upload(*_args: object, **_more: object) -> object:
        raise Unavailable("too few devices")

    monkeypatch.setattr(cluster.objects, "upload", upload)
    report = PassReport()
    with pytest.raises(Unavailable, match="broken off"):
        await a_pass(cluster, report, concurrency=2).move()
    assert 5 <= len(report.failed) <= 7


async def test_no_more_objects_are_moved_at_a_time_than_told(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        await put(cluster, str(number), 2)
    running, most, real = 0, 0, cluster.objects.upload

    async def upload(*args: object, **more: object) -> object:
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(0.01)
        running -= 1
        return await real(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(cluster.objects, "upload", upload)
    assert (await run(cluster, concurrency=3)).moved == 12
    assert most == 3


async def test_a_deletion_of_which_only_one_policy_knows_is_completed(cluster: MemoryCluster) -> None:
    # In the target alone, as a proxy leaves it that is killed between both.
    await put(cluster, "a", 2)
    await cluster.objects.delete(path_of("a"), TARGET, moment_after(at(3)))
    # In the source alone, by a proxy that did not know; the mover had made the copy before.
    await put(cluster, "b", 2)
    await put(cluster, "b", 2, TARGET)
    await cluster.objects.delete(path_of("b"), SOURCE, at(3))
    assert await rows(cluster) == []
    report = await run(cluster)
    assert (report.markers, report.completed) == (2, 2)
    for name in "ab":
        assert await in_policy(cluster, SOURCE, name) is None
        assert await in_policy(cluster, TARGET, name) is None
    assert (await run(cluster)).found_nothing


async def test_an_object_whose_row_still_shows_its_deletion_is_moved(cluster: MemoryCluster) -> None:
    await put(cluster, "a", 2)
    await cluster.objects.delete(path_of("a"), SOURCE, at(3))
    with cluster.databases_down(*cluster.container_devices()):
        body = await put(cluster, "a", 4)
    report = await run(cluster)
    assert (report.moved, report.completed) == (1, 0)
    assert await body_of(cluster, "a") == body


async def test_deletions_from_long_before_the_move_are_passed_over(cluster: MemoryCluster) -> None:
    report = PassReport()
    late = a_pass(cluster, report)
    late._old_s = 4.0
    marker = [ObjectRow("old", at(3), deleted=True), ObjectRow("new", at(5), deleted=True)]
    await cluster.listings.update_rows(ACCOUNT, CONTAINER, marker)
    await late.move()
    assert report.markers == 1


async def test_rows_of_all_shards_are_moved(split: Split) -> None:  # noqa: F811 - the fixture
    report = await run(split.cluster)
    assert (report.rows, report.moved, report.is_whole) == (len(NAMES), len(NAMES), True)
    for name in NAMES:
        assert await in_policy(split.cluster, SOURCE, name) is None
    assert [row.name for row in await rows(split.cluster)] == NAMES
    assert (await run(split.cluster)).found_nothing


async def test_nothing_is_moved_of_a_container_that_was_created_again(cluster: MemoryCluster) -> None:
    body = await put(cluster, "a", 2)

    async def still() -> None:
        raise NoLongerMoves("it was created again")

    with pytest.raises(NoLongerMoves):
        await a_pass(cluster, PassReport(), still=still).move()
    assert await in_policy(cluster, TARGET, "a") is None
    assert await body_of(cluster, "a") == body


async def test_the_container_is_asked_after_an_object_was_found_and_for_many_at_once(cluster: MemoryCluster) -> None:
    for number in range(20):
        await put(cluster, str(number), 2)
    asked = 0

    async def still() -> None:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)

    report = PassReport()
    await a_pass(cluster, report, 10, still).move()
    assert report.moved == 20
    # Each object is looked up twice, and found once.
    assert 2 <= asked < 20


async def test_who_comes_while_a_check_runs_waits_for_the_next_one() -> None:
    begun, may_end = 0, asyncio.Event()

    async def check() -> None:
        nonlocal begun
        begun += 1
        await may_end.wait()

    fence = Fence(check)
    first = asyncio.create_task(fence.passed())
    await asyncio.sleep(0.01)
    others = [asyncio.create_task(fence.passed()) for _ in range(3)]
    await asyncio.sleep(0.01)
    assert begun == 1
    may_end.set()
    await asyncio.gather(first, *others)
    assert begun == 2
