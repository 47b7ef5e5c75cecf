"""Moves connections between the front and aiohttp: taken over with the bytes read so far, given back between requests.

A connection is given back when the front could have answered its last request, aiohttp has received nothing of the next
one, and the answer has been sent. One that comes back several times without the front having answered anything stays
for a while.

Fault model: a client may be gone before its connection is taken over, and send anything at any time: bytes that reach
aiohttp before the connection is given back keep it here. Bytes in the kernel's buffer stay with the descriptor.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from aiohttp import web
from swiftlet_native import Front

from swiftlet.front.pacing import Pace, Place
from swiftlet.front.secure import Secured, SeenWithTls
from swiftlet.web.front_listener import BegunByFront
from swiftlet.web.logs import get_logger
from swiftlet.web.raw_heads import RawHandler

_MAX_BOUNCES = 8
"""How many times in a row a connection may come back from the front unanswered and be given to it again at once."""
_COLD_S = 1.0
"""Seconds after which a connection that came back too often is given to the front again: the reason may be over."""
_SOON = 32
"""Turns of the event loop within which a connection whose answer was sent is ready for the next request."""
_LOOK_S = 0.01
_LEAVE_S = 1.0
"""Seconds within which the front answers a command unless it has failed."""
_MAX_HEAD = 4096
"""The largest size in bytes of the head of a request that the front may answer."""

_log = get_logger("front")


class Watcher(Protocol):
    """Receives notice of answers that were sent."""

    def ended(self, request: web.BaseRequest) -> None:
        """Note that an answer has ended."""
        ...

    def answered(
        self, connection: Connection, request: web.BaseRequest, response: web.StreamResponse, raw: bytes, received: int
    ) -> None:
        """Note an answer to a request that came alone, in `received` bytes that begin with `raw`; the connection may be
        given back.
        """
        ...

    def made(self) -> None:
        """Note that the front may have made objects durable."""
        ...

    def decide(self) -> None:
        """Note that requests may wait in the front for a decision."""
        ...


class Connection(RawHandler, BegunByFront):
    """The connection of a client that aiohttp serves."""

    def __init__(
        self,
        server: web.Server,
        watcher: Watcher,
        place: Place,
        begun_with: bytes,
        bounces: int,
        deleted: bool,
        stored: int | None,
        **options: Any,
    ) -> None:
        """`begun_with` has been read already; if `deleted`, it begins with a DELETE that devices may have carried out,
        and else perhaps with a PUT of which they may have `stored` this version.

        `place` is left with the first answer.
        """
        super().__init__(server, **options)
        self.deleted = deleted
        self.stored = stored
        self._watcher = watcher
        self._place = place
        place.give_to(self.waits_for_client)
        self._begun_with = begun_with
        self._parsed = 0
        self._answers = 0
        self._come = b""
        """The first bytes received since the last request was complete."""
        self._received = 0
        """The number of bytes received since then."""
        self._whole: bytes | None = None
        """The beginning of the request that is being answered, if no other one has been received."""
        self.bounces = bounces
        self._since = self._loop.time()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Process the bytes that the front has read."""
        super().connection_made(transport)
        begun_with, self._begun_with = self._begun_with, b""
        if begun_with:
            self.data_received(begun_with)
        if not self._messages:
            self._place.leave()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let the next waiting connection in."""
        super().connection_lost(exc)
        self._place.leave()

    def data_received(self, data: bytes) -> None:
        """Note whether exactly one request has been received."""
        # A request is in no queue, and not in progress yet, for a turn of the loop.
        is_taken = self._request_in_progress or self._request_count > self._answers
        if not self._messages and not is_taken:
            self._come, self._received, self.apart = b"", 0, 0
            self._parsed = self._request_count
        self._received += len(data)
        if len(self._come) < _MAX_HEAD:
            self._come += data[: _MAX_HEAD - len(self._come)]
        super().data_received(data)
        self._whole = self._come if self._request_count == self._parsed + 1 and not self._upgraded else None

    def log_access(self, request: web.BaseRequest, response: web.StreamResponse, time: float | None) -> None:
        """Note that the answer has been sent."""
        super().log_access(request, response, time)
        self._answers += 1
        self.deleted, self.stored = False, None
        self._place.leave()
        self._watcher.ended(request)
        if self._whole:
            self._watcher.answered(self, request, response, self._whole, self._received + self.apart)

    def waits_for_client(self) -> bool:
        """Whether the current request can only continue when its client sends or reads more."""
        if self._drain_waiter is not None:
            return True
        if self._current_request is None or self.transport is None:
            return False
        content: Any = self._current_request.content
        # `web/direct_read.py` reads the rest of a long body.
        is_taken = self.transport.get_protocol() is not self
        return not content.is_eof() and (is_taken or content._waiter is not None)

    def detach(self) -> int | None:
        """Detach and return the connection's descriptor; None if it is still needed here, or not ready yet."""
        transport = self.transport
        if transport is None or transport.is_closing() or not self.is_idle or transport.get_write_buffer_size():
            return None
        opened: Any = transport.get_extra_info("socket")
        descriptor = os.dup(opened.fileno())
        self.force_close()
        return descriptor

    def hold(self) -> None:
        """Stop reading: what a fast client sends next stays in the kernel for whoever reads the connection next."""
        if self.transport is not None:
            self.transport.pause_reading()

    def release(self) -> None:
        """Resume reading, unless aiohttp has paused it for its own reasons."""
        if self.transport is not None and not (self._reading_paused or self._buffer_paused):
            self.transport.resume_reading()

    @property
    def may_be_tried(self) -> bool:
        """Whether the front will probably answer a request on it, or last failed to do so long enough ago."""
        return self.bounces < _MAX_BOUNCES or self._loop.time() - self._since >= _COLD_S

    @property
    def is_idle(self) -> bool:
        """Whether it waits for a request of which no byte has been received."""
        waits = self._waiter is not None and not self._waiter.done() and not self._messages
        return waits and self._keepalive and not (self._close or self._force_close) and self._whole is not None

    @property
    def is_over(self) -> bool:
        """Whether it accepts no further request."""
        return self.transport is None or self._close or self._force_close or self._whole is None


class SecureConnection(SeenWithTls, Connection):
    """A connection with TLS, which the front ends."""

    def __init__(self, secured: Secured, context: ssl.SSLContext, *arguments: Any, **options: Any) -> None:
        """`arguments` and `options` are those of `Connection`."""
        super().__init__(*arguments, **options)
        self.secured = secured
        self.context = context


class _HandedOver(NamedTuple):
    """What the front has read and done on a connection."""

    begun_with: bytes
    bounces: int
    deleted: bool
    stored: int | None


class ConnectionHandover:
    """Moves connections between one front and one aiohttp server."""

    def __init__(self, front: Front, watcher: Watcher, context: ssl.SSLContext | None = None) -> None:
        """`watcher` may call `give_back`; `context` is that of a port with TLS."""
        self._front = front
        self._context = context
        self._watcher = watcher
        self._loop: asyncio.AbstractEventLoop | None = None
        self._server: web.Server | None = None
        self._pace: Pace | None = None
        self._taking: set[asyncio.Task[None]] = set()
        self._leaving = False

    def open(self, server: web.Server, sockets: Sequence[socket.socket]) -> None:
        """Start accepting connections in the front, and serve those that it hands over."""
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._pace = Pace(self._take_more)
        self._loop.add_reader(self._front.fileno(), self._take)
        for one in sockets:
            self._front.listen(one.fileno())

    def _take(self) -> None:
        """Take as many connections as may be new here; the others wait in the front."""
        assert self._loop is not None
        assert self._pace is not None
        room = self._front.waiting() if self._leaving else self._pace.room
        # This stops events of the descriptor, so everything else that they would report is checked afterwards.
        handed = self._front.handed(room)
        self._watcher.decide()
        self._watcher.made()
        for descriptor, begun_with, bounces, deleted, stored, with_tls in handed:
            begun = _HandedOver(begun_with, bounces, deleted, stored)
            secured = None if with_tls is None else Secured(*with_tls)
            task = self._loop.create_task(self._begin(descriptor, begun, secured, self._pace.take()))
            self._taking.add(task)
            task.add_done_callback(self._taking.discard)

    def _take_more(self) -> None:
        """Take more connections from the front, because places have become free."""
        if self._front.waiting():
            self._take()

    async def _begin(self, descriptor: int, begun: _HandedOver, secured: Secured | None, place: Place) -> None:
        assert self._loop is not None
        try:
            taken = socket.socket(fileno=descriptor)
        except OSError as error:
            place.leave()
            os.close(descriptor)
            _log.info("a connection could not be taken over", error=str(error))
            return
        try:
            taken.setblocking(False)
            await self._loop.connect_accepted_socket(lambda: self._connection(begun, secured, place), taken)
        except OSError as error:
            place.leave()
            taken.close()
            _log.info("a connection could not be taken over", error=str(error))

    def _connection(self, begun: _HandedOver, secured: Secured | None, place: Place) -> Connection:
        server = self._server
        assert server is not None
        # These are the options that the runner was given; the server uses them for its own connections.
        options = server._kwargs
        if secured is None:
            return Connection(server, self._watcher, place, *begun, loop=self._loop, **options)
        assert self._context is not None
        return SecureConnection(
            secured, self._context, server, self._watcher, place, *begun, loop=self._loop, **options
        )

    def give_back(self, connection: Connection) -> None:
        """Give a connection back to the front when its answer has been sent and it is not needed here any more."""
        if connection.may_be_tried and not self._leaving and not connection.is_over:
            connection.hold()
            self._give_back(connection, _SOON)

    def _give_back(self, connection: Connection, turns: int) -> None:
        assert self._loop is not None
        over = connection.is_over or self._leaving or not turns
        descriptor = None if over else connection.detach()
        if descriptor is not None:
            token = connection.secured.token if isinstance(connection, SecureConnection) else None
            self._front.adopt(descriptor, connection.bounces, token)
        elif over:
            connection.release()
        else:
            self._loop.call_soon(self._give_back, connection, turns - 1)

    async def leave(self) -> None:
        """Stop accepting connections in the front; aiohttp serves those that it hands over until then."""
        self._leaving = True
        self._front.leave()
        await self._until(self._front.has_left, _LEAVE_S)
        self._take()
        while self._taking:
            await asyncio.wait(self._taking)

    def is_busy(self) -> bool:
        """Whether the front has connections, or some are on their way to aiohttp."""
        return bool(self._has_open() or self._front.waiting() or self._taking)

    def _has_open(self) -> bool:
        """Whether the front still has a connection, or passes on what aiohttp says on one."""
        return bool(self._front.open() or self._front.bridged())

    async def close(self, patience_s: float) -> None:
        """Accept no more connections; requests that the front still answers get this much time."""
        await self._until(lambda: not self._has_open(), patience_s)
        if self._loop is not None and self._pace is not None:
            self._pace.close()
            self._loop.remove_reader(self._front.fileno())

    async def _until(self, condition: Callable[[], bool], patience_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                while not condition():  # noqa: ASYNC110 - another thread makes it true
                    await asyncio.sleep(_LOOK_S)
