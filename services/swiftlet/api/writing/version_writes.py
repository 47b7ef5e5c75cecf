"""Writes into containers with versions: each new version under a name of its own, then a link to it.

A version is stored in the hidden container; then the link takes the object's place, with the same timestamp. Of two
concurrent writers both versions are kept, and the link of the later timestamp stays, whichever arrives last; a write
that begins after another has ended is always the later one, since it passes the timestamp of what it finds. An object
that existed before its container kept versions becomes one, with the timestamp that it has, before anything takes its
place. A DELETE stores an empty version, the delete marker, and removes the link. Removing the current version by its id
removes its link first, and never a newer one.

Fault model: a proxy may stop between any two of these steps, and devices may refuse any of them.

- version stored, link not: the client had no response, the object is what it was before; the version is listed, not as
  the latest, and can be read, put in place (`PUT ?version-id=`) or deleted like any other;
- delete marker stored, link not removed: the same, the object still exists;
- unversioned object kept as a version, nothing else: it is listed twice until the next write, which keeps nothing new;
- link removed, its version not: the object is gone, the version is listed and can be deleted again;
- a link that only some devices took may still become the current one later; so the version stays where it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from aiohttp import web

from swiftlet.api.context.core import ATTEMPTS, Call
from swiftlet.api.context.expiring import only_expiry, without_expiry
from swiftlet.api.context.new_object import Held, NewObject
from swiftlet.api.http.content_types import split_mark
from swiftlet.api.http.finishing import HTML
from swiftlet.api.http.problems import ApiError
from swiftlet.api.http.reserved import version_path
from swiftlet.api.reading import slo
from swiftlet.api.reading.links import Link
from swiftlet.api.reading.version_reads import tell
from swiftlet.api.reading.versioning import (
    CURRENT_VERSION_ID,
    DELETE_MARKER,
    NULL,
    VERSION_ID,
    container_to_write,
    keeps_versions,
    parse_version,
    versions_policy,
)
from swiftlet.api.writing.duplicates import Place, duplicate
from swiftlet.api.writing.expiry_changes import delete_expiring
from swiftlet.api.writing.storing import store
from swiftlet.api.writing.storing_links import become_link
from swiftlet.api.writing.symlinks import refuse_body
from swiftlet.errors import NotFound, Superseded, Unavailable
from swiftlet.model import ContainerInfo, ObjectInfo, PutFooter, PutRecord
from swiftlet.names import Path
from swiftlet.timestamp import Timestamp

T = TypeVar("T")


async def put_version(new: NewObject, container: ContainerInfo) -> tuple[PutRecord, PutFooter]:
    """Store a new object as the current version of its name."""
    call, main = new.call, Place(new.path, container.policy)
    policy = await versions_policy(call.api, new.path, container)
    await keep_current(call, main, policy)
    timestamp = call.api.clock.next()
    version = replace(new, path=version_path(new.path, timestamp), metadata=without_expiry(new.metadata))
    record, footer = await _stored(version, policy, timestamp)
    size, slo_etag = int(new.sysmeta.get(slo.SIZE, footer.size)), new.sysmeta.get(slo.ETAG)
    link = Link(version.path, etag=footer.etag, size=size, slo_etag=slo_etag)
    try:
        await _put_link(call, main, link, new.content_type, timestamp, only_expiry(new.metadata))
    except (NotFound, ApiError):  # The container is gone, or has no room for another object.
        await call.api.objects.delete(version.path, policy, call.api.clock.next())
        raise
    new.shown[VERSION_ID] = timestamp.internal
    return record, footer


async def _stored(version: NewObject, policy: int, timestamp: Timestamp) -> tuple[PutRecord, PutFooter]:
    try:
        return await store(version, policy, timestamp)
    except NotFound as error:
        raise Unavailable("the container of the older versions has just been removed; try again") from error


async def _put_link(
    call: Call,
    main: Place,
    link: Link,
    content_type: str,
    timestamp: Timestamp,
    metadata: Mapping[str, str] | None = None,
) -> None:
    new = NewObject(call, main.path, split_mark(content_type)[0], dict(metadata or {}))
    become_link(new, link)
    await store(new, main.policy, timestamp)


async def _info(call: Call, place: Place) -> ObjectInfo | None:
    """Return what is stored there; the next write gets a newer timestamp than it, or than its deletion.

    Raises Superseded when that lies further ahead of this clock than clocks may differ.
    """
    try:
        info = await call.api.objects.head(place.path, place.policy, newest=True)
    except NotFound as error:
        _pass_by(call, error.timestamp)
        return None
    _pass_by(call, info.modified)
    return info


def _pass_by(call: Call, seen: Timestamp | None) -> None:
    if seen is not None and seen > call.api.clock.now() and not call.api.clock.observe(seen):
        raise Superseded(f"the stored version has timestamp {seen}, which is ahead of the server's clock", seen)


async def look_again(attempt: Callable[[], Awaitable[T]]) -> T:
    """Repeat something that fails when another writer is faster, until no writer is."""
    for _ in range(ATTEMPTS - 1):
        try:
            return await attempt()
        except (NotFound, Unavailable):
            continue
    return await attempt()


async def keep_current(call: Call, main: Place, policy: int) -> None:
    """Make a version of what is at `main`, unless it is a link to one or nothing at all."""

    async def attempt() -> None:
        info = await _info(call, main)
        if info is not None and _version(info) is None:
            kept = Place(version_path(main.path, info.timestamp), policy)
            await duplicate(call, main, info, kept, info.timestamp)

    await look_again(attempt)


def _version(info: ObjectInfo | None) -> Timestamp | None:
    link = None if info is None else Link.of(info)
    return None if link is None else link.version


async def delete_current(call: Call, path: Path, container: ContainerInfo) -> None:
    """Remove an object and keep its version. Raises NotFound when there was none; a delete marker is stored all the
    same.
    """
    policy = await versions_policy(call.api, path, container)
    await keep_current(call, Place(path, container.policy), policy)
    timestamp = call.api.clock.next()
    marker = NewObject(call, version_path(path, timestamp), DELETE_MARKER, {}, Held(b""))
    await _stored(marker, policy, timestamp)
    if path == call.path:
        tell(call, VERSION_ID, timestamp.internal)
    await _remove(call, Place(path, container.policy), timestamp)


async def _remove(call: Call, main: Place, timestamp: Timestamp) -> None:
    """Remove what is not newer than `timestamp`. Raises NotFound when nothing was there."""
    try:
        written = await delete_expiring(call.api, main.path, main.policy, timestamp)
    except Superseded:
        return
    if not written.existed:
        raise NotFound(f"object {main.path.obj!r} does not exist")


async def delete_version(call: Call, text: str) -> web.Response:
    """Carry out a DELETE with the id of a version: only it is removed, and the object with it if it is the current one.

    A sender with rights by the container's ACL alone is refused, as the versions' own container has none.
    """
    container = await container_to_write(call.api, call.path)
    version = parse_version(container, text)
    assert version is not None, "version null is the object itself"
    path, main = version_path(call.path, version), Place(call.path, container.policy)
    await call.access.require("DELETE", path)
    info = await _info(call, main)
    current = _version(info)
    if info is not None and current == version:
        await _remove_seen(call, main, info)
        current = None
    policy = await versions_policy(call.api, call.path, container)
    written = await call.stamped(lambda timestamp: call.api.objects.delete(path, policy, timestamp))
    if not written.existed:
        raise NotFound(f"{call.path} has no version {text}")
    headers = {VERSION_ID: text, CURRENT_VERSION_ID: NULL if current is None else current.internal}
    return web.Response(status=204, headers=headers)


async def _remove_seen(call: Call, main: Place, info: ObjectInfo) -> None:
    """Remove exactly what was seen: what has replaced it since is newer and stays."""
    try:
        await delete_expiring(call.api, main.path, main.policy, info.modified)
    except Superseded:
        return


async def put_in_place(call: Call, text: str) -> web.Response:
    """Carry out a PUT with `version-id` and no body: that version becomes the current one."""
    container = await container_to_write(call.api, call.path, "; create it first with PUT")
    version = parse_version(container, text)
    if version is None:
        raise ApiError(400, "Invalid version parameter")
    await refuse_body(call, "PUT version-id requests require a zero byte body")
    policy = await versions_policy(call.api, call.path, container)
    target = Place(version_path(call.path, version), policy)
    info = await _info(call, target)
    if info is None:
        raise NotFound("The specified version does not exist")
    if info.content_type == DELETE_MARKER:
        raise ApiError(400, "a delete marker can't become the current version; DELETE the object instead")
    main = Place(call.path, container.policy)
    if keeps_versions(container):
        await keep_current(call, main, policy)
    content_type, mark = split_mark(info.content_type)
    size, slo_etag = (info.size, None) if mark is None else (mark.size, mark.etag)
    timestamp = call.api.clock.next()
    link = Link(target.path, etag=info.etag, size=size, slo_etag=slo_etag)
    await _put_link(call, main, link, content_type, timestamp)
    headers = {"Etag": info.etag, "Last-Modified": timestamp.http_date, VERSION_ID: version.internal}
    return web.Response(status=201, headers=headers | {"Content-Type": HTML})
