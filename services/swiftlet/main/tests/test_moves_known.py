"""Services that are asked whether they know of moves: what they say, and what hinders a move."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from swiftlet.errors import Unavailable
from swiftlet.main.commands.moves_known import KnownMoves
from swiftlet.main.moves_report import FIELD
from swiftlet.main.remembering import remembered_s
from swiftlet.ring.model import Device
from swiftlet.settings.sections import ProxySection
from swiftlet.transport.http_client import NodeClient

REQUESTS_S = 5.0


class Services:
    """Services with status reports that a test writes."""

    def __init__(self) -> None:
        self.servers: list[TestServer] = []
        self.asked = 0

    async def add(self, service: str, remembers_s: float | None, body: bytes | None = None) -> str:
        """One more; the URL of it."""
        report: dict[str, Any] = {"service": service, "version": "9.9"}
        if remembers_s is not None:
            report[FIELD] = {"remembersS": remembers_s}

        async def statusz(_request: web.Request) -> web.Response:
            self.asked += 1
            return web.Response(body=body or json.dumps(report).encode())

        app = web.Application()
        app.router.add_get("/statusz", statusz)
        server = TestServer(app)
        await server.start_server()
        self.servers.append(server)
        return f"http://127.0.0.1:{server.port}"


@pytest.fixture
async def services() -> AsyncIterator[Services]:
    made = Services()
    yield made
    for server in made.servers:
        await server.close()


async def known(urls: list[str], servers: list[str], now_s: list[float] | None = None) -> float:
    """Ask once."""
    client = NodeClient()
    try:
        return await knowing(client, urls, servers, now_s or [0.0]).services_s()
    finally:
        await client.close()


def knowing(client: NodeClient, urls: list[str], servers: list[str], now_s: list[float]) -> KnownMoves:
    """Who asks; `servers` are URLs of servers in rings."""
    ports = [int(url.rpartition(":")[2]) for url in servers]
    devices = [
        Device(number, f"n{number}", "127.0.0.1", port, "d", "r", "z", "n", 1.0)
        for number, port in enumerate([*ports, *ports])
    ]
    return KnownMoves(client, lambda: devices, urls, REQUESTS_S, now_s=lambda: now_s[0])


async def test_the_longest_memory_counts_and_a_server_is_asked_once(services: Services) -> None:
    urls = [await services.add("proxy", 10), await services.add("metadata", 910.5), await services.add("replicator", 0)]
    servers = [await services.add("object", 0), await services.add("container", 0)]
    assert await known(urls, servers) == 915.5
    assert services.asked == 5


async def test_answers_count_for_a_while(services: Services) -> None:
    urls = [await services.add("proxy", 10), await services.add("replicator", 0)]
    client, now_s = NodeClient(), [0.0]
    asking = knowing(client, urls, [], now_s)
    for now_s[0] in (0.0, 59.0, 61.0):
        assert await asking.services_s() == 15
    assert services.asked == 4
    await client.close()


async def test_services_that_do_not_know_or_can_not_be_asked_are_named(services: Services) -> None:
    good = [await services.add("proxy", 10), await services.add("replicator", 0)]
    old = await services.add("metadata", None)
    with pytest.raises(Unavailable, match=rf"{old} \(metadata 9.9\) does not know of moves; upgrade it"):
        await known([*good, old], [])
    with pytest.raises(Unavailable, match=r"127.0.0.1:\d+ \(object 9.9\) does not know of moves"):
        await known(good, [await services.add("object", None)])
    for body in (b"nonsense", b"[]", b"x" * 70_000):
        with pytest.raises(Unavailable, match="can't be asked"):
            await known([*good, await services.add("proxy", 1, body)], [])
    gone = good[0]
    await services.servers[0].close()
    with pytest.raises(Unavailable, match=f"{gone} can't be asked"):
        await known(good, [])


async def test_no_more_are_named_than_one_can_read(services: Services) -> None:
    old = [await services.add("proxy", None) for _ in range(8)]
    with pytest.raises(Unavailable, match="and 4 more") as refused:
        await known(old, [])
    assert str(refused.value).count("upgrade it") == 5


async def test_kinds_of_services_that_were_not_named_are_missed(services: Services) -> None:
    with pytest.raises(Unavailable, match="no replicator is among the services; name all of them"):
        await known([await services.add("proxy", 1)], [])


@pytest.mark.parametrize(
    ("front", "ttl_s", "remembers_s"), [(True, 10, 61), (True, 100, 101), (True, 0.5, 0.5), (False, 10, 10)]
)
def test_a_proxy_whose_front_has_grants_may_act_by_confirmed_facts(
    front: bool, ttl_s: float, remembers_s: float
) -> None:
    assert remembered_s(ProxySection(front=front, container_info_ttl_s=ttl_s)) == remembers_s
