"""Containers that are split list, count and take writes as one, whatever fails while they are split."""

from __future__ import annotations

import asyncio
import random
from array import array
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from swiftlet.errors import NodeBusy, NodeError, NodeUnreachable, NotEmpty, NotFound
from swiftlet.listing.tests.test_query import naive
from swiftlet.model import Amounts, Bounds, Claim, DatabaseKind, ListingQuery, ObjectRow, Subdir
from swiftlet.policy_moves import ITEM, Phase, PolicyMove
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.containers.claims import Claims
from swiftlet.servers.tests.listing_cluster import HASH_PATH, http_cluster
from swiftlet.servers.tests.sharded_cluster import (
    ACCOUNT,
    CONTAINER,
    NAME,
    ShardedCluster,
    seeds,
    sharded_cluster,
)
from swiftlet.sharding.shard_keeper import ShardKeeper, ShardSettings
from swiftlet.sharding.shard_moves import ShardMover
from swiftlet.sharding.sharded import ShardedReplicas
from swiftlet.testing.storage.memory_listing import Fault
from swiftlet.timestamp import Timestamp, TimestampClock
from swiftlet.transport.http_listing import HttpListingTransport

at = Timestamp.at


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[ShardedCluster]:
    async with sharded_cluster(tmp_path) as made:
        await made.make()
        yield made


def rows(count: int, second: float = 2, size: int = 3) -> list[ObjectRow]:
    return [ObjectRow(f"d{n % 7}/o{n:05}", at(second), size, "e" * 32, "t/t") for n in range(count)]


QUERIES = [
    ListingQuery(),
    ListingQuery(reverse=True),
    ListingQuery(limit=17),
    ListingQuery(limit=17, marker="d3/o00003", reverse=True),
    ListingQuery(limit=90, marker="d2"),
    ListingQuery(prefix="d4/"),
    ListingQuery(delimiter="/"),
    ListingQuery(delimiter="/", reverse=True),
    ListingQuery(delimiter="/", limit=2, marker="d3/"),
    ListingQuery(prefix="d", delimiter="0"),
    ListingQuery(marker="d1/o00008", end_marker="d5"),
    ListingQuery(path="d3"),
    ListingQuery(path=""),
    ListingQuery(limit=0),
]


def live_of(model: dict[str, ObjectRow]) -> set[str]:
    return {row.name for row in model.values() if not row.deleted}


async def assert_listed(cluster: ShardedCluster, model: dict[str, ObjectRow]) -> None:
    live = live_of(model)
    size = sum(row.size for row in model.values() if not row.deleted)
    await assert_answers(cluster, live, QUERIES)
    totals = await asyncio.gather(*map(cluster.totals, cluster.holders))
    assert totals == [(len(live), size)] * len(cluster.holders)


async def assert_answers(cluster: ShardedCluster, live: set[str], queries: list[ListingQuery]) -> None:
    answers = await asyncio.gather(*(cluster.listed(holder, query) for query in queries for holder in cluster.holders))
    for number, query in enumerate(queries):
        expected = naive(live, query)
        for index, holder in enumerate(cluster.holders):
            assert answers[number * len(cluster.holders) + index] == expected, (holder.name, query)


async def test_a_container_that_is_split_is_as_one(cluster: ShardedCluster) -> None:
    model = {row.name: row for row in rows(300)}
    assert await cluster.write(list(model.values())) == 3
    await cluster.settle()
    points = await cluster.points(cluster.holders[0])
    assert len(points) >= 7
    assert [await cluster.points(holder) for holder in cluster.holders] == [points] * 3
    await assert_listed(cluster, model)
    for holder in cluster.holders:
        own = await cluster.stores[holder.name].read(cluster.id, lambda database: database.head.totals.rows)
        assert own <= cluster.settings.above_rows
        info = await cluster.transport.container_info(holder, cluster.partition, ACCOUNT, CONTAINER)
        assert info.metadata == {"X-Container-Meta-A": "1"}


@pytest.mark.parametrize("phase", Phase)
async def test_a_container_that_is_split_moves_to_another_policy(cluster: ShardedCluster, phase: Phase) -> None:
    model = {row.name: row for row in rows(300)}
    assert await cluster.write(list(model.values())) == 3
    for number, one in enumerate(Phase, 100):
        move = PolicyMove(0, 1, one, at(number), at(1))
        for holder in cluster.holders:
            item = {ITEM: move.text()}
            await cluster.transport.post_container(holder, cluster.partition, ACCOUNT, CONTAINER, at(number), item)
        await cluster.settle()
        if one is phase:
            break
    await cluster.sync()
    await assert_listed(cluster, model)
    for holder in cluster.holders:
        place = holder, cluster.partition, ACCOUNT, CONTAINER
        listed, _ = await cluster.transport.list_objects(*place, ListingQuery(marker="d3"))
        for info in (listed, await cluster.transport.container_info(*place)):
            assert (info.move, info.policy, info.object_count) == (move, move.policy, 300)
        store = cluster.stores[holder.name]
        kind = DatabaseKind.CONTAINER
        ids = [id for partition in await store.partitions(kind) for id in await store.databases(kind, partition)]
        heads = [await store.read(id, lambda database: database.head) for id in ids]
        assert [head.move for head in heads if head.name == NAME] == [move]
        assert not [head for head in heads if head.name != NAME and head.move is not None], "shards have no state"
        assert len(heads) > 1


async def test_writes_go_to_the_shards_and_are_seen_at_once(cluster: ShardedCluster) -> None:
    model = {row.name: row for row in rows(200)}
    await cluster.write(list(model.values()))
    await cluster.settle()
    for number in range(0, 200, 3):
        old = rows(200)[number]
        row = ObjectRow(old.name, at(3), deleted=True) if number % 2 else replace(old, timestamp=at(3), size=number)
        model[row.name] = row
        new = ObjectRow(f"d{number % 7}/new{number}", at(3), 1)
        model[new.name] = new
        assert await cluster.write([row, new]) == 3
    await assert_listed(cluster, model)
    await cluster.write(rows(200, 1))
    await assert_listed(cluster, model)


async def test_delete_of_an_emptied_container(cluster: ShardedCluster) -> None:
    await cluster.write(rows(200))
    await cluster.settle()
    for holder in cluster.holders:
        with pytest.raises(NotEmpty):
            await cluster.transport.delete_container(holder, cluster.partition, ACCOUNT, CONTAINER, at(9))
    await cluster.write([ObjectRow(row.name, at(3), deleted=True) for row in rows(200)])
    for holder in cluster.holders:
        await cluster.transport.delete_container(holder, cluster.partition, ACCOUNT, CONTAINER, at(9))
        with pytest.raises(NotFound):
            await cluster.transport.container_info(holder, cluster.partition, ACCOUNT, CONTAINER)
    for holder in cluster.holders:
        await cluster.transport.put_container(holder, cluster.partition, ACCOUNT, CONTAINER, at(10), {}, None, 0)
    await cluster.write(rows(200, 1))
    await assert_listed(cluster, {})
    await cluster.write(rows(100, 11))
    await assert_listed(cluster, {row.name: row for row in rows(100, 11)})


@pytest.mark.timeout(1200)  # Ten seconds of one processor and its disk; a machine that is shared takes far longer.
@pytest.mark.parametrize("dying", [0, 1, 2])
async def test_killed_at_each_step(tmp_path: Path, dying: int) -> None:
    """Each holder dies at every third step, at each step one of them. Between rounds some of the queries are made."""
    step = dying
    while True:
        async with sharded_cluster(tmp_path / str(step), above_rows=30, batch_rows=11) as cluster:
            await cluster.make()
            model = {row.name: row for row in rows(70)}
            await cluster.write(list(model.values()))
            kills = cluster.kills[dying]
            kills.at = step
            for number in range(8):
                for index in range(3):
                    await cluster.round(index)
                row = ObjectRow(f"d{number}/o{number:05}", at(4), number) if number % 2 else rows(70)[number]
                row = replace(row, timestamp=at(4), deleted=number % 4 == 2, size=number)
                model[row.name] = row
                await cluster.write([row])
                await assert_answers(cluster, live_of(model), QUERIES[(number + step) % 7 :: 7])
            await cluster.settle()
            await assert_listed(cluster, model)
            if kills.pending:
                assert {"put", "hand over", "forget"} <= set(kills.seen)
                return
        step += 3


async def test_a_holder_that_is_down(cluster: ShardedCluster) -> None:
    model = {row.name: row for row in rows(200)}
    await cluster.write(list(model.values()))
    await cluster.settle()
    for down in range(3):
        cluster.fail(down, Fault.UNREACHABLE)
        new = [ObjectRow(f"d{n % 7}/down{down}-{n:04}", at(5 + down), 1) for n in range(90)]
        new += [ObjectRow(row.name, at(5 + down), deleted=True) for row in rows(200)[down::20]]
        assert await cluster.write(new) == 2
        model |= {row.name: row for row in new}
        live = live_of(model)
        for query in QUERIES:
            expected = naive(live, query)
            for holder in cluster.holders:
                if holder.id != down:
                    assert await cluster.listed(holder, query) == expected
        for index in range(3):
            if index != down:
                await cluster.round(index)
        cluster.fail(down, None)
        for sharded in cluster.transport.sharded.values():
            sharded._paused.clear()
        await cluster.sync()
        await cluster.settle()
        await cluster.sync()
        await cluster.settle()
        await assert_listed(cluster, model)


async def test_two_holders_who_split_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with sharded_cluster(tmp_path, takeover_s=0.0) as cluster:
        await cluster.make()
        model = {row.name: row for row in rows(300)}
        for index, holder in enumerate(cluster.holders):
            # Replicas that differ choose different middles.
            part = list(model.values())[index * 20 :]
            await cluster.transport.update_rows(holder, cluster.partition, ACCOUNT, CONTAINER, part)
        tell = cluster.transport.shard_points
        for leader in cluster.holders:

            async def alone(*call: Any, leader: Device = leader) -> None:
                if call[0].id != leader.id:
                    raise NodeUnreachable("it does not learn of the split")
                await tell(*call)

            monkeypatch.setattr(cluster.transport, "shard_points", alone)
            await cluster.round(leader.id)
        monkeypatch.undo()
        assert len({tuple(await cluster.points(holder)) for holder in cluster.holders}) > 1
        for sharded in cluster.transport.sharded.values():
            sharded._paused.clear()
        await cluster.write(list(model.values()))
        for _ in range(3):
            await cluster.sync()
            await cluster.settle()
        await assert_listed(cluster, model)
        points = await cluster.points(cluster.holders[0])
        assert [await cluster.points(holder) for holder in cluster.holders] == [points] * 3


@pytest.mark.parametrize("seed", seeds(2))
async def test_random_histories(tmp_path: Path, seed: int) -> None:
    randomness = random.Random(seed)
    model: dict[str, ObjectRow] = {}
    async with sharded_cluster(tmp_path, above_rows=25, batch_rows=randomness.randint(1, 20)) as cluster:
        await cluster.make()
        for second in range(2, 50):
            new = []
            for _ in range(randomness.randint(1, 30)):
                name = f"d{randomness.randint(0, 6)}/o{randomness.randint(0, 150):05}"
                stamp = at(second + randomness.randint(0, 90) / 100)
                row = ObjectRow(name, stamp, deleted=True)
                if randomness.random() < 0.6:
                    row = ObjectRow(name, stamp, randomness.randint(0, 9), "e")
                if name not in model or model[name].timestamp < stamp:
                    model[name] = row
                    new.append(row)
            assert await cluster.write(new) == 3
            if randomness.random() < 0.5:
                index = randomness.randint(0, 2)
                if randomness.random() < 0.3:
                    cluster.kills[index].at = len(cluster.kills[index].seen) + randomness.randint(0, 5)
                await cluster.round(index)
            if randomness.random() < 0.2:
                await cluster.sync(1)
            await assert_answers(cluster, live_of(model), [randomness.choice(QUERIES)])
        for kills in cluster.kills.values():
            kills.at = None
        for _ in range(2):
            await cluster.settle()
            await cluster.sync()
        await cluster.settle()
        await assert_listed(cluster, model)
        for store in cluster.stores.values():
            for partition in range(4):
                for id in await store.databases(cluster.id.kind, partition):
                    await store.verify(id)


async def test_a_container_is_not_split_below_the_number_nor_when_that_is_off(tmp_path: Path) -> None:
    for above in (0, 200):
        async with sharded_cluster(tmp_path / str(above), above_rows=above) as cluster:
            await cluster.make()
            model = {row.name: row for row in rows(200)}
            await cluster.write(list(model.values()))
            await cluster.settle()
            assert await cluster.points(cluster.holders[0]) == []
            await assert_listed(cluster, model)


async def test_a_handoff_moves_its_rows_before_it_goes_home(tmp_path: Path) -> None:
    async with sharded_cluster(tmp_path, count=4) as cluster:
        await cluster.make()
        model = {row.name: row for row in rows(120)}
        await cluster.write(list(model.values()))
        handoff = next(own for own in cluster.devices if own not in cluster.holders)
        place = cluster.partition, ACCOUNT, CONTAINER
        await cluster.transport.put_container(handoff, *place, at(1), {}, None, 0)
        late = [ObjectRow(f"d{n}/late", at(5), 1) for n in range(7)]
        await cluster.transport.update_rows(handoff, *place, late)
        model |= {row.name: row for row in late}
        await cluster.settle(range(4))
        for _ in range(4):
            await cluster.sync()
            await cluster.settle(range(4))
        await assert_listed(cluster, model)
        with pytest.raises(NotFound):
            await cluster.transport.container_info(handoff, *place)


async def test_claims_end_with_rows_that_are_in_shards(cluster: ShardedCluster) -> None:
    await cluster.write(rows(200))
    await cluster.settle()
    holder = cluster.holders[0]
    store = cluster.stores[holder.name]
    claims = Claims(store, finder=cluster.transport.sharded[holder.name])
    id, asked = "0" * 32, Amounts(0, 1, 3)
    refused = await claims.take(cluster.partition, NAME, Claim(id, asked), Bounds(objects=200), 60)
    assert refused is not None
    assert refused.used == 200
    assert await claims.take(cluster.partition, NAME, Claim(id, asked), Bounds(objects=201), 60) is None
    new = ObjectRow("d6/zzz", at(5), 3)
    assert not (await claims.confirm(cluster.partition, NAME, id, new.name, new.timestamp, False)).listed
    await cluster.write([new])
    assert await claims.take(cluster.partition, NAME, Claim("1" * 32, asked), Bounds(objects=202), 60) is None
    assert claims.held() == 1
    assert (await claims.confirm(cluster.partition, NAME, "1" * 32, new.name, new.timestamp, False)).listed
    assert claims.held() == 0


async def test_over_http(tmp_path: Path) -> None:
    async with http_cluster(tmp_path, 1) as plain:
        own, clock = plain.devices[0], TimestampClock()
        store = plain.stores[own.name]
        ring = Ring(1, 2, 1, [own], [array("H", [0] * 4)])
        assert isinstance(plain.transport, HttpListingTransport)
        replicas = ShardedReplicas(own.device, store, plain.transport, lambda: ring, lambda other: other.id == own.id)
        mover = ShardMover(replicas, clock, 20)
        keeper = ShardKeeper(replicas, mover, clock, ShardSettings(above_rows=30))
        store.follow(keeper.committed)
        place = ring.partition_of(HASH_PATH(ACCOUNT, CONTAINER)), ACCOUNT, CONTAINER
        await plain.transport.put_container(own, *place, at(1), {}, None, 0)
        model = {row.name: row for row in rows(150)}
        await replicas.update_rows(*place, list(model.values()))
        while await keeper.run_once():
            pass
        changed = [replace(row, timestamp=at(4), deleted=row.name.endswith("7")) for row in rows(150)]
        model |= {row.name: row for row in changed}
        await replicas.update_rows(*place, changed)
        live = live_of(model)
        for query in QUERIES:
            _, entries = await replicas.list_objects(*place, query)
            names = [f"<{entry.name}>" if isinstance(entry, Subdir) else entry.name for entry in entries]
            assert names == naive(live, query), query
        report = keeper.report()
        assert report["splitsUnderWay"] == 0
        assert next(iter(report["mostShards"].values())) >= 4  # type: ignore[attr-defined]
        assert (await store.container_info(*place)).object_count == len(live)


class Client:
    """Writes to names of its own, and knows what must be listed and what must not."""

    def __init__(self, cluster: ShardedCluster, number: int, seed: int) -> None:
        self.cluster = cluster
        self.number = number
        self.randomness = random.Random(seed * 100 + number)
        self.sure: dict[str, ObjectRow] = {}
        """By name, what was acknowledged last, where nothing else is under way."""

    async def write(self, times: int) -> None:
        for turn in range(times):
            numbers = self.randomness.sample(range(60), self.randomness.randint(1, 12))
            rows = []
            for number in numbers:
                name = f"d{number % 7}/{number:03}-{self.number}"
                deleted = self.randomness.random() < 0.35
                rows.append(ObjectRow(name, at(2 + turn), 0 if deleted else number, deleted=deleted))
                self.sure.pop(name, None)
            assert await self.cluster.write(rows) >= 2
            self.sure |= {row.name: row for row in rows}


async def check_listings(cluster: ShardedCluster, clients: list[Client], randomness: random.Random) -> int:
    """Pages through the whole listing at a holder; how many rows it showed."""
    before = {name: row for client in clients for name, row in client.sure.items()}
    holder, reverse = randomness.choice(cluster.holders), randomness.random() < 0.5
    limit, marker, seen = randomness.choice([7, 50, 10_000]), "", list[str]()
    try:
        while page := await cluster.listed(holder, ListingQuery(limit, marker, reverse=reverse)):
            seen += page
            marker = page[-1]
    except NodeError:
        return 0
    assert seen == sorted(set(seen), reverse=reverse)
    after = {name: row for client in clients for name, row in client.sure.items()}
    shown = set(seen)
    for name, row in before.items():
        if after.get(name) == row:
            assert (name in shown) is not row.deleted, (name, row, holder.name)
    return len(seen)


@pytest.mark.parametrize("seed", seeds(2))
async def test_writers_and_readers_while_it_is_split(tmp_path: Path, seed: int) -> None:
    randomness = random.Random(seed)
    async with sharded_cluster(tmp_path, above_rows=40, batch_rows=9) as cluster:
        await cluster.make()
        clients = [Client(cluster, number, seed) for number in range(4)]
        writing = asyncio.gather(*(client.write(25) for client in clients))

        async def keep(index: int) -> None:
            while not writing.done():
                await cluster.round(index)
                await asyncio.sleep(0.001)

        async def read() -> int:
            rows = 0
            while not writing.done():
                rows += await check_listings(cluster, clients, randomness)
            return rows

        counts = await asyncio.gather(read(), read(), keep(0), keep(1), keep(2), writing)
        assert counts[0]
        assert counts[1]
        for _ in range(2):
            await cluster.settle()
            await cluster.sync()
        await cluster.settle()
        assert len(await cluster.points(cluster.holders[0])) >= 2
        await assert_listed(cluster, {name: row for client in clients for name, row in client.sure.items()})


@pytest.mark.parametrize("seed", seeds(2))
async def test_a_holder_that_comes_and_goes_while_it_is_split(tmp_path: Path, seed: int) -> None:
    randomness = random.Random(seed)
    async with sharded_cluster(tmp_path, above_rows=30, batch_rows=9) as cluster:
        await cluster.make()
        clients = [Client(cluster, number, seed) for number in range(3)]
        for turn in range(12):
            down = randomness.choice([None, 0, 1, 2])
            fault = randomness.choice([Fault.UNREACHABLE, Fault.TIMEOUT_BEFORE, Fault.TIMEOUT_AFTER])
            if down is not None:
                cluster.fail(down, fault)
            for client in clients:
                client.sure |= await write_once(client, turn)
            for index in range(3):
                if index != down:
                    await cluster.round(index)
            if down is not None:
                cluster.fail(down, None)
            for sharded in cluster.transport.sharded.values():
                sharded._paused.clear()
            if randomness.random() < 0.5:
                await cluster.sync(1)
        for _ in range(3):
            await cluster.settle()
            await cluster.sync()
        await cluster.settle()
        await assert_listed(cluster, {name: row for client in clients for name, row in client.sure.items()})


async def write_once(client: Client, turn: int) -> dict[str, ObjectRow]:
    rows = []
    for number in client.randomness.sample(range(60), 20):
        deleted = client.randomness.random() < 0.35
        name = f"d{number % 7}/{number:03}-{client.number}"
        rows.append(ObjectRow(name, at(2 + turn), 0 if deleted else number, deleted=deleted))
    assert await client.cluster.write(rows) >= 2
    return {row.name: row for row in rows}


async def test_no_stand_in_that_was_split_without_our_knowing(
    cluster: ShardedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = {row.name: row for row in rows(60)}
    await cluster.write(list(model.values()))
    await cluster.settle()
    [point] = await cluster.points(cluster.holders[0])
    late, early = cluster.holders[2], cluster.holders[:2]
    tell = cluster.transport.shard_points

    async def all_but_late(*call: Any) -> None:
        if call[0].id == late.id and call[-1]:
            raise NodeUnreachable("it does not learn of the split")
        await tell(*call)

    monkeypatch.setattr(cluster.transport, "shard_points", all_but_late)
    new = [ObjectRow(f"d6/new{number:03}", at(5), 1) for number in range(50)]
    assert await cluster.write(new) == 3
    model |= {row.name: row for row in new}
    for _ in range(40):
        for holder in early:
            await cluster.round(holder.id)
    assert len(await cluster.points(early[0])) > len(await cluster.points(late)) == 1
    _, partners = cluster.transport.sharded[late.name].shard_holders(cluster.id, NAME, point)
    query = ListingQuery(marker="d5")
    assert await cluster.listed(late, query) == naive(set(model), query)
    # Its own partner is away for whoever asks it for pages; the others have handed rows on.
    ask = cluster.transport.shard_page

    async def not_the_partner(*call: Any) -> Any:
        if call[0].id == partners[0].id:
            raise NodeUnreachable("away")
        return await ask(*call)

    monkeypatch.setattr(cluster.transport, "shard_page", not_the_partner)
    with pytest.raises(NodeError):
        await cluster.listed(late, query)
    monkeypatch.undo()
    for _ in range(2):
        await cluster.sync()
        await cluster.settle()
    await assert_listed(cluster, model)


async def test_rows_that_wait_for_a_shard_are_limited(cluster: ShardedCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    await cluster.write(rows(100))
    await cluster.settle()
    monkeypatch.setattr("swiftlet.sharding.sharded.MAX_WAITING", 20)
    holder = cluster.holders[0]
    sharded = cluster.transport.sharded[holder.name]
    last = (await cluster.points(holder))[-1]
    place = cluster.partition, ACCOUNT, CONTAINER
    new = [ObjectRow(f"z{number:02}", at(5), 1) for number in range(30)]
    async with sharded.lock(cluster.id, last):
        waiting = [asyncio.create_task(sharded.update_rows(*place, new)) for _ in range(3)]
        done, _ = await asyncio.wait(waiting, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert {type(task.exception()) for task in done} == {NodeBusy}
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert None in results
    assert await cluster.listed(holder, ListingQuery(prefix="z")) == [row.name for row in new]


async def test_a_container_that_needs_nothing_is_left_alone_for_a_while(
    cluster: ShardedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await cluster.write(rows(100))
    await cluster.settle()
    holder = cluster.holders[0]
    keeper = cluster.keepers[holder.id]
    keeper._settings = replace(keeper._settings, idle_s=60.0)
    looks = 0
    ask = cluster.transport.shard_look

    async def counted(*call: Any) -> Any:
        nonlocal looks
        looks += 1
        return await ask(*call)

    monkeypatch.setattr(cluster.transport, "shard_look", counted)
    await keeper.run_once()
    first = looks
    assert first == len(await cluster.points(holder))
    await keeper.run_once()
    assert looks == first
    cluster.now_s += 61
    await keeper.run_once()
    assert looks == 2 * first
    await cluster.write([ObjectRow("d1/new", at(5), 1)])
    await keeper.run_once()
    assert looks == 3 * first


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 20])
async def test_rows_on_their_way_to_a_shard_are_refused_when_that_is_cancelled(
    cluster: ShardedCluster, steps: int
) -> None:
    await cluster.write(rows(100))
    await cluster.settle()
    holder = cluster.holders[0]
    sharded = cluster.transport.sharded[holder.name]
    last = (await cluster.points(holder))[-1]
    place = cluster.partition, ACCOUNT, CONTAINER
    async with asyncio.timeout(60), sharded.lock(cluster.id, last):
        waiting = [
            asyncio.create_task(sharded.update_rows(*place, [ObjectRow(f"z{number}", at(5), 1)])) for number in range(3)
        ]
        queue = sharded._queue(cluster.id, last)
        while queue.task is None:  # noqa: ASYNC110 - nobody tells when rows come to a queue
            await asyncio.sleep(0)
        for _ in range(steps):
            await asyncio.sleep(0)
        queue.task.cancel()
        await asyncio.sleep(0)
    async with asyncio.timeout(60):
        results = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(result) for result in results} <= {NodeBusy, type(None)}
    assert NodeBusy in {type(result) for result in results}
    await sharded.update_rows(*place, [ObjectRow("zz", at(6), 1)])
    assert "zz" in await cluster.listed(holder, ListingQuery(prefix="z"))


async def test_rows_whose_task_is_cancelled_are_refused(cluster: ShardedCluster) -> None:
    await cluster.write(rows(100))
    await cluster.settle()
    holder = cluster.holders[0]
    sharded = cluster.transport.sharded[holder.name]
    last = (await cluster.points(holder))[-1]
    async with asyncio.timeout(60), sharded.lock(cluster.id, last):
        place = cluster.partition, ACCOUNT, CONTAINER
        waiting = asyncio.create_task(sharded.update_rows(*place, [ObjectRow("z", at(5), 1)]))
        while not sharded._background._tasks:  # noqa: ASYNC110 - nobody tells when a task begins
            await asyncio.sleep(0)
        for task in sharded._background._tasks:
            task.cancel()
        with pytest.raises(NodeBusy, match="broken off"):
            await waiting
