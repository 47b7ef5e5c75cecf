"""PUT of an object: small ones in one round trip per replica, large ones streamed with bounded memory.

The ETag (MD5) and the integrity hash (xxh3) are computed in one native pass beside the flow. Nothing is committed
before the last byte has arrived and the announced length and ETag are met.
"""

from __future__ import annotations

import mimetypes
from collections.abc import AsyncIterator
from dataclasses import replace

from aiohttp import web
from swiftlet_native import Hasher

from swiftlet.api.body import Body
from swiftlet.api.conditions import etags
from swiftlet.api.core import ATTEMPTS, Call
from swiftlet.api.metadata import object_metadata, refuse_unsupported
from swiftlet.api.objects import container_of, overtaken
from swiftlet.api.problems import ApiError
from swiftlet.errors import NotFound, Superseded
from swiftlet.model import PutFooter, PutRecord
from swiftlet.placement.outcomes import Written
from swiftlet.placement.transfers import Upload
from swiftlet.timestamp import Timestamp

_TYPES = mimetypes.MimeTypes(filenames=())


async def put(call: Call) -> web.Response:
    """PUT /v1/{account}/{container}/{object}: 201."""
    if "multipart-manifest" in call.query:
        raise ApiError(501, "multipart-manifest is not supported")
    record = _record(call)
    policy = (await container_of(call)).policy
    body = Body(call.request, call.api.options.limits.max_file_size, call.api.options.client_timeout_s)
    await _check_absent(call, policy)
    pieces = body.pieces()
    hasher = Hasher()
    beginning, ended = await _read_beginning(pieces, hasher, call.api.options.small_object_bytes)
    if ended:
        footer = _footer(call, hasher)
        record, written = await _store_small(call, policy, record, b"".join(beginning), footer)
    else:
        record, footer, written = await _store_large(call, policy, record, body, beginning, pieces, hasher)
    if written.container_missing:
        await _undo(call, policy)
    headers = {"Etag": footer.etag, "Last-Modified": record.timestamp.http_date, "Content-Type": "text/html"}
    return web.Response(status=201, headers=headers)


def _record(call: Call) -> PutRecord:
    headers = call.request.headers
    refuse_unsupported(headers)
    content_type = headers.get("Content-Type")
    if not content_type or call.flag("X-Detect-Content-Type"):
        assert call.path.obj is not None
        content_type = _TYPES.guess_type("/" + call.path.obj)[0] or "application/octet-stream"
    try:
        content_type.encode("utf-8")
    except UnicodeEncodeError as error:
        raise ApiError(400, "Content-Type is not valid UTF-8") from error
    metadata = object_metadata(headers, call.api.options.limits)
    return PutRecord(str(call.path), call.api.clock.next(), content_type, metadata)


async def _check_absent(call: Call, policy: int) -> None:
    condition = call.request.headers.get("If-None-Match")
    if condition is None:
        return
    if etags(condition) != {"*"}:
        raise ApiError(400, "If-None-Match of a PUT only supports '*'")
    try:
        await call.api.objects.head(call.path, policy)
    except NotFound:
        return
    raise ApiError(412, "the object exists, and If-None-Match: * asks to keep it")


async def _read_beginning(pieces: AsyncIterator[bytes], hasher: Hasher, limit: int) -> tuple[list[bytes], bool]:
    """Pieces until the end or until more than `limit` bytes are held; whether the end was reached."""
    held: list[bytes] = []
    async for piece in pieces:
        hasher.update(piece)
        held.append(piece)
        if hasher.size > limit:
            return held, False
    return held, True


def _footer(call: Call, hasher: Hasher) -> PutFooter:
    """The finished object's size and digests; 422 when the client's ETag is another one."""
    footer = PutFooter(hasher.size, hasher.md5_hexdigest(), hasher.xxh3_64())
    wanted = call.request.headers.get("ETag")
    if wanted is not None and wanted.strip().strip('"').lower() != footer.etag:
        raise ApiError(422, f"the body's MD5 is {footer.etag}, the ETag header says {wanted.strip()[:64]!r}")
    return footer


async def _store_small(
    call: Call, policy: int, record: PutRecord, data: bytes, footer: PutFooter
) -> tuple[PutRecord, Written]:
    clock = call.api.clock
    for attempt in range(ATTEMPTS):
        try:
            return record, await call.api.objects.put(call.path, policy, record, data, footer)
        except Superseded as error:
            if overtaken(clock, error):
                break
            if attempt == ATTEMPTS - 1 or not clock.observe(error.timestamp):
                raise
            record = replace(record, timestamp=clock.next())
    return record, Written(existed=True, container_missing=False)


async def _store_large(
    call: Call,
    policy: int,
    record: PutRecord,
    body: Body,
    beginning: list[bytes],
    pieces: AsyncIterator[bytes],
    hasher: Hasher,
) -> tuple[PutRecord, PutFooter, Written]:
    record, upload = await _open_upload(call, policy, record, body.announced)
    try:
        while beginning:
            await upload.write(beginning.pop(0))
        async for piece in pieces:
            hasher.update(piece)
            await upload.write(piece)
        footer = _footer(call, hasher)
        return record, footer, await upload.commit(footer)
    except Superseded as error:
        if not overtaken(call.api.clock, error):
            call.api.clock.observe(error.timestamp)
            raise
        return record, await _rest(call, pieces, hasher), Written(existed=True, container_missing=False)
    finally:
        await upload.abort()


async def _open_upload(call: Call, policy: int, record: PutRecord, size: int | None) -> tuple[PutRecord, Upload]:
    """Begin an upload with the timestamp it has, or with a newer one: nothing has been sent yet."""
    try:
        return record, await call.api.objects.upload(call.path, policy, record, size)
    except Superseded as error:
        if not call.api.clock.observe(error.timestamp):
            raise

    async def anew(timestamp: Timestamp) -> tuple[PutRecord, Upload]:
        fresh = replace(record, timestamp=timestamp)
        return fresh, await call.api.objects.upload(call.path, policy, fresh, size)

    return await call.stamped(anew)


async def _rest(call: Call, pieces: AsyncIterator[bytes], hasher: Hasher) -> PutFooter:
    """The digests of a body that is not stored any more; it must be whole and what was announced all the same."""
    async for piece in pieces:
        hasher.update(piece)
    return _footer(call, hasher)


async def _undo(call: Call, policy: int) -> None:
    """The container went away in another process: what was stored is deleted again, and the client told so."""
    call.api.containers.forget(call.path.account, call.container)
    await call.api.objects.delete(call.path, policy, call.api.clock.next())
    raise NotFound(f"container {call.container!r} does not exist")
