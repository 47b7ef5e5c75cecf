"""Turns a readable into a response: conditions, ranges, headers, and bytes with bounded memory.

Fault model: the client may stop taking bytes or go away; the source may break off at any byte. Once the head has been
sent, all that can be done is to cut the connection: a short body must not look complete.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.http.conditions import Verdict, judge, range_applies
from swiftlet.api.http.problems import CLIENT_GONE, ApiError
from swiftlet.api.http.ranges import RangeSpec, resolve
from swiftlet.api.reading.readables import Readable
from swiftlet.api.reading.segment_stream import Source
from swiftlet.errors import Unavailable
from swiftlet.placement.coded import CodedDownload
from swiftlet.placement.transfers import ReplicatedDownload

SMALL_BYTES = 64 * 1024
"""A stored object of up to so many bytes is sent in one piece with the head; an error in them can still change the
status.
"""
Span = tuple[int, int]
TO_THE_END = 1 << 63
"""The end of something whose size is not known."""


def refuse_by_conditions(call: Call, readable: Readable) -> web.Response | None:
    """Return the response to a condition that does not hold: 304 or 412; None when all hold."""
    verdict = judge(call.request.headers, readable.etag, readable.modified.http_seconds)
    if verdict is Verdict.GO:
        return None
    headers = readable.headers
    if verdict is Verdict.NOT_MODIFIED:
        return web.Response(status=304, headers=headers)
    keep = {name: headers[name] for name in ("Etag", "Last-Modified", "X-Timestamp")}
    return web.Response(status=412, text="a condition on the ETag or date of the object does not hold", headers=keep)


def choose_spans(call: Call, readable: Readable, specs: list[RangeSpec]) -> list[Span]:
    """Return the ranges to send; none for the whole, 416 when the object has no byte of any requested range."""
    if not specs or not range_applies(call.request.headers, readable.etag, readable.modified.http_seconds):
        return []
    if readable.size is None:
        return _spans_of_unknown(readable, specs)
    spans = resolve(specs, readable.size)
    if not spans:
        reason = f"the object has {readable.size} bytes; no range of the request lies within it"
        raise ApiError(416, reason, unsatisfiable(readable))
    return spans


def unsatisfiable(readable: Readable) -> dict[str, str]:
    """Return headers of a 416: those that describe the object, except its content type, and its size."""
    described = {name: value for name, value in readable.headers.items() if name != "Content-Type"}
    return described | {"Content-Range": f"bytes */{readable.size}"}


def _spans_of_unknown(readable: Readable, specs: list[RangeSpec]) -> list[Span]:
    """Return one range if the object certainly has it; any other is ignored, as in the reference."""
    spec = specs[0]
    if len(specs) == 1 and spec.first is not None and spec.last is not None and spec.last < readable.at_least:
        return [(spec.first, spec.last + 1)]
    return []


def head_of(readable: Readable, span: Span | None, status: int = 200) -> web.StreamResponse:
    """Return status and headers of the whole (200, or `status`) or of one range (206)."""
    if span is None:
        response = web.StreamResponse(status=status, headers=readable.headers)
        response.content_length = readable.size
        return response
    start, stop = span
    response = web.StreamResponse(status=206, headers=readable.headers)
    response.headers["Content-Range"] = f"bytes {start}-{stop - 1}/{'*' if readable.size is None else readable.size}"
    response.content_length = stop - start
    return response


async def send_one(call: Call, readable: Readable, span: Span | None, status: int = 200) -> web.StreamResponse:
    """Send the whole (200, or `status` for an error page) or one range (206)."""
    source = await readable.open(*(span or (0, TO_THE_END if readable.size is None else readable.size)))
    response = head_of(readable, span, status)
    size = response.content_length
    try:
        if size is not None and size <= SMALL_BYTES and isinstance(source, ReplicatedDownload | CodedDownload):
            data = b"".join([chunk async for chunk in source.chunks()])
            if len(data) != size:
                raise Unavailable(f"the storage devices sent {len(data)} of the {size} bytes of the object; try again")
            return web.Response(status=response.status, headers=response.headers, body=data)
        async with cut_on_error(call):
            await response.prepare(call.request)
            await copy_to(call, source, response)
    finally:
        await source.close()
    await response.write_eof()
    return response


async def send_head(call: Call, readable: Readable, span: Span | None = None, status: int = 200) -> web.StreamResponse:
    """Send the response to a HEAD, of the whole or of one range of it."""
    response = head_of(readable, span, status)
    await response.prepare(call.request)
    await response.write_eof()
    return response


async def copy_to(call: Call, source: Source, response: web.StreamResponse) -> None:
    """Copy bytes from the source to the client; a client that takes none for too long is disconnected."""
    try:
        async for chunk in source.chunks():
            async with asyncio.timeout(call.api.options.client_timeout_s):
                await response.write(chunk)
    except TimeoutError as error:
        raise ApiError(408, f"the client read no data for {call.api.options.client_timeout_s:g} seconds") from error
    except ConnectionError as error:
        raise ApiError(CLIENT_GONE, "the client closed the connection in the middle of the response") from error


@asynccontextmanager
async def cut_on_error(call: Call) -> AsyncIterator[None]:
    """Cut the connection in the middle of the response at any error after the head."""
    try:
        yield
    except BaseException:
        if call.request.transport is not None:
            call.request.transport.abort()
        raise


def length_of(parts: Sequence[bytes], spans: Sequence[Span]) -> int:
    """Return the number of bytes of texts and spans together."""
    return sum(map(len, parts)) + sum(stop - start for start, stop in spans)
