"""What surrounds every request: ids, unexpected errors, access log, metrics, health."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from structlog.testing import capture_logs

from swiftlet.context import request_id
from swiftlet.web.access import access_log_for
from swiftlet.web.app import METRICS, create_base_app
from swiftlet.web.health import READINESS

ACCESS = logging.getLogger("aiohttp.access")

Client = TestClient[web.Request, web.Application]
Connect = Callable[[web.Application], Awaitable[Client]]


@pytest.fixture
async def connect() -> AsyncIterator[Connect]:
    clients: list[Client] = []

    async def make(app: web.Application) -> Client:
        server = TestServer(app)
        await server.start_server(access_log_class=access_log_for(app[METRICS]), access_log=ACCESS)
        client = TestClient(server)
        clients.append(client)
        return client

    yield make
    for client in clients:
        await client.close()


async def echo_id(_request: web.Request) -> web.Response:
    return web.Response(text=request_id.get())


async def fail(_request: web.Request) -> web.Response:
    raise RuntimeError("the secret of the house")


async def fail_late(request: web.Request) -> web.StreamResponse:
    response = web.StreamResponse()
    response.enable_chunked_encoding()
    await response.prepare(request)
    await response.write(b"a part")
    await asyncio.sleep(0.05)
    raise RuntimeError("too late")


def app_with(path: str, handler: Callable[[web.Request], Awaitable[web.StreamResponse]], **options: Any) -> Any:
    app = create_base_app("test", trust_request_ids=options.pop("trust", False), **options)
    app.router.add_route("*", path, handler)
    return app


async def test_a_fresh_id_on_every_answer(connect: Connect) -> None:
    client = await connect(app_with("/", echo_id))
    seen = set()
    for path in ("/", "/absent", "/healthz"):
        answer = await client.get(path, headers={"X-Trans-Id": "txmine"})
        current = answer.headers["X-Trans-Id"]
        assert current.startswith("tx")
        assert current != "txmine"
        assert answer.headers["X-Openstack-Request-Id"] == current
        seen.add(current)
    assert len(seen) == 3


async def test_the_handler_sees_the_id_that_the_client_gets(connect: Connect) -> None:
    client = await connect(app_with("/", echo_id))
    answer = await client.get("/")
    assert await answer.text() == answer.headers["X-Trans-Id"]


async def test_a_clients_mark_stands_behind_the_id(connect: Connect) -> None:
    client = await connect(app_with("/", echo_id))
    answer = await client.get("/", headers={"X-Trans-Id-Extra": "my job/7" + "x" * 99})
    _, _, mark = answer.headers["X-Trans-Id"].partition("-")
    assert mark == "my_job_7" + "x" * 24


async def test_peers_ids_count_when_trusted(connect: Connect) -> None:
    client = await connect(app_with("/", echo_id, trust=True))
    assert await (await client.get("/", headers={"X-Trans-Id": "tx0123"})).text() == "tx0123"
    assert await (await client.get("/", headers={"X-Trans-Id": "no good"})).text() != "no good"


async def test_an_unexpected_error_is_a_plain_500_with_the_id(connect: Connect) -> None:
    client = await connect(app_with("/", fail))
    with capture_logs() as logs:
        answer = await client.get("/")
    assert answer.status == 500
    text = await answer.text()
    assert answer.headers["X-Trans-Id"] in text
    assert "house" not in text
    [line] = [one for one in logs if one["event"] == "unexpected error"]
    assert line["exc_info"]
    assert line["response_begun"] is False


async def test_an_error_in_the_middle_of_an_answer_cuts_it(connect: Connect) -> None:
    client = await connect(app_with("/", fail_late))
    with capture_logs() as logs:
        answer = await client.get("/")
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientError):
            await answer.read()
    [line] = [one for one in logs if one["event"] == "unexpected error"]
    assert line["response_begun"] is True


async def test_the_access_log_has_sizes_but_no_query(connect: Connect) -> None:
    async def swallow(request: web.Request) -> web.Response:
        await request.read()
        return web.Response(body=b"12345")

    client = await connect(app_with("/a b", swallow))
    with capture_logs() as logs:
        answer = await client.put("/a%20b?temp_url_sig=abc", data=b"123")
        await answer.read()
        await client.get("/healthz")
        async with asyncio.timeout(20):
            # A client may have the answer before the server has logged it.
            while not [one for one in logs if one.get("path") == "/a%20b"]:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
    [line] = [one for one in logs if one["event"] == "request" and one["log_level"] == "info"]
    assert line["path"] == "/a%20b"
    assert (line["method"], line["status"], line["bytes_in"], line["bytes_out"]) == ("PUT", 200, 3, 5)
    assert line["request_id"] == answer.headers["X-Trans-Id"]
    assert line["duration_s"] > 0


async def test_readiness_gives_its_reasons(connect: Connect) -> None:
    app = app_with("/", echo_id)
    state: dict[str, str | None] = {"reason": None}

    async def asynchronous() -> str | None:
        return state["reason"]

    app[READINESS].add("rings", lambda: state["reason"])
    app[READINESS].add("disk", asynchronous)
    client = await connect(app)
    assert (await client.get("/readyz")).status == 200
    state["reason"] = "none loaded"
    answer = await client.get("/readyz")
    assert answer.status == 503
    assert await answer.text() == "rings: none loaded\ndisk: none loaded\n"
    state["reason"] = None
    app[READINESS].draining = True
    assert (await client.get("/readyz")).status == 503
    assert (await client.get("/healthz")).status == 200


async def test_metrics_count_requests(connect: Connect) -> None:
    client = await connect(app_with("/", fail))
    await client.get("/")
    await client.request("PROPFIND", "/")
    page = await (await client.get("/metrics")).text()
    assert 'swiftlet_http_requests_total{method="GET",service="test",status="500"} ' in page
    assert 'method="other"' in page
    assert 'swiftlet_http_request_duration_seconds_count{method="GET",service="test"}' in page
