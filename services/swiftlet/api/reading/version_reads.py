"""Reads versions: GET, HEAD and the source of a copy with `version-id`, and adds version ids to responses."""

from __future__ import annotations

from aiohttp import hdrs

from swiftlet.api.context.core import Call
from swiftlet.api.context.policy_lookup import container_of
from swiftlet.api.http import reserved
from swiftlet.api.http.finishing import finish_with
from swiftlet.api.http.reserved import version_path
from swiftlet.api.reading.links import Link
from swiftlet.api.reading.readables import Stored
from swiftlet.api.reading.resolver import reader_of
from swiftlet.api.reading.versioning import DELETE_MARKER, NULL, VERSION_ID, has_versions, parse_version
from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import ContainerInfo, ObjectInfo
from swiftlet.names import Path

_READING = frozenset({"GET", "HEAD"})


def tell(call: Call, name: str, value: str) -> None:
    """Add a header to the response, whichever it will be."""
    finish_with(call.request, lambda response: response.headers.update({name: value}))


async def versioned_container(call: Call, path: Path) -> ContainerInfo:
    """Return the object's container; a cached one without versions is requested again."""
    container = await container_of(call.api, path)
    if has_versions(container):
        return container
    assert path.container is not None
    return await call.api.containers.refresh(path.account, path.container)


async def find_version(call: Call, path: Path, text: str) -> Stored:
    """Return the version `text` of an object; 404 for a missing one, and for a delete marker.

    Versions are in a container of their own, which has no ACL: a sender with rights by the object's container alone is
    refused.
    """
    await call.access.require("GET", path)
    version = parse_version(await versioned_container(call, path), text)
    found = path if version is None else version_path(path, version)
    await call.access.require("GET", found)
    reader, newest = reader_of(call), call.request.method not in _READING or call.flag("X-Newest")
    whole = call.request.method != "HEAD" and "Range" not in call.request.headers
    try:
        stored = await (reader.get(found, newest=newest) if whole else reader.head(found, newest))
    except NotFound as error:
        raise NotFound(f"{path} has no version {text}") from error
    link = Link.of(stored.info)
    if version is None and link is not None and link.version is not None:
        await stored.close()
        raise NotFound(f"{path} has no version {NULL}: its current one is {link.version.internal}")
    if call.request.method in _READING:
        tell(call, VERSION_ID, NULL if version is None else version.internal)
    if version is not None and stored.info.content_type == DELETE_MARKER:
        await stored.close()
        if call.request.method in _READING:
            tell(call, hdrs.CONTENT_TYPE, DELETE_MARKER)
        raise NotFound(f"version {text} of {path} is a delete marker")
    return stored


async def version_of(call: Call, path: Path, info: ObjectInfo) -> str | None:
    """Return the version of the current object that was read at `path`; None in containers without versions."""
    link = Link.of(info)
    if link is not None and link.version is not None:
        return link.version.internal
    return NULL if has_versions(await container_of(call.api, path)) else None


async def tell_version(call: Call, named: Stored, found: Stored) -> None:
    """Add the version id to the response to a GET or HEAD, in containers that have versions.

    `named` is what the request names, and `found` what links lead to from there: a client's links may lead to a version
    of this container, whose id is added, or elsewhere (`null`).
    """
    version = await version_of(call, call.path, named.info)
    if version is None:
        return
    if call.query.get("symlink") != "get":
        reached = reserved.version_of(found.path)
        here = reached is not None and (reached[0].account, reached[0].container) == (call.path.account, call.container)
        version = reached[1].internal if reached is not None and here else NULL
    tell(call, VERSION_ID, version)


async def tell_no_version(call: Call) -> None:
    """Add the version id `null` to a 404, in containers that have versions. Raises NotFound."""
    try:
        container = await container_of(call.api, call.path)
    except Unavailable:
        return  # The 404 stands, though it is unknown whether there are versions.
    if has_versions(container):
        tell(call, VERSION_ID, NULL)
