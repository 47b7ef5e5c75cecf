"""Observers that hear of each other through a real Redis, which is killed, hangs, forgets, and holds garbage."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from swiftlet.ring.model import Device
from swiftlet.sync.failures.neighbours import Neighbours, News, Notice, node_of
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.redis_link import RedisOptions
from swiftlet.sync.failures.redis_table import Notices, RedisTable
from swiftlet.sync.failures.redis_wire import heartbeat_of, notice_of, rows_of
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.failures.tests.redis_server import PASSWORD, RedisServer

HEARTBEAT_S = 0.2
LIMIT = 3
SIZE = 5
DEVICES = [Device(n, f"d{n}", f"h{n}", 6200, "d", "r", f"z{n}", f"n{n}", 1.0) for n in range(SIZE)]


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    made = RedisServer(tmp_path)
    made.start()
    yield made
    made.kill()


class Observers:
    """One per node, each with its own connection to Redis; `dead` nodes answer nobody, `cut` ones reach nobody."""

    def __init__(self, url: str, password_file: Path | None = None) -> None:
        self.options = RedisOptions(url, password_file, 0.3, 0.3, HEARTBEAT_S)
        self.dead: set[int] = set()
        self.cut: set[int] = set()
        self.probes = 0
        self.progress: str | None = None
        self.views: dict[int, Neighbours] = {}
        self.tables: dict[int, RedisTable] = {}
        self.tasks: dict[int, list[asyncio.Task[None]]] = {}

    def start(self, number: int, interval_s: float = 60.0) -> None:
        async def probe(asked: Device) -> bool:
            self.probes += 1
            await asyncio.sleep(0)
            return asked.id not in self.dead and number not in self.cut

        me = Observer(node_of(DEVICES[number]), f"n{number}")
        notices = Notices()
        view = Neighbours(me, FailureTable(LIMIT, interval_s), probe, retry_s=0.1, tell=notices.tell)
        view.know(0, DEVICES)
        table = RedisTable(self.options, "test", view, notices, lambda: self.progress)
        self.views[number], self.tables[number] = view, table
        self.tasks[number] = [asyncio.create_task(table.run()), asyncio.create_task(view.watch())]

    async def stop(self, number: int) -> None:
        tasks = self.tasks.pop(number)
        for task in tasks:
            task.cancel()
        _, pending = await asyncio.wait(tasks, timeout=10)
        assert not pending, "it ends when it is told to, whatever Redis does"

    def give_up(self, number: int, other: int) -> None:
        for _ in range(LIMIT):
            self.views[number].failed(node_of(DEVICES[other]))

    def out(self, number: int) -> set[int]:
        return {device.id for device in DEVICES if self.views[number].skips(node_of(device))}

    def all_out(self, out: set[int], *observers: int) -> Callable[[], bool]:
        return lambda: all(self.out(number) == out for number in observers)

    def all_up(self) -> bool:
        return all(table.is_up for table in self.tables.values())


@asynccontextmanager
async def observers(url: str, *numbers: int, password_file: Path | None = None) -> AsyncIterator[Observers]:
    made = Observers(url, password_file)
    for number in numbers:
        made.start(number)
    try:
        yield made
    finally:
        for number in list(made.tasks):
            await made.stop(number)


async def until(condition: Callable[[], bool], within_s: float = 60.0) -> float:
    """How long it took."""
    began = time.monotonic()
    async with asyncio.timeout(within_s):
        while not condition():  # noqa: ASYNC110 - what is waited for is in another task, or another process
            await asyncio.sleep(0.005)
    return time.monotonic() - began


async def listening(server: RedisServer, count: int) -> None:
    """Wait until that many observers hear notices."""
    channel = "swiftlet:test:1:notices"
    await until(lambda: server.command("PUBSUB", "NUMSUB", channel).split()[-1] == str(count))


async def test_others_leave_a_dead_node_out_at_once_and_take_it_back_at_once(server: RedisServer) -> None:
    async with observers(server.url, 0, 1, 2) as made:
        made.options = RedisOptions(server.url, None, 0.3, 0.3, 30)
        await until(made.all_up)
        await listening(server, 3)
        made.dead.add(4)
        made.give_up(0, 4)
        assert await until(made.all_out({4}, 0, 1, 2)) < HEARTBEAT_S * 5
        key = "swiftlet:test:1:failures:h0:6200"
        assert server.command("HKEYS", key) == "h4:6200"
        assert 50_000 < int(server.command("PTTL", key)) <= 60_000
        made.dead.clear()
        made.views[1].maybe_back(node_of(DEVICES[4]))
        await until(made.all_out(set(), 0, 1, 2))
        await until(lambda: server.command("EXISTS", key) == "0")
        await until(lambda: server.command("ZCARD", "swiftlet:test:1:observers") == "0")
        made.start(4)
        await until(lambda: server.command("EXISTS", "swiftlet:test:1:heartbeat:h4:6200") == "1")


async def test_a_node_that_starts_again_is_asked_by_all_who_left_it_out(server: RedisServer) -> None:
    async with observers(server.url, 0, 1, 2) as made:
        await until(made.all_up)
        made.dead.add(4)
        made.give_up(0, 4)
        made.give_up(1, 4)
        await until(made.all_out({4}, 0, 1, 2))
        made.dead.clear()
        made.start(4)
        await until(made.all_out(set(), 0, 1, 2))
        await made.stop(4)
        made.dead.add(4)
        # Nobody asks for it, but its heartbeat ends: three of them missed, and one probe.
        await until(made.all_out({4}, 0, 1, 2))


async def test_an_observer_that_is_cut_off_from_all_but_redis_convinces_nobody(server: RedisServer) -> None:
    async with observers(server.url, *range(SIZE)) as made:
        await until(made.all_up)
        made.cut.add(0)
        for other in range(1, SIZE):
            made.give_up(0, other)
            await asyncio.sleep(0.1)
            assert all(made.out(number) == set() for number in range(1, SIZE))
        assert made.views[0].cut_off
        await until(lambda: '"cutOff": true' in server.command("GET", "swiftlet:test:1:heartbeat:h0:6200"))
        await until(lambda: all(not view.opinions.nodes(view.now()) for view in list(made.views.values())[1:]))
        made.cut.clear()
        await until(made.all_out(set(), *range(SIZE)))
        assert not made.views[0].cut_off


async def test_redis_is_away_comes_back_empty_and_what_was_learned_meanwhile_is_told(server: RedisServer) -> None:
    async with observers(server.url, 0, 1, 2, 3) as made:
        await until(made.all_up)
        for _ in range(3):
            server.kill()
            await until(lambda: not any(table.is_up for table in made.tables.values()))
            probes = made.probes
            made.dead.add(4)
            made.give_up(0, 4)
            assert made.out(0) == {4}, "the local table serves"
            assert made.out(1) == set()
            server.start()
            await until(made.all_out({4}, 0, 1, 2, 3))
            made.dead.clear()
            made.views[2].maybe_back(node_of(DEVICES[4]))
            await until(made.all_out(set(), 0, 1, 2, 3))
            assert made.probes - probes < 20, "an empty Redis makes nobody suspicious of everybody"


async def test_redis_hangs_and_nobody_waits_for_it(server: RedisServer) -> None:
    async with observers(server.url, 0, 1) as made:
        await until(made.all_up)
        server.hang(True)
        began = time.monotonic()
        made.dead.add(4)
        made.give_up(0, 4)
        assert made.out(0) == {4}
        assert time.monotonic() - began < 0.1
        await until(lambda: not made.tables[0].is_up)
        server.hang(False)
        await until(made.all_out({4}, 0, 1))


async def test_notices_may_get_lost_the_tables_say_the_same_a_heartbeat_later(server: RedisServer) -> None:
    async with observers(server.url, 0, 1, 2) as made:
        await until(made.all_up)
        await listening(server, 3)
        made.dead.add(4)
        # The channel breaks in the very moment in which something is told.
        server.command("CLIENT", "KILL", "TYPE", "pubsub")
        made.give_up(0, 4)
        await until(made.all_out({4}, 0, 1, 2))
        await listening(server, 3)


async def test_what_a_former_life_knew_is_taken_over(server: RedisServer) -> None:
    async with observers(server.url, 0, 1) as made:
        await until(made.all_up)
        made.dead.add(4)
        made.give_up(0, 4)
        made.progress = "half of it"
        await until(lambda: server.command("EXISTS", "swiftlet:test:1:progress:h0:6200") == "1")
        await made.stop(0)
        made.start(0)
        await asyncio.wait_for(made.tables[0].first_try.wait(), 10)
        assert made.tables[0].recalled == "half of it"
        assert made.out(0) == {4}


async def test_garbage_harms_nobody(server: RedisServer) -> None:
    async with observers(server.url, 0, 1) as made:
        await until(made.all_up)
        await listening(server, 2)
        for text in ("", "{", "[]", '{"news": "failed"}', "x" * 5000, '{"news":1,"node":2,"by":3,"domain":4}'):
            server.command("PUBLISH", "swiftlet:test:1:notices", text)
        stranger = {"news": "failed", "node": node_of(DEVICES[3]), "by": "stranger:1", "domain": "n9"}
        server.command("PUBLISH", "swiftlet:test:1:notices", json.dumps(stranger))
        server.command("SET", "swiftlet:test:1:failures:h0:6200", "no hash")
        server.command("DEL", "swiftlet:test:1:observers")
        server.command("HSET", "swiftlet:test:1:observers", "no", "set")
        await until(lambda: not made.all_up())
        server.command("DEL", "swiftlet:test:1:observers")
        server.command("ZADD", "swiftlet:test:1:observers", "1e12", node_of(DEVICES[2]), "1e12", "stranger:1")
        beat = '{"life": "x", "domain": "n2", "cutOff": false}'
        server.command("SET", "swiftlet:test:1:heartbeat:h2:6200", beat)
        server.command("HSET", "swiftlet:test:1:failures:h2:6200", "h3:6200", "many:1e400", "h4:6200", "12", "", "1:2")
        await until(made.all_up)
        made.dead.add(4)
        made.give_up(0, 4)
        await until(made.all_out({4}, 0, 1))


def test_what_is_of_another_form_is_passed_over() -> None:
    assert rows_of(None, 0) == rows_of({1: 2, "a:1": "0:5", "b:1": "1:nan", "c:1": "1:inf", "d:1": "x" * 100}, 0) == {}
    assert heartbeat_of('{"life": 1}') is heartbeat_of("[" * 2000) is heartbeat_of(None) is None
    assert notice_of('{"news": "bad", "node": "", "by": "", "domain": ""}') is None
    text = '{"news": "well", "node": "n:1", "by": "o:1", "domain": "d", "more": 1}'
    assert notice_of(text) == (Notice(News.WELL, "n:1"), Observer("o:1", "d"))


async def test_a_password_is_read_from_its_file_and_may_be_put_right_later(tmp_path: Path) -> None:
    server = RedisServer(tmp_path, PASSWORD)
    server.start()
    try:
        file = tmp_path / "password"
        async with observers(server.url, 0, password_file=file) as made:
            await asyncio.wait_for(made.tables[0].first_try.wait(), 10)
            assert not made.tables[0].is_up, "there is no file"
            file.write_text("wrong")
            file.write_text(PASSWORD + "\n")
            await until(made.all_up)
    finally:
        server.kill()


async def test_without_any_redis_there_is_the_local_table(tmp_path: Path) -> None:
    async with observers(RedisServer(tmp_path).url, 0) as made:
        await asyncio.wait_for(made.tables[0].first_try.wait(), 10)
        made.dead.add(4)
        made.give_up(0, 4)
        assert made.out(0) == {4}
        made.dead.clear()
        made.views[0].maybe_back(node_of(DEVICES[4]))
        await until(made.all_out(set(), 0))
