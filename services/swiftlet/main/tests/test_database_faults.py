"""Real container servers and replicators of their databases: modes, nodes that die, kills, a Redis that is lost."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from swiftlet.errors import NotFound
from swiftlet.main.services import replicator
from swiftlet.main.tests.processes import spawn
from swiftlet.main.tests.test_status_reports import COUNT, KEY, Machine, until
from swiftlet.model import DatabaseId, DatabaseKind, ObjectRow
from swiftlet.placement.tests.cluster import HASH_PATH
from swiftlet.ring.model import Device
from swiftlet.sync.failures.tests.redis_server import PASSWORD, RedisServer
from swiftlet.sync.planning.report import RoundReport
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.signing import ClusterKey

ROUNDS = {"batched": 1, "all_to_all": 1, "star": 2, "lightsync": 2, "chain": 2}
"""After which all three replicas are equal, by docs/sync.md."""
at = Timestamp.at


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    made = Machine(tmp_path)
    try:
        for number in range(COUNT):
            await made.start_container(number)
        yield made
    finally:
        await made.close()


@asynccontextmanager
async def listing_transport() -> AsyncIterator[HttpListingTransport]:
    transport = HttpListingTransport(NodeClient(HttpSettings(), ClusterKey(KEY.encode())))
    try:
        yield transport
    finally:
        await transport.close()


class Containers:
    """Containers of one account, on the devices of their partitions."""

    def __init__(self, machine: Machine, transport: HttpListingTransport, count: int = 12) -> None:
        self.ring = machine.builders["container"].ring
        self.transport = transport
        self.names = [f"c{number}" for number in range(count)]

    def id(self, name: str) -> DatabaseId:
        digest = HASH_PATH("AUTH_test", name)
        return DatabaseId(DatabaseKind.CONTAINER, self.ring.partition_of(digest), digest)

    def holders(self, name: str) -> tuple[Device, ...]:
        return self.ring.primaries(self.id(name).partition)

    async def write(self, chooser: random.Random, rows: int = 20, holders: int = 1) -> None:
        """Each container on some of its primaries, which have heard of different rows."""
        for name in self.names:
            for device in chooser.sample(self.holders(name), holders):
                await self.write_to(device, name, [f"{device.id}-{number}" for number in range(rows)])

    async def write_to(self, device: Device, name: str, rows: list[str], second: float = 2000) -> None:
        partition = self.id(name).partition
        await self.transport.put_container(device, partition, "AUTH_test", name, at(1000), {}, None, 0)
        await self.transport.update_rows(
            device, partition, "AUTH_test", name, [ObjectRow(row, at(second), 1) for row in rows]
        )

    async def digest(self, device: Device, name: str) -> bytes | None:
        try:
            return (await self.transport.database_state(device, self.id(name))).rows_digest
        except NotFound:
            return None

    async def are_equal(self) -> bool:
        for name in self.names:
            found = {await self.digest(device, name) for device in self.holders(name)}
            if len(found) != 1 or None in found:
                return False
        return True


async def round_of(machine: Machine, number: int, **more: Any) -> RoundReport:
    return (await replicator.run_once(machine.database_settings(number, **more), (), None, "container")).copies


@pytest.mark.parametrize("mode", ROUNDS)
async def test_replicas_become_equal_in_each_mode(machine: Machine, mode: str) -> None:
    async with listing_transport() as transport:
        containers = Containers(machine, transport)
        await containers.write(random.Random(mode), holders=2)
        for _ in range(ROUNDS[mode]):
            for number in range(COUNT):
                await round_of(machine, number, mode=mode)
        assert await containers.are_equal()
        reports = [await round_of(machine, number, mode=mode) for number in range(COUNT)]
        assert all(report.clean for report in reports), "nothing is left to do"


async def test_one_partition_with_one_node_by_hand(machine: Machine) -> None:
    async with listing_transport() as transport:
        containers = Containers(machine, transport, count=6)
        await containers.write(random.Random(1))
        name = containers.names[0]
        first, second, third = containers.holders(name)
        await containers.write_to(first, name, ["only-here"])
        before = [await containers.digest(third, other) for other in containers.names]
        settings = machine.database_settings(int(first.device[1:]))
        peer = f"{second.host}:{second.port}"
        report = (await replicator.run_once(settings, (containers.id(name).partition,), peer, "container")).copies
        assert (report.failed, report.skipped) == (0, 0)
        assert await containers.digest(first, name) == await containers.digest(second, name)
        assert [await containers.digest(third, other) for other in containers.names] == before


async def test_a_failed_neighbour_is_left_out_and_comes_first_when_it_is_back(machine: Machine) -> None:
    more = {"probe_interval_s": 0.2, "error_suppression_limit": 2}
    async with listing_transport() as transport:
        containers = Containers(machine, transport)
        await containers.write(random.Random(2), holders=3)
        await machine.stop(machine.containers[1])
        for number in (0, 2, 3):
            await machine.start_database_replicator(number, **more)

        async def failures(number: int) -> dict[str, Any]:
            return dict((await machine.report(machine.database_replicators[number]))["failures"])

        async def left_out() -> bool:
            return all([f"127.0.0.1:{machine.containers[1]}" in (await failures(n))["nodes"] for n in (0, 2, 3)])

        async def others_are_equal() -> bool:
            for name in containers.names:
                there = [device for device in containers.holders(name) if device.device != "d1"]
                if len({await containers.digest(device, name) for device in there}) > 1:
                    return False
            return True

        await until(left_out)
        await until(others_are_equal)
        standing = await machine.listing_standing(0, "container")
        assert standing["unchecked"] > 0
        assert standing["syncedAt"] is None

        async def left_alone() -> bool:
            rounds = (await machine.report(machine.database_replicators[0]))["lastRounds"]
            return any(one["skipped"] > 0 and one["failed"] == 0 for one in rounds)

        await until(left_alone)
        await machine.start_container(1)
        await until(containers.are_equal)

        async def in_sync() -> bool:
            standing = await machine.listing_standing(0, "container")
            return not standing["unchecked"] and standing["syncedAt"] is not None

        await until(in_sync)


async def test_a_handoff_goes_home_only_with_proof_of_all(machine: Machine) -> None:
    async with listing_transport() as transport:
        containers = Containers(machine, transport, count=1)
        name = containers.names[0]
        holders = containers.holders(name)
        stranger = next(d for d in containers.ring.devices if d is not None and d.id not in {h.id for h in holders})
        number, away = int(stranger.device[1:]), int(holders[1].device[1:])
        await containers.write_to(stranger, name, [f"o{row:04}" for row in range(1200)])
        await containers.write_to(holders[0], name, ["another"])
        await machine.stop(machine.containers[away])
        await round_of(machine, number)
        assert await containers.digest(stranger, name) is not None, "one primary has not shown that it has it"
        assert await containers.digest(holders[2], name) == await containers.digest(stranger, name)
        await machine.start_container(away)
        report = await round_of(machine, number)
        assert report.removed == 1
        assert await containers.digest(stranger, name) is None
        for other in range(COUNT):
            await round_of(machine, other)
        info = await transport.container_info(holders[1], containers.id(name).partition, "AUTH_test", name)
        assert info.object_count == 1201
        assert await containers.are_equal()
        state = await transport.database_state(holders[0], containers.id(name))
        assert not await transport.forget_database(holders[0], containers.id(name), state.rows_digest), "it is at home"


async def test_killed_in_the_middle_of_an_exchange(machine: Machine, tmp_path: Path) -> None:
    chooser = random.Random(3)
    async with listing_transport() as transport:
        containers = Containers(machine, transport, count=3)
        for name in containers.names:
            for device in containers.holders(name)[:2]:
                await containers.write_to(device, name, [f"{device.id}-{row:05}" for row in range(1500)])
        config = tmp_path / "replicator.yaml"
        config.write_text(yaml.safe_dump(_as_file(machine, range(COUNT))))
        arguments = ["replicator", "--config", str(config)]
        killed_at_work = 0
        for _ in range(12):
            before = [await containers.digest(d, name) for name in containers.names for d in containers.holders(name)]
            process = spawn(arguments, tmp_path / "replicator.log")
            try:
                await until(partial(_has_moved, containers, before))
                await asyncio.sleep(chooser.uniform(0, 0.1))
            finally:
                process.kill()
                process.join()
            if await containers.are_equal():
                break
            killed_at_work += 1
        assert killed_at_work > 0, "it was never killed before it was through"
        for number in range(COUNT):
            await round_of(machine, number)
        assert await containers.are_equal()
        for name in containers.names:
            device = containers.holders(name)[2]
            info = await transport.container_info(device, containers.id(name).partition, "AUTH_test", name)
            assert info.object_count == 3000


def _as_file(machine: Machine, numbers: range) -> dict[str, Any]:
    """The settings of a replicator for several devices."""
    settings = machine._common()
    settings["replicator"] = {
        "host": "127.0.0.1",
        "port": machine.database_replicators[0],
        "databases": [f"127.0.0.1:{machine.containers[number]}/d{number}" for number in numbers],
        "database_interval_s": 0.2,
    }
    return settings


async def _has_moved(containers: Containers, before: list[bytes | None]) -> bool:
    now = [await containers.digest(d, name) for name in containers.names for d in containers.holders(name)]
    return now != before


async def test_a_redis_that_refuses_the_password_stops_nothing_and_says_so(machine: Machine, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir()
    server = RedisServer(tmp_path / "locked", PASSWORD)
    server.start()
    password = tmp_path / "password"
    password.write_text("wrong")
    more = {"heartbeat_interval_s": 0.2, "probe_interval_s": 0.3}
    try:
        async with listing_transport() as transport:
            containers = Containers(machine, transport, count=6)
            for number in range(COUNT):
                settings = machine.database_settings(number, **more)
                section = settings.redis.model_copy(update={"url": server.url, "password_file": password})
                settings = settings.model_copy(update={"redis": section})
                await machine._serve(replicator.create_app(settings), machine.database_replicators[number])

            async def reasons() -> set[str | None]:
                reports = [(await machine.report(port))["failures"] for port in machine.database_replicators]
                return {(one["redisProblem"] or {}).get("reason", one["redis"]) for one in reports}

            async def refused() -> bool:
                return await reasons() == {"AuthenticationFailed"}

            async def up() -> bool:
                return await reasons() == {"up"}

            await until(refused)
            await containers.write(random.Random(5), rows=200)
            await until(containers.are_equal)
            assert await refused()
            password.write_text(PASSWORD)
            await until(up)
    finally:
        server.kill()


async def test_a_redis_that_is_lost_in_the_middle_of_rounds_stops_nothing(machine: Machine, redis: RedisServer) -> None:
    chooser = random.Random(4)
    more = {"heartbeat_interval_s": 0.2, "probe_interval_s": 0.3}
    async with listing_transport() as transport:
        containers = Containers(machine, transport, count=6)
        for number in range(COUNT):
            settings = machine.database_settings(number, **more)
            settings = settings.model_copy(
                update={"redis": settings.redis.model_copy(update={"url": redis.url, "answer_timeout_s": 0.3})}
            )
            await machine._serve(replicator.create_app(settings), machine.database_replicators[number])

        async def redis_is(state: str) -> bool:
            reports = [await machine.report(port) for port in machine.database_replicators]
            return all(report["failures"]["redis"] == state for report in reports)

        async def up() -> bool:
            return await redis_is("up")

        async def away() -> bool:
            return await redis_is("away")

        await until(up)
        await containers.write(chooser, rows=200)
        redis.kill()
        await until(away)
        await until(containers.are_equal)
        await containers.write(chooser, rows=300)
        redis.start()
        await until(up)
        await until(containers.are_equal)
