"""Row streams at the container server: the waiting updates of one container go into one transaction.

A proxy keeps one stream to each container server and sends all its rows there; a message costs a fraction of an HTTP
request. `swiftlet.transport.row_wire` defines the messages, `swiftlet.listing.late_sync` explains `later`. An update
has no task of its own: the database calls back when it has merged the rows, and the answers of one turn of the event
loop go out as one message.

Fault model: as with HTTP requests anybody may connect and send anything: the request that begins a stream is signed,
and so is each message. While a peer sends faster than its rows are made durable, nothing is read from it. A peer that
does not read its answers gets no more of them, and is disconnected after `SEND_S`. When a stream ends its updates go
on, and their outcome is reported to nobody.

Invariant: `_done` is called exactly once for each update that was begun, because the stream and its end wait on the
counts of updates in progress and of those without an answer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

from aiohttp import WSMsgType, web

from swiftlet.errors import DeviceFailed, SwiftletError
from swiftlet.listing.pool import ListingStore, RowsTaker
from swiftlet.model import DatabaseId, DatabaseName
from swiftlet.servers.containers.container_metrics import DURATION, REQUESTS
from swiftlet.servers.containers.row_decode import Arrived, arrived
from swiftlet.servers.shared.json_requests import read_signed, refusal
from swiftlet.servers.shared.sockets import SEND_S, open_socket
from swiftlet.sharding.sharded import ShardedReplicas
from swiftlet.transport import row_wire
from swiftlet.transport.row_wire import Answers
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import error_to_wire
from swiftlet.web.logs import get_logger

_AGAIN_S = 0.02
"""Seconds between checks whether a peer has read an answer that could not be sent at once."""
_END_S = 5.0
"""Seconds that updates in progress get when the server ends."""
_KNOWN = 10_000
"""The number of containers whose destination is cached."""
_DURATION = DURATION.labels("update_container")
_TAKEN = REQUESTS.labels("update_container", "200")
_log = get_logger("rows")


class _Place(NamedTuple):
    """The destination of a container's rows."""

    store: ListingStore
    taker: RowsTaker
    id: DatabaseId
    name: DatabaseName


class RowStreams:
    """All streams of container updates of a server."""

    def __init__(
        self, stores: Mapping[str, ListingStore], sharded: Mapping[str, ShardedReplicas], key: ClusterKey | None
    ) -> None:
        """Take the same arguments as `swiftlet.servers.containers.container_server.ContainerServer`."""
        self._stores = stores
        self._sharded = sharded
        self._key = key
        self._open: set[_Stream] = set()
        self._places: dict[tuple[str, int, str, str], _Place] = {}

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Serve one stream from its beginning to its end."""
        try:
            await read_signed(request, 0, self._key)
        except SwiftletError as error:
            return refusal(error)
        socket, connection = await open_socket(request, row_wire.MAX_MESSAGE)
        stream = _Stream(self, socket, connection)
        self._open.add(stream)
        try:
            await stream.run(self._key, request.headers.get("Host", ""))
        finally:
            self._open.discard(stream)
        return socket

    def place(self, update: Arrived) -> _Place:
        """Return what receives an update's rows. Raises DeviceFailed."""
        key = update.device, update.partition, update.account, update.container
        place = self._places.get(key)
        if place is None:
            store = self._stores.get(update.device)
            if store is None:
                raise DeviceFailed(f"device {update.device} is not served here")
            if len(self._places) >= _KNOWN:
                self._places.clear()
            name = DatabaseName(update.account, update.container)
            taker = self._sharded.get(update.device) or store
            place = self._places[key] = _Place(store, taker, store.id_of(update.partition, name), name)
        return place

    async def close(self, _app: web.Application) -> None:
        """End all streams at shutdown, once requests in progress are answered."""
        await asyncio.gather(*(stream.end() for stream in self._open))


class _Stream:
    """One connection of a row stream."""

    def __init__(self, server: RowStreams, socket: web.WebSocketResponse, transport: asyncio.Transport) -> None:
        self._server = server
        self._socket = socket
        self._transport = transport
        self._loop = asyncio.get_running_loop()
        self._answers = Answers()
        self._merging = 0
        self._merged = asyncio.Event()
        self._unanswered = 0
        self._room = asyncio.Event()
        self._unsynced: dict[asyncio.Future[None], list[int]] = {}
        self._sending: asyncio.Handle | None = None
        self._stuck_s: float | None = None

    async def run(self, key: ClusterKey | None, host: str) -> None:
        """Serve the stream until either side ends it; each message is signed for `host`, as the request was."""
        try:
            async for message in self._socket:
                if message.type is not WSMsgType.BINARY:
                    break
                for update in arrived(message.data, key, host):
                    self._begin(update)
                while self._unanswered >= row_wire.MAX_UNANSWERED:
                    self._room.clear()
                    await self._room.wait()
        except SwiftletError as error:
            _log.warning("a stream of container updates was refused", error=str(error))
            await self._socket.close(code=1008, message=str(error).encode()[:100])
        finally:
            if self._sending is not None:
                self._sending.cancel()

    async def end(self) -> None:
        """Accept no more updates; those in progress are answered if they end soon."""
        if self._merging:
            self._merged.clear()
            try:
                async with asyncio.timeout(_END_S):
                    await self._merged.wait()
            except TimeoutError:
                _log.info("a stream of container updates ends while updates are in progress", updates=self._merging)
        self._send()
        await self._socket.close(code=1001, message=b"the server ends")

    def _begin(self, update: Arrived) -> None:
        self._unanswered += 1
        self._merging += 1
        begun = time.perf_counter()
        try:
            place = self._server.place(update)
            done = partial(self._done, update, place, begun)
            place.taker.submit_rows(place.id, place.name, update.rows, update.grows, update.later, done)
        except Exception as error:  # The error belongs to this update, which gets it as its answer, whatever it is.
            self._done(update, None, begun, None, error)

    def _done(
        self, update: Arrived, place: _Place | None, begun: float, _value: Any, error: BaseException | None
    ) -> None:
        """Note that the rows of an update were merged, or the error."""
        if error is None and place is not None:
            _TAKEN.inc()
            durable = place.store.durable(place.id) if update.later else None
            self._answers.taken[update.number] = durable is None
            if durable is None:
                self._answered(1)
            elif durable in self._unsynced:
                self._unsynced[durable].append(update.number)
            else:
                self._unsynced[durable] = [update.number]
                durable.add_done_callback(self._synced)
        else:
            if not isinstance(error, SwiftletError):
                _log.error("unexpected error", container=f"/{update.account}/{update.container}", exc_info=error)
                error = SwiftletError("unexpected error; see the container server's log")
            REQUESTS.labels("update_container", str(error_to_wire(error)[0])).inc()
            self._answers.refused[update.number] = error
            self._answered(1)
        _DURATION.observe(time.perf_counter() - begun)
        self._merging -= 1
        if not self._merging:
            self._merged.set()
        self._send_soon()

    def _synced(self, durable: asyncio.Future[None]) -> None:
        numbers = self._unsynced.pop(durable)
        failed = durable.cancelled() or durable.exception() is not None
        (self._answers.lost if failed else self._answers.durable).extend(numbers)
        self._answered(len(numbers))
        self._send_soon()

    def _answered(self, count: int) -> None:
        self._unanswered -= count
        self._room.set()

    def _send_soon(self) -> None:
        """Plan to send the answers at the end of this turn of the event loop."""
        if self._sending is None:
            self._sending = self._loop.call_soon(self._send)

    def _send(self) -> None:
        """Send the answers that are ready, unless the last ones have not been sent yet."""
        self._sending = None
        if self._answers.empty or self._transport.is_closing():
            return
        if self._transport.get_write_buffer_size():
            now_s = self._loop.time()
            self._stuck_s = self._stuck_s or now_s
            if now_s - self._stuck_s > SEND_S:
                _log.info("a stream of container updates was cut off", error="the peer does not read the answers")
                self._transport.abort()
                return
            self._sending = self._loop.call_later(_AGAIN_S, self._send)
            return
        self._stuck_s = None
        answers, self._answers = self._answers, Answers()
        self._transport.write(_frame(row_wire.answers_bytes(answers)))


def _frame(payload: bytes) -> bytes:
    """Return a WebSocket message of binary data from a server, as RFC 6455 specifies it: one frame, not masked."""
    size = len(payload)
    if size < 126:
        return bytes((0x82, size)) + payload
    if size < 1 << 16:
        return b"\x82\x7e" + size.to_bytes(2, "big") + payload
    return b"\x82\x7f" + size.to_bytes(8, "big") + payload
