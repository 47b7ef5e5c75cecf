"""GET and HEAD of an object: found, resolved to what its readers see, and sent as a whole, in part, or not at all.

One range whose position does not depend on the size is requested from the device at once, in one round trip.
"""

from __future__ import annotations

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.http.ranges import RangeSpec, parse_range
from swiftlet.api.reading.dlo import DynamicLargeObject
from swiftlet.api.reading.multi_range import send_parts
from swiftlet.api.reading.readables import Readable, Stored
from swiftlet.api.reading.resolver import followed, reader_of, resolve_asked
from swiftlet.api.reading.sending import choose_spans, refuse_by_conditions, send_head, send_one
from swiftlet.api.reading.slo import asked_part
from swiftlet.api.reading.version_reads import find_version, tell_no_version, tell_version
from swiftlet.errors import NotFound


async def get(call: Call) -> web.StreamResponse:
    """GET /v1/{account}/{container}/{object}: 200, 206, 304, 409, 412, 416."""
    specs = parse_range(call.request.headers.get("Range"))
    stored = await _find(call, specs)
    try:
        readable = await resolve_asked(call, stored)
        try:
            return await _answer(call, readable, specs)
        finally:
            await readable.close()
    finally:
        await stored.close()


async def _find(call: Call, specs: list[RangeSpec] | None) -> Stored:
    """Find what the request names, following all links unless it asks for a link itself; `specs` is None for a HEAD."""
    if call.query.get("version-id"):
        stored = await find_version(call, call.path, call.query["version-id"])
        return await followed(call, stored, call.flag("X-Newest"))
    try:
        named = await _named(call, specs)
        found = await followed(call, named, call.flag("X-Newest"))
    except NotFound:
        await tell_no_version(call)
        raise
    await tell_version(call, named, found)
    return found


async def _named(call: Call, specs: list[RangeSpec] | None) -> Stored:
    reader, newest = reader_of(call), call.flag("X-Newest")
    if specs is None:
        return await reader.head(call.path, newest)
    if not specs:
        return await reader.get(call.path, newest=newest)
    if len(specs) == 1 and specs[0].first is not None:
        last = specs[0].last
        return await reader.get(call.path, specs[0].first, None if last is None else last + 1, newest)
    return await reader.head(call.path, newest)


async def _answer(call: Call, readable: Readable, specs: list[RangeSpec]) -> web.StreamResponse:
    refused = refuse_by_conditions(call, readable)
    if refused is not None:
        return refused
    part = await asked_part(call, readable)
    if part is not None:
        readable.headers["X-Parts-Count"] = str(part.count)
        return await send_one(call, readable, part.span)
    if len(specs) > 1 and isinstance(readable, DynamicLargeObject):
        specs = []  # As in the reference, only one range of a large object can be requested.
    spans = choose_spans(call, readable, specs)
    if len(spans) > 1:
        return await send_parts(call, readable, spans)
    return await send_one(call, readable, spans[0] if spans else None)


async def head(call: Call) -> web.StreamResponse:
    """HEAD /v1/{account}/{container}/{object}: 200, 206 for one part, 304, 412, 416."""
    stored = await _find(call, None)
    try:
        readable = await resolve_asked(call, stored)
        refused = refuse_by_conditions(call, readable)
        if refused is not None:
            return refused
        part = await asked_part(call, readable)
        if part is not None:
            readable.headers["X-Parts-Count"] = str(part.count)
        return await send_head(call, readable, None if part is None else part.span)
    finally:
        await stored.close()
