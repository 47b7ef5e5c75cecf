"""Proxies that can't have a native front, or whose front does not start: they say so, and serve all the same."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import ClientSession, web
from swiftlet_native import TransportPeer

from swiftlet.api.tests.proxy import Proxy, proxy_of
from swiftlet.errors import NodeUnreachable, SettingsError
from swiftlet.front import proxy_front
from swiftlet.front.tests.conftest import trusting_all
from swiftlet.main.certificates import Certificates
from swiftlet.main.services.front import add_front, why_no_front
from swiftlet.main.tests.certificates import PairFiles, make_pair
from swiftlet.placement.tests.cluster import HASH_PATH, MemoryCluster, memory_cluster
from swiftlet.ring.model import Device
from swiftlet.settings import ProxySection
from swiftlet.web.app import create_base_app
from swiftlet.web.front_listener import FRONT_LISTENER
from swiftlet.web.serve import ServeOptions, StopRequest, serve
from swiftlet.web.sockets import listen


class NativePeers:
    """Nobody is spoken to natively yet."""

    def native_peer(self, _device: object) -> None:
        return None

    async def peer(self, device: Device) -> TransportPeer:
        raise NodeUnreachable(f"{device.address} has no native port")


TLS = {"tls_cert_file": Path("cert.pem"), "tls_key_file": Path("key.pem")}


@pytest.mark.parametrize(("settings", "reason"), [({}, None), ({"front": False}, "proxy.front is false"), (TLS, None)])
def test_why_there_is_no_front(settings: dict[str, Any], reason: str | None) -> None:
    assert why_no_front(ProxySection(**{"front": True, **settings})) == reason


async def served(
    proxy: Proxy, cluster: MemoryCluster, certificates: Certificates | None = None
) -> tuple[web.Application, dict[str, Any]]:
    """A proxy that has been asked how its front is, and has ended."""
    section = ProxySection(front=True, front_put=True)
    common = SimpleNamespace(hash_path=HASH_PATH, native_pool_bytes=16 << 20)
    settings = cast("Any", SimpleNamespace(proxy=section, cluster=common))
    app = create_base_app("proxy", trust_request_ids=False)
    add_front(app, proxy.api, cluster.rings, NativePeers(), settings, proxy.withdrawals, certificate=certificates)
    options = ServeOptions(drain_s=1.0, tls=None if certificates is None else certificates.context)
    trusted = True if certificates is None else trusting_all(certificates)
    sock, asked = listen("127.0.0.1", 0), StopRequest()
    task = asyncio.create_task(serve(app, [sock], options, asked))
    try:
        url = f"{'http' if certificates is None else 'https'}://127.0.0.1:{sock.getsockname()[1]}/statusz"
        async with ClientSession() as session, session.get(url, ssl=trusted) as told:
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


class OldKeys:
    """A front whose TLS library refuses the key."""

    def __init__(self, *_parts: object, **_settings: object) -> None:
        raise ValueError("the key is too small")


@pytest.mark.parametrize("is_refused", [False, True])
async def test_with_tls_and_with_a_certificate_that_only_python_can_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_refused: bool
) -> None:
    pair = make_pair(tmp_path, "front")
    files = PairFiles(tmp_path, pair)
    if is_refused:
        monkeypatch.setattr(proxy_front, "Front", OldKeys)
    async with memory_cluster(tmp_path, devices=3) as cluster, proxy_of(cluster, tmp_path) as proxy:
        _, told = await served(proxy, cluster, Certificates(files.cert, files.key))
    off = "off: the front can't be started: it can't use the certificate: the key is too small"
    assert told["state"] == (off if is_refused else "on: reads and writes")


def test_a_renewed_certificate_that_the_front_refuses_is_not_used(tmp_path: Path) -> None:
    first, second = make_pair(tmp_path, "first"), make_pair(tmp_path, "second")
    files = PairFiles(tmp_path, first)
    given: list[tuple[bytes, bytes]] = []
    certificates = Certificates(files.cert, files.key)

    def use(cert: bytes, key: bytes) -> None:
        if given and refuses:
            raise ValueError("the key is too small")
        given.append((cert, key))

    refuses = True
    certificates.follow(use)
    files.put(second.cert, second.key)
    for _ in range(2):
        with pytest.raises(SettingsError, match=r"the native front can't use .*: the key is too small"):
            certificates.reload()
    assert certificates.pem == (first.cert, first.key)
    refuses = False
    assert certificates.reload()
    assert given == [(first.cert, first.key), (second.cert, second.key)]
    certificates.follow(None)
    files.put(first.cert, first.key)
    assert certificates.reload()
    assert len(given) == 2
