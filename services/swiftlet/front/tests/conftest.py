"""A proxy with a front over native devices."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path as Directory
from typing import Any, cast

import pytest
import swiftlet_native
from aiohttp import TCPConnector
from aiohttp.test_utils import TestClient

from swiftlet.api.app import add_api_routes
from swiftlet.api.tests.proxy import Answer, Proxy, proxy_of
from swiftlet.front.deciding import Deciding
from swiftlet.front.proxy_front import ProxyFront, _Running
from swiftlet.front.routes import CodedPeers
from swiftlet.front.row_records import RowsStatus
from swiftlet.front.tests.served import TIMEOUTS_S, NativeContainers, NativeDevices, front_server
from swiftlet.listing.updates import UpdateTable
from swiftlet.main.certificates import Certificates
from swiftlet.main.tests.certificates import make_pair
from swiftlet.placement.rings import Rings
from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, memory_cluster
from swiftlet.web.app import create_base_app

PATIENCE_S = 20.0
BY_PYTHON, BY_FRONT = "rows by Python", "rows by the front"
WAYS = (BY_PYTHON, "https"), (BY_FRONT, "http")
EACH_WAY = pytest.mark.parametrize(("cluster", "scheme"), WAYS, indirect=True)
"""Marks tests that are run with all rows delivered by Python, over HTTPS, and with what can be delivered by the front,
over HTTP. Who delivers rows knows nothing of TLS, so the other two combinations would show nothing that these don't.
"""


def end(writer: asyncio.StreamWriter) -> None:
    """Send no more; asyncio can only end both directions of TLS."""
    if writer.can_write_eof():
        writer.write_eof()
    else:
        writer.close()


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens beside the test."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - other threads and tasks make it true
            await asyncio.sleep(0.005)


@dataclass
class FrontedProxy:
    """A proxy, what is behind it, and what is before it."""

    proxy: Proxy
    front: ProxyFront
    devices: NativeDevices
    containers: NativeContainers | None
    """Where the front delivers rows itself; None where Python delivers all."""
    trusting: ssl.SSLContext | None = None
    """How clients connect by TLS."""

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A new connection to it."""
        name = None if self.trusting is None else "localhost"
        return await asyncio.open_connection("127.0.0.1", self.proxy.port, ssl=self.trusting, server_hostname=name)

    @property
    def answered(self) -> int:
        """Requests that the front has answered."""
        return self.front.status()["answered"]

    async def noted(self) -> int:
        """Return the number of requests that the front has answered, with those whose clients have just been answered.

        Its thread notes an answer after it has sent it, and before it takes another connection.
        """
        reader, writer = await self.connect()
        writer.write(b"GET /healthcheck HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
        writer.close()
        return self.answered

    @property
    def rows(self) -> RowsStatus:
        """What becomes of rows."""
        return self.front.status()["rows"]

    @property
    def connections(self) -> int:
        """Connections that the front has."""
        return self.front.status()["connections"]

    @property
    def running(self) -> _Running:
        """What runs of the front."""
        running = self.front._running
        assert running is not None
        return running

    async def grant_writes(self) -> None:
        """Have the front store and delete objects of the tests' container for as long as a test is waited for."""
        api, token, prefix = self.proxy.api, self.proxy.token["X-Auth-Token"], f"/v1/{ACCOUNT}/{CONTAINER}/"
        grant = await Deciding(api).decide(token, prefix, write=True)
        assert grant is not None
        rows, seen = self.front._rows(grant), api.changes.of_grants(ACCOUNT)
        what = grant.container, 0, grant.reads, False, grant.expiring, *rows
        self.running.front.grant(True, token.encode(), prefix.encode(), *what, seen, PATIENCE_S, [])

    async def read(self, name: str = "c/o", headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
        """What a read through the front gives: asked until the front is the one that answers."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                before = self.answered
                answer = await self.proxy.call(method, name, headers)
                if self.answered > before:
                    return answer
                assert answer.status == 200, answer
                await asyncio.sleep(0.01)

    async def is_cold(self, name: str, headers: Mapping[str, str] | None = None) -> Answer:
        """What reads of an object give that Python answers every time."""
        for _ in range(5):
            before = self.answered
            answer = await self.proxy.call("GET", name, headers)
            assert self.answered == before
            await asyncio.sleep(0.02)
        return answer


@asynccontextmanager
async def fronted_proxy(
    cluster: MemoryCluster,
    root: Directory,
    *,
    timeouts_s: tuple[float, float] = TIMEOUTS_S,
    containers: NativeContainers | None = None,
    certificate: Certificates | None = None,
    client_timeout_s: float = 10.0,
    coded: tuple[Rings, CodedPeers] | None = None,
    **options: Any,
) -> AsyncIterator[FrontedProxy]:
    """One more proxy of a cluster, with the API of another one of the same kind. With a `certificate` it speaks TLS."""
    trusting = None if certificate is None else trusting_all(certificate)
    async with contextlib.AsyncExitStack() as stack:
        cold = await stack.enter_async_context(proxy_of(cluster, root, **options))
        cold.clock.now = time.time()  # As the front's.
        app = create_base_app("proxy", trust_request_ids=False, managed_apart=True)
        add_api_routes(app, cold.api)
        server, front, devices = await stack.enter_async_context(
            front_server(
                app,
                cold.api,
                cluster,
                root,
                cold.withdrawals,
                writes=True,
                timeouts_s=timeouts_s,
                containers=containers,
                certificate=certificate,
                client_timeout_s=client_timeout_s,
                coded=coded,
            )
        )
        connector = TCPConnector(ssl=trusting or True)
        client = await stack.enter_async_context(TestClient(server, auto_decompress=False, connector=connector))
        proxy = Proxy(cluster, cold.api, client, cold.clock, cold.token)
        yield FrontedProxy(proxy, front, devices, containers, trusting)


@pytest.fixture
async def cluster(request: pytest.FixtureRequest, tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    """With `BY_FRONT` as its parameter, the databases of containers have tables for native rows."""
    make_table = _table if getattr(request, "param", None) == BY_FRONT else None
    async with memory_cluster(tmp_path, devices=3, make_table=make_table) as made:
        await made.make_container()
        yield made


def _table(directory: Directory) -> UpdateTable:
    return cast("UpdateTable", swiftlet_native.UpdateTable(directory, "d"))


def trusting_all(certificate: Certificates) -> ssl.SSLContext:
    """How clients connect that trust its issuer, which is itself."""
    context = ssl.create_default_context(cadata=certificate.pem[0].decode())
    context.check_hostname = False
    return context


@pytest.fixture(params=["http", "https"])
def scheme(request: pytest.FixtureRequest) -> str:
    """What clients speak with the front."""
    return str(request.param)


@pytest.fixture(scope="session")
def pair_files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Directory, Directory]:
    """The files of a certificate and its key."""
    directory = tmp_path_factory.mktemp("pair")
    make_pair(directory, "front")
    return directory / "front.crt", directory / "front.key"


@pytest.fixture
def certificate(scheme: str, pair_files: tuple[Directory, Directory]) -> Certificates | None:
    """The certificate of the front; None for plain HTTP."""
    return Certificates(*pair_files) if scheme == "https" else None


@pytest.fixture
async def fronted(
    cluster: MemoryCluster, tmp_path: Directory, certificate: Certificates | None
) -> AsyncIterator[FrontedProxy]:
    """The front delivers rows where databases have tables for them."""
    with contextlib.ExitStack() as stack:
        has_tables = cluster.databases[cluster.devices[0].name].table is not None
        containers = NativeContainers(cluster, tmp_path) if has_tables else None
        if containers is not None:
            stack.callback(containers.close)
        async with fronted_proxy(cluster, tmp_path, containers=containers, certificate=certificate) as made:
            yield made


@pytest.fixture
async def with_pythons_rows(
    cluster: MemoryCluster, tmp_path: Directory, certificate: Certificates | None
) -> AsyncIterator[FrontedProxy]:
    """Python delivers all rows."""
    async with fronted_proxy(cluster, tmp_path, certificate=certificate) as made:
        yield made
