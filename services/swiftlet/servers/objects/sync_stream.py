"""Sync streams at a server: takes the requests of a replicator, and serves those of one message at a time on a device.

An endpoint calls a responder, which knows what the requests are about. `swiftlet.transport.sync_wire` defines the
messages.

Fault model: anybody may connect and send anything: the request that begins a stream is signed, and each message proves
that its sender has the cluster's key. While a peer asks faster than it is answered, nothing is read from it. Answers
wait for the peer within a limit; a peer that does not read them is disconnected after `SEND_S`, and one that sends
nothing at first after `_FIRST_S`. When a stream ends, requests in progress go on and their answers are dropped.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from aiohttp import WSMsgType, web

from swiftlet.errors import NodeBusy, NodeError, SwiftletError
from swiftlet.servers.shared.json_requests import refusal, signed_parts
from swiftlet.servers.shared.sockets import SEND_S, open_socket
from swiftlet.transport import sync_wire
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.sync_wire import Answer, Answerer, Batch, Request
from swiftlet.web.logs import get_logger

MAX_STREAMS = 4096
"""The largest number of open streams; further replicators are refused and try again later."""
_FIRST_S = 10.0
"""Seconds within which a peer has to prove that it has the key."""
_END_S = 5.0
"""Seconds that requests in progress get when the server ends."""
_OUT_BYTES = 2 << 20
"""The largest size in bytes of unread answers to a peer; above it no further requests of the peer are served."""
_log = get_logger("sync")

Responder = Callable[[str, Sequence[Request]], AsyncIterator[Sequence[Answer]]]
"""Returns the answers to the requests of one message for a device, in order, some at a time."""


def one_by_one(answer: Callable[[str, Request], Awaitable[bytes]]) -> Responder:
    """Return a responder that answers each request alone, after the one before."""

    async def respond(device: str, requests: Sequence[Request]) -> AsyncIterator[Sequence[Answer]]:
        for request in requests:
            try:
                yield (await answer(device, request),)
            except SwiftletError as error:
                yield (error,)

    return respond


class SyncEndpoint:
    """The sync streams of a server."""

    def __init__(self, key: ClusterKey | None, responder: Responder, path: str = sync_wire.PATH) -> None:
        """With `key` None unsigned streams are accepted."""
        self._key = key
        self._responder = responder
        self._path = path
        self._open: set[_Stream] = set()

    def add_to(self, app: web.Application) -> None:
        """Add the route, and the end at shutdown, to an application."""
        app.router.add_route("GET", self._path, self.handle)
        app.on_shutdown.append(self.close)

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one stream from its beginning to its end."""
        try:
            if self._key is not None:
                self._key.check(*signed_parts(request))
            if len(self._open) >= MAX_STREAMS:
                raise NodeBusy(f"{len(self._open)} sync streams are open, which is the limit")
        except SwiftletError as error:
            return refusal(error)
        socket, _ = await open_socket(request, sync_wire.MAX_MESSAGE)
        stream = _Stream(socket, Answerer(self._key, self._path), self._responder)
        self._open.add(stream)
        try:
            await stream.run()
        finally:
            self._open.discard(stream)
        return socket

    async def close(self, _app: web.Application) -> None:
        """End all streams at shutdown, once requests in progress are answered."""
        await asyncio.gather(*(stream.end() for stream in self._open))


class _Stream:
    """One connection of a sync stream."""

    def __init__(self, socket: web.WebSocketResponse, answerer: Answerer, responder: Responder) -> None:
        self._socket = socket
        self._answerer = answerer
        self._responder = responder
        self._unanswered = 0
        self._unanswered_bytes = 0
        self._outgoing: deque[tuple[int, Answer]] = deque()
        self._outgoing_bytes = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended = False
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self) -> None:
        """Serve the stream until either side ends it."""
        writer = asyncio.create_task(self._write())
        try:
            await self._socket.send_bytes(self._answerer.greeting)
            message = await self._socket.receive(timeout=_FIRST_S)
            while message.type is WSMsgType.BINARY:
                self._begin(self._answerer.requests(message.data))
                while self._full and not self._ended:
                    self._room.clear()
                    await self._room.wait()
                message = await self._socket.receive()
        except SwiftletError as error:
            _log.warning("a sync stream was refused", error=str(error))
            await self._socket.close(code=1008, message=str(error).encode()[:100])
        except TimeoutError:
            await self._socket.close(code=1008, message=b"nothing was asked")
        except ConnectionError as error:
            _log.info("a sync stream was cut off", error=repr(error))
        finally:
            self._ended = True
            self._room.set()
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    @property
    def _full(self) -> bool:
        return self._unanswered >= sync_wire.MAX_UNANSWERED or self._unanswered_bytes >= sync_wire.MAX_UNANSWERED_BYTES

    async def end(self) -> None:
        """Accept no more requests; those in progress are answered if they end soon."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_END_S)
        try:
            async with asyncio.timeout(SEND_S):
                await self._send()
                await self._socket.close(code=1001, message=b"the server ends")
        except (ConnectionError, TimeoutError) as error:
            _log.info("a sync stream was cut off", error=repr(error))

    def _begin(self, batch: Batch) -> None:
        self._unanswered += len(batch.requests)
        self._unanswered_bytes += sum(len(request.payload) for request in batch.requests)
        task = asyncio.create_task(self._work(batch))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _work(self, batch: Batch) -> None:
        """Answer the requests of one message, each of them exactly once."""
        left = deque(enumerate(batch.requests, batch.first))
        error: SwiftletError = NodeError("the request was not answered; see the server's log")
        try:
            async for answers in self._responder(batch.device, batch.requests):
                for answer in answers:
                    self._answer(*left.popleft(), answer)
                while self._outgoing_bytes > _OUT_BYTES and not self._ended:
                    self._room.clear()
                    await self._room.wait()
        except SwiftletError as refused:
            error = refused
        except Exception:
            _log.exception("unexpected error", device=batch.device)
        for number, request in left:
            self._answer(number, request, error)

    def _answer(self, number: int, request: Request, answer: Answer) -> None:
        if isinstance(answer, bytes) and len(answer) > sync_wire.MAX_PAYLOAD:
            answer = NodeError(f"an answer of {len(answer)} bytes is more than {sync_wire.MAX_PAYLOAD}")
        self._unanswered_bytes -= len(request.payload)
        self._outgoing.append((number, answer))
        self._outgoing_bytes += _size(answer)
        self._news.set()

    async def _write(self) -> None:
        """Send answers as they become ready, together where several are."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                async with asyncio.timeout(SEND_S):
                    await self._send()
            except (ConnectionError, TimeoutError) as error:
                _log.info("a sync stream was cut off", error=repr(error))
                self._ended = True
                self._room.set()
                await self._socket.close(code=1008, drain=False)
                return

    async def _send(self) -> None:
        while self._outgoing:
            size = 0
            some: list[tuple[int, Answer]] = []
            while self._outgoing and (not some or size + _size(self._outgoing[0][1]) <= sync_wire.SENT_BYTES):
                some.append(self._outgoing.popleft())
                size += _size(some[-1][1])
            self._unanswered -= len(some)
            self._outgoing_bytes -= size
            self._room.set()
            await self._socket.send_bytes(self._answerer.answers(some))


def _size(answer: Answer) -> int:
    """Return the approximate size in bytes of an answer in a message."""
    return sync_wire.request_size(answer) if isinstance(answer, bytes) else len(str(answer)) + 100
