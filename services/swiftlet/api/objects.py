"""Objects: HEAD, POST (metadata) and DELETE, and what all object requests share.

https://docs.openstack.org/api-ref/object-store/ (objects).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from aiohttp import web

from swiftlet.api.conditions import Verdict, judge
from swiftlet.api.core import Call
from swiftlet.api.metadata import object_metadata, refuse_unsupported
from swiftlet.api.problems import ApiError
from swiftlet.errors import NotFound, Superseded
from swiftlet.model import ContainerInfo, ObjectInfo, PostRecord
from swiftlet.timestamp import Timestamp, TimestampClock

T = TypeVar("T")


def object_headers(info: ObjectInfo) -> dict[str, str]:
    """An object's description as response headers, without Content-Length."""
    headers = {
        "Content-Type": info.content_type,
        "Etag": info.etag,
        "Last-Modified": info.modified.http_date,
        "X-Timestamp": info.modified.normal,
        "Accept-Ranges": "bytes",
    }
    return headers | dict(info.metadata)


async def container_of(call: Call) -> ContainerInfo:
    """The object's container; 404 that names it when there is none, and says to a PUT what to do."""
    try:
        return await call.api.containers.get(call.path.account, call.container)
    except NotFound as error:
        advice = "; create it first with PUT" if call.request.method == "PUT" else ""
        raise NotFound(f"container {call.container!r} does not exist{advice}") from error


async def with_policy(call: Call, operation: Callable[[int], Awaitable[T]]) -> T:
    """Run a read with the container's policy; a remembered policy that finds nothing is looked up again."""
    policy = (await container_of(call)).policy
    try:
        return await operation(policy)
    except NotFound:
        now = (await call.api.containers.refresh(call.path.account, call.container)).policy
        if now == policy:
            raise
        return await operation(now)


def verdict_response(verdict: Verdict, info: ObjectInfo) -> web.Response:
    """The answer to a condition that did not hold: 304 or 412."""
    headers = object_headers(info)
    if verdict is Verdict.NOT_MODIFIED:
        return web.Response(status=304, headers=headers)
    keep = {name: headers[name] for name in ("Etag", "Last-Modified", "X-Timestamp")}
    return web.Response(status=412, text="a condition on the object's Etag or date does not hold\n", headers=keep)


def overtaken(clock: TimestampClock, error: Superseded) -> bool:
    """Whether the newer version was written while this request ran.

    Then both writes were concurrent, and this one counts as having happened just before the other. A version from
    the future of this clock is different: its writer's clock is ahead, and this write may really be the later one.
    """
    return error.timestamp <= clock.now()


async def head(call: Call) -> web.StreamResponse:
    """HEAD /v1/{account}/{container}/{object}."""
    newest = call.flag("X-Newest")
    info = await with_policy(call, lambda policy: call.api.objects.head(call.path, policy, newest))
    verdict = judge(call.request.headers, info.etag, info.modified.http_seconds)
    if verdict is not Verdict.GO:
        return verdict_response(verdict, info)
    response = web.StreamResponse(headers=object_headers(info))
    response.content_length = info.size
    await response.prepare(call.request)
    await response.write_eof()
    return response


async def post(call: Call) -> web.Response:
    """POST /v1/{account}/{container}/{object}: replace metadata, 202."""
    refuse_unsupported(call.request.headers)
    metadata = object_metadata(call.request.headers, call.api.options.limits)
    content_type = call.request.headers.get("Content-Type")

    async def write(timestamp: Timestamp) -> None:
        record = PostRecord(timestamp, metadata, content_type, timestamp)
        try:
            await with_policy(call, lambda policy: call.api.objects.post(call.path, policy, record))
        except Superseded as error:
            if not overtaken(call.api.clock, error):
                raise

    await call.stamped(write)
    return web.Response(status=202)


async def delete(call: Call) -> web.Response:
    """DELETE /v1/{account}/{container}/{object}: 204, 404 when there was none."""
    if "multipart-manifest" in call.query:
        raise ApiError(501, "multipart-manifest is not supported")

    async def write(policy: int) -> None:
        written = await call.stamped(lambda timestamp: call.api.objects.delete(call.path, policy, timestamp))
        if not written.existed:
            raise NotFound(f"object {call.path.obj!r} does not exist")

    await with_policy(call, write)
    return web.Response(status=204)
