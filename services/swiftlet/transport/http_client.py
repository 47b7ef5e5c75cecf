"""HTTP to storage nodes: one connection pool, deadlines, the request id, signatures, foreign errors turned into ours.

All requests over HTTP use it: those about listings, and those to object servers. aiohttp's exceptions end in this
module.

Fault model: a node may refuse the connection, accept it and never answer, answer half, answer garbage or go away
between two requests of a kept-alive connection. Each of these ends in a NodeError within the settings' times. A request
that failed may have been carried out all the same. An idempotent request with a body in one piece that met a connection
which the node had just closed is sent once more, on a new one; nothing else is repeated here.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from swiftlet.context import REQUEST_ID_HEADER, request_id
from swiftlet.errors import NodeError, NodeTimeout, NodeUnreachable
from swiftlet.ring.model import Device
from swiftlet.transport.names import NAMES
from swiftlet.transport.signing import ClusterKey, authority
from swiftlet.transport.tls import PEER_NAME
from swiftlet.transport.wire import JSON_TYPE, SIGNATURE_HEADER, WireError, error_from_wire

MAX_ERROR_BODY = 64 * 1024
"""The number of bytes of a refusal's body that are read."""


@dataclass(frozen=True, slots=True)
class HttpSettings:
    """The timeouts of a client of storage nodes, and the connections that it may open."""

    connect_timeout_s: float = 0.5
    """Seconds to connect. Nodes are in one network, so one that takes longer is down or overloaded."""
    answer_timeout_s: float = 10.0
    """Seconds from the end of a request to the head of its answer; covers the node's fsync."""
    idle_timeout_s: float = 10.0
    """Seconds that a transfer may stand still in either direction before the node is given up."""
    connections_per_host: int = 256
    """The largest number of connections to one node; further requests wait for one, within `answer_timeout_s`."""
    keepalive_s: float = 30.0
    """Seconds that an unused connection is kept; shorter than the servers keep it."""


TlsOf = Callable[[], ssl.SSLContext | None]
"""Returns the TLS context of new connections; None when they are not encrypted."""


def no_tls() -> None:
    """Return None: connections are not encrypted."""


class NodeResolver(AbstractResolver):
    """Looks up names of nodes beside other work (`swiftlet.transport.names`)."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Return the addresses of a node. Raises OSError."""
        return [
            ResolveResult(
                hostname=host,
                host=address[0],
                port=port,
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in await NAMES.find(host, port)
            if family in (socket.AF_UNSPEC, kind)
        ]

    async def close(self) -> None:
        """Do nothing: the process has one for all."""


class NodeClient:
    """A shared pool of connections to storage nodes; runs in one event loop."""

    def __init__(
        self, settings: HttpSettings | None = None, key: ClusterKey | None = None, tls: TlsOf = no_tls
    ) -> None:
        """No connection is made before the first request; `key` None sends unsigned requests."""
        self.settings = settings or HttpSettings()
        self._key = key
        self._tls = tls
        self._session: aiohttp.ClientSession | None = None
        self._answered: dict[tuple[str, int], float] = {}

    @property
    def key(self) -> ClusterKey | None:
        """Return the key that requests are signed with."""
        return self._key

    def connected(self) -> frozenset[tuple[str, int]]:
        """Return host and port of the nodes to which a connection is open, as they have answered recently."""
        since = time.monotonic() - self.settings.keepalive_s
        self._answered = {node: at for node, at in self._answered.items() if at > since}
        return frozenset(self._answered)

    def session(self) -> aiohttp.ClientSession:
        """Return the pool, which is made at first use because it belongs to the running loop."""
        if self._session is None:
            connector = aiohttp.TCPConnector(
                limit=0,
                limit_per_host=self.settings.connections_per_host,
                keepalive_timeout=self.settings.keepalive_s,
                ttl_dns_cache=30,
                resolver=NodeResolver(),
            )
            self._session = aiohttp.ClientSession(
                connector=connector,
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=self.settings.connect_timeout_s),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
                read_bufsize=256 * 1024,
            )
        return self._session

    async def call(
        self,
        device: Device,
        method: str,
        target: str,
        body: bytes | None = None,
        *,
        content_type: str = JSON_TYPE,
        max_answer: int = 64 * 1024 * 1024,
    ) -> bytes:
        """Send a request and return the body of its short answer.

        Raises the domain error in the answer, and NodeError and its subclasses. `target` is path and query, already
        quoted.
        """
        response = await self._send(device, method, target, body, content_type)
        try:
            if response.status >= 400:
                raise await _refusal(response, device, self.settings.idle_timeout_s)
            return await _read_body(response, device, self.settings.idle_timeout_s, max_answer)
        finally:
            _finish(response)

    async def _send(
        self, device: Device, method: str, target: str, body: bytes | None, content_type: str
    ) -> aiohttp.ClientResponse:
        """Send a request and wait for the head of its answer."""
        headers = {REQUEST_ID_HEADER: request_id.get(), "Host": authority(device.host, device.port)}
        if body is not None:
            headers["Content-Type"] = content_type
        if self._key is not None:
            headers[SIGNATURE_HEADER] = self._key.sign(method, headers["Host"], target, body or b"")
        url, tls = self._url(device, target)
        async with node_errors(device, self.settings.answer_timeout_s):
            response = await self.session().request(
                method, url, data=body, headers=headers, allow_redirects=False, ssl=tls, server_hostname=PEER_NAME
            )
        self._answered[device.host, device.port] = time.monotonic()
        return response

    async def socket(self, device: Device, target: str, max_message: int) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket to a node. Raises NodeError and its subclasses, also when the server has none at
        `target`.
        """
        headers = {REQUEST_ID_HEADER: request_id.get(), "Host": authority(device.host, device.port)}
        if self._key is not None:
            headers[SIGNATURE_HEADER] = self._key.sign("GET", headers["Host"], target)
        url, tls = self._url(device, target)
        async with node_errors(device, self.settings.answer_timeout_s):
            try:
                socket = await self.session().ws_connect(
                    url,
                    headers=headers,
                    max_msg_size=max_message,
                    timeout=aiohttp.ClientWSTimeout(ws_close=1.0),
                    ssl=tls,
                    server_hostname=PEER_NAME,
                )
            except aiohttp.WSServerHandshakeError as error:
                raise NodeError(f"{device.address} refused a WebSocket at {target} with {error.status}") from error
        self._answered[device.host, device.port] = time.monotonic()
        return socket

    def _url(self, device: Device, target: str) -> tuple[URL, ssl.SSLContext | bool]:
        """Return the URL of a request and its TLS context."""
        tls = self._tls()
        scheme = "http" if tls is None else "https"
        url = URL(f"{scheme}://{authority(device.host, device.port)}{target}", encoded=True)
        return url, True if tls is None else tls

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _finish(response: aiohttp.ClientResponse) -> None:
    """Return the connection to the pool when its answer was read to the end, otherwise close it."""
    if response.content.at_eof() and response.content.exception() is None:
        response.release()
    else:
        response.close()


async def _read_body(response: aiohttp.ClientResponse, device: Device, idle_s: float, limit: int) -> bytes:
    """Read the whole body of an answer, at most `limit` bytes, with pauses of at most `idle_s`."""
    pieces: list[bytes] = []
    size = 0
    while True:
        async with node_errors(device, idle_s):
            piece = await response.content.readany()
        if not piece:
            if response.content.at_eof():
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)
            continue
        size += len(piece)
        if size > limit:
            raise NodeError(f"{device.address} sent an answer of more than {limit} bytes")
        pieces.append(piece)


async def _refusal(response: aiohttp.ClientResponse, device: Device, idle_s: float) -> Exception:
    """Return the domain error in an answer of status 400 or more."""
    body = await _read_body(response, device, idle_s, MAX_ERROR_BODY)
    return error_from_wire(response.status, body)


@asynccontextmanager
async def node_errors(device: Device, timeout_s: float) -> AsyncIterator[None]:
    """Bound what happens inside by `timeout_s`, and turn what goes wrong on the way to `device` into NodeErrors."""
    try:
        async with asyncio.timeout(timeout_s):
            yield
    except (TimeoutError, aiohttp.ServerTimeoutError) as error:
        raise NodeTimeout(f"{device.address} did not answer within {timeout_s:g} s") from error
    except (aiohttp.ClientConnectionError, ConnectionError) as error:
        raise NodeUnreachable(f"{device.address} is unreachable: {error or type(error).__name__}") from error
    except (aiohttp.ClientError, asyncio.IncompleteReadError) as error:
        raise NodeError(f"{device.address} broke off its answer: {error or type(error).__name__}") from error
    except WireError as error:
        raise NodeError(f"{device.address} sent an answer that can't be decoded: {error}") from error
