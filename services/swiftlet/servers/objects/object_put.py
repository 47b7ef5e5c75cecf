"""PUT on the object server: small objects in one go, large ones as a stream.

Fault model: a sender may die at any byte; without a footer that matches what arrived the store's writer is
dropped, so nothing of it is ever visible. A sender faster than the disk is held back by not reading: at most
two batches are in memory per stream. A disk that fails in the middle is reported at once, before the sender
has sent the rest.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from swiftlet.boundaries.objects import ContainerUpdate, UpdateOutcome, WriteReply
from swiftlet.errors import NotFound, Superseded, SwiftletError
from swiftlet.model import ObjectKey, ObjectRow, PutFooter, PutRecord
from swiftlet.servers.objects.frames import BodyReader
from swiftlet.servers.objects.metrics import RECEIVED
from swiftlet.servers.objects.object_device import ObjectDevice
from swiftlet.servers.objects.object_requests import (
    OUTCOME,
    RequestGuard,
    at_work,
    error_answer,
    json_answer,
    note_failure,
    object_key,
)
from swiftlet.store.protocol import ObjectWriter, Store
from swiftlet.transport.object_messages import READY_STATUS, STREAM_QUERY, footer_from, put_from, reply_json, row_name
from swiftlet.transport.wire import (
    JSON_TYPE,
    LENGTH_SIZE,
    MAX_DATA_FRAME,
    MAX_FOOTER_FRAME,
    MAX_HEADER_FRAME,
    WireError,
    error_to_wire,
    frame_length,
    json_bytes,
    json_object,
)

SMALL_BYTES = MAX_DATA_FRAME + 16 * 1024
"""A body up to this size is read whole and stored by one call on one thread."""


@dataclass(frozen=True, slots=True)
class _SmallPut:
    """A whole PUT in memory; `data` are views into the body."""

    header: bytes
    data: list[memoryview]
    footer: PutFooter


def parse_small(body: bytes) -> _SmallPut:
    """Take a whole PUT body apart; WireError for anything but header, data, footer and the end."""
    view = memoryview(body)
    position = 0

    def take(limit: int) -> memoryview:
        nonlocal position
        start = position + LENGTH_SIZE
        if start > len(view):
            raise WireError("the message is cut off")
        end = start + frame_length(view[position:start], limit)
        if end > len(view):
            raise WireError("the message is cut off in the middle of a frame")
        position = end
        return view[start:end]

    header = bytes(take(MAX_HEADER_FRAME))
    data = []
    while len(piece := take(MAX_DATA_FRAME)):
        data.append(piece)
    footer = footer_from(json_object(take(MAX_FOOTER_FRAME)))
    if position != len(view):
        raise WireError("there are bytes behind the end of the message")
    return _SmallPut(header, data, footer)


def _store_small(store: Store, key: ObjectKey, record: PutRecord, put: _SmallPut) -> None:
    writer = store.create(key, put.footer.size)
    try:
        _write(writer, put.data)
        writer.commit(record, put.footer)
    finally:
        writer.abort()


def _write(writer: ObjectWriter, pieces: Sequence[bytes | memoryview]) -> None:
    for piece in pieces:
        writer.write(piece)


def _begin(store: Store, key: ObjectKey, record: PutRecord, size: int | None) -> ObjectWriter:
    """Open a writer, unless it is clear already that the version would lose."""
    try:
        newest = store.stat(key).timestamp
    except NotFound as error:
        newest = error.timestamp or record.timestamp
    if newest > record.timestamp:
        raise Superseded(f"{record.name} is already at {newest}", newest)
    return store.create(key, size)


async def put(guard: RequestGuard, device: ObjectDevice, request: web.Request, idle_s: float) -> web.StreamResponse:
    """Handle a PUT. A refusal is answered at once, while the sender may still be sending."""
    body = BodyReader(request, idle_s)
    try:
        with at_work(device.pool):
            return await _put(guard, device, request, body)
    except SwiftletError as error:
        request[OUTCOME] = type(error).__name__
        note_failure(device.name, "put", error)
        return await _answer_early(request, error_answer(error), body)


async def _answer_early(request: web.Request, response: web.Response, body: BodyReader) -> web.StreamResponse:
    try:
        await response.prepare(request)
        await response.write_eof()
    except ConnectionError:
        return response  # The sender is gone.
    await body.discard(request)
    return response


async def _put(guard: RequestGuard, device: ObjectDevice, request: web.Request, body: BodyReader) -> web.StreamResponse:
    if STREAM_QUERY in request.query:
        return await _put_stream(guard, device, request, body)
    length = request.content_length
    if length is not None and length <= SMALL_BYTES:
        return await _put_small(guard, device, request, await body.exactly(length))
    return await _put_large(guard, device, request, body)


async def _put_small(
    guard: RequestGuard, device: ObjectDevice, request: web.Request, body: bytes
) -> web.StreamResponse:
    put = parse_small(body)
    guard.check(request, put.header)
    record, _, row = put_from(json_object(put.header))
    device.check_outbox(row)
    await device.pool.run(_store_small, device.store, object_key(request), record, put)
    RECEIVED.labels(device.name).inc(put.footer.size)
    return json_answer(reply_json(await _list(device, record, put.footer, row)))


@dataclass(frozen=True, slots=True)
class _Begun:
    """A PUT whose header has been accepted."""

    record: PutRecord
    row: ContainerUpdate | None
    writer: ObjectWriter


async def _accept(guard: RequestGuard, device: ObjectDevice, request: web.Request, body: BodyReader) -> _Begun:
    """Read the header and open the writer; whatever speaks against the PUT is raised here, before its data."""
    header = await body.frame(MAX_HEADER_FRAME)
    guard.check(request, header)
    record, size, row = put_from(json_object(header))
    device.check_outbox(row)
    return _Begun(record, row, await device.pool.run(_begin, device.store, object_key(request), record, size))


async def _finish(device: ObjectDevice, begun: _Begun, body: BodyReader) -> WriteReply:
    """Receive the data, commit, list."""
    footer = await _receive(device, body, begun.writer)
    await device.pool.run(begun.writer.commit, begun.record, footer)
    return await _list(device, begun.record, footer, begun.row)


async def _put_large(
    guard: RequestGuard, device: ObjectDevice, request: web.Request, body: BodyReader
) -> web.StreamResponse:
    """A PUT in one request whose body is too large to hold."""
    begun = await _accept(guard, device, request, body)
    try:
        return json_answer(reply_json(await _finish(device, begun, body)))
    finally:
        await device.pool.run(begun.writer.abort)


async def _put_stream(
    guard: RequestGuard, device: ObjectDevice, request: web.Request, body: BodyReader
) -> web.StreamResponse:
    """A PUT whose sender waits for the head of the answer before it sends data; the outcome is the body."""
    begun = await _accept(guard, device, request, body)
    try:
        response = web.StreamResponse(status=READY_STATUS, headers={"Content-Type": JSON_TYPE})
        await response.prepare(request)
        try:
            answer = reply_json(await _finish(device, begun, body))
        except SwiftletError as error:
            request[OUTCOME] = type(error).__name__
            note_failure(device.name, "put", error)
            answer = error_to_wire(error)[1]
        await _end_stream(request, response, answer, body)
        return response
    finally:
        await device.pool.run(begun.writer.abort)


async def _end_stream(
    request: web.Request, response: web.StreamResponse, answer: dict[str, Any], body: BodyReader
) -> None:
    try:
        await response.write_eof(json_bytes(answer))
        await body.discard(request)
    except ConnectionError:
        request[OUTCOME] = "sender-gone"


async def _receive(device: ObjectDevice, body: BodyReader, writer: ObjectWriter) -> PutFooter:
    """Write the data frames, one batch on the thread while the next one arrives; the footer."""
    received = RECEIVED.labels(device.name)
    writing: asyncio.Task[None] | None = None
    try:
        async for batch in body.batches():
            if writing is not None:
                await writing
            writing = asyncio.create_task(device.pool.run(_write, writer, batch))
            received.inc(sum(map(len, batch)))
        footer = footer_from(json_object(await body.frame(MAX_FOOTER_FRAME)))
        await body.end()
        if writing is not None:
            await writing
        return footer
    except BaseException:
        if writing is not None:
            await asyncio.wait({writing})  # The writer must be still before it is dropped.
            if not writing.cancelled():
                writing.exception()
        raise


async def _list(device: ObjectDevice, record: PutRecord, footer: PutFooter, row: ContainerUpdate | None) -> WriteReply:
    """Bring the new version's row to its container."""
    if row is None:
        return WriteReply(UpdateOutcome.NONE)
    name = row_name(record.name, row)
    listed = ObjectRow(name, record.timestamp, footer.size, footer.etag, record.content_type)
    return WriteReply(await device.rows.send(row, listed))
