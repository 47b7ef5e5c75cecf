"""Ends a server's connections so that no client has a request reset or left without an answer.

While a process drains, the next answer on each kept connection says that it is the last (`Connection: close`), unless a
further request has arrived already, which is answered first. A connection without a request stays open for `idle_s`,
because one may be on its way at any moment; then it is closed, if nothing of a request has arrived.

Closing is done in two steps. First only the sending side ends: a connection that is closed with bytes unread is reset,
and a reset may take an answer from a client that has not read it yet. Then what still arrives is read and dropped until
the client closes its side, or `LINGER_S` has passed.

Fault model: a client may never close, send without end, or take nothing: each of these ends after a time, or after so
many bytes. A request that is sent in the moment in which an idle connection is closed has no answer: HTTP/1.1 has no
way to end such a connection without that moment. Its client sees the orderly end of the connection, and may send the
request again.
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
"""Seconds within which a client has to close the connection after the last answer."""
_DROPPED_BYTES = 1 << 20
"""Bytes that are read and dropped after the last answer."""
_LOOK_S = 0.01


def last_answers(readiness: Readiness) -> Callable[[web.Request, web.StreamResponse], Awaitable[None]]:
    """Return a handler for `on_response_prepare`: while the process drains, an answer says that it is its connection's
    last.

    It does not if a further request has arrived on the connection.
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
        """From now on end the server's connections in this way, both existing and future ones."""
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
        """Close the connections on which nothing of a request has arrived."""
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
    """A connection whose last answer is being sent or was sent, until its client closes it."""

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
            # TLS has its own closing message, after which it also goes on reading.
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
    """Return whether bytes have arrived that nobody has read yet."""
    opened = transport.get_extra_info("socket")
    if opened is None:
        return False
    size = array.array("i", [0])
    fcntl.ioctl(opened.fileno(), termios.FIONREAD, size)
    return bool(size[0])


def _stop_sending(transport: Any) -> None:
    """End the sending side at once; the transport would do it only after reading what arrives meanwhile."""
    opened = transport.get_extra_info("socket")
    if opened is None or not transport.can_write_eof() or transport.get_write_buffer_size():
        return
    with socket.socket(fileno=os.dup(opened.fileno())) as one:
        try:
            one.shutdown(socket.SHUT_WR)
        except OSError:
            return  # The client has gone, and the transport is about to notice.
