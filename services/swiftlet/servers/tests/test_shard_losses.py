"""What is missing of a split container is said to be missing: never left out of a listing, never counted as nothing.

Fault model: a device comes back empty (its disk was replaced, a database went to quarantine, the ring moved it) before
sync has filled it; a holder of the container is new; a peer's program knows nothing of shards.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from swiftlet.errors import NodeBusy, NodeError, NotEmpty, NotFound, SwiftletError
from swiftlet.listing import shards
from swiftlet.listing.tests.test_query import naive
from swiftlet.model import DatabaseName, ListingQuery, ObjectRow
from swiftlet.servers.tests.listing_cluster import HASH_PATH
from swiftlet.servers.tests.sharded_cluster import ACCOUNT, CONTAINER, NAME, ShardedCluster, sharded_cluster
from swiftlet.servers.tests.test_sharding import assert_listed, rows
from swiftlet.timestamp import Timestamp

at = Timestamp.at


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ShardedCluster]:
    async with sharded_cluster(tmp_path) as made:
        await made.make()
        yield made


async def lose_shard(cluster: ShardedCluster, holder: int, point: str) -> None:
    """The database of that holder's replica of a shard goes."""
    sharded = cluster.transport.sharded[cluster.devices[holder].name]
    partition, holders = sharded.shard_holders(cluster.id, NAME, point)
    store = cluster.stores[holders[0].name]
    id = store.id_of(partition, shards.shard_name(NAME, point))
    assert await store.remove(id, await store.fingerprint(id))


async def settled(cluster: ShardedCluster, count: int = 100) -> dict[str, ObjectRow]:
    model = {row.name: row for row in rows(count)}
    assert await cluster.write(list(model.values())) == 3
    await cluster.settle()
    return model


async def test_a_write_does_not_make_a_lost_shard_look_whole(cluster: ShardedCluster) -> None:
    model = await settled(cluster)
    holder = cluster.holders[0]
    point = (await cluster.points(holder))[-1]
    await lose_shard(cluster, holder.id, point)
    new = ObjectRow("d6/new", at(5), 1)
    model[new.name] = new
    assert await cluster.write([new]) == 3
    live = set(model)
    for one in cluster.holders:
        assert await cluster.listed(one, ListingQuery()) == naive(live, ListingQuery())
    # Before all were known to have moved everything there is no other replica to ask.
    store = cluster.stores[holder.name]
    await store.write(
        cluster.id, lambda database: database.connection.execute("UPDATE shard SET complete = 0").rowcount
    )
    with pytest.raises(NodeBusy):
        await cluster.listed(holder, ListingQuery())
    for sharded in cluster.transport.sharded.values():
        sharded._paused.clear()
    for _ in range(2):
        await cluster.sync()
        await cluster.settle()
    await assert_listed(cluster, model)


async def test_a_lost_shard_is_not_counted_as_empty(cluster: ShardedCluster) -> None:
    model = await settled(cluster)
    holder = cluster.holders[0]
    totals = await cluster.totals(holder)
    points = await cluster.points(holder)
    gone = [ObjectRow(name, at(5), deleted=True) for name in model if name <= points[-1]]
    await lose_shard(cluster, holder.id, points[-1])
    await cluster.keepers[holder.id].run_once()
    assert await cluster.totals(holder) == totals
    assert await cluster.write(gone) == 3
    with pytest.raises(SwiftletError) as refused:
        await cluster.transport.delete_container(holder, cluster.partition, ACCOUNT, CONTAINER, at(9))
    assert not isinstance(refused.value, NotFound)
    assert (await cluster.totals(holder))[0] > 0


async def test_a_holder_that_is_new_while_rows_move_says_so(tmp_path: Path) -> None:
    async with sharded_cluster(tmp_path, above_rows=60, batch_rows=5) as cluster:
        await cluster.make()
        model = {row.name: row for row in rows(100)}
        await cluster.write(list(model.values()))
        for index in range(3):
            await cluster.round(index)
        old, new = cluster.holders[1], cluster.holders[2]
        assert not await cluster.stores[old.name].read(cluster.id, lambda database: shards.layout(database).moved)
        store = cluster.stores[new.name]
        assert await store.remove(cluster.id, await store.fingerprint(cluster.id))
        await cluster.sync(1)
        live = set(model)
        for holder in cluster.holders:
            try:
                assert await cluster.listed(holder, ListingQuery()) == naive(live, ListingQuery()), holder.name
            except NodeBusy:
                assert holder is new
        for _ in range(2):
            await cluster.settle()
            await cluster.sync()
        await cluster.settle()
        await assert_listed(cluster, model)


async def test_a_handoff_leaves_the_shards_of_others_alone(tmp_path: Path) -> None:
    async with sharded_cluster(tmp_path, count=4) as cluster:
        await cluster.make()
        model = await settled(cluster, 70)
        [point] = await cluster.points(cluster.holders[0])
        first = cluster.holders[0]
        handoff = next(own for own in cluster.devices if own not in cluster.holders)
        place = cluster.partition, ACCOUNT, CONTAINER
        await cluster.transport.put_container(handoff, *place, at(1), {}, None, 0)
        await cluster.transport.shard_points(handoff, cluster.partition, NAME, at(4), [point], True)
        for device in (first, handoff):
            await cluster.transport.shard_points(device, cluster.partition, NAME, at(5), ["d5"], True)
        live = set(model)
        for _ in range(30):
            await cluster.round(handoff.id)
            assert await cluster.listed(first, ListingQuery()) == naive(live, ListingQuery())
        await cluster.settle()
        await assert_listed(cluster, model)
        with pytest.raises(NodeBusy):
            await cluster.transport.list_objects(handoff, *place, ListingQuery())


async def test_no_split_before_all_holders_understand_it(cluster: ShardedCluster, monkeypatch: Any) -> None:
    model = {row.name: row for row in rows(100)}
    await cluster.write(list(model.values()))
    old = cluster.holders[1]
    ask = cluster.transport.shard_look

    async def not_the_old_one(*call: Any) -> Any:
        if call[0].id == old.id:
            raise NodeError("the node answered 404 without saying why")
        return await ask(*call)

    monkeypatch.setattr(cluster.transport, "shard_look", not_the_old_one)
    for _ in range(5):
        cluster.now_s += 100
        for index in range(3):
            assert await cluster.round(index)
    assert [await cluster.points(holder) for holder in cluster.holders] == [[]] * 3
    monkeypatch.undo()
    await cluster.settle()
    assert await cluster.points(cluster.holders[0])
    await assert_listed(cluster, model)


async def test_no_delete_while_a_part_is_being_moved(tmp_path: Path) -> None:
    async with sharded_cluster(tmp_path, above_rows=60, batch_rows=5) as cluster:
        await cluster.make()
        model = {row.name: row for row in rows(100)}
        await cluster.write(list(model.values()))
        await cluster.round(cluster.holders[0].id)
        await cluster.round(cluster.holders[0].id)
        holder = cluster.holders[0]
        store = cluster.stores[holder.name]
        # What it has counted of its shards is less than they hold, as when sync brought rows that it never had.
        await cluster.write([ObjectRow(name, at(3), deleted=True) for name in sorted(model)[:-3]])
        [point] = await cluster.points(holder)
        await store.write(cluster.id, lambda database: shards.add_totals(database, point, -1000, -100_000))
        assert (await cluster.totals(holder))[0] == 0
        with pytest.raises(NotEmpty):
            await cluster.transport.delete_container(holder, cluster.partition, ACCOUNT, CONTAINER, at(9))


@pytest.mark.parametrize("name", ["\u00e9" * 128, "\0versions\0c"])
async def test_a_container_of_the_longest_name_and_a_hidden_one_are_split(tmp_path: Path, name: str) -> None:
    # The shards' databases have longer names than any container.
    async with sharded_cluster(tmp_path) as cluster:
        place = cluster.ring.partition_of(HASH_PATH(ACCOUNT, name)), ACCOUNT, name
        for holder in cluster.ring.primaries(place[0]):
            await cluster.transport.put_container(holder, *place, at(1), {}, None, 0)
            await cluster.transport.update_rows(holder, *place, rows(100))
        await cluster.settle()
        own = cluster.devices[0]
        _, entries = await cluster.transport.list_objects(own, *place, ListingQuery())
        assert len(entries) == 100
        store = cluster.stores[own.name]
        id = store.id_of(place[0], DatabaseName(ACCOUNT, name))
        assert len(await store.read(id, lambda database: database.points())) >= 2


async def test_a_shard_that_came_back_by_sync_while_others_still_move_is_not_trusted(tmp_path: Path) -> None:
    async with sharded_cluster(tmp_path, above_rows=60, batch_rows=9) as cluster:
        await cluster.make()
        model = {row.name: row for row in rows(100)}
        await cluster.write(list(model.values()))
        first = cluster.holders[0]
        for _ in range(8):
            await cluster.round(first.id)
        await cluster.round(cluster.holders[1].id)
        [point] = await cluster.points(first)
        await lose_shard(cluster, first.id, point)
        await cluster.sync()
        live = set(model)
        sharded = cluster.transport.sharded[first.name]
        assert await sharded.look(cluster.id, NAME, point) is not None
        with pytest.raises(NodeBusy):
            await cluster.listed(first, ListingQuery())
        for holder in cluster.holders[1:]:
            assert await cluster.listed(holder, ListingQuery()) == naive(live, ListingQuery()), holder.name
        for _ in range(2):
            await cluster.settle()
            await cluster.sync()
        await cluster.settle()
        await assert_listed(cluster, model)


async def test_rows_that_wait_for_a_shard_are_listed(cluster: ShardedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    model = await settled(cluster)
    holder = cluster.holders[0]
    point = (await cluster.points(holder))[-1]
    sharded = cluster.transport.sharded[holder.name]
    _, partners = sharded.shard_holders(cluster.id, NAME, point)
    sharded._paused[partners[0]] = asyncio.get_running_loop().time() + 1000
    new = [ObjectRow(f"d6/new{number}", at(5), 1) for number in range(30)]
    gone = [ObjectRow(name, at(5), deleted=True) for name in sorted(model)[-3:]]
    await cluster.transport.update_rows(holder, cluster.partition, ACCOUNT, CONTAINER, [*new, *gone])
    model |= {row.name: row for row in (*new, *gone)}
    live = {row.name for row in model.values() if not row.deleted}
    for query in (ListingQuery(), ListingQuery(limit=7, marker="d6/new"), ListingQuery(delimiter="/")):
        assert await cluster.listed(holder, query) == naive(live, query)
    # More than a listing brings are not left out either.
    monkeypatch.setattr("swiftlet.sharding.sharded.MAX_BROUGHT", 10)
    with pytest.raises(NodeBusy):
        await cluster.listed(holder, ListingQuery())
    sharded._paused.clear()
    await cluster.settle()
    assert await cluster.listed(holder, ListingQuery()) == naive(live, ListingQuery())


async def test_a_shard_that_is_away_keeps_no_rows_from_another(cluster: ShardedCluster) -> None:
    await settled(cluster)
    holder = cluster.holders[0]
    sharded = cluster.transport.sharded[holder.name]
    low, *_, high = await cluster.points(holder)
    for point in (low, high):
        _, partners = sharded.shard_holders(cluster.id, NAME, point)
        sharded._paused[partners[0]] = asyncio.get_running_loop().time() + 1000
    new = [ObjectRow(point + "x", at(5), 1) for point in (low, high)]
    await cluster.transport.update_rows(holder, cluster.partition, ACCOUNT, CONTAINER, new)
    sharded._paused.clear()
    partition, holders = sharded.shard_holders(cluster.id, NAME, high)
    id = cluster.stores[holders[0].name].id_of(partition, shards.shard_name(NAME, high))
    await cluster.stores[holders[0].name].remove(id, await cluster.stores[holders[0].name].fingerprint(id))
    await cluster.round(holder.id)
    waiting = await cluster.stores[holder.name].read(cluster.id, lambda database: shards.tail(database, low, None, 9))
    assert [row.name for row in waiting] == [high + "x"]


async def test_what_sync_brought_back_is_trusted_in_a_split_after_a_while(cluster: ShardedCluster) -> None:
    await settled(cluster)
    holder = cluster.holders[0]
    sharded = cluster.transport.sharded[holder.name]
    points = await cluster.points(holder)
    await lose_shard(cluster, holder.id, points[-1])
    await cluster.sync()
    model = {row.name: row for row in (*rows(100), *(ObjectRow(f"d6/z{number:03}", at(5), 1) for number in range(100)))}
    await cluster.write([row for row in model.values() if row.name.startswith("d6/z")])
    await cluster.round(holder.id)
    look = await sharded.look(cluster.id, NAME, points[-1])
    assert look is not None
    assert not look.founded
    assert await cluster.points(holder) == points
    cluster.now_s += 1000
    for _ in range(3):
        await cluster.round(holder.id)
    look = await sharded.look(cluster.id, NAME, points[-1])
    assert look is not None
    assert look.founded
    await cluster.settle()
    assert len(await cluster.points(holder)) > len(points)
    await assert_listed(cluster, model)


async def test_a_shards_handoff_goes_home_with_what_lies_above_its_end(tmp_path: Path) -> None:
    async with sharded_cluster(tmp_path, count=4) as cluster:
        await cluster.make()
        model = await settled(cluster, 150)
        low, high, *_ = await cluster.points(cluster.holders[0])
        sharded = cluster.transport.sharded[cluster.holders[0].name]
        partition, holders = sharded.shard_holders(cluster.id, NAME, low)
        handoff = next(own for own in cluster.devices if own not in holders)
        shard = shards.shard_name(NAME, low)
        await cluster.transport.shard_found(handoff, partition, shard, True)
        late = [ObjectRow(low + "x", at(5), 1), ObjectRow(high + "x", at(5), 1)]
        await cluster.transport.shard_merge(handoff, partition, shard, late)
        await cluster.transport.shard_points(handoff, partition, shard, at(5), [high], False)
        model |= {row.name: row for row in late}
        for _ in range(3):
            await cluster.sync()
            await cluster.settle(range(4))
        with pytest.raises(NotFound):
            await cluster.transport.shard_look(handoff, partition, shard)
        await assert_listed(cluster, model)


async def test_a_split_goes_on_by_itself_once_a_lost_shard_is_back(tmp_path: Path) -> None:
    async with sharded_cluster(tmp_path, above_rows=60, batch_rows=5) as cluster:
        await cluster.make()
        model = {row.name: row for row in rows(100)}
        await cluster.write(list(model.values()))
        first = cluster.holders[0]
        await cluster.round(first.id)
        for holder in cluster.holders:
            await cluster.round(holder.id)
        [point] = await cluster.points(first)
        await lose_shard(cluster, first.id, point)
        for _ in range(3):
            cluster.transport.sharded[first.name]._paused.clear()
            assert await cluster.round(first.id) == 1
        await cluster.sync()
        cluster.transport.sharded[first.name]._paused.clear()
        await cluster.settle()
        assert await cluster.stores[first.name].read(cluster.id, lambda database: shards.layout(database).moved)
        await cluster.sync()
        await cluster.settle()
        await assert_listed(cluster, model)
