"""DELETE of an object, alone or with the segments that its manifest names."""

from __future__ import annotations

from aiohttp import web

from swiftlet.api import slo_delete
from swiftlet.api.core import Call
from swiftlet.api.objects import delete_one
from swiftlet.api.problems import ApiError
from swiftlet.api.version_writes import delete_version
from swiftlet.api.write_conditions import check_write


async def delete(call: Call) -> web.StreamResponse:
    """DELETE /v1/{account}/{container}/{object}: 204, 404 when there was none."""
    if call.query.get("version-id"):
        return await delete_version(call, call.query["version-id"])
    await check_write(call, call.path)
    kind = call.query.get("multipart-manifest")
    if kind == "delete":
        return await slo_delete.delete(call)
    if kind is not None:
        raise ApiError(400, "multipart-manifest of a DELETE can only be 'delete'")
    await delete_one(call, call.path)
    return web.Response(status=204)
