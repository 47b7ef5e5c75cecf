"""Objects: POST (metadata) and DELETE.

https://docs.openstack.org/api-ref/object-store/ (objects).
"""

from __future__ import annotations

from aiohttp import web

from swiftlet.api.content_types import check_content_type, split_mark, with_mark
from swiftlet.api.core import Call
from swiftlet.api.dlo import check_manifest_header
from swiftlet.api.metadata import object_metadata, refuse_unsupported
from swiftlet.api.policy_lookup import with_policy
from swiftlet.api.storing import overtaken
from swiftlet.api.write_conditions import check_write
from swiftlet.errors import NotFound, Superseded
from swiftlet.model import PostRecord
from swiftlet.names import Path
from swiftlet.timestamp import Timestamp


async def post(call: Call) -> web.Response:
    """POST /v1/{account}/{container}/{object}: replace metadata, 202."""
    refuse_unsupported(call.request.headers)
    metadata = object_metadata(call.request.headers, call.api.options.limits)
    check_manifest_header(metadata)
    await check_write(call, call.path)
    content_type = await _new_type(call)

    async def write(timestamp: Timestamp) -> None:
        record = PostRecord(timestamp, metadata, content_type, timestamp)
        try:
            await with_policy(call.api, call.path, lambda policy: call.api.objects.post(call.path, policy, record))
        except Superseded as error:
            if not overtaken(call.api.clock, error):
                raise

    await call.stamped(write)
    return web.Response(status=202)


async def _new_type(call: Call) -> str | None:
    """The content type sent, with the mark that a large object's manifest has behind its own; None when none is."""
    content_type = call.request.headers.get("Content-Type")
    if not content_type:
        return None
    check_content_type(content_type)
    info = await with_policy(call.api, call.path, lambda policy: call.api.objects.head(call.path, policy))
    mark = split_mark(info.content_type)[1]
    return content_type if mark is None else with_mark(content_type, mark)


async def delete_one(call: Call, path: Path) -> None:
    """Delete an object with the rights of the request's sender; NotFound when there was none."""
    await call.access.require("DELETE", path)

    async def write(policy: int) -> None:
        written = await call.stamped(lambda timestamp: call.api.objects.delete(path, policy, timestamp))
        if not written.existed:
            raise NotFound(f"object {path.obj!r} does not exist")

    await with_policy(call.api, path, write)
