"""Lookups of names: once for all who ask, and what is cut off keeps nothing else waiting."""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import threading
from collections import Counter
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from swiftlet.ring.model import Device
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.names import MAX_SLOW, NAMES, SLOW_S, SLOW_THREADS, THREADS, Names

WAIT_S = 60.0


class NameServer:
    """Answers for `cut-` names when it may, and for others at once; lookups that wait make the clock go on."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: Counter[str] = Counter()
        self.may_answer = threading.Event()

    def __call__(self, host: str, port: int) -> list[tuple[Any, ...]]:
        self.asked[host] += 1
        if host.startswith("cut-"):
            assert self.may_answer.wait(WAIT_S)
            self.now += SLOW_S
            raise OSError(f"nobody knows {host}")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.1", port))]

    def names(self) -> Names:
        return Names(self, lambda: self.now)


async def _asked(server: NameServer, count: int) -> None:
    async with asyncio.timeout(WAIT_S):
        while server.asked.total() < count:  # noqa: ASYNC110 - the lookups are in threads
            await asyncio.sleep(0.001)


async def test_a_name_is_looked_up_once_for_all_who_ask() -> None:
    server = NameServer()
    names = server.names()
    asking = [asyncio.ensure_future(names.find("cut-1", 1)) for _ in range(5)]
    await _asked(server, 1)
    asking[0].cancel()
    server.may_answer.set()
    found = await asyncio.gather(*asking, return_exceptions=True)
    assert [type(one) for one in found] == [asyncio.CancelledError, *[OSError] * 4]
    assert server.asked == {"cut-1": 1}
    assert (await names.find("near", 7))[0][4] == ("10.0.0.1", 7)
    assert (await names.find("near", 7))[0][4] == ("10.0.0.1", 7)
    assert server.asked["near"] == 2, "what is known is for others to remember"


async def test_names_that_were_slow_keep_no_others_waiting() -> None:
    server = NameServer()
    names = server.names()
    server.may_answer.set()
    hosts = [f"cut-{number}" for number in range(THREADS + 1)]
    await asyncio.gather(*(names.find(host, 1) for host in hosts), return_exceptions=True)
    server.may_answer.clear()
    server.asked.clear()
    asking = [asyncio.ensure_future(names.find(host, 1)) for host in hosts]
    await _asked(server, SLOW_THREADS)
    async with asyncio.timeout(WAIT_S):
        assert await names.find("near", 1)
    assert server.asked.total() == SLOW_THREADS + 1
    server.may_answer.set()
    await asyncio.gather(*asking, return_exceptions=True)


async def test_slow_names_that_are_remembered_are_bounded() -> None:
    server = NameServer()
    names = server.names()
    server.may_answer.set()
    for number in range(MAX_SLOW + 3):
        names._note(f"cut-{number}", is_slow=True)
    assert (len(names._slow), next(iter(names._slow))) == (MAX_SLOW, "cut-3")
    names._note("cut-3", is_slow=False)
    assert next(iter(names._slow)) == "cut-4"


async def test_a_process_made_by_fork_has_threads_of_its_own() -> None:
    await NAMES.find("localhost", 1)
    child = multiprocessing.get_context("fork").Process(target=_look_up)
    child.start()
    await asyncio.to_thread(child.join, WAIT_S)
    assert child.exitcode == 0


def _look_up() -> None:
    async def find() -> None:
        async with asyncio.timeout(WAIT_S):
            await NAMES.find("localhost", 1)

    asyncio.run(find())


async def test_requests_to_nodes_need_no_thread_of_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of its threads may be busy, or waiting for something else."""

    async def none(*_: object, **__: object) -> None:
        raise AssertionError("that would wait for a thread of the loop")

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=b"{}")

    app = web.Application()
    app.router.add_get("/x", answer)
    async with TestServer(app, host="127.0.0.1") as server:
        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", none)
        device = Device(0, "d", "localhost", server.port or 0, "d", "r", "z", "n", 1.0)
        client = NodeClient()
        assert await client.call(device, "GET", "/x") == b"{}"
        await client.close()
