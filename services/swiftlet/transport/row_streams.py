"""Rows to container servers over streams: one WebSocket to each server, with updates of many containers in a message.

An update is sent at once when nothing of this stream is unanswered. Otherwise it waits for the next answer, or for
`HOLD_S`, so that updates of many containers share a message. An update that is too large for a message is sent by
requests.

Fault model: as with HTTP, see `swiftlet.transport.http_client`. A server may also keep a connection open and answer
nothing: an update that was not answered in time ends the stream if nothing else was answered since. What the server had
taken but not reported as durable when a stream ended counts as lost. An update that met the end of a stream which was
open before is sent once more, on a new one: it may have been carried out, but merging twice has the effect of merging
once.
"""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import aiohttp

from swiftlet.errors import NodeError, NodeTimeout, NodeUnreachable, SwiftletError
from swiftlet.model import ObjectRow
from swiftlet.ring.model import Device
from swiftlet.transport import row_wire
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.node_streams import NodeStreams
from swiftlet.transport.row_wire import Answers, Update
from swiftlet.transport.signing import authority
from swiftlet.transport.wire import WireError

T = TypeVar("T")
HOLD_S = 0.002
"""Seconds for which an update waits at most, to be sent together with others."""


class TooLarge(Exception):
    """An update does not fit into a message: `HttpListingTransport` sends it by requests, which split it."""


@dataclass(slots=True)
class _Waiting:
    """An update that has not been answered, or whose rows are not durable yet."""

    taken: asyncio.Future[asyncio.Future[None] | None]
    durable: asyncio.Future[None] | None = None


@dataclass(slots=True)
class _Stream:
    """One connection of a stream."""

    socket: aiohttp.ClientWebSocketResponse
    numbers: itertools.count[int] = field(default_factory=itertools.count)
    waiting: dict[int, _Waiting] = field(default_factory=dict)
    unanswered: int = 0
    outgoing: list[bytes] = field(default_factory=list)
    size: int = 0
    flush: asyncio.Handle | None = None
    heard_s: float = 0.0
    ended: bool = False
    tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def close(self) -> None:
        """End the stream; unanswered requests fail."""
        await self.socket.close()
        await asyncio.gather(*self.tasks, return_exceptions=True)


class RowStreams:
    """The streams to all container servers; runs in one event loop."""

    def __init__(self, client: NodeClient, clock: Callable[[], float] = time.monotonic) -> None:
        """`client` is closed by its owner, after this."""
        self._client = client
        self._clock = clock
        self._streams = NodeStreams(client, row_wire.PATH, row_wire.MAX_MESSAGE, self._begin)

    async def bring(
        self, device: Device, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool
    ) -> asyncio.Future[None] | None:
        """Behaves as `ListingTransport.bring_rows` requires; TooLarge."""
        stream, fresh = await self._streams.to(device)
        update = Update(next(stream.numbers), device.device, partition, account, container, later, rows)
        try:
            return await self._send(device, stream, update)
        except NodeUnreachable:
            if fresh:
                raise
        stream, _ = await self._streams.to(device)
        return await self._send(device, stream, replace(update, number=next(stream.numbers)))

    async def close(self) -> None:
        """End all streams; unanswered requests fail."""
        await self._streams.close()

    async def _begin(self, device: Device, socket: aiohttp.ClientWebSocketResponse) -> _Stream:
        stream = _Stream(socket, heard_s=self._clock())
        self._spawn(stream, self._read(device, stream))
        return stream

    def _spawn(self, stream: _Stream, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        stream.tasks.add(task)
        task.add_done_callback(stream.tasks.discard)

    async def _send(self, device: Device, stream: _Stream, update: Update) -> asyncio.Future[None] | None:
        body = row_wire.update_bytes(update)
        if len(body) > row_wire.SENT_BYTES:
            raise TooLarge
        if stream.ended:
            raise NodeUnreachable(f"{device.address} has ended its row stream")
        taken: asyncio.Future[asyncio.Future[None] | None] = asyncio.get_running_loop().create_future()
        stream.waiting[update.number] = _Waiting(taken)
        stream.unanswered += 1
        self._put(device, stream, body)
        begun_s = self._clock()
        limit_s = self._client.settings.answer_timeout_s
        try:
            async with asyncio.timeout(limit_s):
                return await taken
        except TimeoutError as error:
            if stream.heard_s < begun_s:
                self._spawn(stream, _close(stream))
            raise NodeTimeout(f"{device.address} did not answer within {limit_s:g} s") from error
        finally:
            if not taken.done() or taken.cancelled():
                stream.waiting.pop(update.number, None)
            stream.unanswered -= 1

    def _put(self, device: Device, stream: _Stream, update: bytes) -> None:
        """Queue an update to be sent at the end of this turn of the event loop, or with the next answer."""
        loop = asyncio.get_running_loop()
        if stream.size + len(update) > row_wire.SENT_BYTES:
            self._flush(device, stream)
        stream.outgoing.append(update)
        stream.size += len(update)
        if stream.flush is None:
            alone = stream.unanswered == 1
            stream.flush = (
                loop.call_soon(self._flush, device, stream)
                if alone
                else loop.call_later(HOLD_S, self._flush, device, stream)
            )

    def _flush(self, device: Device, stream: _Stream) -> None:
        if stream.flush is not None:
            stream.flush.cancel()
            stream.flush = None
        if stream.outgoing:
            updates, stream.outgoing, stream.size = stream.outgoing, [], 0
            self._spawn(stream, self._message(device, stream, updates))

    async def _message(self, device: Device, stream: _Stream, updates: list[bytes]) -> None:
        try:
            async with asyncio.timeout(self._client.settings.idle_timeout_s):
                await stream.socket.send_bytes(
                    row_wire.message(updates, self._client.key, authority(device.host, device.port))
                )
        except (TimeoutError, ConnectionError, aiohttp.ClientError):
            # The reader then informs the callers that wait.
            await _close(stream)

    async def _read(self, device: Device, stream: _Stream) -> None:
        """Pass on answers until the stream ends; then all unanswered requests fail."""
        error: SwiftletError = NodeUnreachable(f"{device.address} has ended its row stream")
        try:
            async for message in stream.socket:
                if message.type is not aiohttp.WSMsgType.BINARY:
                    break
                stream.heard_s = self._clock()
                self._learn(stream, row_wire.answers_of(message.data))
                self._flush(device, stream)
        except WireError as garbage:
            error = NodeError(f"{device.address} sent an answer that can't be decoded: {garbage}")
            await _close(stream)
        finally:
            stream.ended = True
            waiting, stream.waiting = stream.waiting, {}
            for one in waiting.values():
                _fail(one.taken, error)
                if one.durable is not None:
                    _fail(one.durable, error)
            await _close(stream)

    def _learn(self, stream: _Stream, answers: Answers) -> None:
        for number, durable in answers.taken.items():
            waiting = stream.waiting.get(number)
            if waiting is None:
                continue
            if durable:
                del stream.waiting[number]
            else:
                waiting.durable = asyncio.get_running_loop().create_future()
            if not waiting.taken.done():
                waiting.taken.set_result(waiting.durable)
        for number, error in answers.refused.items():
            if (refused := stream.waiting.pop(number, None)) is not None:
                _fail(refused.taken, error)
        for number in answers.durable:
            if (synced := stream.waiting.pop(number, None)) is not None and synced.durable is not None:
                synced.durable.set_result(None)
        for number in answers.lost:
            if (lost := stream.waiting.pop(number, None)) is not None and lost.durable is not None:
                _fail(lost.durable, NodeError("the rows may not be durable"))


def _fail(future: asyncio.Future[T], error: SwiftletError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # The callers that wait get the error, and there may be none.


async def _close(stream: _Stream) -> None:
    stream.ended = True
    await stream.socket.close()
