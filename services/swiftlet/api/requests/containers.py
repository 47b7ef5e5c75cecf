"""Containers: PUT, HEAD, GET (objects), POST (metadata), DELETE."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.context.privileged import SYNC_TO, container_acls, sync_headers, unprivileged
from swiftlet.api.context.quota_headers import check_container_quota
from swiftlet.api.http.concurrency import ROW_BYTES, beside
from swiftlet.api.http.finishing import accepted
from swiftlet.api.http.listings import FORMS, choose_type, describe, parse_listing, render, render_text
from swiftlet.api.http.metadata import CONTAINER_META, CONTAINER_SYSMETA, bounds_of, collect, refuse_unsupported
from swiftlet.api.reading import version_listing
from swiftlet.api.reading.versioning import await_agreement, bytes_of_versions, delete_versions_container, mode_changes
from swiftlet.api.writing.quota_checks import room_for_container
from swiftlet.model import ContainerInfo, ObjectRow, Subdir
from swiftlet.timestamp import Timestamp

POSTED = CONTAINER_SYSMETA + "Posted"
"""The metadata item with the time of the last POST.

It is no part of what decides whether a container exists, so that a POST which reaches only a replica that has missed a
deletion does not restore the container.
"""


def modified(info: ContainerInfo) -> Timestamp:
    """Return the time of the last PUT or POST."""
    posted = info.metadata.get(POSTED)
    return info.put_timestamp if posted is None else max(info.put_timestamp, Timestamp.parse(posted))


def container_headers(call: Call, info: ContainerInfo) -> dict[str, str]:
    """Return totals, policy and metadata as response headers."""
    at = modified(info)
    headers = {
        "X-Container-Object-Count": str(info.object_count),
        "X-Container-Bytes-Used": str(info.bytes_used),
        "X-Timestamp": info.created.normal,
        "X-Put-Timestamp": at.normal,
        "Last-Modified": at.http_date,
        "X-Storage-Policy": call.api.options.policies.name_of(info.policy),
        "Accept-Ranges": "bytes",
    }
    shown = {name: value for name, value in info.metadata.items() if not name.startswith(CONTAINER_SYSMETA)}
    return headers | unprivileged(shown, call.owner)


def new_metadata(call: Call) -> dict[str, str]:
    """Return the changes that a PUT or POST makes to a container's metadata, its ACLs included; "" removes an item."""
    items = collect(call.request.headers, CONTAINER_META, call.api.options.limits)
    check_container_quota(items)
    items |= container_acls(call.request.headers)
    if call.owner:
        items |= sync_headers(call.request.headers, call.api.realms)
    return unprivileged(items, call.owner)


async def note_copy(call: Call, items: Mapping[str, str]) -> None:
    """Write down that the container is going to have a copy in another cluster, before it says so itself."""
    if items.get(SYNC_TO):
        await call.api.copied.add(call.path.account, call.container)


async def head(call: Call) -> web.Response:
    """HEAD /v1/{account}/{container}: totals and metadata, 204."""
    info = await call.api.listings.container_info(call.path.account, call.container)
    info = replace(info, bytes_used=info.bytes_used + await bytes_of_versions(call.api, info))
    media_type = choose_type(call.query, call.request.headers.get("Accept"))
    return web.Response(status=204, headers=container_headers(call, info) | describe(call.query, media_type))


async def get(call: Call) -> web.Response:
    """GET /v1/{account}/{container}: a page of objects."""
    if "versions" in call.query:
        return await _versions(call)
    query = parse_listing(call.query, call.api.options.limits.container_listing_limit)
    media_type = choose_type(call.query, call.request.headers.get("Accept"))
    place, form = (call.path.account, call.container), FORMS.get(media_type)
    rows: bytes | Sequence[ObjectRow | Subdir]
    if form is None:
        info, rows = await call.api.listings.list_objects(*place, query)
    else:
        info, rows = await call.api.listings.list_text(*place, query, form)
    info = replace(info, bytes_used=info.bytes_used + await bytes_of_versions(call.api, info))
    headers = container_headers(call, info) | describe(call.query, media_type)
    if isinstance(rows, bytes):
        return render_text(rows, headers)
    return await beside(len(rows) * ROW_BYTES, render, rows, media_type, "container", call.container, headers)


async def _versions(call: Call) -> web.Response:
    info, text = await version_listing.page(call)
    info = replace(info, bytes_used=info.bytes_used + await bytes_of_versions(call.api, info))
    headers = container_headers(call, info)
    return web.Response(text=text, content_type="application/json", charset="utf-8", headers=headers)


async def put(call: Call) -> web.Response:
    """PUT /v1/{account}/{container}: create (201) or update metadata (202)."""
    refuse_unsupported(call.request.headers)
    options = call.api.options
    changes = await mode_changes(call)
    items = new_metadata(call) | changes
    await note_copy(call, items)
    wanted = call.request.headers.get("X-Storage-Policy")
    policy = options.policy_named(wanted).index if wanted else None
    default = options.default_policy.index
    bounds = bounds_of(CONTAINER_META, options.limits)

    async def make(timestamp: Timestamp) -> tuple[bool, Timestamp]:
        place = call.path.account, call.container
        created = await call.api.listings.put_container(*place, timestamp, items, policy, default, bounds)
        return created, timestamp

    try:
        async with room_for_container(call.api, call.path.account, call.container) as room:
            created, at = await call.stamped(make)
            room.stored(at)
    finally:
        # A change that too few replicas took counts too: some have it.
        call.api.containers.forget(call.path.account, call.container)
    await await_agreement(call, {} if created else changes)
    return web.Response(status=201) if created else accepted()


async def post(call: Call) -> web.Response:
    """POST /v1/{account}/{container}: merge metadata, 204."""
    refuse_unsupported(call.request.headers)
    changes = await mode_changes(call)
    timestamp = call.api.clock.next()
    items = new_metadata(call) | changes | {POSTED: timestamp.internal}
    await note_copy(call, items)
    bounds = bounds_of(CONTAINER_META, call.api.options.limits)
    try:
        await call.api.listings.post_container(call.path.account, call.container, timestamp, items, bounds)
    finally:
        call.api.containers.forget(call.path.account, call.container)
    await await_agreement(call, changes)
    return web.Response(status=204)


async def delete(call: Call) -> web.Response:
    """DELETE /v1/{account}/{container}: 204, 409 while it has objects."""
    await delete_versions_container(call)
    try:
        await call.stamped(
            lambda timestamp: call.api.listings.delete_container(call.path.account, call.container, timestamp)
        )
    finally:
        call.api.containers.forget(call.path.account, call.container)
    return web.Response(status=204)
