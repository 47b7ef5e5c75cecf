"""PUT of an object: prepared by the features that the request uses, then stored. COPY is a PUT at the destination.

Each preparer checks whether its feature is requested and changes what is going to be stored: its bytes, its metadata,
the response. An unused feature costs nothing.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.context.expiring import set_expiry
from swiftlet.api.context.new_object import Incoming, NewObject
from swiftlet.api.http.body import Body
from swiftlet.api.http.content_types import check_content_type
from swiftlet.api.http.direct_body import DirectBody
from swiftlet.api.http.finishing import HTML
from swiftlet.api.http.listings import says_yes
from swiftlet.api.http.metadata import object_metadata, refuse_unsupported
from swiftlet.api.http.problems import ApiError
from swiftlet.api.reading import dlo
from swiftlet.api.reading.versioning import container_to_write
from swiftlet.api.writing import copying, slo_put, symlinks
from swiftlet.api.writing.version_writes import put_in_place
from swiftlet.api.writing.write_conditions import check_write
from swiftlet.api.writing.writes import put_object
from swiftlet.names import Path

Preparer = Callable[[NewObject], Awaitable[None]]

PREPARERS: tuple[Preparer, ...] = (slo_put.prepare, dlo.prepare, symlinks.prepare)
"""The preparers of each PUT, in the order in which they are called."""

_TYPES = mimetypes.MimeTypes(filenames=())


async def put(call: Call) -> web.StreamResponse:
    """Answer PUT /v1/{account}/{container}/{object}: 201 when the object is stored."""
    if call.query.get("version-id") and not is_copy(call):
        return await put_in_place(call, call.query["version-id"])
    return await put_at(call, call.path)


def is_copy(call: Call) -> bool:
    """Return whether the request copies an object; the right to read the source is checked when that has been found."""
    return call.request.method == "COPY" or (
        call.request.method == "PUT" and bool(call.request.headers.get("X-Copy-From"))
    )


async def put_at(call: Call, path: Path, source: Path | None = None) -> web.StreamResponse:
    """Carry out a PUT whose object will be at `path` and is a copy of `source`, if that is given."""
    new = _planned(call, path)
    new.source = source
    if not says_yes(call.query.get("heartbeat", "")):
        return await _carry_out(new)
    if call.query.get("multipart-manifest") != "put" and not is_copy(call):
        raise ApiError(400, "heartbeat is only supported for copies and for manifests (multipart-manifest=put)")
    return await slo_put.with_heartbeat(call, lambda: _carry_out(new))


async def put_body(call: Call, body: Incoming) -> web.Response:
    """Carry out a PUT whose bytes come from elsewhere than the request's own body."""
    new = _planned(call, call.path)
    new.body = body
    return await _carry_out(new)


def _planned(call: Call, path: Path) -> NewObject:
    headers = call.request.headers
    refuse_unsupported(headers, synced=call.synced is not None)
    content_type = headers.get("Content-Type")
    if not content_type or call.flag("X-Detect-Content-Type"):
        assert path.obj is not None
        content_type = _TYPES.guess_type("/" + path.obj)[0] or "application/octet-stream"
    metadata = object_metadata(headers, call.api.options.limits)
    return NewObject(call, path, check_content_type(content_type), metadata, etag=headers.get("ETag"))


def _body(new: NewObject) -> Incoming:
    """Return the request's own body."""
    api = new.call.api
    body = Body(new.call.request, api.options.limits.max_file_size, api.options.client_timeout_s)
    if api.bodies is None or body.announced is None or body.announced <= api.options.small_object_bytes:
        return body
    direct = DirectBody(body, api.bodies)
    new.closers.append(direct.close)
    return direct


async def _carry_out(new: NewObject) -> web.Response:
    call = new.call
    try:
        if new.body is None and is_copy(call):
            # As in Swift, errors of the source are reported before any of the destination.
            await copying.prepare(new)
            await call.access.require("PUT", new.path)
            await call.api.rates.admit(call.request.method, call.path)
        container = await container_to_write(call.api, new.path, "; create it first with PUT")
        for prepare in PREPARERS:
            await prepare(new)
        set_expiry(call, new.metadata)
        if new.body is None:
            new.body = _body(new)
        if new.source is None:
            await check_write(call, new.path)
        record, footer = await put_object(new, container)
    finally:
        for close in new.closers:
            await close()
    headers = {"Etag": footer.etag, "Last-Modified": record.timestamp.http_date, "Content-Type": HTML}
    status = 202 if call.synced is not None and new.is_overtaken else 201
    return web.Response(status=status, headers=headers | new.shown)


async def copy(call: Call) -> web.StreamResponse:
    """Answer COPY /v1/{account}/{container}/{object}: 201 when the copy is stored."""
    headers = call.request.headers
    if not headers.get("Destination"):
        raise ApiError(412, "Destination header required")
    if "X-Copy-From" in headers:
        raise ApiError(400, "the source of a COPY request is its path; X-Copy-From is only for PUT")
    destination = copying.named_object(call, "Destination", "Destination-Account")
    return await put_at(call, destination, source=call.path)
