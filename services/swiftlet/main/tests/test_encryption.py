"""Peers over HTTP with TLS and without: who is let in, who is refused, and what can't be talked out of it."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
import uvloop
from aiohttp import web

from swiftlet.errors import NodeError, NodeUnreachable
from swiftlet.main.encryption import only_encrypted, serve_encrypted
from swiftlet.main.keys import KEYS
from swiftlet.ring.model import Device
from swiftlet.settings import ClusterSection
from swiftlet.transport.http_client import HttpSettings, NodeClient, no_tls
from swiftlet.transport.modes import Encryption
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.tls import PEER_NAME, PeerTls
from swiftlet.web import tls_or_plain
from swiftlet.web.app import create_base_app
from swiftlet.web.serve import ServeOptions, StopRequest, serve
from swiftlet.web.sockets import listen

KEY, OTHER = b"the cluster's key, long enough", b"another cluster's key, as long"
PATIENT = HttpSettings(connect_timeout_s=10.0)


@dataclass
class Running:
    """A server, and how to ask it."""

    port: int
    app: web.Application
    clients: list[NodeClient] = field(default_factory=list)

    @property
    def device(self) -> Device:
        return Device(0, "one", "127.0.0.1", self.port, "d1", "r1", "z1", "n1", 1.0)

    def client(self, tls: PeerTls | None) -> NodeClient:
        made = NodeClient(PATIENT, ClusterKey(KEY), no_tls if tls is None else tls.client)
        self.clients.append(made)
        return made

    async def ask(self, tls: PeerTls | None, path: str = "/secret") -> bytes:
        return await self.client(tls).call(self.device, "GET", path)


@asynccontextmanager
async def running(mode: Encryption, key: bytes = KEY) -> AsyncIterator[Running]:
    """A service's application with one page of its own, as `serve` serves it."""
    cluster = ClusterSection.model_validate({"hash_path_suffix": "s", "key": key.decode(), "encryption": mode})
    app = create_base_app("small", trust_request_ids=True, middlewares=only_encrypted(cluster))
    serve_encrypted(app, cluster)

    async def secret(request: web.Request) -> web.StreamResponse:
        return web.Response(text=f"{request.scheme} {request.match_info.route.name}")

    async def echo(request: web.Request) -> web.StreamResponse:
        ws = web.WebSocketResponse()
        await ws.prepare(request)
        async for message in ws:
            await ws.send_bytes(message.data)
        return ws

    app.router.add_get("/secret", secret, name="page")
    app.router.add_get("/echo", echo)
    sock, asked = listen("127.0.0.1", 0), StopRequest()
    task = asyncio.create_task(serve(app, [sock], ServeOptions(drain_s=1.0), asked))
    found = Running(sock.getsockname()[1], app)
    yield found
    for client in found.clients:
        await client.close()
    asked.again()
    await task


async def test_plain_requests_are_answered_until_encryption_is_required() -> None:
    tls = PeerTls("accepted", [KEY])
    for mode in ("none", "accepted", "required"):
        async with running(mode) as server:
            assert await server.ask(tls) == b"https page"
            if mode == "required":
                with pytest.raises(NodeError, match=r"have to be encrypted here \(cluster.encryption: required\)"):
                    await server.ask(None)
            else:
                assert await server.ask(None) == b"http page"


async def test_streams_are_encrypted_too() -> None:
    async with running("required") as server:
        found = await server.client(PeerTls("required", [KEY])).socket(server.device, "/echo", 1000)
        assert found is not None
        await found.send_bytes(b"x")
        assert (await found.receive()).data == b"x"
        await found.close()
        with pytest.raises(NodeError, match="401"):
            await server.client(None).socket(server.device, "/echo", 1000)


async def test_health_metrics_and_status_are_for_anybody_and_nothing_else_is() -> None:
    async with running("required") as server, aiohttp.ClientSession() as session:
        base = f"http://127.0.0.1:{server.port}"
        for path in ("/healthz", "/metrics", "/statusz"):
            async with session.get(base + path) as answer:
                assert answer.status == 200, path
        async with session.get(f"{base}/statusz") as answer:
            assert json.loads(await answer.text())["encryption"] == {"mode": "required", "ready": True}
        for path in ("/secret", "/echo", "/healthz/../secret", "/nothing", "//healthz", "/statusz/x"):
            async with session.get(base + path) as answer:
                assert (answer.status, (await answer.json())["error"]) == (401, "Unauthorized"), path


async def test_members_of_other_clusters_are_kept_out_on_both_sides() -> None:
    async with running("required") as server:
        with pytest.raises(NodeError):
            await server.ask(PeerTls("required", [OTHER]))
    async with running("required", OTHER) as server:
        with pytest.raises(NodeUnreachable, match="certificate verify failed"):
            await server.ask(PeerTls("required", [KEY]))


async def test_who_shows_no_certificate_is_not_answered() -> None:
    anonymous = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    anonymous.check_hostname, anonymous.verify_mode = False, ssl.CERT_NONE
    async with running("accepted") as server, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientError):
            await session.get(f"https://127.0.0.1:{server.port}/secret", ssl=anonymous)


async def test_only_the_newest_tls_is_spoken() -> None:
    tls = PeerTls("required", [KEY])
    context = tls.client()
    assert context is not None
    async with running("required") as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context, server_hostname=PEER_NAME)
        assert writer.get_extra_info("ssl_object").version() == "TLSv1.3"
        writer.close()
        context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", server.port, ssl=context, server_hostname=PEER_NAME)


async def test_a_client_is_not_talked_out_of_encryption() -> None:
    heard = bytearray()

    async def pretend(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """A man in the middle who speaks no TLS, and would like others not to."""
        heard.extend(await reader.read(65536))
        writer.write(b"HTTP/1.1 426 Upgrade Required\r\nContent-Length: 0\r\n\r\n")
        writer.close()

    listener = await asyncio.start_server(pretend, "127.0.0.1", 0)
    device = Device(0, "one", "127.0.0.1", listener.sockets[0].getsockname()[1], "d1", "r1", "z1", "n1", 1.0)
    client = NodeClient(PATIENT, ClusterKey(KEY), PeerTls("accepted", [KEY]).client)
    with pytest.raises(NodeError):
        await client.call(device, "PUT", "/v1/a-name-of-an-object", b"body")
    await client.close()
    listener.close()
    assert heard
    assert b"a-name-of-an-object" not in heard
    assert b"body" not in heard


async def test_keys_are_changed_while_both_sides_run() -> None:
    tls = PeerTls("required", [KEY])
    async with running("required") as server:
        client = server.client(tls)
        assert await client.call(server.device, "GET", "/secret") == b"https page"
        keys = server.app[KEYS]
        steps = ((KEY, OTHER), (OTHER, KEY), (OTHER,))
        for mine in steps:
            for follower in keys._followers:
                follower(mine)
            if mine != (OTHER,):
                assert await server.ask(tls) == b"https page"
            tls.use(mine)
            # On a new connection, and on the one that has been open all the time.
            assert await server.ask(tls) == b"https page"
            assert await client.call(server.device, "GET", "/secret") == b"https page"
        with pytest.raises(NodeError):
            await server.ask(PeerTls("required", [KEY]))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - sockets of others set no event
            await asyncio.sleep(0.01)


async def test_who_says_nothing_or_garbage_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_or_plain, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(tls_or_plain, "MAX_SILENT", 3)
    tls = PeerTls("required", [KEY])
    async with running("required") as server:
        loop = asyncio.get_running_loop()
        silent = []
        for first in (b"", b"", b"\x16", b"\x16\x03\x01\x02\x00garbage", b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(first)
            silent.append((reader, writer))
        # All of them are let go of: silent ones, half a handshake, and the one above the limit.
        for reader, writer in silent:
            async with asyncio.timeout(20):
                while await reader.read(1000):
                    pass
            writer.close()
        with socket.create_connection(("127.0.0.1", server.port)) as gone:
            gone.setblocking(False)
        assert loop.is_running()
        assert await server.ask(tls) == b"https page"


@pytest.mark.parametrize(
    "test",
    [
        test_plain_requests_are_answered_until_encryption_is_required,
        test_streams_are_encrypted_too,
        test_members_of_other_clusters_are_kept_out_on_both_sides,
        test_keys_are_changed_while_both_sides_run,
    ],
)
def test_the_same_on_the_event_loop_of_services(test: Callable[[], Coroutine[object, object, None]]) -> None:
    uvloop.run(test())


def test_certificates_are_not_for_others_to_read() -> None:
    tls = PeerTls("required", [KEY])
    server, client = tls.server(), tls.client()
    assert client is not None
    assert client.check_hostname
    assert (client.verify_mode, server.verify_mode) == (ssl.CERT_REQUIRED, ssl.CERT_REQUIRED)
    assert {suite["protocol"] for suite in server.get_ciphers() if suite["name"].startswith("TLS_")} == {"TLSv1.3"}
    assert PeerTls("none", [KEY]).client() is None


@pytest.mark.parametrize(("rdma", "encryption"), [("auto", "none"), ("auto", "accepted"), ("off", "required")])
def test_rdma_is_not_tried_with_encryption(rdma: str, encryption: str) -> None:
    cluster = ClusterSection.model_validate(
        {"hash_path_suffix": "s", "key": KEY.decode(), "rdma": rdma, "encryption": encryption}
    )
    assert cluster.rdma_mode == ("auto" if encryption == "none" else "off")


def test_rdma_can_not_be_required_with_encryption() -> None:
    with pytest.raises(ValueError, match="rdma: required can't be used together with encryption"):
        ClusterSection.model_validate(
            {"hash_path_suffix": "s", "key": KEY.decode(), "rdma": "required", "encryption": "accepted"}
        )
