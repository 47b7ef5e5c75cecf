"""A cluster of real servers on one machine: what they report while a device is drained, and while one is replaced."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from swiftlet.main.services import container, metadata, object, proxy, replicator
from swiftlet.model import ObjectKey
from swiftlet.names import Path as Name
from swiftlet.placement.tests.cluster import HASH_PATH, HOUR, footer_of, record_of
from swiftlet.ring import RingBuilder, codec
from swiftlet.ring.codec import save
from swiftlet.ring.model import Device
from swiftlet.settings import ContainerSettings, MetadataSettings, ObjectSettings, ProxySettings, ReplicatorSettings
from swiftlet.testing.ports import free_ports, object_ports
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.native_calls import NativeSettings
from swiftlet.transport.native_client import NativeClient
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.transport.signing import ClusterKey
from swiftlet.web.management import MANAGEMENT

KEY = "the key of the tests, which is long enough for it"
COUNT = 4
OBJECTS = 24


class Machine:
    """Four object servers and four container servers, each with one device and a replicator."""

    def __init__(self, root: Path) -> None:
        self.root = root
        ports, pairs = free_ports(2 * COUNT), object_ports(2 * COUNT)
        self.objects, self.containers = pairs[:COUNT], pairs[COUNT:]
        self.replicators, self.database_replicators = ports[:COUNT], ports[COUNT:]
        self.metadata = free_ports(1)[0]
        """The port of the metadata server's reports."""
        self.builders = {"object-0": self._builder(self.objects), "container": self._builder(self.containers)}
        self.builders["account"] = self._builder(self.containers)
        (root / "rings").mkdir()
        self.publish()
        self.session = aiohttp.ClientSession()
        self._runners: dict[int, web.AppRunner] = {}

    def _builder(self, ports: list[int]) -> RingBuilder:
        builder = RingBuilder(4, 3, min_part_hours=0)
        for number, port in enumerate(ports):
            name = f"pod-{number}/d{number}"
            builder.add_device(
                name=name, host="127.0.0.1", port=port, device=f"d{number}", region="r", zone=f"z{number}", weight=1
            )
        return builder

    def publish(self) -> None:
        """Rebalance all rings and write them."""
        for name, builder in self.builders.items():
            builder.rebalance(HOUR)
            save(builder.ring, self.root / "rings" / f"{name}.ring")

    def version(self, ring: str) -> int:
        return self.builders[ring].ring.version

    def _common(self) -> dict[str, Any]:
        cluster = {
            "key": KEY,
            "hash_path_suffix": "suffix of the tests",
            "rings": str(self.root / "rings"),
            "ring_check_interval_s": 0.05,
        }
        return {"cluster": cluster, "policies": [{"name": "gold", "index": 0, "default": True}]}

    async def start_object(self, number: int) -> None:
        directory = self.root / "objects"
        (directory / f"d{number}").mkdir(parents=True, exist_ok=True)
        section = {"host": "127.0.0.1", "port": self.objects[number], "devices_dir": directory}
        settings = ObjectSettings.model_validate({**self._common(), "object": {**section, "devices": [f"d{number}"]}})
        await self._serve(object.create_app(settings), self.objects[number])

    async def start_replicator(self, number: int) -> None:
        section = {
            "port": self.replicators[number],
            "devices": [f"127.0.0.1:{self.objects[number]}/d{number}"],
            "interval_s": 0.3,
        }
        settings = ReplicatorSettings.model_validate({**self._common(), "replicator": section})
        await self._serve(replicator.create_app(settings), self.replicators[number])

    async def start_container(self, number: int) -> None:
        directory = self.root / "containers"
        directory.mkdir(exist_ok=True)
        section = {
            "host": "127.0.0.1",
            "port": self.containers[number],
            "devices_dir": directory,
            "devices": [f"d{number}"],
            "reserve_bytes": 0,
        }
        settings = ContainerSettings.model_validate({**self._common(), "container": section})
        await self._serve(container.create_app(settings), self.containers[number])

    def database_settings(self, number: int, **more: Any) -> ReplicatorSettings:
        section = {
            "port": self.database_replicators[number],
            "databases": [f"127.0.0.1:{self.containers[number]}/d{number}"],
            "database_interval_s": 0.2,
            # A machine that is busy is no failed node: one that is down refuses connections at once.
            "connect_timeout_s": 5.0,
            **more,
        }
        return ReplicatorSettings.model_validate({**self._common(), "replicator": section})

    async def start_database_replicator(self, number: int, **more: Any) -> None:
        settings = self.database_settings(number, **more)
        await self._serve(replicator.create_app(settings), self.database_replicators[number])

    async def start_metadata(self) -> None:
        settings = MetadataSettings.model_validate(self._common())
        app = metadata.create_app(settings)
        await self._serve(app, free_ports(1)[0])
        await self._serve(app[MANAGEMENT], self.metadata)

    async def _serve(self, app: web.Application, port: int) -> None:
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", port).start()
        self._runners[port] = runner

    async def stop(self, port: int) -> None:
        await self._runners.pop(port).cleanup()

    async def close(self) -> None:
        for port in list(self._runners):
            await self.stop(port)
        await self.session.close()

    async def report(self, port: int) -> dict[str, Any]:
        async with self.session.get(f"http://127.0.0.1:{port}/statusz") as answer:
            assert answer.status == 200
            return dict(await answer.json())

    async def standing(self, number: int) -> dict[str, Any]:
        """Of one device for objects; nothing when there is none yet."""
        devices = (await self.report(self.replicators[number]))["devices"]
        return dict(devices.get(f"pod-{number}/d{number}", {"rings": {}})["rings"].get("object-0", {}))

    async def listing_standing(self, number: int, ring: str) -> dict[str, Any]:
        devices = (await self.report(self.database_replicators[number]))["devices"]
        return dict(devices.get(f"pod-{number}/d{number}", {"rings": {}})["rings"].get(ring, {}))


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30):
        while not await condition():  # noqa: ASYNC110 - other servers' conditions set no event
            await asyncio.sleep(0.05)


@pytest.fixture
async def machine(tmp_path: Path) -> AsyncIterator[Machine]:
    made = Machine(tmp_path)
    yield made
    await made.close()


@asynccontextmanager
async def transports() -> AsyncIterator[tuple[NativeObjectTransport, HttpListingTransport]]:
    async with AsyncExitStack() as stack:
        key = ClusterKey(KEY.encode())
        native = NativeClient(NativeSettings(connect_timeout_s=5.0), [KEY.encode()])
        objects = NativeObjectTransport(native, HttpDevices(NodeClient(HttpSettings(), key)))
        stack.push_async_callback(objects.close)
        listings = HttpListingTransport(NodeClient(HttpSettings(), key))
        stack.push_async_callback(listings.close)
        yield objects, listings


async def test_objects_while_devices_are_drained_and_replaced(machine: Machine) -> None:
    await machine.start_replicator(0)
    assert (await machine.report(machine.replicators[0]))["devices"] == {}, "its server is not there yet"
    for number in range(COUNT):
        await machine.start_object(number)
        if number:
            await machine.start_replicator(number)
    ring = machine.builders["object-0"].ring
    now_s = time.time()
    async with transports() as (objects, _):
        for number in range(OBJECTS):
            name = Name("AUTH_test", "c", f"o{number}")
            digest = HASH_PATH(name.account, "c", f"o{number}")
            key = ObjectKey(0, ring.partition_of(digest), digest)
            target = ring.primaries(key.partition)[number % 3]
            body = b"x" * number
            await objects.put(target, key, record_of(name, Timestamp.at(now_s - 200)), body, footer_of(body), None)
            if number % 3 == 0:
                await objects.delete(target, key, Timestamp.at(now_s - 100), str(name), None)

        written_s = time.time()

        async def all_in_sync() -> bool:
            version = machine.version("object-0")
            standings = [await machine.standing(number) for number in range(COUNT)]
            # They may all have been in sync before there was anything.
            return all(
                s.get("ringVersion") == version
                and (s["syncedAt"] or 0) >= written_s
                and not (s["behind"] or s["misplaced"])
                for s in standings
            )

        await until(all_in_sync)
        before = await machine.standing(0)
        assert before["held"] > 0
        report = await machine.report(machine.objects[0])
        device = report["devices"]["d0"]
        assert (report["service"], report["rings"]) == ("object", {"container": 1, "object-0": 1})
        assert (device["state"], device["reason"], device["pending"]) == ("serving", None, 0)
        assert device["capacityBytes"] > device["freeBytes"] > 0

        # A device is drained.
        machine.builders["object-0"].set_weight(3, 0)
        machine.publish()
        machine.publish()
        machine.publish()
        assert list(machine.builders["object-0"].ring.partitions_of(3)) == []

        async def empty() -> bool:
            standing = await machine.standing(3)
            return bool(standing["ringVersion"] == machine.version("object-0") and standing["held"] == 0)

        await until(empty)
        drained = machine.builders["object-0"].ring.device(3)
        assert await objects.partitions(drained, 0) == [], "tombstones included"

        # A device comes back with an empty disk.
        await machine.stop(machine.replicators[1])
        await machine.stop(machine.objects[1])
        shutil.rmtree(machine.root / "objects" / "d1")
        await machine.start_object(1)
        begun = (await machine.report(machine.objects[1]))["startedAt"]
        await machine.start_replicator(1)

        async def refilled() -> bool:
            standing = await machine.standing(1)
            return bool((standing.get("syncedAt") or 0) >= begun)

        await until(refilled)

        async def equal() -> bool:
            held = [await _entries(objects, machine.builders["object-0"].ring.device(number)) for number in range(3)]
            return held[0] == held[1] == held[2] and len(held[0]) == OBJECTS

        await until(equal)


async def _entries(objects: NativeObjectTransport, device: Device) -> set[tuple[int, str, Any]]:
    found = set()
    for partition in await objects.partitions(device, 0):
        for suffix in await objects.suffix_hashes(device, 0, partition):
            found |= {(partition, suffix, entry) for entry in await objects.entries(device, 0, partition, suffix)}
    return found


async def test_databases_while_a_device_is_drained(machine: Machine) -> None:
    for number in range(COUNT):
        await machine.start_container(number)
        await machine.start_database_replicator(number)
    ring = machine.builders["container"].ring
    partitions = [ring.partition_of(HASH_PATH("AUTH_test", f"c{number}")) for number in range(12)]
    async with transports() as (_, listings):
        for number, partition in enumerate(partitions):
            device = ring.primaries(partition)[number % 3]
            await listings.put_container(device, partition, "AUTH_test", f"c{number}", Timestamp.at(1000), {}, None, 0)

    async def standings(number: int) -> list[dict[str, Any]]:
        return [await machine.listing_standing(number, name) for name in ("account", "container")]

    async def in_sync() -> bool:
        found = [one for number in range(COUNT) for one in await standings(number)]
        held = sum([(await machine.listing_standing(number, "container")).get("held", 0) for number in range(COUNT)])
        return held == 3 * len(set(partitions)) and all(
            one.get("syncedAt") and not (one["behind"] or one["unchecked"]) for one in found
        )

    await until(in_sync)
    report = await machine.report(machine.containers[3])
    assert report["rings"] == {"account": 1, "container": 1}
    assert report["devices"]["d3"]["state"] == "serving"
    assert report["devices"]["d3"]["capacityBytes"] > report["devices"]["d3"]["freeBytes"] > 0
    for name in ("account", "container"):
        machine.builders[name].set_weight(3, 0)
    for _ in range(3):
        machine.publish()
    assert list(machine.builders["container"].ring.partitions_of(3)) == []

    async def empty() -> bool:
        version = machine.version("container")
        return all(one["ringVersion"] == version and one["held"] == 0 for one in await standings(3))

    await until(empty)
    await until(in_sync)


async def test_stateless_services_report_too(machine: Machine) -> None:
    await machine.start_metadata()
    report = await machine.report(machine.metadata)
    assert report["service"] == "metadata"
    assert report["rings"] == {"container": 1, "object-0": 1}


async def test_stateless_services_hand_out_their_rings_where_no_client_asks(machine: Machine) -> None:
    """They may use a newer ring than any server of devices has seen when the cluster's own objects are lost."""
    await machine.start_metadata()
    async with machine.session.get(f"http://127.0.0.1:{machine.metadata}/rings/object-0") as answer:
        assert answer.status == 200
        assert codec.decode(await answer.read()).version == 1
    users = machine.root / "users.yaml"
    users.write_text("[]\n")
    settings = ProxySettings.model_validate({**machine._common(), "auth": {"users_file": users}})
    app = proxy.create_app(settings)
    assert [one for one in app[MANAGEMENT].router.resources() if one.canonical == "/rings/{ring}"]
    assert not [one for one in app.router.resources() if one.canonical == "/rings/{ring}"]
