"""Requests of replicators over sync streams: one WebSocket to each server, many requests on it at a time.

Requests of the same moment go out in one message; answers come in any order.

Fault model: as with HTTP, see `swiftlet.transport.http_client`. A server may keep a connection open and answer nothing:
a request that was not answered in time fails, and ends the stream if nothing else was answered since. A stream that
ends fails its unanswered requests, carried out or not. A request that met the end of a stream which was open before is
made once more, on a new one: questions change nothing, and copies are merged by their timestamps. There are limits, in
requests and in bytes, on what is sent before it is answered, and on what waits to be sent.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import aiohttp

from swiftlet.errors import NodeBusy, NodeError, NodeTimeout, NodeUnreachable, SwiftletError
from swiftlet.ring.model import Device
from swiftlet.transport import sync_wire
from swiftlet.transport.http_client import HttpSettings, NodeClient, node_errors
from swiftlet.transport.node_streams import NodeStreams
from swiftlet.transport.sync_wire import Answer, Asker, Request
from swiftlet.transport.wire import WireError

MAX_WAITING = 8192
"""The largest number of requests to one server that wait to be sent."""


@dataclass(slots=True)
class _Asked:
    """A request that is waiting or was sent."""

    request: Request
    answer: asyncio.Future[bytes]


class _Stream:
    """One connection of a stream."""

    def __init__(
        self,
        device: Device,
        socket: aiohttp.ClientWebSocketResponse,
        asker: Asker,
        settings: HttpSettings,
        clock: Callable[[], float],
    ) -> None:
        self._node = f"{device.host}:{device.port}"
        self._socket = socket
        self._asker = asker
        self._settings = settings
        self._clock = clock
        self._heard_s = clock()
        self._ended = False
        self._queues: dict[str, deque[_Asked]] = {}
        """Requests to be sent, by device; the device whose turn it is comes first."""
        self._waiting = 0
        self._sent: dict[int, _Asked] = {}
        """Requests that were sent and not answered, also those that nobody waits for any more."""
        self._sent_bytes = 0
        self._news = asyncio.Event()
        self._tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._read())]

    @property
    def ended(self) -> bool:
        """Whether no request can be sent any more."""
        return self._ended

    async def ask(self, device: str, request: Request) -> bytes:
        """Return the answer. Raises NodeError and its subclasses, or the error of the server."""
        if self._ended:
            raise NodeUnreachable(f"{self._node} has ended its sync stream")
        if self._waiting >= MAX_WAITING:
            raise NodeBusy(f"{self._waiting} requests wait to be sent to {self._node}")
        asked = _Asked(request, asyncio.get_running_loop().create_future())
        self._queues.setdefault(device, deque()).append(asked)
        self._waiting += 1
        self._news.set()
        begun_s, limit_s = self._clock(), self._settings.answer_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await asked.answer
        except TimeoutError as error:
            if self._heard_s < begun_s:
                self._fail(NodeUnreachable(f"{self._node} answers nothing on its sync stream"))
            raise NodeTimeout(f"{self._node}/{device} did not answer within {limit_s:g} s") from error

    async def close(self) -> None:
        """End the stream; unanswered requests fail."""
        self._fail(NodeUnreachable(f"the sync stream to {self._node} was closed"))
        await self._socket.close()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _write(self) -> None:
        """Send requests as far as there is room, those of one turn of the event loop together."""
        try:
            while not self._ended:
                await self._news.wait()
                self._news.clear()
                while (message := self._next()) is not None:
                    async with asyncio.timeout(self._settings.idle_timeout_s):
                        await self._socket.send_bytes(message)
        except (TimeoutError, ConnectionError, aiohttp.ClientError) as error:
            self._fail(NodeUnreachable(f"{self._node} takes nothing on its sync stream: {error!r}"))
        finally:
            await self._socket.close()

    def _next(self) -> bytes | None:
        """Return the next message, about the device that has waited longest; None without requests or room."""
        while self._queues and not self._ended:
            if len(self._sent) >= sync_wire.MAX_UNANSWERED or self._sent_bytes >= sync_wire.MAX_UNANSWERED_BYTES:
                return None
            device = next(iter(self._queues))
            queue = self._queues.pop(device)
            taken = self._take(queue)
            if queue:
                self._queues[device] = queue
            if taken:
                first = self._asker.asked
                self._sent.update(enumerate(taken, first))
                self._sent_bytes += sum(len(one.request.payload) for one in taken)
                return self._asker.message(device, [one.request for one in taken])
        return None

    def _take(self, queue: deque[_Asked]) -> list[_Asked]:
        """Return the requests for one message."""
        taken: list[_Asked] = []
        size, room = 0, sync_wire.MAX_UNANSWERED - len(self._sent)
        while queue and len(taken) < min(sync_wire.MAX_REQUESTS, room):
            size += sync_wire.request_size(queue[0].request.payload)
            if taken and size > sync_wire.SENT_BYTES:
                break
            self._waiting -= 1
            asked = queue.popleft()
            if not asked.answer.done():
                taken.append(asked)
        return taken

    async def _read(self) -> None:
        """Pass on answers until the stream ends; then all unanswered requests fail."""
        error: SwiftletError = NodeUnreachable(f"{self._node} has ended its sync stream")
        try:
            while True:
                message = await self._socket.receive()
                if message.type is aiohttp.WSMsgType.CLOSE and message.data == aiohttp.WSCloseCode.POLICY_VIOLATION:
                    error = NodeError(f"{self._node} has ended its sync stream: {message.extra}")
                if message.type is not aiohttp.WSMsgType.BINARY:
                    break
                self._heard_s = self._clock()
                for number, answer in self._asker.answers(message.data):
                    self._answered(number, answer)
                self._news.set()
        except WireError as garbage:
            error = NodeError(f"{self._node} sent an answer that can't be decoded: {garbage}")
        finally:
            self._fail(error)
            await self._socket.close()

    def _answered(self, number: int, answer: Answer) -> None:
        asked = self._sent.pop(number, None)
        if asked is None:
            raise WireError(f"request {number} is answered a second time")
        self._sent_bytes -= len(asked.request.payload)
        if asked.answer.done():
            return
        if isinstance(answer, SwiftletError):
            asked.answer.set_exception(answer)
        else:
            asked.answer.set_result(answer)

    def _fail(self, error: SwiftletError) -> None:
        """End the stream: no more requests are sent, and those that wait fail with the reason."""
        self._ended = True
        self._news.set()
        under_way = [*self._sent.values(), *(one for queue in self._queues.values() for one in queue)]
        self._sent.clear()
        self._queues.clear()
        for one in under_way:
            if not one.answer.done():
                one.answer.set_exception(error)
                one.answer.exception()  # The caller that waits gets the error, and there may be none.


class SyncStreams:
    """The streams to all servers; runs in one event loop."""

    def __init__(
        self, client: NodeClient, path: str = sync_wire.PATH, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`client` is closed by its owner, after this."""
        self._client = client
        self._path = path
        self._clock = clock
        self._nodes = NodeStreams(client, path, sync_wire.MAX_MESSAGE, self._begin)

    async def ask(self, device: Device, kind: int, payload: bytes) -> bytes:
        """Return the answer to a request. Raises NodeError and its subclasses, or the error of the server."""
        if len(payload) > sync_wire.MAX_PAYLOAD:
            raise NodeError(f"{len(payload)} bytes are more than a request's {sync_wire.MAX_PAYLOAD}")
        request = Request(kind, payload)
        stream, fresh = await self._nodes.to(device)
        try:
            return await stream.ask(device.device, request)
        except NodeUnreachable:
            if fresh:
                raise
        stream, _ = await self._nodes.to(device)
        return await stream.ask(device.device, request)

    async def _begin(self, device: Device, socket: aiohttp.ClientWebSocketResponse) -> _Stream:
        async with node_errors(device, self._client.settings.answer_timeout_s):
            try:
                greeting = await socket.receive_bytes()
                asker = Asker(self._client.key, self._path, greeting)
            except (TypeError, WireError) as error:
                await socket.close()
                raise WireError(f"no greeting on a sync stream: {error}") from error
            except BaseException:
                await socket.close()
                raise
        return _Stream(device, socket, asker, self._client.settings, self._clock)

    async def close(self) -> None:
        """End all streams; unanswered requests fail."""
        await self._nodes.close()
