"""A device that sends wrong bytes, over real connections: no client takes them for an object or for a part of one,
whether Python answers or the native front.

Fault model: one body that a device sends to a proxy has a bit that is wrong, in a frame that is right; the digest that
ends its answer is that of the right bytes. All other devices are sound. What was passed on can't be taken back.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from aiohttp import web

from swiftlet.main.services import proxy
from swiftlet.main.tests.direct_cluster import DEVICES, DirectCluster, networks_before
from swiftlet.main.tests.test_direct_way import make_container
from swiftlet.settings import ProxySettings
from swiftlet.testing.ports import object_ports
from swiftlet.testing.spoiling import Spoiling

CONTAINER = "wrong"
OFFSET = 2000
"""How far the ports at which proxies look for devices are above those in the ring; the devices' are 1000 above them."""
LONG = random.Random(1).randbytes((5 << 20) + 4097)
"""More than clients are sent before all of it was checked."""
SHORT = random.Random(2).randbytes(20_000)
PATIENCE_S = 60.0


class Relayed(DirectCluster):
    """A cluster with a second proxy, which has a front; what devices send to the two may be spoiled."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, object_servers=len(DEVICES))
        [self.hot] = object_ports(1)
        self.spoiling = Spoiling()

    def _apps(self) -> list[tuple[web.Application, int]]:
        hot = self._proxy_app(self.hot, front=True)
        hot.on_response_prepare.append(self._count)
        return [*super()._apps(), (hot, self.hot)]

    def _proxy_app(self, port: int, *, front: bool) -> web.Application:
        section = {"host": "127.0.0.1", "port": port, "connect_timeout_s": 5.0, "front": front}
        settings = self._settings(proxy=section, **self._rules())
        settings["cluster"]["native_port_offset"] = OFFSET
        return proxy.create_app(ProxySettings.model_validate(settings))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[DirectCluster]:
        async with networks_before(self, OFFSET) as networks:
            for network in networks:
                network.change = self.spoiling.begin
            async with super().running():
                yield self

    async def store(self, name: str, body: bytes) -> int:
        """PUT an object; the status."""
        url = f"http://127.0.0.1:{self.proxy}/v1/AUTH_test/{CONTAINER}/{name}"
        async with self.session.put(url, data=io.BytesIO(body), headers={"X-Auth-Token": self.token}) as answer:
            return answer.status


@dataclass(frozen=True)
class Answer:
    """What a client got: how much it was promised, what came, and whether Python answered."""

    status: int
    size: int
    body: bytes
    by_python: bool


async def get(cluster: Relayed, port: int, name: str, first: int = 0) -> Answer:
    """GET an object from its byte `first` on, and take what comes until the connection ends, in whatever way."""
    cluster.requests.clear()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    lines = [f"GET /v1/AUTH_test/{CONTAINER}/{name} HTTP/1.1", "Host: h", f"X-Auth-Token: {cluster.token}"]
    lines += [f"Range: bytes={first}-"] * bool(first) + ["Connection: close", "", ""]
    writer.write("\r\n".join(lines).encode())
    try:
        async with asyncio.timeout(PATIENCE_S):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
            body = bytearray()
            with contextlib.suppress(ConnectionError):
                while data := await reader.read(1 << 16):
                    body += data
    finally:
        writer.close()
    size = int(head.partition("content-length: ")[2].split()[0])
    by_python = any(f"/{CONTAINER}/" in line for line in cluster.requests)
    return Answer(int(head.split()[1]), size, bytes(body), by_python)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Relayed]:
    with Relayed(tmp_path_factory.mktemp("relayed")).in_thread() as made:
        assert isinstance(made, Relayed)
        made.wait(make_container(made, CONTAINER))
        for name, body in (("long", LONG), ("short", SHORT)):
            assert made.wait(made.store(name, body)) == 201
        yield made


@pytest.mark.parametrize("first", [0, 7], ids=["whole", "part"])
@pytest.mark.parametrize("by_python", [True, False], ids=["python", "front"])
async def test_an_answer_ends_behind_wrong_bytes_that_were_passed_on(
    cluster: Relayed, by_python: bool, first: int
) -> None:
    port, right = (cluster.proxy if by_python else cluster.hot), LONG[first:]
    async with asyncio.timeout(PATIENCE_S):
        while True:
            # Python answers first, and again when its word for the front is too old, or a device has doubts.
            await cluster.there(cluster.prove())
            assert (await get(cluster, port, "long", first)).body == right
            cluster.spoiling.left = 1
            found = await get(cluster, port, "long", first)
            assert (found.status, found.size) == (206 if first else 200, len(right))
            if len(found.body) == len(right):
                # Two devices were asked, and the wrong one was not taken.
                assert found.body == right
                continue
            assert found.body != right[: len(found.body)]
            if found.by_python == by_python:
                return


@pytest.mark.parametrize("by_python", [True, False], ids=["python", "front"])
async def test_another_device_is_asked_where_no_wrong_byte_was_passed_on(cluster: Relayed, by_python: bool) -> None:
    """An answer that is not longer than what is held back until it is checked."""
    cluster.spoiling.left = 1
    async with asyncio.timeout(PATIENCE_S):
        while cluster.spoiling.left:
            found = await get(cluster, cluster.proxy if by_python else cluster.hot, "short")
            assert (found.status, found.body == SHORT) == (200, True)
