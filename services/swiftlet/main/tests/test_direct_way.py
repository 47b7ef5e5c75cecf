"""The direct way of the client beside a proxy: what goes to the devices, and what goes over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path as Directory

import pytest

from swiftlet.client.credentials import V1
from swiftlet.client.direct.way import DirectWay
from swiftlet.client.http import Http
from swiftlet.client.options import Options
from swiftlet.main.tests.direct_cluster import DirectCluster
from swiftlet.testing.ways.conformance import WayContract


def way_to(cluster: DirectCluster, user: str = "test:tester") -> DirectWay:
    login = V1(auth_url=f"http://127.0.0.1:{cluster.proxy}/auth/v1.0", user=user, key="secret")
    options = Options(retry_wait_s=0.001)
    return DirectWay(Http(login, options), options, cluster.url)


@pytest.fixture
async def cluster(tmp_path: Directory) -> AsyncIterator[DirectCluster]:
    async with DirectCluster(tmp_path).running() as cluster:
        assert (await cluster.http("PUT", "ways"))[0] == 201
        yield cluster


class TestDirectWay(WayContract):
    """Real object servers over TCP."""

    @pytest.fixture
    async def way(self, cluster: DirectCluster) -> AsyncIterator[DirectWay]:
        way = way_to(cluster)
        yield way
        await way.close()
