"""GET on the object server: the object's description as first frame, then its bytes.

The body's length is in the head, so an answer that breaks off can't be taken for a whole one. A client that
takes nothing for `idle_s` is cut off; a stream holds at most the piece being sent and the one being read.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from aiohttp import web

from swiftlet.errors import SwiftletError
from swiftlet.model import ObjectKey
from swiftlet.servers.objects.metrics import SENT
from swiftlet.servers.objects.object_device import ObjectDevice
from swiftlet.servers.objects.object_requests import OUTCOME, at_work, json_answer, note_failure, object_key
from swiftlet.store.protocol import ObjectReader, Store
from swiftlet.transport.object_messages import HEAD_QUERY, PROVED_QUERY, info_json, parse_index
from swiftlet.transport.wire import FRAMES_TYPE, frame, json_bytes

CHUNK_BYTES = 512 * 1024
"""Bytes read from the device at a time."""


@dataclass(frozen=True, slots=True)
class _Opened:
    """A reader, the range it is asked for, and the range's first piece."""

    reader: ObjectReader
    start: int
    stop: int
    first: bytes


def _open(store: Store, key: ObjectKey, start: int, stop: int | None) -> _Opened:
    """Open and read the first piece in one go; a range that is exhausted by it leaves nothing open."""
    reader = store.open(key)
    try:
        size = reader.info.size
        end = size if stop is None else min(stop, size)
        begin = min(start, end)
        opened = _Opened(reader, begin, end, reader.read(begin, min(CHUNK_BYTES, end - begin)))
        if begin + len(opened.first) == end:
            reader.close()
        return opened
    except BaseException:
        reader.close()
        raise


async def get(device: ObjectDevice, request: web.Request, idle_s: float) -> web.StreamResponse:
    """Handle a GET; with `?head` only the description."""
    query = request.query
    key = object_key(request)
    with at_work(device.pool):
        if PROVED_QUERY in query:
            device.check_proved(key)
        if HEAD_QUERY in query:
            return json_answer(info_json(await device.pool.run(device.store.stat, key)))
        start = parse_offset("start", query.get("start", "0"))
        stop = parse_offset("stop", query["stop"]) if "stop" in query else None
        opened = await device.pool.run(_open, device.store, key, start, stop)
        head = frame(json_bytes(info_json(opened.reader.info)))
        SENT.labels(device.name).inc(len(opened.first))
        if opened.start + len(opened.first) == opened.stop:
            return web.Response(body=head + opened.first, content_type=FRAMES_TYPE)
        try:
            return await _stream(device, request, opened, head, idle_s)
        finally:
            opened.reader.close()


def parse_offset(name: str, value: str) -> int:
    """A byte offset out of a query."""
    return int(value) if value.isascii() and value.isdigit() and len(value) <= 19 else parse_index(name, value)


async def _stream(
    device: ObjectDevice, request: web.Request, opened: _Opened, head: bytes, idle_s: float
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": FRAMES_TYPE})
    response.content_length = len(head) + opened.stop - opened.start
    try:
        async with asyncio.timeout(idle_s):
            await response.prepare(request)
            await response.write(head)
        await _send_rest(device, response, opened, idle_s)
    except (TimeoutError, ConnectionError):
        request[OUTCOME] = "client-gone"
        _cut(request)
    except SwiftletError as error:
        request[OUTCOME] = type(error).__name__
        note_failure(device.name, "get", error)
        _cut(request)
    return response


async def _send_rest(device: ObjectDevice, response: web.StreamResponse, opened: _Opened, idle_s: float) -> None:
    """Send piece after piece, the next one being read while one is sent."""
    sent = SENT.labels(device.name)
    piece, position = opened.first, opened.start
    while piece:
        position += len(piece)
        wanted = min(CHUNK_BYTES, opened.stop - position)
        reading = asyncio.create_task(device.pool.run(opened.reader.read, position, wanted)) if wanted else None
        try:
            async with asyncio.timeout(idle_s):
                await response.write(piece)
        finally:
            if reading is not None:
                await asyncio.wait({reading})
        piece = reading.result() if reading is not None else b""
        sent.inc(len(piece))
    async with asyncio.timeout(idle_s):
        await response.write_eof()


def _cut(request: web.Request) -> None:
    """End a half-sent answer so that nobody takes it for whole."""
    if request.transport is not None:
        request.transport.abort()
