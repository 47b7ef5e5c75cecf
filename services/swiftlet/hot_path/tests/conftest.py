"""A proxy with a hot path over native devices."""

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
from swiftlet.hot_path.hot_path import HotPath
from swiftlet.hot_path.tests.served import NativeDevices, hot_server
from swiftlet.placement.tests.cluster import MemoryCluster, memory_cluster
from swiftlet.web.app import create_base_app

PATIENCE_S = 20.0


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens beside the test."""
    async with asyncio.timeout(PATIENCE_S):
        while not condition():  # noqa: ASYNC110 - other threads and tasks make it true
            await asyncio.sleep(0.005)


@dataclass
class Hot:
    """A proxy, what is behind it, and what is before it."""

    proxy: Proxy
    path: HotPath
    devices: NativeDevices

    @property
    def answered(self) -> int:
        """Requests that the front has answered."""
        return self.path.status()["answered"]

    @property
    def connections(self) -> int:
        """Connections that the front has."""
        return self.path.status()["connections"]

    async def read(self, name: str = "c/o", headers: Mapping[str, str] | None = None, method: str = "GET") -> Answer:
        """What a hot read gives: asked until the front is the one that answers."""
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
async def hot_proxy(cluster: MemoryCluster, root: Directory, **options: Any) -> AsyncIterator[Hot]:
    """One more proxy of a cluster, with the API of another one of the same kind."""
    async with proxy_of(cluster, root, **options) as cold:
        cold.clock.now = time.time()  # As the front's.
        app = create_base_app("proxy", trust_request_ids=False, managed_apart=True)
        add_api_routes(app, cold.api)
        async with (
            hot_server(app, cold.api, cluster, root, writes=True) as (server, path, devices),
            TestClient(server, auto_decompress=False) as client,
        ):
            yield Hot(Proxy(cluster, cold.api, client, cold.clock, cold.token), path, devices)


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[MemoryCluster]:
    async with memory_cluster(tmp_path, devices=3) as made:
        await made.make_container()
        yield made


@pytest.fixture
async def hot(cluster: MemoryCluster, tmp_path: Directory) -> AsyncIterator[Hot]:
    async with hot_proxy(cluster, tmp_path) as made:
        yield made
