"""POST or DELETE ?bulk-delete: a list of names in the body, objects first and then containers, a few at a time.

Fault model: a name may be anything, may occur twice, and may be of another account: each is reported separately. The
work ends when the client has gone.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import quote, unquote_to_bytes

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.http.body import Body
from swiftlet.api.http.concurrency import each
from swiftlet.api.http.problems import ApiError
from swiftlet.api.requests import containers
from swiftlet.api.requests.bulk import Tally, report_on, require_somebody
from swiftlet.api.requests.objects import delete_one
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.names import MAX_CONTAINER_NAME, MAX_OBJECT_NAME, Path, parse_path

MAX_LINE = 3 * (MAX_CONTAINER_NAME + MAX_OBJECT_NAME) + 64
"""The largest size in bytes of one line: a whole name with every byte percent-encoded."""
_DELETED, _MISSING = "Number Deleted", "Number Not Found"
_ANY_SIZE = 1 << 62


async def delete_all(call: Call) -> web.StreamResponse:
    """200 with a report."""
    require_somebody(call)
    section = call.api.options.bulk
    tally = Tally(200, {_DELETED: 0, _MISSING: 0}, section.max_failed_deletes)
    names: list[str] = []
    problem: ApiError | None = None
    # The body is read before the response begins, as a client may wait to be asked for it.
    try:
        names = await _read_names(call, section.max_deletes_per_request)
    except _BadList as error:
        problem = error

    async def work() -> None:
        if problem is not None:
            raise problem
        await _delete(call, names, tally)

    return await report_on(call, tally, work, "Invalid bulk delete.", "delete")


class _BadList(ApiError):
    """The list as a whole is invalid; nothing has been deleted."""


async def _read_names(call: Call, limit: int) -> list[str]:
    """Return all lines that are not empty, percent-decoded; bytes that are not UTF-8 become lone surrogates."""
    content_type = call.request.headers.get("Content-Type", "text/plain")
    body = Body(call.request, _ANY_SIZE, call.api.options.client_timeout_s)
    if not content_type.lower().startswith("text/plain"):
        raise _BadList(406, "the list of names must be sent with Content-Type: text/plain")
    names: list[str] = []
    line = b""
    async for piece in body.pieces():
        *lines, line = (line + piece).split(b"\n")
        names += filter(None, map(_decoded, lines))
        if len(names) > limit:
            raise _BadList(413, f"Maximum Bulk Deletes: {limit} per request")
        if len(line) > MAX_LINE:
            raise _BadList(400, "Invalid File Name")
    names += filter(None, [_decoded(line)])
    if len(names) > limit:
        raise _BadList(413, f"Maximum Bulk Deletes: {limit} per request")
    return names


def _decoded(line: bytes) -> str:
    if len(line) > MAX_LINE:
        raise _BadList(400, "Invalid File Name")
    return unquote_to_bytes(line.strip()).decode("utf-8", "surrogateescape")


async def _delete(call: Call, names: list[str], tally: Tally) -> None:
    async def remove(name: str) -> None:
        if tally.full:
            raise ApiError(400, "Max delete failures exceeded")
        try:
            path = _path_of(call, name)
            await _remove(call, path)
        except NotFound:
            tally.done(_MISSING)
        except SwiftletError as error:
            tally.failed(name, error)
        else:
            tally.done(_DELETED)

    of_objects = [name for name in names if "/" in name.strip("/")]
    of_containers = [name for name in names if "/" not in name.strip("/")]
    for some in (of_objects, of_containers):
        await each(some, remove, call.api.options.bulk.delete_concurrency)
    if tally.full:
        raise ApiError(400, "Max delete failures exceeded")


def _path_of(call: Call, name: str) -> Path:
    try:
        encoded = quote(name.lstrip("/").encode("utf-8"))
    except UnicodeEncodeError as error:
        raise ApiError(412, "the name is not valid UTF-8") from error
    return parse_path(f"/{quote(call.path.account, safe='')}/{encoded}")


async def _remove(call: Call, path: Path) -> None:
    if path.container is None:
        raise ApiError(412, "the name is empty")
    await call.api.rates.admit("DELETE", path)
    sub = replace(call, path=path, query={})
    if path.obj is not None:
        await delete_one(sub, path)
        return
    owner = await call.access.require("DELETE", path)
    await containers.delete(replace(sub, owner=owner))
