"""Objects: POST (metadata) and DELETE.

https://docs.openstack.org/api-ref/object-store/ (objects).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.context.expiring import check_not_expired, expiry_in, without_expiry
from swiftlet.api.context.policy_lookup import container_of, with_policy
from swiftlet.api.http.content_types import check_content_type, retyped
from swiftlet.api.http.finishing import accepted
from swiftlet.api.http.metadata import object_metadata, refuse_unsupported
from swiftlet.api.http.problems import ApiError
from swiftlet.api.reading.dlo import check_manifest_header
from swiftlet.api.reading.links import TARGET, Link
from swiftlet.api.reading.versioning import NULL, has_versions
from swiftlet.api.writing.expiry_changes import expiry_changed
from swiftlet.api.writing.storing import overtaken
from swiftlet.api.writing.symlinks import redirected
from swiftlet.api.writing.version_writes import delete_version
from swiftlet.api.writing.write_conditions import check_write
from swiftlet.api.writing.writes import delete_object
from swiftlet.errors import Superseded
from swiftlet.model import PostRecord
from swiftlet.names import Path
from swiftlet.timestamp import Timestamp


async def post(call: Call) -> web.Response:
    """POST /v1/{account}/{container}/{object}: replace metadata, 202; 307 when the object is a link."""
    refuse_unsupported(call.request.headers)
    if call.query.get("version-id"):
        raise ApiError(400, "POST to a specific version is not allowed")
    if TARGET in call.request.headers:
        raise ApiError(400, "A PUT request is required to set a symlink target")
    metadata = object_metadata(call.request.headers, call.api.options.limits) | expiry_in(call)
    check_manifest_header(metadata)
    await check_write(call, call.path)
    content_type = call.request.headers.get("Content-Type")
    if content_type:
        check_content_type(content_type)
    link = await _post(call, call.path, metadata, content_type)
    if link is not None and link.version is not None:
        link = await _post(call, link.target, without_expiry(metadata), content_type)
    return accepted() if link is None else redirected(link)


async def _post(call: Call, path: Path, metadata: Mapping[str, str], content_type: str | None) -> Link | None:
    """Replace the metadata stored at `path` itself; return the link that it is, if it is one.

    A content type keeps the mark that a large object or a link has behind its own.
    """
    newest = has_versions(await container_of(call.api, path))
    info = await with_policy(call.api, path, lambda policy: call.api.objects.head(path, policy, newest))
    check_not_expired(call.api, path, info)
    new_type = retyped(info.content_type, content_type) if content_type else None

    async def write(timestamp: Timestamp) -> None:
        record = PostRecord(timestamp, metadata, new_type, timestamp)

        async def replace(policy: int) -> None:
            async with expiry_changed(call.api, path, policy, metadata, timestamp, info):
                await call.api.objects.post(path, policy, record)

        try:
            await with_policy(call.api, path, replace)
        except Superseded as error:
            if not overtaken(call.api.clock, error):
                raise

    await call.stamped(write)
    return Link.of(info)


async def delete_one(call: Call, path: Path, version: str | None = None) -> None:
    """Delete an object with the rights of the request's sender, or one version of it. Raises NotFound when there was
    none.
    """
    await call.access.require("DELETE", path)
    if version and version != NULL:
        await delete_version(replace(call, path=path), version)
    else:
        await delete_object(call, path, keep=not version)
