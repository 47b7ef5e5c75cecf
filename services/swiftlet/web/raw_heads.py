"""Heads of requests with bytes beyond ASCII, which OpenStack Swift takes: in the path, the query, names of headers.

aiohttp's parser refuses them. So they are written in ASCII before it sees them: as percent-encoded bytes in the request
line, and in names of headers in a way of their own, which `plain_name` undoes for who asks for names of metadata.

Fault model: bytes are anybody's, and a server in front may send the requests of many clients over one connection. What
is part of a body must never be changed, or else a part of it could become a request. So only what certainly begins a
request is looked at: the first bytes of a connection, and those behind requests of which every byte was counted. Once
that is not certain, because a body is long or chunked or a request came together with another one, the rest of the
connection is left as it is, and such a request is refused (400).

A request without a length whose sender sends a body nevertheless is handed on apart from those bytes, so that it has
its own answer (411) before they have theirs.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from aiohttp import web
from aiohttp.web_protocol import RequestHandler

MAX_BODY = 64 * 1024
"""Bytes of a body that are counted; those of longer ones may be read past this."""
_MARK = "%~"
_LINE = re.compile(rb"[A-Z]{1,16} [\x21-\x7e\x80-\xff]+ HTTP/1\.[01]")
_NAME = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z\x80-\xff]+")
_HIGH = re.compile(rb"[\x80-\xff]")
_WRITTEN = re.compile(rf"(?:{_MARK}[89A-F][0-9A-F])+")


def encoded(head: bytes) -> bytes:
    """The beginning of a request in ASCII, as far as there are whole lines of its head; anything else as it is."""
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
    """Where a request ends that has no body, if something follows; None for all others."""
    end = data.find(b"\r\n\r\n")
    if end < 0 or end + 4 == len(data):
        return None
    head = data[:end].lower()
    return None if b"\r\ncontent-length" in head or b"\r\ntransfer-encoding" in head else end + 4


def plain_name(name: str) -> str:
    """A header's name as the client sent it; UnicodeDecodeError when that is no UTF-8."""
    if _MARK not in name:
        return name
    return _WRITTEN.sub(lambda found: bytes.fromhex(found[0].replace(_MARK, "")).decode("utf-8"), name)


class Boundary:
    """Finds the positions at which requests begin in the bytes of one connection."""

    def __init__(self) -> None:
        """The first byte begins one."""
        self._left: int | None = 0

    @property
    def is_here(self) -> bool:
        """Whether the next byte begins a request."""
        return self._left == 0

    def passed(self, data: bytes, size: int | None) -> None:
        """`data` has come; if it began a request, `size` is that of its body, None where that is not certain."""
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
        """Whether a part of the next request's head has come."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Tell who wants to know of connections."""
        server = self._manager
        super().connection_made(transport)
        if isinstance(server, RawServer):
            server.met(self)

    @property
    def awaits_request(self) -> bool:
        """Whether it waits for a request, of which nothing has been read."""
        waits = self._waiter is not None and not self._waiter.done() and not self._messages
        return waits and not self._has_begun and self.transport is not None

    def data_received(self, data: bytes) -> None:
        """Hand on what has come, and note whether it is only a part of a head."""
        waits = self._waiter is not None and not self._waiter.done()
        known = self._request_count
        self._take(data)
        if data:
            self._has_begun = waits and self._request_count == known

    def _take(self, data: bytes) -> None:
        """Hand on what has come; nothing has, where aiohttp goes on with what it holds."""
        if not data:
            return super().data_received(data)
        if not self._boundary.is_here:
            super().data_received(data)
            return self._boundary.passed(data, None)
        data = encoded(data)
        end = without_length(data)
        if end is not None:
            # What follows is the next request. If it is none, what was a request is answered all the same.
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
    """A server whose connections are such."""

    def __init__(self, handler: Any, **options: Any) -> None:
        """Make the server as aiohttp does."""
        super().__init__(handler, **options)
        self._followers: list[Callable[[RawHandler], None]] = []

    def follow(self, follower: Callable[[RawHandler], None]) -> None:
        """Tell `follower` of each new connection from now on."""
        self._followers.append(follower)

    def met(self, connection: RawHandler) -> None:
        """A connection has been made."""
        for follower in self._followers:
            follower(connection)

    def __call__(self) -> RequestHandler:
        """A new connection's handler."""
        return RawHandler(self, loop=self._loop, **self._kwargs)
