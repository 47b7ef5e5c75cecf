"""What every way of a client does, against services on two machines; pytest collects it.

SWIFTLET_PROXY: the address of proxy and metadata server. Through the proxy bodies go by RDMA between it and the object
servers. Directly they go by TCP: a guest is shown no memory, and shows none to a server on another machine.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from typing import cast

import pytest

from swiftlet.client.bodies import BytesBody
from swiftlet.client.credentials import V1
from swiftlet.client.direct.grants import Kind
from swiftlet.client.direct.way import DirectWay
from swiftlet.client.http import Http, HttpWay
from swiftlet.client.options import Options
from swiftlet.client.values import ObjectRequest
from swiftlet.client.way import Way
from swiftlet.testing.ways.conformance import WayContract, read

PROXY = os.environ["SWIFTLET_PROXY"]
LOGIN = V1(auth_url=f"http://{PROXY}:8080/auth/v1.0", user="test:tester", key="testing")
OPTIONS = Options(connect_timeout_s=60.0, read_timeout_s=300.0, hedge=False)
LARGE = bytes(range(256)) * (6 << 12)
"""More than a chunk."""


@pytest.fixture(scope="module", autouse=True)
def container() -> None:
    """Create the container of the contract, once: who creates it again ends the grants for it."""

    async def made() -> None:
        http = Http(LOGIN, OPTIONS)
        async with http.request("PUT", "ways"):
            pass
        await http.close()

    asyncio.run(made())


@pytest.fixture
async def http() -> Http:
    """Return the client's HTTP side."""
    return Http(LOGIN, OPTIONS)


class TestHttp(WayContract):
    """Through a proxy, and by RDMA behind it."""

    @pytest.fixture
    async def way(self, http: Http) -> AsyncIterator[Way]:
        """Return the way through proxies."""
        made = HttpWay(http)
        yield made
        await made.close()


def is_granted(way: DirectWay) -> bool:
    """Return whether devices have accepted a grant for writing."""
    entry = way._parts.here().grants._entries.get(("ways", Kind.WRITE))
    return entry is not None and entry.granted is not None


class TestDirect(WayContract):
    """Directly, by TCP on the network of the RDMA devices."""

    @pytest.fixture
    async def way(self, http: Http) -> AsyncIterator[DirectWay]:
        """Return the way to the devices."""
        made = DirectWay(http, OPTIONS, f"http://{PROXY}:8090")
        # A grant of the first second after the container was made may be refused.
        while not is_granted(made):
            await made.put(ObjectRequest("ways", "warm"), BytesBody(b""))
        yield made
        assert not made._parts.here().devices.lasts, "nothing of it went over HTTP for a failure"
        await made.close()

    async def test_it_is_direct(self, way: DirectWay) -> None:
        """Bodies in both directions are on connections of this client, and what one way stores the other reads."""
        request = ObjectRequest("ways", "large")
        await way.put(request, BytesBody(LARGE))
        assert await read(way, request) == LARGE
        caller = way._parts.here()._caller
        assert caller is not None
        rows = caller.report()
        assert {(row["transport"], row["lent_bytes"], row["fetched_bytes"]) for row in rows} == {("tcp", 0, 0)}
        assert sum(cast("int", row["sent_bytes"]) for row in rows) > len(LARGE)
        assert sum(cast("int", row["received_bytes"]) for row in rows) > len(LARGE)
        assert await read(way._proxies, request) == LARGE
        await way._proxies.put(request, BytesBody(LARGE[1:]))
        assert await read(way, request) == LARGE[1:]
