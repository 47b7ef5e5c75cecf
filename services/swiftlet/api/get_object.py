"""GET of an object: whole, a range, or several ranges as multipart/byteranges; streamed with bounded memory."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from aiohttp import web

from swiftlet.api.conditions import Verdict, judge, range_applies
from swiftlet.api.core import Call
from swiftlet.api.objects import object_headers, verdict_response, with_policy
from swiftlet.api.problems import CLIENT_GONE, ApiError
from swiftlet.api.ranges import RangeSpec, parse_range, resolve
from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import ObjectInfo
from swiftlet.placement.transfers import Download


async def get(call: Call) -> web.StreamResponse:
    """GET /v1/{account}/{container}/{object}: 200, 206, 304, 412, 416."""
    if "multipart-manifest" in call.query:
        raise ApiError(501, "multipart-manifest is not supported")
    specs = parse_range(call.request.headers.get("Range"))
    if len(specs) == 1 and specs[0].first is not None:
        return await _get_known_range(call, specs[0])
    if specs:
        return await _get_by_size(call, specs)
    return await _send(call, await _open(call, 0, None))


async def _open(call: Call, start: int, stop: int | None) -> Download:
    newest = call.flag("X-Newest")
    return await with_policy(call, lambda policy: call.api.objects.get(call.path, policy, start, stop, newest))


async def _get_known_range(call: Call, spec: RangeSpec) -> web.StreamResponse:
    """One range whose place does not depend on the size: opened where it begins, in one round trip."""
    assert spec.first is not None
    download = await _open(call, spec.first, None if spec.last is None else spec.last + 1)
    refused = await _refuse(call, download)
    if refused is not None:
        return refused
    if not range_applies(call.request.headers, download.info.etag, download.info.modified.http_seconds):
        await download.close()
        return await _send(call, await _open(call, 0, None))
    span = spec.resolve(download.info.size)
    if span is None:
        await download.close()
        raise _unsatisfiable(download.info)
    return await _send(call, download, span)


def _unsatisfiable(info: ObjectInfo) -> ApiError:
    return ApiError(
        416,
        f"the object has {info.size} bytes; none of the ranges lies in it",
        {"Content-Range": f"bytes */{info.size}"},
    )


async def _get_by_size(call: Call, specs: list[RangeSpec]) -> web.StreamResponse:
    """Ranges that need the size first: a suffix, or several."""
    newest = call.flag("X-Newest")
    info = await with_policy(call, lambda policy: call.api.objects.head(call.path, policy, newest))
    verdict = judge(call.request.headers, info.etag, info.modified.http_seconds)
    if verdict is not Verdict.GO:
        return verdict_response(verdict, info)
    if not range_applies(call.request.headers, info.etag, info.modified.http_seconds):
        return await _send(call, await _open(call, 0, None))
    spans = resolve(specs, info.size)
    if not spans:
        raise _unsatisfiable(info)
    if len(spans) == 1:
        return await _send(call, await _open_same(call, info, spans[0]), spans[0])
    return await _send_parts(call, info, spans)


async def _open_same(call: Call, info: ObjectInfo, span: tuple[int, int]) -> Download:
    """A range of the very version that `info` describes, from whichever replica has it; 503 when none has any more."""
    version = info.timestamp
    try:
        return await with_policy(call, lambda policy: call.api.objects.get(call.path, policy, *span, version=version))
    except NotFound as error:
        raise Unavailable("the object was deleted while its ranges were read") from error


async def _refuse(call: Call, download: Download) -> web.Response | None:
    info = download.info
    verdict = judge(call.request.headers, info.etag, info.modified.http_seconds)
    if verdict is Verdict.GO:
        return None
    await download.close()
    return verdict_response(verdict, info)


async def _send(call: Call, download: Download, span: tuple[int, int] | None = None) -> web.StreamResponse:
    refused = await _refuse(call, download)
    if refused is not None:
        return refused
    info = download.info
    response = web.StreamResponse(status=200, headers=object_headers(info))
    response.content_length = info.size
    if span is not None:
        response.set_status(206)
        response.content_length = span[1] - span[0]
        response.headers["Content-Range"] = f"bytes {span[0]}-{span[1] - 1}/{info.size}"
    try:
        await response.prepare(call.request)
        await _copy(call, download, response)
    finally:
        await download.close()
    await response.write_eof()
    return response


async def _copy(call: Call, download: Download, response: web.StreamResponse) -> None:
    """Bytes from a device to the client; a client that takes none for too long is cut off.

    When no device has the rest, the connection is cut too: a short body must not look complete.
    """
    try:
        async for chunk in download.chunks():
            async with asyncio.timeout(call.api.options.client_timeout_s):
                await response.write(chunk)
    except TimeoutError as error:
        _cut(call)
        raise ApiError(408, f"the client took no data for {call.api.options.client_timeout_s:g} s") from error
    except ConnectionError as error:
        raise ApiError(CLIENT_GONE, "the client went away in the middle of the answer") from error
    except Unavailable:
        _cut(call)
        raise


def _cut(call: Call) -> None:
    if call.request.transport is not None:
        call.request.transport.abort()


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of a multipart answer: its head as bytes, and its range."""

    head: bytes
    span: tuple[int, int]


def _parts(info: ObjectInfo, spans: list[tuple[int, int]], boundary: str) -> list[_Part]:
    return [
        _Part(
            f"--{boundary}\r\nContent-Type: {info.content_type}\r\n"
            f"Content-Range: bytes {start}-{stop - 1}/{info.size}\r\n\r\n".encode(),
            (start, stop),
        )
        for start, stop in spans
    ]


async def _send_parts(call: Call, info: ObjectInfo, spans: list[tuple[int, int]]) -> web.StreamResponse:
    boundary = secrets.token_hex(16)
    parts = _parts(info, spans, boundary)
    end = f"--{boundary}--".encode()
    response = web.StreamResponse(status=206, headers=object_headers(info))
    response.headers["Content-Type"] = f"multipart/byteranges;boundary={boundary}"
    response.content_length = sum(len(p.head) + p.span[1] - p.span[0] + 2 for p in parts) + len(end)
    await response.prepare(call.request)
    for part in parts:
        try:
            download = await _open_same(call, info, part.span)
        except BaseException:
            _cut(call)
            raise
        try:
            await response.write(part.head)
            await _copy(call, download, response)
            await response.write(b"\r\n")
        finally:
            await download.close()
    await response.write(end)
    await response.write_eof()
    return response
