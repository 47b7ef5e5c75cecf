"""A proxy with a front over native devices."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path as Directory
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from swiftlet.api.app import add_api_routes
from swiftlet.api.tests.proxy import Answer, Proxy, proxy_of
from swiftlet.front.proxy_front import ProxyFront
from swiftlet.front.row_records import RowsStatus
from swiftlet.front.tests.served import TIMEOUTS_S, NativeContainers, NativeDevices, front_server
from swiftlet.placement.tests.cluster import MemoryCluster, memory_cluster
from swiftlet.web.app import create_base_app

PATIENCE_S = 20.0


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

    @property
    def answered(self) -> int:
        """Requests that the front has answered."""
        return self.front.status()["answered"]

    @property
    def rows(self) -> RowsStatus:
        """What becomes of rows."""
        return self.front.status()["rows"]

    @property
    def connections(self) -> int:
        """Connections that the front has."""
        return self.front.status()["connections"]

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
    **options: Any,
) -> AsyncIterator[FrontedProxy]:
    """One more proxy of a cluster, with the API of another one of the same kind."""
    async with proxy_of(cluster, root, **options) as cold:
        cold.clock.now = time.time()  # As the front's.
        app = create_base_app("proxy", trust_request_ids=False, managed_apart=True)
        add_api_routes(app, cold.api)
        async with (
            front_server(
                app,
                cold.api,
                cluster,
                root,
                cold.withdrawals,
                writes=True,
                timeouts_s=timeouts_s,
                containers=containers,
            ) as (server, front, devices),
            TestClient(server, auto_decompress=False) as client,
        ):
            yield FrontedProxy(Proxy(cluster, cold.api, client, cold.clock, cold.token), front, devices)


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=3) as made:
        await made.make_container()
        yield made


@pytest.fixture
async def fronted(cluster: MemoryCluster, tmp_path: Directory) -> AsyncIterator[FrontedProxy]:
    async with fronted_proxy(cluster, tmp_path) as made:
        yield made
