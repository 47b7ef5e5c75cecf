"""The statements about all ways to one store, against services on two machines; pytest collects it.

`cold` and `hot` go through proxies, without and with a native front, whose bodies go by RDMA to and from object servers
on the other machine. `direct` goes past them, by TCP. The statements are those of `swiftlet.testing.ways`, as on one
machine (`swiftlet.main.tests.test_ways_together`), whose way through memory of the same machine there is not here.
"""

from __future__ import annotations

import os
import re
import time
import urllib.request
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import combinations
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest
import yaml

from swiftlet.client.client import AsyncClient
from swiftlet.client.credentials import V1
from swiftlet.client.direct.way import DirectWay
from swiftlet.client.options import Options
from swiftlet.names import HashPath
from swiftlet.ring import Ring, codec
from swiftlet.testing.ways.agreement import LARGE, AgreementContract, until
from swiftlet.testing.ways.upkeep import CODED, GOLD, UpkeepContract
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.native_calls import NativeSettings
from swiftlet.transport.native_client import NativeClient
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.transport.signing import ClusterKey

PROXY = os.environ["SWIFTLET_PROXY"]
SAID = Path(os.environ["SWIFTLET_SAID"])
"""The folder that both machines see."""
PORTS = {"hot": 8080, "cold": 8082, "direct": 8082}
"""Proxies by the ways that go through them, or fall back to them; their reports are at the next port."""
WAYS = ("cold", "hot", "direct")
SIZE = len(LARGE)


class TwoMachines:
    """The store of `two_machines.py`, whose object servers `storage.sh` stops and starts."""

    def __init__(self) -> None:
        settings = yaml.safe_load((SAID / "swiftlet.yaml").read_text())["cluster"]
        self.hash_path = HashPath(b"", settings["hash_path_suffix"].encode())
        self._key = settings["key"].encode()

    def client(self, way: str) -> AsyncClient:
        """Return a client that goes this way."""
        login = V1(auth_url=f"http://{PROXY}:{PORTS[way]}/auth/v1.0", user="test:tester", key="testing")
        url = f"http://{PROXY}:8090" if way == "direct" else None
        return AsyncClient(login, Options(connect_timeout_s=60.0, read_timeout_s=300.0, hedge=False, metadata_url=url))

    async def make(self, container: str, policy: int) -> None:
        """Create a container; return when grants rest on what is known since then."""
        async with aiohttp.ClientSession() as session:
            headers = {"X-Auth-User": "test:tester", "X-Auth-Key": "testing"}
            async with session.get(f"http://{PROXY}:8082/auth/v1.0", headers=headers) as answer:
                headers = {"X-Auth-Token": answer.headers["X-Auth-Token"]}
            more = {"X-Storage-Policy": "coded" if policy == CODED else "gold"}
            url = f"http://{PROXY}:8082/v1/AUTH_test/{container}"
            async with session.put(url, headers={**headers, **more}) as answer:
                assert answer.status == 201, await answer.text()
            created = time.time()
            asked = {"account": "AUTH_test", "container": container, "operations": ["get"]}

            async def is_known() -> bool:
                async with session.post(f"http://{PROXY}:8090/v1/grants", json=asked, headers=headers) as answer:
                    assert answer.status == 200, await answer.text()
                    return bool((await answer.json())["issued"] >= created)

            if policy == GOLD:
                await until(is_known)

    def ring(self, policy: int) -> Ring:
        """Return the ring of a policy."""
        return codec.load(SAID / "rings" / f"object-{policy}.ring")

    async def stop_objects(self, *numbers: int) -> None:
        """End the object servers with these numbers, and return when they have ended."""
        await self._ask("stop", *numbers)

    async def start_objects(self, *numbers: int) -> None:
        """Start them again, and return when they answer."""
        await self._ask("start", *numbers)

    async def empty_device(self, number: int) -> None:
        """Remove all that the device of a stopped object server has."""
        await self._ask("empty", number)

    async def _ask(self, what: str, *numbers: int) -> None:
        (SAID / "asking").write_text(f"{what} {' '.join(map(str, numbers))}\n")
        (SAID / "asking").rename(SAID / "asked")

        async def is_done() -> bool:
            return not (SAID / "asked").exists()

        await until(is_done)

    @asynccontextmanager
    async def devices(self) -> AsyncIterator[NativeObjectTransport]:
        """Yield calls to single devices, as a member of the cluster; nothing of a body goes by them."""
        slow = NativeSettings(connect_timeout_s=30.0, answer_timeout_s=120.0, silence_s=20.0)
        peers = NodeClient(HttpSettings(connect_timeout_s=30.0, answer_timeout_s=120.0), ClusterKey(self._key))
        objects = NativeObjectTransport(NativeClient(slow, [self._key]), HttpDevices(peers))
        yield objects
        await objects.close()


@pytest.fixture(scope="module")
def cluster() -> TwoMachines:
    """Return the store of both machines."""
    return TwoMachines()


@pytest.fixture
async def stores(cluster: TwoMachines) -> AsyncIterator[dict[str, AsyncClient]]:
    """Yield a client of each way."""
    async with AsyncExitStack() as stack:
        yield {way: await stack.enter_async_context(cluster.client(way)) for way in WAYS}


@pytest.fixture(params=[f"{one}+{other}" for one, other in combinations(WAYS, 2)])
def pair(stores: dict[str, AsyncClient], request: pytest.FixtureRequest) -> tuple[AsyncClient, AsyncClient]:
    """Return the clients of any two ways."""
    one, other = str(request.param).split("+")
    return stores[one], stores[other]


def name_of(request: pytest.FixtureRequest) -> str:
    """Return a container's name for a test."""
    return str(request.node.name).translate(str.maketrans("[+]", "___"))


@pytest.fixture
async def container(cluster: TwoMachines, request: pytest.FixtureRequest) -> str:
    """Create a container with replicas, and return its name."""
    await cluster.make(name_of(request), GOLD)
    return name_of(request)


def calls_of(store: AsyncClient) -> list[dict[str, Any]]:
    """Return what the transport tells of the connections to devices."""
    caller = cast("DirectWay", store._objects.way)._parts.here()._caller
    return [] if caller is None else cast("list[dict[str, Any]]", caller.report())


class TestReplicas(AgreementContract):
    """In a policy with three replicas, any two ways."""

    lives_s = 30


class TestErasureCoding(AgreementContract):
    """In a policy with erasure coding, where the client of the direct way goes through a proxy by itself."""

    lives_s = 30

    @pytest.fixture
    async def pair(self, stores: dict[str, AsyncClient]) -> AsyncIterator[tuple[AsyncClient, AsyncClient]]:
        """Yield the clients of two ways."""
        yield stores["hot"], stores["direct"]
        assert stores["direct"].over_http > 0
        assert not calls_of(stores["direct"]), "no device was asked"

    @pytest.fixture
    async def container(self, cluster: TwoMachines, request: pytest.FixtureRequest) -> str:
        """Create a container with erasure coding, and return its name."""
        await cluster.make(f"coded_{name_of(request)}", CODED)
        return f"coded_{name_of(request)}"


class TestUpkeep(UpkeepContract):
    """Expiry, replication and the repair of fragments, with what each of the three ways has stored."""

    expires_after_s = 20


def counted(way: str) -> Callable[[str], float]:
    """Return what gives the growth of a counter of a way's proxy, over all of its peers, from now on."""

    def now(name: str) -> float:
        with urllib.request.urlopen(f"http://{PROXY}:{PORTS[way] + 1}/metrics", timeout=120) as answer:
            page = answer.read().decode()
        return sum(map(float, re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", page, re.M)))

    names = (
        "swiftlet_transport_lent_bytes_total",
        "swiftlet_transport_fetched_bytes_total",
        "swiftlet_front_rows_total",
    )
    before = {name: now(name) for name in names}
    return lambda name: now(name) - before[name]


async def test_each_way_is_the_one_it_is_called_after(
    cluster: TwoMachines, stores: dict[str, AsyncClient], container: str
) -> None:
    """Bodies through either proxy go by RDMA in both directions; of what goes directly none does."""
    for way in ("cold", "hot"):
        grown = counted(way)

        async def goes_by_rdma(way: str = way, grown: Callable[[str], float] = grown) -> bool:
            await stores[way].put(container, way, LARGE)
            assert (await stores[way].get(container, way)).data == LARGE
            lent = grown("swiftlet_transport_lent_bytes_total")
            # What an object server sends is fetched as far as it lies in its pool.
            return lent >= 3 * SIZE and grown("swiftlet_transport_fetched_bytes_total") >= SIZE // 2

        await until(goes_by_rdma)
    assert not counted("cold")("swiftlet_front_rows_total")
    rows = counted("hot")

    async def is_without_python() -> bool:
        await stores["hot"].put(container, "small", LARGE[:1000])
        return rows("swiftlet_front_rows_total") > 0

    await until(is_without_python)
    direct = stores["direct"]
    await direct.put(container, "direct", LARGE)
    assert (await direct.get(container, "direct")).data == LARGE
    assert direct.over_http == 0
    calls = calls_of(direct)
    assert {(row["transport"], row["lent_bytes"], row["fetched_bytes"]) for row in calls} == {("tcp", 0, 0)}
    assert sum(row["sent_bytes"] for row in calls) >= 3 * SIZE
    for way in ("cold", "hot"):
        assert (await stores[way].get(container, "direct")).data == LARGE
