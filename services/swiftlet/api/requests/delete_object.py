"""DELETE of an object, alone or with the segments that its manifest names."""

from __future__ import annotations

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.http.problems import ApiError
from swiftlet.api.reading.versioning import NULL
from swiftlet.api.requests import slo_delete
from swiftlet.api.requests.objects import delete_one
from swiftlet.api.writing.version_writes import delete_version
from swiftlet.api.writing.write_conditions import check_write


async def delete(call: Call) -> web.StreamResponse:
    """DELETE /v1/{account}/{container}/{object}: 204, 404 when there was none."""
    version, kind = call.query.get("version-id"), call.query.get("multipart-manifest")
    if kind not in {None, "delete"}:
        raise ApiError(400, "multipart-manifest of a DELETE can only be 'delete'")
    if not version or version == NULL:
        await check_write(call, call.path)
    if kind is not None:
        return await slo_delete.delete(call)
    if version and version != NULL:
        return await delete_version(call, version)
    await delete_one(call, call.path, version)
    return web.Response(status=204)
