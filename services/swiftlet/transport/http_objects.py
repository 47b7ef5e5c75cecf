"""`ObjectTransport` over HTTP/1.1.

A small PUT is one request: record, data and footer in one body. A large one is a request whose answer begins before
its body ends: the node answers 200 once it will take the data (or refuses with a status), and the outcome
follows as the answer's body when the footer has arrived. Frames: `swiftlet.transport.wire`.

Fault model: see `swiftlet.transport.http_client`. An upload that is given up, or whose sender dies, never sends
its footer and closes the connection, so the node drops it. A download's length is known from its head; if it
ends early that is a NodeError, whatever closed the connection.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, TypeVar

import aiohttp

from swiftlet.boundaries.objects import ContainerUpdate, Marks, PendingDoubt, Run, RunPart, Verdict, WriteReply
from swiftlet.errors import NodeError, NodeTimeout, SizeMismatch, SwiftletError
from swiftlet.model import Entry, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport import sync_wire
from swiftlet.transport.http_client import (
    HttpSettings,
    NodeClient,
    TlsOf,
    finish,
    no_tls,
    node_errors,
    read_body,
    refusal,
)
from swiftlet.transport.object_messages import (
    HEAD_QUERY,
    JUDGE,
    PROVED_QUERY,
    REMOVE,
    STREAM_QUERY,
    delete_json,
    device_path,
    doubt_from,
    entry_from,
    entry_json,
    footer_json,
    hashes_from,
    info_from,
    numbers_from,
    object_path,
    post_json,
    put_json,
    reply_from,
    verdict_json,
)
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.sync_streams import SyncStreams
from swiftlet.transport.wire import (
    END_OF_DATA,
    LENGTH_SIZE,
    MAX_DATA_FRAME,
    MAX_FOOTER_FRAME,
    MAX_HEADER_FRAME,
    MAX_JSON_BODY,
    array,
    error_from_wire,
    flag,
    frame,
    frame_length,
    json_bytes,
    json_object,
    length_prefix,
)

T = TypeVar("T")

_JOIN_BYTES = 64 * 1024
"""Bodies up to this size are joined with their frames into one buffer: one copy is cheaper than three writes."""
_PADDED_FOOTER = 256
"""Bytes of a streamed upload's footer, filled up with spaces: the request's length is known before its ETag."""


class HttpObjectTransport:
    """Objects on other nodes' devices, over a shared pool of connections."""

    def __init__(
        self, settings: HttpSettings | None = None, key: ClusterKey | None = None, tls: TlsOf = no_tls
    ) -> None:
        """Take the arguments of `NodeClient`."""
        self._client = NodeClient(settings, key, tls)
        self._streams = SyncStreams(self._client)

    def connected(self) -> frozenset[tuple[str, int]]:
        """Host and port of the nodes that a connection is open to."""
        return self._client.connected()

    async def put(
        self,
        device: Device,
        key: ObjectKey,
        record: PutRecord,
        body: bytes,
        footer: PutFooter,
        row: ContainerUpdate | None,
    ) -> WriteReply:
        """Store a small object in one round trip."""
        header = json_bytes(put_json(record, len(body), row))
        end = END_OF_DATA + frame(json_bytes(footer_json(footer)))
        frames = -(-len(body) // MAX_DATA_FRAME)
        length = LENGTH_SIZE + len(header) + frames * LENGTH_SIZE + len(body) + len(end)
        if length <= _JOIN_BYTES:
            data: Any = b"".join((frame(header), length_prefix(len(body)) if body else b"", body, end))
        else:
            data = _pieces(frame(header), body, end)
        answer = await self._client.call(device, "PUT", object_path(device.device, key), data, header, length)
        return _parse(device, lambda: reply_from(json_object(answer)))

    async def open_put(
        self, device: Device, key: ObjectKey, record: PutRecord, size: int | None, row: ContainerUpdate | None
    ) -> HttpPutStream:
        """Begin a large object; returns once the device said that it will take it."""
        header = json_bytes(put_json(record, size, row))
        pipe = _Pipe(frame(header), size, self._client.settings.window_bytes)
        target = f"{object_path(device.device, key)}?{STREAM_QUERY}=1"
        try:
            response = await self._client.start(device, "PUT", target, pipe.pieces(), header, pipe.length)
        except BaseException:
            pipe.close()
            raise
        if response.status >= 400:
            pipe.close()
            try:
                raise await refusal(response, device, self._client.settings.idle_timeout_s)
            finally:
                response.close()
        return HttpPutStream(device, response, pipe, size, self._client.settings)

    async def get(
        self, device: Device, key: ObjectKey, start: int = 0, stop: int | None = None, *, proved: bool = False
    ) -> HttpGetStream:
        """Read bytes `[start, stop)`."""
        query = f"?start={start}" + ("" if stop is None else f"&stop={stop}") + _proved(proved)
        idle_s = self._client.settings.idle_timeout_s
        response = await self._client.start(device, "GET", object_path(device.device, key) + query)
        try:
            if response.status >= 400:
                raise await refusal(response, device, idle_s)
            async with node_errors(device, idle_s):
                length = frame_length(await response.content.readexactly(LENGTH_SIZE), MAX_HEADER_FRAME)
                info = info_from(await response.content.readexactly(length))
        except BaseException:
            finish(response)
            raise
        expected = max(0, min(info.size, info.size if stop is None else stop) - start)
        return HttpGetStream(device, response, info, expected, idle_s)

    def runs(self, device: Device) -> bool:
        """There are none over HTTP: each object is a request of its own."""
        return False

    def open_run(self, parts: Sequence[RunPart], marks: Marks) -> Run:
        """Raise NodeError: devices are not asked for runs over HTTP."""
        raise NodeError(f"{parts[0].device.address} is not asked for runs over HTTP")

    async def head(self, device: Device, key: ObjectKey, *, proved: bool = False) -> ObjectInfo:
        """Return an object's description."""
        target = f"{object_path(device.device, key)}?{HEAD_QUERY}=1{_proved(proved)}"
        answer = await self._client.call(device, "GET", target)
        return _parse(device, lambda: info_from(answer))

    async def post(
        self,
        device: Device,
        key: ObjectKey,
        record: PostRecord,
        row: ContainerUpdate | None = None,
        *,
        proved: bool = False,
    ) -> WriteReply:
        """Replace an object's metadata."""
        return await self._write(device, "POST", object_path(device.device, key), post_json(record, row, proved))

    async def delete(
        self, device: Device, key: ObjectKey, timestamp: Timestamp, name: str, row: ContainerUpdate | None
    ) -> WriteReply:
        """Store a tombstone for an object."""
        body = delete_json(timestamp, name, row)
        return await self._write(device, "DELETE", object_path(device.device, key), body)

    async def acknowledge(self, device: Device, written: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Nothing is to be done: these servers bring their rows themselves and never answer PENDING."""

    async def _write(self, device: Device, method: str, target: str, message: dict[str, Any]) -> WriteReply:
        body = json_bytes(message)
        answer = await self._client.call(device, method, target, body, body)
        return _parse(device, lambda: reply_from(json_object(answer)))

    async def policies(self, device: Device) -> list[int]:
        """Storage policies with anything on the device."""
        answer = await self._client.call(device, "GET", device_path(device.device))
        return _parse(device, lambda: numbers_from(json_object(answer), "policies"))

    async def partitions(self, device: Device, policy: int) -> list[int]:
        """Partitions with anything in them."""
        answer = await self._client.call(device, "GET", device_path(device.device, policy))
        return _parse(device, lambda: numbers_from(json_object(answer), "partitions"))

    async def suffix_hashes(self, device: Device, policy: int, partition: int) -> Mapping[str, bytes]:
        """Set hash per suffix."""
        answer = await self._client.call(device, "GET", device_path(device.device, policy, partition))
        return _parse(device, lambda: hashes_from(json_object(answer)))

    async def entries(self, device: Device, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Return the device's entries in a suffix."""
        target = device_path(device.device, policy, partition, "suffixes", suffix)
        answer = await self._client.call(device, "GET", target)
        return _parse(device, lambda: [entry_from(value) for value in array(json_object(answer), "entries")])

    async def judge(self, device: Device, verdict: Verdict) -> PendingDoubt | None:
        """Tell a device of its partitions."""
        body = json_bytes(verdict_json(verdict))
        answer = await self._client.call(device, "POST", device_path(device.device, JUDGE), body, body)
        return _parse(device, lambda: doubt_from(json_object(answer)))

    async def ask(self, device: Device, message: bytes) -> bytes:
        """The answer to a question of a sync session, over the stream to the device's server."""
        return await self._streams.ask(device, sync_wire.QUESTION, message)

    async def read_copies(self, device: Device, wanted: bytes) -> bytes:
        """Copies of many objects, over the stream."""
        return await self._streams.ask(device, sync_wire.READ, wanted)

    async def take_copies(self, device: Device, copies: bytes) -> bytes:
        """Store copies on a device, over the stream."""
        return await self._streams.ask(device, sync_wire.WRITE, copies)

    async def remove(self, device: Device, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy."""
        body = json_bytes({"entry": entry_json(entry)})
        target = f"{object_path(device.device, key)}/{REMOVE}"
        answer = await self._client.call(device, "POST", target, body, body)
        return _parse(device, lambda: flag(json_object(answer), "removed"))

    async def close(self) -> None:
        await self._streams.close()
        await self._client.close()


def _proved(proved: bool) -> str:
    return f"&{PROVED_QUERY}=1" if proved else ""


async def _pieces(head: bytes, body: bytes, end: bytes) -> AsyncIterator[bytes | memoryview]:
    """A PUT's body without copying the data."""
    yield head
    view = memoryview(body)
    for offset in range(0, len(body), MAX_DATA_FRAME):
        piece = view[offset : offset + MAX_DATA_FRAME]
        yield length_prefix(len(piece))
        yield piece
    yield end


def _parse(device: Device, parse: Callable[[], T]) -> T:
    """Decode a peer's answer; NodeError when it is malformed."""
    try:
        return parse()
    except SwiftletError as error:
        raise NodeError(f"{device.address} sent garbage: {error}") from error


class _Pipe:
    """From the writer of an upload to its request's body: bounded, and without copying chunks.

    With a known size all frames but the last are of full length, whatever the chunks are, so that the length of
    the whole body is known and HTTP's own chunking (which copies) is not needed.
    """

    def __init__(self, header: bytes, size: int | None, window: int) -> None:
        self._queue: deque[bytes | memoryview] = deque((header,))
        self._waiting = 0
        self._window = window
        self._left = size
        self._frame_left = 0
        self._more = asyncio.Event()
        self._room = asyncio.Event()
        self._ended = False
        self.length: int | None = None
        if size is not None:
            frames = -(-size // MAX_DATA_FRAME)
            fixed = len(header) + len(END_OF_DATA) + LENGTH_SIZE + _PADDED_FOOTER
            self.length = fixed + frames * LENGTH_SIZE + size

    @property
    def full(self) -> bool:
        """Whether the writer has to wait."""
        return self._waiting >= self._window

    async def room(self) -> None:
        """Wait until the writer need not wait."""
        while self.full:
            self._room.clear()
            await self._room.wait()

    def feed(self, chunk: bytes | memoryview) -> None:
        """Frame a chunk and hand it on."""
        view = memoryview(chunk).cast("B")
        while len(view):
            if not self._frame_left:
                self._frame_left = min(MAX_DATA_FRAME, len(view) if self._left is None else self._left)
                self._queue.append(length_prefix(self._frame_left))
            piece, view = view[: self._frame_left], view[self._frame_left :]
            self._queue.append(piece)
            self._waiting += len(piece)
            self._frame_left -= len(piece)
            if self._left is not None:
                self._left -= len(piece)
        self._more.set()

    def end(self, footer: PutFooter) -> None:
        """Hand on the footer and end the body."""
        self._queue.append(END_OF_DATA + frame(json_bytes(footer_json(footer)).ljust(_PADDED_FOOTER)))
        self.close()

    def close(self) -> None:
        """End the body here."""
        self._ended = True
        self._more.set()

    async def pieces(self) -> AsyncIterator[bytes | memoryview]:
        """Yield the pieces of the body as they come."""
        while True:
            while self._queue:
                piece = self._queue.popleft()
                yield piece
                if isinstance(piece, memoryview):
                    self._waiting -= len(piece)
                    self._room.set()
            if self._ended:
                return
            self._more.clear()
            await self._more.wait()


class HttpPutStream:
    """A large object on its way to one device."""

    def __init__(
        self,
        device: Device,
        response: aiohttp.ClientResponse,
        pipe: _Pipe,
        size: int | None,
        settings: HttpSettings,
    ) -> None:
        """`response` has begun: the device is ready."""
        self._device = device
        self._response = response
        self._pipe = pipe
        self._size = size
        self._sent = 0
        self._settings = settings
        self._outcome = asyncio.ensure_future(self._read_outcome())

    async def _read_outcome(self) -> WriteReply | SwiftletError:
        """The answer's body: comes after the footer, or earlier when the device gave up."""
        try:
            answer = await read_body(self._response, self._device, _FOREVER_S, MAX_JSON_BODY)
            fields = json_object(answer)
            if "error" in fields:
                return error_from_wire(500, fields)
            return reply_from(fields)
        except NodeError as error:
            return error
        except SwiftletError as error:
            return NodeError(f"{self._device.address} sent garbage: {error}")

    async def write(self, chunk: bytes | memoryview) -> None:
        """Hand over a chunk; returns when there is room for the next one."""
        size = memoryview(chunk).nbytes
        if self._size is not None and self._sent + size > self._size:
            raise SizeMismatch(f"more than the {self._size} bytes that were announced")
        self._raise_early_end()
        self._sent += size
        self._pipe.feed(chunk)
        if self._pipe.full:
            await self._wait_for_room()

    async def _wait_for_room(self) -> None:
        room = asyncio.ensure_future(self._pipe.room())
        try:
            done, _ = await asyncio.wait(
                {room, self._outcome}, timeout=self._settings.idle_timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            room.cancel()
        if not done:
            await self.abort()
            raise NodeTimeout(f"{self._device.address} took no data for {self._settings.idle_timeout_s:g} s")
        if room not in done:
            self._raise_early_end()

    def _raise_early_end(self) -> None:
        if self._outcome.done() and not self._outcome.cancelled():
            self._drop()
            outcome = self._outcome.result()
            if isinstance(outcome, SwiftletError):
                raise outcome
            raise NodeError(f"{self._device.address} answered before it had the whole object")

    async def commit(self, footer: PutFooter) -> WriteReply:
        """Finish; returns once durable."""
        if self._size is not None and self._sent != self._size:
            await self.abort()
            raise SizeMismatch(f"{self._sent} of the {self._size} bytes that were announced")
        self._raise_early_end()
        self._pipe.end(footer)
        done, _ = await asyncio.wait({self._outcome}, timeout=self._settings.answer_timeout_s)
        if not done:
            await self.abort()
            raise NodeTimeout(f"{self._device.address} did not answer within {self._settings.answer_timeout_s:g} s")
        outcome = self._outcome.result()
        if isinstance(outcome, SwiftletError):
            self._drop()
            raise outcome
        finish(self._response)
        return outcome

    async def abort(self) -> None:
        """Give up; the device keeps nothing."""
        if not self._outcome.done():
            self._outcome.cancel()
            await asyncio.wait({self._outcome})
        self._drop()

    def _drop(self) -> None:
        """Close the connection, which tells the device that no footer will come."""
        self._response.close()
        self._pipe.close()


_FOREVER_S = 365 * 86400.0
"""For waits that something else bounds: an upload's outcome, by its writer's own waits."""

assert _PADDED_FOOTER <= MAX_FOOTER_FRAME


class HttpGetStream:
    """An object on its way from one device."""

    def __init__(
        self, device: Device, response: aiohttp.ClientResponse, info: ObjectInfo, expected: int, idle_s: float
    ) -> None:
        """`response` stands at the first byte of data."""
        self._device = device
        self._response = response
        self._info = info
        self._left = expected
        self._idle_s = idle_s

    @property
    def info(self) -> ObjectInfo:
        """The object as this device has it."""
        return self._info

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes asked for; NodeError if they end early."""
        while self._left > 0:
            async with node_errors(self._device, self._idle_s):
                chunk = await self._response.content.readany()
            if not chunk:
                raise NodeError(f"{self._device.address} ended {self._left} bytes early")
            self._left -= len(chunk)
            if self._left < 0:
                raise NodeError(f"{self._device.address} sent more than was asked for")
            yield chunk
        finish(self._response)

    async def close(self) -> None:
        """Stop and let go of the connection; a half-read one is closed."""
        finish(self._response)
