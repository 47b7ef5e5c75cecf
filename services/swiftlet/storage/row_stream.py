"""Row streams at the container server: updates as they come in, one transaction for those of one container that wait.

A proxy keeps one stream to each container server and sends all its rows there; a message costs a fraction of an HTTP
request. See `swiftlet.transport.row_wire` for what is said, `swiftlet.listing.late_sync` for what `later` means.

Fault model: as with HTTP requests anybody may connect and send anything: the request that begins a stream is signed,
and so is each message. A peer that sends faster than its rows are made durable is not read from meanwhile; one that
does not read its answers is cut off after `_SEND_S`. When a stream ends its updates go on, and nobody is told of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from aiohttp import WSMsgType, web

from swiftlet.errors import DeviceFailed, SwiftletError
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseName
from swiftlet.storage.container_metrics import DURATION, REQUESTS
from swiftlet.storage.json_requests import read_signed, refusal
from swiftlet.storage.sharded import ShardedReplicas
from swiftlet.transport import row_wire
from swiftlet.transport.row_wire import Answers, Update
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import error_to_wire
from swiftlet.web.logs import get_logger

_SEND_S = 10.0
"""Seconds for a peer to take an answer."""
_END_S = 5.0
"""Seconds for updates under way when the server ends."""
_log = get_logger("rows")


class RowStreams:
    """All streams of a container server."""

    def __init__(
        self, stores: Mapping[str, ListingStore], sharded: Mapping[str, ShardedReplicas], key: ClusterKey | None
    ) -> None:
        """As for `swiftlet.storage.container_server.ContainerServer`."""
        self._stores = stores
        self._sharded = sharded
        self._key = key
        self._open: set[_Stream] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """One stream, from its beginning to its end."""
        try:
            await read_signed(request, 0, self._key)
        except SwiftletError as error:
            return refusal(error)
        socket = web.WebSocketResponse(max_msg_size=row_wire.MAX_MESSAGE, compress=False, timeout=_SEND_S)
        await socket.prepare(request)
        stream = _Stream(self, socket)
        self._open.add(stream)
        try:
            await stream.run(self._key)
        finally:
            self._open.discard(stream)
        return socket

    async def update(self, update: Update) -> asyncio.Future[None] | None:
        """Merge rows; done when they are durable, None when they are. NotFound, DeviceFailed, NodeBusy, ..."""
        store = self._stores.get(update.device)
        if store is None:
            raise DeviceFailed(f"device {update.device} is not served here")
        containers = self._sharded.get(update.device) or store
        place = update.partition, update.account, update.container
        await containers.update_rows(*place, update.rows, update.later)
        if not update.later:
            return None
        return store.durable(store.id_of(update.partition, DatabaseName(update.account, update.container)))

    async def close(self, _app: web.Application) -> None:
        """End all streams once what is under way is answered; for shutdown."""
        await asyncio.gather(*(stream.end() for stream in self._open))


class _Stream:
    """One connection."""

    def __init__(self, server: RowStreams, socket: web.WebSocketResponse) -> None:
        self._server = server
        self._socket = socket
        self._answers = Answers()
        self._unanswered = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._news = asyncio.Event()
        self._room = asyncio.Event()

    async def run(self, key: ClusterKey | None) -> None:
        """Until the peer or we end it."""
        writer = asyncio.create_task(self._write())
        try:
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY:
                    break
                for update in row_wire.updates_of(message.data, key):
                    self._begin(update)
                while self._unanswered >= row_wire.MAX_UNANSWERED:
                    self._room.clear()
                    await self._room.wait()
        except SwiftletError as error:
            _log.warning("row stream refused", error=str(error))
            await self._socket.close(code=1008, message=str(error).encode()[:100])
        finally:
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)

    async def end(self) -> None:
        """No more updates; those under way are answered, if they are done soon."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=_END_S)
        if not self._answers.empty:
            await self._send()
        await self._socket.close(code=1001, message=b"the server ends")

    def _begin(self, update: Update) -> None:
        self._unanswered += 1
        task = asyncio.create_task(self._one(update))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _one(self, update: Update) -> None:
        begun = time.perf_counter()
        status = 200
        try:
            durable = await self._server.update(update)
        except SwiftletError as error:
            status = error_to_wire(error)[0]
            self._answers.refused[update.number] = error
            self._done()
        except Exception:
            _log.exception("unexpected error", container=f"/{update.account}/{update.container}")
            status = 500
            self._answers.refused[update.number] = SwiftletError("unexpected error; see the container server's log")
            self._done()
        else:
            self._answers.taken[update.number] = durable is None
            if durable is None:
                self._done()
            else:
                durable.add_done_callback(lambda future: self._synced(update.number, future))
        REQUESTS.labels("update_container", str(status)).inc()
        DURATION.labels("update_container").observe(time.perf_counter() - begun)
        self._news.set()

    def _synced(self, number: int, durable: asyncio.Future[None]) -> None:
        failed = durable.cancelled() or durable.exception() is not None
        (self._answers.lost if failed else self._answers.durable).append(number)
        self._done()
        self._news.set()

    def _done(self) -> None:
        self._unanswered -= 1
        self._room.set()

    async def _write(self) -> None:
        """Answers as they are there, those of one moment together."""
        while True:
            await self._news.wait()
            self._news.clear()
            try:
                async with asyncio.timeout(_SEND_S):
                    await self._send()
            except (ConnectionError, TimeoutError) as error:
                _log.info("row stream cut off", error=repr(error))
                await self._socket.close(code=1008, drain=False)
                return

    async def _send(self) -> None:
        answers, self._answers = self._answers, Answers()
        if not answers.empty:
            await self._socket.send_bytes(row_wire.answers_bytes(answers))
