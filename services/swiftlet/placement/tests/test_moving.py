"""Objects that move from one policy to another: what is read and written meanwhile, and a mover that ends anywhere."""

from __future__ import annotations

import pytest

from swiftlet.errors import NotFound, Superseded, SwiftletError, Unavailable
from swiftlet.model import ListingQuery, ObjectInfo, ObjectRow, PostRecord
from swiftlet.names import Path
from swiftlet.placement.moving import Move, Moved, MovingObjects, moment_after
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, PATH, MemoryCluster, at, footer_of, record_of

SOURCE, TARGET = 0, 1
BODY = b"what is moved" * 100


class Killed(Exception):
    """The mover ended."""


async def no_pace(_size: int) -> None:
    """Go on at once."""


def moving(cluster: MemoryCluster, into: int = TARGET) -> MovingObjects:
    """The container's objects, with PUTs to a policy."""
    return MovingObjects(cluster.objects, Move(SOURCE, TARGET, into))


async def body_of(objects: MovingObjects) -> bytes:
    """What a client reads."""
    download = await objects.get(PATH)
    return b"".join([chunk async for chunk in download.chunks()])


async def in_policy(cluster: MemoryCluster, policy: int) -> ObjectInfo | None:
    """What one policy has."""
    try:
        return await cluster.objects.head(PATH, policy, newest=True)
    except NotFound:
        return None


async def rows(cluster: MemoryCluster) -> list[ObjectRow]:
    """The container's listing."""
    _, found = await cluster.listings.list_objects(ACCOUNT, CONTAINER, ListingQuery())
    return [row for row in found if isinstance(row, ObjectRow)]


async def put_with_post(cluster: MemoryCluster) -> None:
    """An object in the source, with metadata that came later."""
    await cluster.objects.put(PATH, SOURCE, record_of(PATH, at(2), {"a": "1"}), BODY, footer_of(BODY))
    await cluster.objects.post(PATH, SOURCE, PostRecord(at(3), {"a": "2"}, "image/png", at(3)))


async def test_an_object_is_the_same_after_its_move_for_clients_and_in_the_listing(cluster: MemoryCluster) -> None:
    await put_with_post(cluster)
    objects = moving(cluster)
    before, listed = await objects.head(PATH), await rows(cluster)
    assert await objects.move(PATH, no_pace) is Moved.MOVED
    after = await objects.head(PATH)
    assert await in_policy(cluster, SOURCE) is None
    assert (after.timestamp, after.meta_timestamp) == (moment_after(at(2)), at(3))
    assert after.timestamp.normal == before.timestamp.normal
    same = ["name", "size", "etag", "xxh3", "metadata", "sysmeta", "content_type", "meta_timestamp"]
    same.append("content_type_timestamp")
    assert [getattr(after, name) for name in same] == [getattr(before, name) for name in same]
    assert await body_of(objects) == BODY
    (row,), (old,) = await rows(cluster), listed
    assert (row.size, row.etag, row.content_type, row.modified) == (old.size, old.etag, old.content_type, old.modified)
    assert await objects.move(PATH, no_pace) is Moved.ABSENT


async def test_a_row_that_is_delivered_late_by_the_source_does_not_hide_the_object(cluster: MemoryCluster) -> None:
    with cluster.databases_down(*cluster.container_devices()):
        await cluster.put(2, BODY)
    assert cluster.hosts_with_pending()
    # Devices of the source deliver what they have by then, which is the tombstone.
    assert await moving(cluster).move(PATH, no_pace) is Moved.MOVED
    await cluster.deliver_pending(1000)
    assert [row.name for row in await rows(cluster)] == [PATH.obj]


async def test_a_mover_that_ends_before_any_of_its_calls_is_finished_by_the_next_one(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, calls = 0, 0
    for name in ("head", "get", "upload", "post", "delete"):
        real = getattr(cluster.objects, name)

        async def counted(*args: object, real: object = real, **more: object) -> object:
            nonlocal calls
            calls += 1
            if calls > left:
                raise Killed
            return await real(*args, **more)  # type: ignore[operator]

        monkeypatch.setattr(cluster.objects, name, counted)
    number = 2
    ended = 0
    while True:
        calls, ended = 0, ended + 1
        left = 10**6
        body = BODY + str(number).encode()
        await cluster.objects.put(PATH, SOURCE, record_of(PATH, at(number)), body, footer_of(body))
        await cluster.objects.post(PATH, SOURCE, PostRecord(at(number + 1), {"n": str(number)}))
        calls, left = 0, ended
        try:
            await moving(cluster).move(PATH, no_pace)
            done = True
        except Killed:
            done = False
        left = 10**6
        objects = moving(cluster)
        for _ in range(2):
            assert await body_of(objects) == body
            assert (await objects.head(PATH)).metadata == {"n": str(number)}
            assert (await objects.get(PATH)).info.metadata == {"n": str(number)}
            await objects.move(PATH, no_pace)
        assert await in_policy(cluster, SOURCE) is None
        number += 10
        if done:
            break
    assert ended > 8


async def test_the_newest_of_both_policies_counts(cluster: MemoryCluster) -> None:
    objects = moving(cluster)
    await cluster.put(2, b"old")
    await objects.put(PATH, record_of(PATH, at(4)), b"new", footer_of(b"new"))
    assert await body_of(objects) == b"new"
    # One that a proxy which does not know yet has stored in the source.
    await moving(cluster, SOURCE).put(PATH, record_of(PATH, at(5)), b"newer", footer_of(b"newer"))
    assert await body_of(objects) == b"newer"
    with pytest.raises(Superseded) as refused:
        await objects.put(PATH, record_of(PATH, at(4.5)), b"late", footer_of(b"late"))
    assert refused.value.timestamp == at(5)
    assert await objects.move(PATH, no_pace) is Moved.MOVED
    assert await body_of(objects) == b"newer"


async def test_an_older_object_of_the_source_goes_without_being_copied(cluster: MemoryCluster) -> None:
    objects = moving(cluster)
    await cluster.put(2, b"old")
    await objects.put(PATH, record_of(PATH, at(4)), b"new", footer_of(b"new"))
    assert await objects.move(PATH, no_pace) is Moved.MOVED
    assert await body_of(objects) == b"new"
    assert await in_policy(cluster, SOURCE) is None


async def test_a_deletion_counts_in_both_and_no_mover_brings_the_object_back(cluster: MemoryCluster) -> None:
    objects = moving(cluster)
    await cluster.put(2, BODY)

    async def delete_meanwhile(_size: int) -> None:
        # At the time of the version itself, as the expirer does.
        await objects.delete(PATH, at(2))

    assert await objects.move(PATH, delete_meanwhile) is Moved.ABSENT
    with pytest.raises(NotFound):
        await objects.head(PATH)
    assert await in_policy(cluster, SOURCE) is None
    assert await in_policy(cluster, TARGET) is None
    assert await rows(cluster) == []


async def test_a_deletion_is_not_acknowledged_while_a_policy_can_not_be_written(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.put(2, BODY)
    with cluster.down(*cluster.devices), pytest.raises(SwiftletError):
        await moving(cluster).delete(PATH, at(3))
    assert await body_of(moving(cluster)) == BODY


async def test_a_post_during_a_copy_is_not_lost(cluster: MemoryCluster) -> None:
    await cluster.put(2, BODY)
    objects = moving(cluster)
    posted = False

    async def post_meanwhile(_size: int) -> None:
        nonlocal posted
        if not posted:
            posted = True
            await objects.post(PATH, PostRecord(at(3), {"a": "2"}))

    assert await objects.move(PATH, post_meanwhile) is Moved.MOVED
    assert (await objects.head(PATH)).metadata == {"a": "2"}
    with pytest.raises(NotFound):
        await objects.post(Path(ACCOUNT, CONTAINER, "other"), PostRecord(at(4), {}))


async def test_what_is_not_read_back_as_it_was_stays_in_the_source(
    cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.put(2, BODY)
    other = BODY[:-1] + b"?"
    record = record_of(PATH, moment_after(at(2)))
    await cluster.objects.put(PATH, TARGET, record, other, footer_of(other))
    with pytest.raises(Unavailable):
        await moving(cluster).move(PATH, no_pace)
    assert await in_policy(cluster, SOURCE) is not None
