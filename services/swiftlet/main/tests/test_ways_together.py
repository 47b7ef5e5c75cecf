"""All ways to one store agree: through a proxy in Python, through one with a native front, and directly by TCP and by
shared memory. In a policy with replicas and in one with erasure coding, to which the direct way goes through proxies.

All tests share one cluster of three object servers with a replicator and an expirer, in a thread of its own.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from itertools import combinations
from pathlib import Path as Directory
from typing import Any, cast

import pytest
from aiohttp import web

from swiftlet.boundaries.coded import CodedPlaces
from swiftlet.client.client import AsyncClient
from swiftlet.client.credentials import V1
from swiftlet.client.direct.way import DirectWay
from swiftlet.client.options import Options
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.main.services import replicator
from swiftlet.main.tests.direct_cluster import DEVICES, DirectCluster
from swiftlet.main.tests.test_direct_way import make_container
from swiftlet.main.tests.test_status_reports import transports
from swiftlet.model import ObjectKey
from swiftlet.names import HashPath
from swiftlet.ring import Ring, codec
from swiftlet.ring.model import Coding
from swiftlet.settings import ReplicatorSettings
from swiftlet.testing.ports import object_ports
from swiftlet.testing.ways.agreement import DATA, LARGE, AgreementContract, is_gone, names_in, until
from swiftlet.transport.native_coded_repair import NativeCodedRepair

WAYS = ("cold", "hot", "direct", "near")
"""M1 by Python and by the native front, M2 by TCP and by shared memory."""
CODING = Coding(2, 1, 1024)
HASH_PATH = HashPath(b"", b"suffix of the tests")


class Together(DirectCluster):
    """A cluster with two proxies, a second policy, and a replicator with an expirer."""

    def __init__(self, root: Directory, **cluster: Any) -> None:
        super().__init__(root, object_servers=len(DEVICES), **cluster)
        self.hot, self.replicator = object_ports(2)
        self.publish("object-1", self.object_ports)

    def _settings(self, **sections: Any) -> dict[str, Any]:
        settings = super()._settings(**sections)
        coding = {"data": CODING.data, "parity": CODING.parity, "cell_bytes": CODING.cell_bytes}
        settings["policies"].append({"name": "coded", "index": 1, "coding": coding})
        return settings

    def _apps(self) -> list[tuple[web.Application, int]]:
        devices = [f"127.0.0.1:{port}/{device}" for port, device in zip(self.object_ports, DEVICES, strict=True)]
        section = {
            "host": "127.0.0.1",
            "port": self.replicator,
            "devices": devices,
            "interval_s": 0.5,
        }
        expirer = {"interval_s": 0.3, "delay_s": 0.0}
        settings = ReplicatorSettings.model_validate(self._settings(replicator=section, expirer=expirer))
        hot = self._proxy_app(self.hot, front=True)
        hot.on_response_prepare.append(self._count)
        return [
            *super()._apps(),
            (hot, self.hot),
            (replicator.create_app(settings), self.replicator),
        ]

    def client(self, way: str) -> AsyncClient:
        """Return a client that goes this way."""
        port = self.hot if way == "hot" else self.proxy
        login = V1(auth_url=f"http://127.0.0.1:{port}/auth/v1.0", user="test:tester", key="secret")
        directory = self.more["native_socket_directory"] if way == "near" else None
        url = self.url if way in {"direct", "near"} else None
        return AsyncClient(login, Options(retry_wait_s=0.001, metadata_url=url, socket_directory=directory))

    async def stop_objects(self, *numbers: int) -> None:
        """Stop object servers, each of which has one device."""
        for number in numbers:
            await self.stop(self.object_ports[number])


def calls_of(store: AsyncClient) -> list[dict[str, Any]]:
    """Return what the transport tells of the connections to devices."""
    caller = cast("DirectWay", store._objects.way)._parts.here()._caller
    return [] if caller is None else cast("list[dict[str, Any]]", caller.report())


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    # The system allows only short paths of sockets.
    with tempfile.TemporaryDirectory() as sockets:
        made = Together(tmp_path_factory.mktemp("together"), native_socket_directory=sockets)
        with made.in_thread():
            yield made


@pytest.fixture
async def stores(cluster: Together) -> AsyncIterator[dict[str, AsyncClient]]:
    """A client of each way."""
    async with AsyncExitStack() as stack:
        yield {way: await stack.enter_async_context(cluster.client(way)) for way in WAYS}


@pytest.fixture(params=[f"{one}+{other}" for one, other in combinations(WAYS, 2)])
def pair(stores: dict[str, AsyncClient], request: pytest.FixtureRequest) -> tuple[AsyncClient, AsyncClient]:
    one, other = str(request.param).split("+")
    return stores[one], stores[other]


def name_of(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).translate(str.maketrans("[+]", "___"))


class TestReplicas(AgreementContract):
    """In a policy with three replicas, any two ways."""

    @pytest.fixture
    def container(self, cluster: Together, request: pytest.FixtureRequest) -> str:
        cluster.wait(make_container(cluster, name_of(request)))
        return name_of(request)


class TestErasureCoding(AgreementContract):
    """In a policy with erasure coding, where the client of the direct way goes through a proxy by itself."""

    @pytest.fixture
    async def pair(self, stores: dict[str, AsyncClient]) -> AsyncIterator[tuple[AsyncClient, AsyncClient]]:
        yield stores["hot"], stores["direct"]
        assert stores["direct"].over_http > 0
        assert not calls_of(stores["direct"]), "no device was asked"

    @pytest.fixture
    def container(self, cluster: Together, request: pytest.FixtureRequest) -> str:
        return made_coded(cluster, f"coded_{name_of(request)}")


def made_coded(cluster: Together, name: str) -> str:
    """Create a container with erasure coding."""
    assert cluster.wait(cluster.http("PUT", name, headers={"X-Storage-Policy": "coded"}))[0] == 201
    return name


@pytest.fixture
def container(cluster: Together, request: pytest.FixtureRequest) -> str:
    cluster.wait(make_container(cluster, name_of(request)))
    return name_of(request)


async def test_each_way_is_the_one_it_is_called_after(
    cluster: Together, stores: dict[str, AsyncClient], container: str
) -> None:
    async def moves(way: str) -> None:
        await stores[way].put(container, way, DATA)
        assert (await stores[way].get(container, way)).data == DATA

    cluster.requests.clear()
    await moves("cold")
    assert f"PUT /v1/AUTH_test/{container}/cold" in cluster.requests
    assert f"GET /v1/AUTH_test/{container}/cold" in cluster.requests
    await moves("hot")

    async def is_without_python() -> bool:
        cluster.requests.clear()
        await moves("hot")
        return not cluster.requests

    await until(is_without_python)  # The first requests are answered in Python, which makes known what they rest on.
    for way, transport in (("direct", "tcp"), ("near", "same-node")):
        cluster.requests.clear()
        await moves(way)
        assert {row["transport"] for row in calls_of(stores[way])} == {transport}
        assert (stores[way].over_http, [line for line in cluster.requests if "/AUTH_test/" in line]) == (0, [])


@pytest.mark.parametrize("policy", ["gold", "coded"])
async def test_what_expires_goes_with_its_row_whichever_way_it_was_stored(
    cluster: Together, stores: dict[str, AsyncClient], container: str, policy: str
) -> None:
    """The expirer removes it, and nothing that was stored over it without a time."""
    if policy == "coded":
        container = f"{container}_coded"
        assert (await cluster.there(cluster.http("PUT", container, headers={"X-Storage-Policy": "coded"})))[0] == 201
    when = {"X-Delete-After": "2"}
    for way, store in stores.items():
        for name in (f"expires/{way}", f"stays/{way}"):
            await store.put(container, name, DATA, headers=when)
        await store.put(container, f"posted/{way}", DATA)
        await store.post(container, f"posted/{way}", {}, headers=when)
    for after, way in zip(reversed(stores.values()), WAYS, strict=True):
        await after.put(container, f"stays/{way}", DATA)
    stay = sorted(f"stays/{way}" for way in WAYS)
    for store in stores.values():

        async def are_unlisted(store: AsyncClient = store) -> bool:
            return await names_in(store, container) == stay

        await until(are_unlisted)
        assert [(await store.get(container, name)).data for name in stay] == [DATA] * len(stay)
        for way in WAYS:
            assert await is_gone(store, container, f"expires/{way}")
            assert await is_gone(store, container, f"posted/{way}")


def where(cluster: Together, policy: int, container: str, name: str) -> tuple[Ring, ObjectKey]:
    """Return the policy's ring, and the place of an object in it."""
    digest = HASH_PATH("AUTH_test", container, name)
    ring = codec.load(cluster.root / "rings" / f"object-{policy}.ring")
    return ring, ObjectKey(policy, ring.partition_of(digest), digest)


async def test_what_a_device_has_missed_it_gets_and_serves_to_all_ways(
    cluster: Together, stores: dict[str, AsyncClient], container: str
) -> None:
    """Its server is down while each way stores, replaces and deletes; later it is the only one that is there."""
    names = [(way, size) for way in WAYS for size in (len(DATA), len(LARGE))]
    for way, size in names:
        await stores[way].put(container, f"replaced/{way}/{size}", b"older")
        await stores[way].put(container, f"deleted/{way}/{size}", LARGE[:size])
    await cluster.there(cluster.stop_objects(0))
    for way, size in names:
        await stores[way].put(container, f"replaced/{way}/{size}", LARGE[:size])
        await stores[way].put(container, f"new/{way}/{size}", LARGE[:size])
        await stores[way].delete(container, f"deleted/{way}/{size}")
    await cluster.there(cluster.start_objects(0))
    device = where(cluster, 0, container, "")[0].devices[0]
    assert device is not None
    async with transports() as (objects, _):
        for way, size in names:
            for kind in ("replaced", "new", "deleted"):

                async def has_it(name: str = f"{kind}/{way}/{size}", size: int = size) -> bool:
                    try:
                        info = await objects.head(device, where(cluster, 0, container, name)[1])
                    except NotFound:
                        return name.startswith("deleted")
                    except SwiftletError:
                        return False
                    return info.size == size and not name.startswith("deleted")

                await until(has_it)
    await cluster.there(cluster.stop_objects(1, 2))
    try:
        for way in WAYS:
            # One that has not been told of servers that are down.
            async with cluster.client(way) as store:
                for by, size in names:
                    for kind in ("replaced", "new"):
                        assert (await store.get(container, f"{kind}/{by}/{size}")).data == LARGE[:size]
                assert store.over_http == 0
    finally:
        for number in (1, 2):
            await cluster.there(cluster.start_objects(number))


async def test_a_fragment_that_was_lost_is_made_again_and_serves_all_ways(
    cluster: Together, stores: dict[str, AsyncClient]
) -> None:
    """A device comes back empty; later another one is down, so that every read needs what was made."""
    container = await asyncio.to_thread(made_coded, cluster, "fragments")
    for way, store in stores.items():
        await store.put(container, way, LARGE)
    await cluster.there(cluster.stop_objects(0))
    device = cluster.root / "objects" / DEVICES[0]
    shutil.rmtree(device)
    device.mkdir()
    await cluster.there(cluster.start_objects(0))
    async with transports() as (objects, _):
        repair = NativeCodedRepair(objects.coded)
        for way in WAYS:
            ring, key = where(cluster, 1, container, way)
            places = CodedPlaces(key, CODING, ring, ring.primaries(key.partition), ())
            number = [device.device for device in places.at].index(DEVICES[0])

            async def is_back(places: CodedPlaces = places, number: int = number) -> bool:
                try:
                    return await repair.show(places.at[number], places.key_at(number)) is not None
                except SwiftletError:
                    return False

            await until(is_back)
    await cluster.there(cluster.stop_objects(1))
    try:
        for way in WAYS:
            async with cluster.client(way) as store:
                assert [(await store.get(container, by)).data for by in WAYS] == [LARGE] * len(WAYS)
    finally:
        await cluster.there(cluster.start_objects(1))
