"""Real object servers, replicators and a real Redis: nodes die, Redis dies, replicators are killed; nothing is lost.

KILLS=n kills a replicator n times (`make kills KILLS=200`); SEED=n chooses other moments.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from swiftlet.errors import NotFound, SwiftletError
from swiftlet.main.commands.cli import swiftlet
from swiftlet.main.services import replicator
from swiftlet.main.tests.processes import spawn
from swiftlet.main.tests.test_status_reports import COUNT, Machine, transports, until
from swiftlet.model import ObjectKey
from swiftlet.names import Path as Name
from swiftlet.placement.tests.cluster import HASH_PATH, footer_of, record_of
from swiftlet.ring.model import Device
from swiftlet.settings import ReplicatorSettings
from swiftlet.sync.failures.tests.redis_server import RedisServer
from swiftlet.sync.session.topology import ROUND_MODES
from swiftlet.testing.ports import free_ports
from swiftlet.timestamp import Timestamp
from swiftlet.transport.native_objects import NativeObjectTransport

KILLS = int(os.environ.get("KILLS", "6"))
SEED = int(os.environ.get("SEED", "1"))


class Faulty(Machine):
    """Replicators that share a Redis and are quick to notice things."""

    def __init__(self, root: Path, redis: RedisServer) -> None:
        super().__init__(root)
        self.redis = redis
        self.processes: dict[int, BaseProcess] = {}

    def settings(self, port: int, *numbers: int) -> dict[str, Any]:
        section = {
            "port": port,
            "host": "127.0.0.1",
            "devices": [f"127.0.0.1:{self.objects[number]}/d{number}" for number in numbers],
            "interval_s": 0.3,
            "probe_interval_s": 0.3,
            "heartbeat_interval_s": 0.3,
        }
        common = self._common()
        # Other processes take their time: what is looked at all the time here is not worth it there.
        common["cluster"]["ring_check_interval_s"] = 1.0
        return {**common, "replicator": section, "redis": {"url": self.redis.url, "answer_timeout_s": 0.3}}

    async def start_replicator(self, number: int) -> None:
        settings = ReplicatorSettings.model_validate(self.settings(self.replicators[number], number))
        await self._serve(replicator.create_app(settings), self.replicators[number])

    async def round_of_each(self, mode: str = "batched", leave_out: int | None = None) -> None:
        """One round of each replicator, one after the other."""
        for number in range(COUNT):
            if number != leave_out:
                settings = self.settings(self.replicators[number], number)
                settings["replicator"]["mode"] = mode
                await replicator.run_once(ReplicatorSettings.model_validate(settings), (), None, None)

    async def failures(self, number: int) -> dict[str, Any]:
        return dict((await self.report(self.replicators[number]))["failures"])

    def spawn(self, port: int, *numbers: int) -> None:
        """A replicator in a process of its own."""
        config = self.root / f"replicator-{port}.yaml"
        config.write_text(yaml.safe_dump(self.settings(port, *numbers)))
        log = self.root / f"replicator-{port}.log"
        self.processes[port] = spawn(["replicator", "--config", str(config)], log)

    def slay(self, port: int) -> None:
        process = self.processes.pop(port)
        process.kill()
        process.join()

    async def close(self) -> None:
        for port in list(self.processes):
            self.slay(port)
        await super().close()


@pytest.fixture
async def machine(tmp_path: Path, redis: RedisServer) -> AsyncIterator[Faulty]:
    made = Faulty(tmp_path, redis)
    try:
        yield made
    finally:
        await made.close()


class Written:
    """Objects that were acknowledged by one device only, and what became of them since."""

    def __init__(self, machine: Machine, objects: NativeObjectTransport, chooser: random.Random) -> None:
        self.ring = machine.builders["object-0"].ring
        self.objects = objects
        self.chooser = chooser
        self.bodies: dict[ObjectKey, bytes | None] = {}
        self.holders: defaultdict[int, set[int]] = defaultdict(set)
        """By partition, the devices that something was written on."""
        self.second = time.time() - 3000

    async def write(self, count: int, avoid: int | None = None) -> None:
        """New ones, or newer versions or deletions of old ones, each on one of its primaries."""
        for _ in range(count):
            self.second += 1
            number = self.chooser.randrange(200)
            name = Name("AUTH_test", "c", f"o{number}")
            digest = HASH_PATH(name.account, "c", f"o{number}")
            key = ObjectKey(0, self.ring.partition_of(digest), digest)
            targets = [device for device in self.ring.primaries(key.partition) if device.id != avoid]
            target = self.chooser.choice(targets)
            self.holders[key.partition].add(target.id)
            at = Timestamp.at(self.second)
            if self.chooser.random() < 0.2:
                try:
                    await self.objects.delete(target, key, at, str(name), None)
                except NotFound:
                    continue  # It was not there: the tombstone is kept all the same, nothing was acknowledged.
                finally:
                    self.bodies[key] = None
            else:
                size = self.chooser.choice([0, 10, 5_000, 300_000, 2_500_000])
                body = self.chooser.randbytes(size)
                footer = footer_of(body)
                if size > 1 << 20:
                    upload = await self.objects.open_put(target, key, record_of(name, at), size, None)
                    await upload.write(body)
                    await upload.commit(footer)
                else:
                    await self.objects.put(target, key, record_of(name, at), body, footer, None)
                self.bodies[key] = body

    async def is_everywhere(self, avoid: int | None = None) -> bool:
        """Whether all primaries have exactly what was written last."""
        for key, body in self.bodies.items():
            for device in self.ring.primaries(key.partition):
                if device.id != avoid and not await self._is_there(device, key, body):
                    return False
        return True

    async def _is_there(self, device: Device, key: ObjectKey, body: bytes | None) -> bool:
        try:
            stream = await self.objects.get(device, key)
        except NotFound:
            return body is None
        except SwiftletError:
            return False
        try:
            return b"".join([chunk async for chunk in stream.chunks()]) == body
        finally:
            await stream.close()


@pytest.mark.slow
@pytest.mark.timeout(60 + 10 * KILLS)
async def test_a_replicator_that_is_killed_again_and_again_loses_nothing(machine: Faulty, redis: RedisServer) -> None:
    chooser = random.Random(SEED)
    for number in range(COUNT):
        await machine.start_object(number)
    port = free_ports(1)[0]
    async with transports() as (objects, _):
        written = Written(machine, objects, chooser)
        for kill in range(KILLS):
            await written.write(12)
            machine.spawn(port, *range(COUNT))
            # While it starts, or anywhere in its rounds.
            if chooser.random() < 0.9:
                await until(lambda: _answers(machine, port))
            if chooser.random() < 0.3:
                redis.kill()
            await asyncio.sleep(chooser.uniform(0, 0.5))
            if kill % 3 == 2 and chooser.random() < 0.5:
                await machine.stop(machine.objects[3])
                await asyncio.sleep(chooser.uniform(0, 0.3))
                await machine.start_object(3)
            machine.slay(port)
            redis.kill()
            redis.start()
        machine.spawn(port, *range(COUNT))
        await until(written.is_everywhere)


async def _answers(machine: Faulty, port: int) -> bool:
    try:
        await machine.report(port)
    except OSError:
        return False
    return True


async def test_rounds_go_on_without_a_node_and_without_redis_and_a_returned_node_is_filled(
    machine: Faulty, redis: RedisServer
) -> None:
    for number in range(COUNT):
        await machine.start_object(number)
        await machine.start_replicator(number)
    dead = f"127.0.0.1:{machine.objects[3]}"
    async with transports() as (objects, _):
        written = Written(machine, objects, random.Random(SEED))
        await written.write(20)
        await until(written.is_everywhere)
        await machine.stop(machine.objects[3])
        await machine.stop(machine.replicators[3])

        async def left_out() -> bool:
            reports = [await machine.failures(number) for number in range(3)]
            return all(dead in report["nodes"] and report["out"] == 1 for report in reports)

        await until(left_out)
        for _ in range(3):
            redis.kill()
            await written.write(8, avoid=3)
            await until(lambda: written.is_everywhere(avoid=3))
            assert await left_out()
            redis.start()
            await written.write(8, avoid=3)
            await until(lambda: written.is_everywhere(avoid=3))

        async def hears_redis() -> bool:
            return all([(await machine.failures(number))["redis"] == "up" for number in range(3)])

        await until(hears_redis)
        await machine.start_object(3)

        async def back() -> bool:
            return all([(await machine.failures(number))["out"] == 0 for number in range(3)])

        await until(back)
        await machine.start_replicator(3)
        await until(written.is_everywhere)
        reports = [await machine.report(machine.replicators[number]) for number in range(3)]
        assert all(report["lastRounds"] for report in reports)
        assert all(report["failures"]["cutOff"] is False for report in reports)


async def test_a_server_that_was_stopped_while_writes_and_deletions_went_on_has_all_after_one_round_of_each(
    machine: Faulty,
) -> None:
    for number in range(COUNT):
        await machine.start_object(number)
    async with transports() as (objects, _):
        written = Written(machine, objects, random.Random(SEED))
        await written.write(40)
        await machine.round_of_each()
        assert await written.is_everywhere()
        await machine.stop(machine.objects[2])
        await written.write(60, avoid=2)
        await machine.round_of_each(leave_out=2)
        assert await written.is_everywhere(avoid=2)
        assert not await written.is_everywhere()
        await machine.start_object(2)
        await machine.round_of_each()
        assert await written.is_everywhere()


@pytest.mark.parametrize("mode", ROUND_MODES)
async def test_real_servers_become_equal_in_every_mode(machine: Faulty, mode: str) -> None:
    for number in range(COUNT):
        await machine.start_object(number)
    async with transports() as (objects, _):
        written = Written(machine, objects, random.Random(SEED))
        await written.write(30)
        for _ in range(2):
            await machine.round_of_each(mode)
        assert await written.is_everywhere()


async def test_status_and_rounds_by_hand(machine: Faulty) -> None:
    for number in range(COUNT):
        await machine.start_object(number)
    config = machine.root / "by-hand.yaml"
    config.write_text(yaml.safe_dump(machine.settings(machine.replicators[0], *range(COUNT))))

    def call(*arguments: str) -> tuple[int, str]:
        done = CliRunner().invoke(swiftlet, ["replicator", *arguments])
        return done.exit_code, done.output

    async with transports() as (objects, _):
        written = Written(machine, objects, random.Random(SEED))
        await written.write(20)
        # One of which every primary has something: an empty one that meanwhile became equal does not count as compared.
        while not (shared := [partition for partition, holders in written.holders.items() if len(holders) == 3]):
            await written.write(1)
        partition = str(shared[0])
        by_hand = ("--config", str(config))
        code, output = await asyncio.to_thread(call, *by_hand, "--once", "--partition", partition)
        assert (code, '"compared": 6' in output) == (0, True), output
        code, output = await asyncio.to_thread(call, "round", *by_hand, "--node", "pod-1/d1", "--policy", "GOLD")
        assert code == 0, output
        assert not await written.is_everywhere()
        code, output = await asyncio.to_thread(call, "round", *by_hand)
        assert code == 0, output
        assert await written.is_everywhere()
        await machine.start_replicator(0)

        async def one_round() -> bool:
            return bool((await machine.report(machine.replicators[0]))["lastRounds"])

        await until(one_round)
        address = f"127.0.0.1:{machine.replicators[0]}"
        code, output = await asyncio.to_thread(call, "status", "--address", address)
        assert code == 0, output
        assert "neighbours: 3, of which 0 left out" in output
        assert "compared" in output
        code, output = await asyncio.to_thread(call, "status", *by_hand, "--json")
        assert (code, '"observer"' in output) == (0, True)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["round", "--policy", "lead"], "--policy lead: there is no such policy; the policies are: gold"),
        (["--once", "--node", "nobody"], "--node nobody: no device"),
        (["--once"], "no local device answers"),
        (["status"], "no report"),
        (["--node", "pod-1/d1"], "need --once"),
    ],
)
def test_what_can_not_be_done_is_told(tmp_path: Path, arguments: list[str], problem: str) -> None:
    async def make() -> dict[str, Any]:
        machine = Faulty(tmp_path, RedisServer(tmp_path))
        await machine.close()
        return machine.settings(machine.replicators[0], 0)

    config = tmp_path / "settings.yaml"
    config.write_text(yaml.safe_dump(asyncio.run(make())))
    done = CliRunner().invoke(swiftlet, ["replicator", "--config", str(config), *arguments])
    assert done.exit_code != 0
    assert problem in (done.output + str(done.exception))
