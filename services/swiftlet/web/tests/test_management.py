"""A service that clients reach answers its operators on another port, and only there."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import pytest

from swiftlet.web.app import create_base_app
from swiftlet.web.health import READINESS
from swiftlet.web.serve import ServeOptions, StopRequest, serve
from swiftlet.web.sockets import listen

PAGES = ("/metrics", "/statusz")


@asynccontextmanager
async def served(managed_apart: bool) -> AsyncIterator[tuple[str, str]]:
    """The URLs of the service's own port and of the management port, on a service whose rings are not there yet."""
    app = create_base_app("proxy", trust_request_ids=False, managed_apart=managed_apart)
    app[READINESS].add("rings", lambda: "no ring yet")
    probe = listen("127.0.0.1", 0)
    management = probe.getsockname()
    probe.close()
    sock, asked = listen("127.0.0.1", 0), StopRequest()
    task = asyncio.create_task(serve(app, [sock], ServeOptions(drain_s=1.0, management=management[:2]), asked))
    try:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}", f"http://127.0.0.1:{management[1]}"
    finally:
        asked.again()
        await task
        sock.close()


async def status(url: str) -> int:
    async with aiohttp.ClientSession() as session:
        for _ in range(200):
            try:
                async with session.get(url) as answer:
                    return answer.status
            except aiohttp.ClientConnectorError:
                await asyncio.sleep(0.05)
    raise AssertionError(f"nobody listens at {url}")


async def test_what_operators_ask_is_not_answered_to_clients() -> None:
    async with served(managed_apart=True) as (clients, operators):
        for page in PAGES:
            assert await status(operators + page) == 200
            assert await status(clients + page) == 404
        assert await status(clients + "/healthz") == await status(operators + "/healthz") == 200
        assert await status(clients + "/readyz") == await status(operators + "/readyz") == 503


async def test_a_service_that_only_peers_reach_answers_on_its_own_port() -> None:
    async with served(managed_apart=False) as (peers, operators):
        for page in PAGES:
            assert await status(peers + page) == 200
        with pytest.raises(aiohttp.ClientConnectorError):
            async with aiohttp.ClientSession() as session, session.get(operators):
                pass
