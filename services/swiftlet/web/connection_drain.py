"""The end of a server's connections, so that no client has a request reset or left without an answer.

While a process drains, each kept connection is told with its next answer that it was the last (`Connection: close`),
unless a further request has come already, which is answered first. A connection on which nothing is asked stays open
for `idle_s`, because a request may be on its way at any moment; then it is closed, if nothing of a request has come.

Closing is done in two steps. First only the sending side ends: a connection that is closed with bytes unread is reset,
and a reset may take an answer from the client that has not read it yet. Then what still comes is read and dropped until
the client closes its side, or `LINGER_S` has passed.

Fault model: a client may never close, send without end, or take nothing: each of these ends after a time, or after so
many bytes. A request that is sent in the moment in which an idle connection is closed has no answer: HTTP/1.1 knows no
way to end such a connection without that moment. Its client sees the connection's orderly end, and may ask anew.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import os
import socket
import termios
from collections.abc import Awaitable, Callable
from typing import Any, cast

from aiohttp import hdrs, web

from swiftlet.web.health import Readiness
from swiftlet.web.raw_heads import RawHandler, RawServer

LINGER_S = 2.0
"""How long a client may take to close after the last answer."""
_DROPPED_BYTES = 1 << 20
"""Bytes that are read and dropped behind the last answer."""
_LOOK_S = 0.01


def last_answers(readiness: Readiness) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """A handler for `on_response_prepare`: while the process drains, an answer says that it is its connection's last.

    It does not if a further request has come on the connection.
    """

    async def mark(request: web.Request, response: web.StreamResponse) -> None:
        handler: Any = request.protocol
        if readiness.draining and not handler._messages:
            response.force_close()
            response.headers[hdrs.CONNECTION] = "close"

    return mark


class ConnectionDrain:
    """The connections of one server while its process drains."""

    def __init__(self, server: RawServer) -> None:
        """From now on the server's connections end politely, those that are there and those to come."""
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._lingering: set[_Lingering] = set()
        server.follow(self._met)
        for handler in server.connections:
            self._met(handler)

    def _met(self, handler: Any) -> None:
        if handler.transport is not None:
            handler.transport = cast(asyncio.Transport, _PoliteTransport(handler.transport, self._end))

    @property
    def is_over(self) -> bool:
        """Whether no connection is left."""
        return not self._server.connections and not self._lingering

    def end_idle(self) -> None:
        """Close the connections on which nothing of a request has come."""
        for handler in self._server.connections:
            if isinstance(handler, RawHandler) and handler.awaits_request and not _has_unread(handler.transport):
                _stop_sending(handler.transport)
                handler.force_close()

    async def linger(self, until: float) -> None:
        """Wait until clients close ended connections, at most until this time of the event loop's clock."""
        while self._lingering and self._loop.time() < until:  # noqa: ASYNC110 - clients make it true
            await asyncio.sleep(_LOOK_S)
        for one in list(self._lingering):
            one.cut()

    def _end(self, transport: asyncio.Transport) -> None:
        self._lingering.add(_Lingering(transport, self._lingering.discard))


class _PoliteTransport:
    """A transport that lingers when it is closed."""

    def __init__(self, transport: asyncio.Transport, end: Callable[[asyncio.Transport], None]) -> None:
        self._transport = transport
        self._end = end
        self._is_closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def is_closing(self) -> bool:
        return self._is_closed or self._transport.is_closing()

    def close(self) -> None:
        if not self.is_closing():
            self._is_closed = True
            self._end(self._transport)


class _Lingering(asyncio.Protocol):
    """A connection whose last answer leaves or has left, until its client closes it."""

    def __init__(self, transport: asyncio.Transport, over: Callable[[_Lingering], None]) -> None:
        self._transport = transport
        self._before = transport.get_protocol()
        self._over = over
        self._left = _DROPPED_BYTES
        transport.set_protocol(self)
        if transport.can_write_eof():
            transport.write_eof()
            transport.resume_reading()
        else:
            # TLS has a goodbye of its own, for which it reads on in the same way.
            transport.close()
        self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._late)

    def data_received(self, data: bytes) -> None:
        self._left -= len(data)
        if self._left < 0:
            self._transport.abort()

    def pause_writing(self) -> None:
        self._before.pause_writing()

    def resume_writing(self) -> None:
        self._before.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._timer.cancel()
        self._over(self)
        self._before.connection_lost(exc)

    def _late(self) -> None:
        if self._transport.get_write_buffer_size():
            # The client is slow, but takes its answer.
            self._timer = asyncio.get_running_loop().call_later(LINGER_S, self._late)
        else:
            self.cut()

    def cut(self) -> None:
        """Close the connection at once."""
        self._transport.abort()


def _has_unread(transport: Any) -> bool:
    """Whether bytes have come that nobody has read yet."""
    opened = transport.get_extra_info("socket")
    if opened is None:
        return False
    size = array.array("i", [0])
    fcntl.ioctl(opened.fileno(), termios.FIONREAD, size)
    return bool(size[0])


def _stop_sending(transport: Any) -> None:
    """At once: through the transport it would be after what comes meanwhile has been read."""
    opened = transport.get_extra_info("socket")
    if opened is None or not transport.can_write_eof() or transport.get_write_buffer_size():
        return
    with socket.socket(fileno=os.dup(opened.fileno())) as one:
        try:
            one.shutdown(socket.SHUT_WR)
        except OSError:
            return  # The client has gone, and the transport is about to notice.
