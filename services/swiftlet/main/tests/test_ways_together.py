"""All ways to one store agree: through a proxy in Python, through one with a native front, and directly by TCP and by
shared memory. In a policy with replicas and in one with erasure coding, to which the direct way goes through proxies.

All tests share one cluster of three object servers with a replicator and an expirer, in a thread of its own.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path as Directory
from typing import Any, cast

import pytest
from aiohttp import web

from swiftlet.client.client import AsyncClient
from swiftlet.client.credentials import V1
from swiftlet.client.direct.way import DirectWay
from swiftlet.client.options import Options
from swiftlet.main.services import replicator
from swiftlet.main.tests.direct_cluster import DEVICES, DirectCluster
from swiftlet.main.tests.test_direct_way import make_container
from swiftlet.main.tests.test_status_reports import transports
from swiftlet.names import HashPath
from swiftlet.ring import Ring, codec
from swiftlet.settings import ReplicatorSettings
from swiftlet.testing.ports import object_ports
from swiftlet.testing.ways.agreement import DATA, AgreementContract, until
from swiftlet.testing.ways.upkeep import CODED, CODING, GOLD, UpkeepContract
from swiftlet.transport.native_objects import NativeObjectTransport

WAYS = ("cold", "hot", "direct", "near")
"""M1 by Python and by the native front, M2 by TCP and by shared memory."""
PAIRS = (("cold", "hot"), ("cold", "direct"), ("hot", "direct"), ("direct", "near"))
"""Those that are compared: each two whose code differs, and both carriers of M2, whose code is the same otherwise."""


class Together(DirectCluster):
    """A cluster with two proxies, a second policy, and a replicator with an expirer: a `Store` of the statements."""

    hash_path = HashPath(b"", b"suffix of the tests")

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

    async def make(self, container: str, policy: int) -> None:
        """Create a container; return when grants rest on what is known since then."""
        if policy == GOLD:
            await self.there(make_container(self, container))
        else:
            assert (await self.there(self.http("PUT", container, headers={"X-Storage-Policy": "coded"})))[0] == 201

    def ring(self, policy: int) -> Ring:
        """Return the ring of a policy."""
        return codec.load(self.root / "rings" / f"object-{policy}.ring")

    async def stop_objects(self, *numbers: int) -> None:
        """Stop object servers, each of which has one device."""
        for number in numbers:
            await self.there(self.stop(self.object_ports[number]))

    async def start_objects(self, *numbers: int) -> None:
        """Start object servers again."""
        for number in numbers:
            await self.there(self.serve_objects(number))

    async def empty_device(self, number: int) -> None:
        """Remove all that the device of a stopped object server has."""
        device = self.root / "objects" / DEVICES[number]
        shutil.rmtree(device)
        device.mkdir()

    @asynccontextmanager
    async def devices(self) -> AsyncIterator[NativeObjectTransport]:
        """Yield calls to single devices, as a member of the cluster."""
        async with transports() as (objects, _):
            yield objects


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


@pytest.fixture(params=[f"{one}+{other}" for one, other in PAIRS])
def pair(stores: dict[str, AsyncClient], request: pytest.FixtureRequest) -> tuple[AsyncClient, AsyncClient]:
    one, other = str(request.param).split("+")
    return stores[one], stores[other]


def name_of(request: pytest.FixtureRequest) -> str:
    return str(request.node.name).translate(str.maketrans("[+]", "___"))


class TestReplicas(AgreementContract):
    """In a policy with three replicas, two ways each time."""

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
    async def container(self, cluster: Together, request: pytest.FixtureRequest) -> str:
        """A container with erasure coding."""
        name = f"coded_{name_of(request)}"
        await cluster.make(name, CODED)
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


class TestUpkeep(UpkeepContract):
    """Expiry, replication and the repair of fragments, with what each of the four ways has stored."""
