"""Heads of requests with bytes beyond ASCII in the path, the query or names of headers, which OpenStack Swift accepts.

aiohttp's parser refuses them. So they are written in ASCII before it sees them: in the request line as percent-encoded
bytes, and in names of headers in a form of our own, which `plain_name` undoes for names of metadata.

Fault model: clients may send any bytes, and a server in front may send the requests of many clients over one
connection. A part of a body must never be changed, as it could become a request. So only what certainly begins a
request is examined: the first bytes of a connection, and those after requests of which every byte was counted. Once
that is not certain, because a body is long or chunked or a request came together with another one, the rest of the
connection is left as it is, and such a request is refused (400).

If a request without a length has a body nevertheless, it is passed on apart from those bytes, so that it gets its own
answer (411) before they get theirs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

MAX_BODY = 64 * 1024
"""The largest size in bytes of a body that is counted; longer ones may be read without passing through here."""
_MARK = "%~"
_LINE = re.compile(rb"[A-Z]{1,16} [\x21-\x7e\x80-\xff]+ HTTP/1\.[01]")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z\x80-\xff]+")
_HIGH = re.compile(rb"[\x80-\xff]")
_WRITTEN = re.compile(rf"(?:{_MARK}[89A-F][0-9A-F])+")


def encoded(head: bytes) -> bytes:
    """Return the beginning of a request in ASCII, as far as there are whole lines of its head; anything
    else as it is.
    """
    if head.isascii():
        return head
    end = head.find(b"\r\n\r\n")
    lines = (head if end < 0 else head[:end]).split(b"\r\n")
    if not _LINE.fullmatch(lines[0]) or (end < 0 and len(lines) < 2):
        return head
    whole = lines if end >= 0 else lines[:-1]
    lines[0] = _HIGH.sub(lambda found: b"%%%02X" % found[0][0], lines[0])
    lines[1 : len(whole)] = [_encoded_name(line) for line in whole[1:]]
    return b"\r\n".join(lines) + (b"" if end < 0 else head[end:])


def _encoded_name(line: bytes) -> bytes:
    name, colon, value = line.partition(b":")
    if name.isascii() or not colon or not _NAME.fullmatch(name):
        return line
    return _HIGH.sub(lambda found: _MARK.encode() + b"%02X" % found[0][0], name) + colon + value


def without_length(data: bytes) -> int | None:
    """Return where a request without a body ends, if something follows it; None for all others."""
    end = data.find(b"\r\n\r\n")
    if end < 0 or end + 4 == len(data):
        return None
    head = data[:end].lower()
    return None if b"\r\ncontent-length" in head or b"\r\ntransfer-encoding" in head else end + 4


def plain_name(name: str) -> str:
    """Return a header's name as the client sent it. Raises UnicodeDecodeError when that is not UTF-8."""
    if _MARK not in name:
        return name
    return _WRITTEN.sub(lambda found: bytes.fromhex(found[0].replace(_MARK, "")).decode("utf-8"), name)


class Boundary:
    """Finds the positions at which requests begin in the bytes of one connection."""

    def __init__(self) -> None:
        """Begin at the first byte of a connection, which begins a request."""
        self._left: int | None = 0

    @property
    def is_here(self) -> bool:
        """Whether the next byte begins a request."""
        return self._left == 0

    def passed(self, data: bytes, size: int | None) -> None:
        """Note bytes that have arrived.

        If they begin a request, `size` is that of its body; None where that is not certain.
        """
        if self._left == 0:
            end = data.find(b"\r\n\r\n")
            self._left = None if end < 0 or size is None or size > MAX_BODY else end + 4 + size
        if self._left is not None:
            self._left -= len(data)
            if self._left < 0:
                self._left = None


class RawHandler(RequestHandler):
    """A connection whose requests may have such heads."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        """Make the handler as aiohttp does."""
        super().__init__(*arguments, **options)
        self._boundary = Boundary()
        self._has_begun = False
        """Whether a part of the next request's head has arrived."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell the server's follower of the connection."""
        server = self._manager
        super().connection_made(transport)
        if isinstance(server, RawServer):
            server.met(self)

    @property
    def awaits_request(self) -> bool:
        """Return whether it waits for a request of which nothing has been read."""
        waits = self._waiter is not None and not self._waiter.done() and not self._messages
        return waits and not self._has_begun and self.transport is not None

    def data_received(self, data: bytes) -> None:
        """Pass on bytes that have arrived, and note whether they are only a part of a head."""
        waits = self._waiter is not None and not self._waiter.done()
        known = self._request_count
        self._take(data)
        if data:
            self._has_begun = waits and self._request_count == known

    def _take(self, data: bytes) -> None:
        """Pass on bytes; without any, aiohttp goes on with those that it holds."""
        if not data:
            return super().data_received(data)
        if not self._boundary.is_here:
            super().data_received(data)
            return self._boundary.passed(data, None)
        data = encoded(data)
        end = without_length(data)
        if end is not None:
            # What follows is the next request. Even if it is malformed, the first one is answered.
            super().data_received(data[:end])
            super().data_received(data[end:])
            return self._boundary.passed(data, None)
        known = self._request_count
        super().data_received(data)
        return self._boundary.passed(data, self._size_of_body(known))

    def _size_of_body(self, known: int) -> int | None:
        """Return the size of the body of the one request that has just arrived; None when it is unknown."""
        if self._request_count != known + 1 or not self._messages or self._upgraded:
            return None
        headers = getattr(self._messages[-1][0], "headers", None)
        if headers is None or "Transfer-Encoding" in headers:
            return None
        length = headers.get("Content-Length", "0")
        return int(length) if length.isascii() and length.isdigit() and len(length) < 10 else None


class RawServer(web.Server):
    """A server whose connections are `RawHandler`s."""

    def __init__(self, handler: Any, **options: Any) -> None:
        """Make the server as aiohttp does."""
        super().__init__(handler, **options)
        self._followers: list[Callable[[RawHandler], None]] = []

    def follow(self, follower: Callable[[RawHandler], None]) -> None:
        """Call `follower` with each new connection from now on."""
        self._followers.append(follower)

    def met(self, connection: RawHandler) -> None:
        """Tell the follower of a new connection."""
        for follower in self._followers:
            follower(connection)

    def __call__(self) -> RequestHandler:
        """Return the handler of a new connection."""
        return RawHandler(self, loop=self._loop, **self._kwargs)
