"""Proxies that can't have a native front, or whose front does not start: they say so, and serve all the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import ClientSession, web

from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.front import proxy_front
from swiftlet.main.services.front import add_front, why_no_front
from swiftlet.placement.tests.cluster import HASH_PATH, MemoryCluster, memory_cluster
from swiftlet.settings import ProxySection
from swiftlet.web.app import create_base_app
from swiftlet.web.front_listener import FRONT_LISTENER
from swiftlet.web.serve import ServeOptions, StopRequest, serve
from swiftlet.web.sockets import listen


class NativePeers:
    """Nobody is spoken to natively yet."""

    def native_peer(self, _device: object) -> None:
        return None


TLS = {"tls_cert_file": Path("cert.pem"), "tls_key_file": Path("key.pem")}


@pytest.mark.parametrize(
    ("settings", "reason"), [({}, None), ({"front": False}, "proxy.front is false"), (TLS, "the port speaks TLS")]
)
def test_why_there_is_no_front(settings: dict[str, Any], reason: str | None) -> None:
    assert why_no_front(ProxySection(**{"front": True, **settings})) == reason


async def served(proxy: Proxy, cluster: MemoryCluster) -> tuple[web.Application, dict[str, Any]]:
    """A proxy that has been asked how its front is, and has ended."""
    section = ProxySection(front=True, front_put=True)
    settings = cast("Any", SimpleNamespace(proxy=section, cluster=SimpleNamespace(hash_path=HASH_PATH)))
    app = create_base_app("proxy", trust_request_ids=False)
    add_front(app, proxy.api, cluster.rings, NativePeers(), settings, proxy.withdrawals)
    sock, asked = listen("127.0.0.1", 0), StopRequest()
    task = asyncio.create_task(serve(app, [sock], ServeOptions(drain_s=1.0), asked))
    try:
        async with ClientSession() as session, session.get(f"http://127.0.0.1:{sock.getsockname()[1]}/statusz") as told:
            return app, json.loads(await told.text())["front"]
    finally:
        asked.again()
        await task
        sock.close()


@pytest.mark.parametrize(
    ("starts", "state"), [(True, "on: reads and writes"), (False, "off: the front can't be started: no thread is left")]
)
async def test_it_serves_with_a_front_and_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: bool, state: str
) -> None:
    def no_front(*_parts: object, **_settings: object) -> None:
        raise OSError("no thread is left")

    if not starts:
        monkeypatch.setattr(proxy_front, "Front", no_front)
    async with memory_cluster(tmp_path, devices=3) as cluster, proxy_of(cluster, tmp_path) as proxy:
        app, told = await served(proxy, cluster)
        rows = told.pop("rows", None)
        assert (rows is not None) == starts
        assert told == {"state": state, "connections": 0, "answered": 0, "waiting": 0}
        assert FRONT_LISTENER in app
