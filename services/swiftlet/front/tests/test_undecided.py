"""Requests without a grant: the front asks Python to decide, and Python answers only what is refused."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from swiftlet.api.tests.proxy import Answer
from swiftlet.errors import Unavailable
from swiftlet.front import proxy_front
from swiftlet.front.deciding import Deciding, Grant
from swiftlet.front.tests.conftest import FrontedProxy, until
from swiftlet.placement.tests.cluster import ACCOUNT, MemoryCluster

DATA = b"some data"


class Decisions:
    """Counts decisions, which wait while they are `held`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.begun = 0
        self.under_way = 0
        self.most = 0
        self.held = asyncio.Event()
        self.held.set()
        self.error: Exception | None = None
        decide, counts = Deciding.decide, self

        async def decided(self: Deciding, token: str, prefix: str, write: bool = False) -> Grant | None:
            counts.begun += 1
            counts.under_way += 1
            counts.most = max(counts.most, counts.under_way)
            try:
                await counts.held.wait()
                if counts.error is not None:
                    raise counts.error
                return await decide(self, token, prefix, write)
            finally:
                counts.under_way -= 1

        monkeypatch.setattr(Deciding, "decide", decided)


@pytest.fixture
def decisions(monkeypatch: pytest.MonkeyPatch) -> Decisions:
    return Decisions(monkeypatch)


async def test_the_first_requests_are_answered_by_the_front(fronted: FrontedProxy) -> None:
    proxy = fronted.proxy
    for number in range(3):
        assert (await proxy.call("PUT", f"c/{number}", data=DATA)).status == 201
        assert (await proxy.call("GET", f"c/{number}")).body == DATA
        assert (await proxy.call("DELETE", f"c/{number}")).status == 204
    await until(lambda: fronted.answered == 9)


async def test_writes_are_left_to_python_where_the_front_makes_none(
    fronted: FrontedProxy, decisions: Decisions
) -> None:
    fronted.front._settings = replace(fronted.front._settings, writes=False)
    for number in range(3):
        assert (await fronted.proxy.call("PUT", f"c/{number}", data=DATA)).status == 201
        assert (await fronted.proxy.call("DELETE", f"c/{number}")).status == 204
    assert (fronted.answered, decisions.begun) == (0, 0)


async def test_one_decision_for_all_who_wait(fronted: FrontedProxy, decisions: Decisions) -> None:
    proxy = fronted.proxy
    decisions.held.clear()
    writing = [asyncio.create_task(proxy.call("PUT", f"c/{number}", data=DATA)) for number in range(10)]
    await until(lambda: decisions.begun == 1 and fronted.running.front.open() == 10)
    assert not any(task.done() for task in writing)
    decisions.held.set()
    assert {answer.status for answer in await asyncio.gather(*writing)} == {201}
    await until(lambda: fronted.answered == 10)


async def test_a_refusal_is_answered_by_python_and_holds_for_a_moment(
    fronted: FrontedProxy, decisions: Decisions
) -> None:
    proxy = fronted.proxy
    assert (await proxy.call("PUT", "c", {"X-Versions-Enabled": "true"})).status in {201, 202}
    for number in range(5):
        assert (await proxy.call("GET", f"c/{number}")).status == 404
    assert fronted.answered == 0
    # Those that Python answered are not decided anew by the front, as their connection stays with Python.
    assert decisions.begun <= 2


async def test_a_decision_that_fails_leaves_the_request_to_python(fronted: FrontedProxy, decisions: Decisions) -> None:
    assert (await fronted.proxy.call("PUT", "c/o", data=DATA)).status == 201
    decisions.error = RuntimeError("a defect")
    answers = [await fronted.proxy.call("GET", "c/o", {"X-Auth-Token": token}) for token in ("", "nonsense")]
    assert [answer.status for answer in answers] == [401, 401]


async def test_only_so_many_decisions_at_a_time(
    fronted: FrontedProxy, decisions: Decisions, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = proxy_front.MAX_DECIDING + 20
    decisions.held.clear()
    reading = [asyncio.create_task(fronted.proxy.call("GET", f"many-{number}/o")) for number in range(count)]
    await until(lambda: decisions.begun == proxy_front.MAX_DECIDING and fronted.running.front.open() == count)
    decisions.held.set()
    assert {answer.status for answer in await asyncio.gather(*reading)} == {404}
    assert decisions.most == proxy_front.MAX_DECIDING


async def test_a_proxy_that_ends_answers_those_who_wait(fronted: FrontedProxy, decisions: Decisions) -> None:
    assert (await fronted.proxy.call("PUT", "c/o", data=DATA)).status == 201
    decisions.held.clear()
    reading = asyncio.create_task(fronted.proxy.call("GET", "c/o"))
    await until(lambda: decisions.under_way == 1)
    await fronted.front.leave()
    answer: Answer = await reading
    assert (answer.status, answer.body) == (200, DATA)
    decisions.held.set()


async def test_clients_that_go_away_while_it_is_decided(fronted: FrontedProxy, decisions: Decisions) -> None:
    assert (await fronted.proxy.call("PUT", "c/o", data=DATA)).status == 201
    decisions.held.clear()
    token = fronted.proxy.token["X-Auth-Token"]
    begun = decisions.begun
    for _ in range(5):
        _, writer = await fronted.connect()
        writer.write(f"GET /v1/{ACCOUNT}/c/o HTTP/1.1\r\nHost: h\r\nX-Auth-Token: {token}\r\n\r\n".encode())
        await until(lambda: decisions.begun > begun)
        writer.transport.abort()
    decisions.held.set()
    assert (await fronted.proxy.call("GET", "c/o")).body == DATA


async def test_container_servers_that_are_silent(
    fronted: FrontedProxy, cluster: MemoryCluster, decisions: Decisions
) -> None:
    assert (await fronted.proxy.call("PUT", "c/o", data=DATA)).status == 201
    decisions.error = Unavailable("nobody answers")
    answer = await fronted.proxy.call("GET", "c/o")
    assert (answer.status, answer.body) == (200, DATA)
