"""The HTTP way: requests to the Swift API by aiohttp, with tokens that are renewed.

Connections belong to an event loop and to a process. A process made by fork has its parent's connections, which it
must neither use nor close: closing would take the parent's sockets from the event poll that both share. So they are
kept, untouched, and new ones are made.
"""

from __future__ import annotations

import asyncio
import os
import ssl
import weakref
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, urlencode

import aiohttp
from aiohttp.abc import AbstractStreamWriter
from yarl import URL

from swiftlet.client import bypass
from swiftlet.client.bodies import Body, BytesBody
from swiftlet.client.credentials import Credentials, Token
from swiftlet.client.errors import ConfigurationError, ConnectionFailed, Unauthorized, status_error
from swiftlet.client.login import Login, log_in, proxy_for
from swiftlet.client.options import Options
from swiftlet.client.values import ObjectInfo, ObjectRequest, Span, Written, moment

_READ_BUFFER = 1 << 20
_ERROR_BYTES = 2000
_inherited: list[object] = []
"""Connections of the parent process, kept so that nothing closes them."""
_all: weakref.WeakSet[Http] = weakref.WeakSet()


class Beside(Protocol):
    """Other connections of a client, which are closed and left to the parent process with those over HTTP."""

    async def close(self) -> None:
        """Close the connections of this event loop."""

    def leave_to_parent(self) -> object:
        """In a process made by fork: forget the parent's connections, and return them, untouched."""


@dataclass(slots=True)
class _Connections:
    """The connections and the login of one event loop."""

    session: aiohttp.ClientSession
    logging_in: asyncio.Lock = field(default_factory=asyncio.Lock)


class Http:
    """Requests to an account, each attempted once; with an expired token, a second time with a new one."""

    def __init__(self, credentials: Credentials, options: Options) -> None:
        """Keep who asks; nothing is connected yet."""
        self.credentials = credentials
        self.options = options
        self._login: Login | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, _Connections] = {}
        self.beside: list[Beside] = []
        """What else is closed with this."""
        _all.add(self)

    def __getstate__(self) -> dict[str, object]:
        """Return the state without connections and tokens: a copy in another process makes its own."""
        return {"credentials": self.credentials, "options": self.options}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Http.__init__(self, state["credentials"], state["options"])

    async def storage_url(self) -> str:
        """Return the URL of the account, logged in if need be."""
        return (await self._logged_in(None)).storage_url

    @asynccontextmanager
    async def request(
        self,
        method: str,
        path: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        base: str | None = None,
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Yield the answer to a request for a path below the account, or below the URL `base`.

        Its body is read before the block ends.
        """
        answer = await self.begin(method, path, query=query, headers=headers, body=body, base=base)
        try:
            with _connection_errors(f"{method} {path}"):
                yield answer
        finally:
            answer.release()

    async def begin(
        self,
        method: str,
        path: str = "",
        *,
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: Body | None = None,
        base: str | None = None,
    ) -> aiohttp.ClientResponse:
        """Return an answer of 2xx whose body has not been read; an error of its status otherwise."""
        login = await self._logged_in(None)
        try:
            return await self._attempt(login, base, method, path, query, headers, body)
        except Unauthorized:
            if isinstance(self.credentials, Token) or not (body is None or body.is_repeatable):
                raise
            login = await self._logged_in(login)
            return await self._attempt(login, base, method, path, query, headers, body)

    async def fetch(self, url: str) -> bytes:
        """Return what is at a URL outside of the account, asked for without a token."""
        with _connection_errors(f"GET {url}"):
            async with self._connections().session.get(url, proxy=proxy_for(url), allow_redirects=False) as answer:
                if answer.status != 200:
                    raise status_error(answer.status, await _reason(answer), f"GET {url}")
                return await answer.read()

    async def _attempt(
        self,
        login: Login,
        base: str | None,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        headers: Mapping[str, str] | None,
        body: Body | None,
    ) -> aiohttp.ClientResponse:
        sent = {"X-Auth-Token": login.token, **(headers or {})} if login.token else dict(headers or {})
        payload = None if body is None and method in {"GET", "HEAD"} else _Payload(body or BytesBody(b""))
        if body is not None and body.reads_once:
            # What can be read once is not begun for an answer that would ask for another attempt.
            sent["Expect"] = "100-continue"
        what = f"{method} {path or '(account)'}"
        try:
            below = base or login.storage_url
            url = below + (f"/{quote(path)}" if path else "") + (f"?{urlencode(query)}" if query else "")
            with _connection_errors(what):
                answer = await self._connections().session.request(
                    method,
                    URL(url, encoded=True),
                    headers=sent,
                    data=payload,
                    proxy=proxy_for(below),
                    timeout=self._timeout(is_long=method == "COPY" or "multipart-manifest" in (query or {})),
                    chunked=True if payload is not None and payload.size is None else None,
                    allow_redirects=False,
                )
        except ConnectionFailed:
            if payload is not None and payload.failure is not None:
                raise payload.failure from None
            raise
        except ValueError as error:
            # aiohttp's words for a header with a line break, and Python's for a name that is not UTF-8.
            raise ConfigurationError(f"{what}: {error}") from error
        if 200 <= answer.status < 300:
            return answer
        with _connection_errors(what):
            reason = await _reason(answer)
        wait = answer.headers.get("Retry-After", "")
        # The answer may have come before the whole body was sent.
        answer.close() if payload is not None and payload.size != 0 else answer.release()
        raise status_error(
            answer.status, reason, what, answer.headers.get("X-Trans-Id", ""), float(wait) if wait.isdigit() else 0
        )

    async def _logged_in(self, refused: Login | None) -> Login:
        """Return the login of this client, another one than the refused one; logged in once for all who wait."""
        if self._login is not None and self._login is not refused:
            return self._login
        connections = self._connections()
        async with connections.logging_in:
            if self._login is None or self._login is refused:
                self._login = await log_in(connections.session, self.credentials)
            return self._login

    def _connections(self) -> _Connections:
        loop = asyncio.get_running_loop()
        known = self._by_loop.get(loop)
        if known is None or known.session.closed:
            for other in [other for other in self._by_loop if other.is_closed()]:
                # Its connections can't be closed any more without it.
                del self._by_loop[other]
            known = self._by_loop[loop] = _Connections(self._connect())
        return known

    def _connect(self) -> aiohttp.ClientSession:
        options = self.options
        tls: ssl.SSLContext | bool = True
        if options.insecure:
            tls = False
        elif options.ca_file is not None:
            tls = ssl.create_default_context(cafile=options.ca_file)
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=options.connections, ssl=tls),
            timeout=self._timeout(is_long=False),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            read_bufsize=_READ_BUFFER,
            skip_auto_headers={"Content-Type"},
            headers={"User-Agent": "swiftlet-client", "Accept-Encoding": "identity"},
        )

    def _timeout(self, *, is_long: bool) -> aiohttp.ClientTimeout:
        read_s = self.options.long_timeout_s if is_long else self.options.read_timeout_s
        return aiohttp.ClientTimeout(total=None, sock_connect=self.options.connect_timeout_s, sock_read=read_s)

    async def close(self) -> None:
        """Close the connections of this event loop; they are made again when they are needed."""
        for other in self.beside:
            await other.close()
        known = self._by_loop.pop(asyncio.get_running_loop(), None)
        if known is not None:
            await known.session.close()

    def leave_to_parent(self) -> None:
        """In a process made by fork: forget the parent's connections without touching them."""
        _inherited.extend([self._by_loop, *(other.leave_to_parent() for other in self.beside)])
        self._by_loop = {}


class HttpWay:
    """Objects over HTTP, through the proxies."""

    over_http = 0
    """It has no direct way."""

    def __init__(self, http: Http) -> None:
        """Send requests with `http`."""
        self._http = http

    @property
    def many(self) -> None:
        """Return None: each object is asked for singly."""
        return None

    async def head(self, request: ObjectRequest) -> ObjectInfo:
        """Return what the store tells of an object."""
        async with self._http.request("HEAD", str(request), query=request.query, headers=request.headers) as answer:
            return ObjectInfo.from_headers(answer.headers)

    async def get(self, request: ObjectRequest, span: Span | None) -> HttpStream:
        """Return the object's bytes, or those of a range, once the answer has begun."""
        headers = {**request.headers, "Range": span.header} if span is not None else request.headers
        answer = await self._http.begin("GET", str(request), query=request.query, headers=headers)
        return HttpStream(answer, str(request), self._http.options.read_timeout_s)

    async def put(self, request: ObjectRequest, body: Body) -> Written:
        """Store an object; return when it is durable."""
        async with self._http.request(
            "PUT", str(request), query=request.query, headers=request.headers, body=body
        ) as answer:
            return written(answer.headers, body.size or 0)

    async def delete(self, request: ObjectRequest) -> None:
        """Delete an object; NotFound when there is none."""
        async with self._http.request("DELETE", str(request), query=request.query, headers=request.headers):
            pass

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self._http.close()


class HttpStream:
    """The body of an answer to GET."""

    def __init__(self, answer: aiohttp.ClientResponse, name: str, timeout_s: float | None) -> None:
        """Take over an answer that has begun; it ends when nothing has come for so many seconds."""
        self._answer = answer
        self._name = name
        self._timeout_s = timeout_s
        self._receiving: bypass.Receiving | None = None
        self.info = ObjectInfo.from_headers(answer.headers)
        self.is_compared = False
        self.digest = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they come."""
        with _connection_errors(f"GET {self._name}"):
            if (begun := bypass.Receiving.begin(self._answer)) is not None:
                data, self._receiving = begun
                if data:
                    yield data
                while data := await self._receiving.read(self._timeout_s):
                    yield data
            while data := await self._answer.content.readany():
                yield data

    async def close(self) -> None:
        """Let go of what is left unread, and of the connection with it."""
        if self._receiving is not None:
            self._receiving.close()
        self._answer.close()


def written(headers: Mapping[str, str], size: int) -> Written:
    """Return what the answer to a PUT says."""
    return Written(
        etag=headers.get("ETag", "").strip('"'),
        size=size,
        last_modified=moment(headers.get("Last-Modified")),
        version_id=headers.get("X-Object-Version-Id"),
    )


class _Payload(aiohttp.Payload):
    """A body for aiohttp, which would otherwise repeat requests by itself on connections that were closed."""

    _autoclose = True

    def __init__(self, body: Body) -> None:
        super().__init__(body)
        self._body = body
        self._size = body.size
        self._consumed = True
        self.failure: Exception | None = None

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        """Raise TypeError: bodies are bytes."""
        raise TypeError("a body is no text")

    async def write(self, writer: AbstractStreamWriter) -> None:
        """Send the body without a length that is known."""
        await self.write_with_length(writer, None)

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Send the body, and keep why that failed, as aiohttp tells it in its own words."""
        async with aclosing(self._body.chunks()) as chunks:
            while True:
                try:
                    data = await anext(chunks, None)
                except Exception as error:
                    self.failure = error
                    raise
                if data is None:
                    break
                await writer.write(data)


class _connection_errors:
    """Turns errors of connections into ConnectionFailed."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, (aiohttp.ClientError, TimeoutError, ConnectionError)):
            connected = not isinstance(error, (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError))
            reason = str(error) or type(error).__name__
            raise ConnectionFailed(f"{self._what}: {reason}", sent=connected) from error


async def _reason(answer: aiohttp.ClientResponse) -> str:
    """Return the store's one line about what is wrong; that of the status if there is none."""
    status = answer.reason or ""
    if answer.method == "HEAD" or answer.headers.get("Content-Type", "").startswith("text/html"):
        return status
    text = (await answer.content.read(_ERROR_BYTES)).decode("utf-8", "replace").strip()
    return text.partition("\n")[0][:300] or status


async def close_all() -> None:
    """Close the connections of all clients to this event loop."""
    for http in list(_all):
        await http.close()


def _after_fork() -> None:
    for http in list(_all):
        http.leave_to_parent()


os.register_at_fork(after_in_child=_after_fork)
