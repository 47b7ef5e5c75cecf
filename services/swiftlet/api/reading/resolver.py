"""Turns a stored object into what a GET of it reads: the one place that knows all the kinds of objects.

An object that is made of others (a large object, a link) is recognised by the stored object's metadata, so a plain
object costs a few look-ups in dictionaries and no request to any server.
"""

from __future__ import annotations

from swiftlet.api.context.core import Call
from swiftlet.api.http.finishing import finish_with
from swiftlet.api.http.problems import ApiError
from swiftlet.api.reading import dlo, slo
from swiftlet.api.reading.links import Link, LinkItself, current_version, follow
from swiftlet.api.reading.readables import PlainObject, Readable, Reader, Stored, is_made_up
from swiftlet.names import Path


def reader_of(call: Call) -> Reader:
    """Return a reader with the rights of the request's sender."""
    return Reader(call, resolve)


async def resolve(reader: Reader, stored: Stored) -> Readable:
    """Return what readers see of the stored object."""
    if not is_made_up(stored.info):
        return PlainObject(stored)
    arrival = await follow(reader, stored)
    try:
        return await _made_up(reader, arrival.stored)
    except BaseException:
        await arrival.stored.close()
        raise


async def _made_up(reader: Reader, stored: Stored) -> Readable:
    if not is_made_up(stored.info):
        return PlainObject(stored)
    if slo.is_manifest(stored.info):
        return slo.StaticLargeObject(reader, stored)
    return await dlo.dynamic_large_object(reader, stored)


async def followed(call: Call, stored: Stored, newest: bool = False) -> Stored:
    """Return what a request refers to: links are followed, unless it asks for the link itself; the response names the
    target.
    """
    link = Link.of(stored.info)
    if link is None:
        return stored
    reader = reader_of(call)
    reading = call.request.method in {"GET", "HEAD"}
    if call.query.get("symlink") == "get":
        return stored if reading else await current_version(reader, stored)
    whole = call.request.method == "GET" and "Range" not in call.request.headers

    async def opened(path: Path) -> Stored:
        if reading:
            _tell_location(call, path)
        return await reader.get(path, newest=newest) if whole else await reader.head(path, newest)

    return (await follow(reader, stored, opened)).stored


def _tell_location(call: Call, path: Path) -> None:
    location = Link(path).location
    finish_with(call.request, lambda response: response.headers.update({"Content-Location": location}))


async def resolve_asked(call: Call, stored: Stored) -> Readable:
    """Return `resolve` of what is `followed`, or the link or manifest itself when the request asks for that."""
    link = Link.of(stored.info)
    if link is not None:
        return LinkItself(stored, link)
    if "multipart-manifest" not in call.query:
        return await resolve(reader_of(call), stored)
    if call.query["multipart-manifest"] != "get":
        raise ApiError(400, f"multipart-manifest of a {call.request.method} request can only be 'get'")
    if not slo.is_manifest(stored.info):
        return PlainObject(stored)
    if call.query.get("format") == "raw":
        return await slo.raw_manifest(stored)
    return slo.Manifest(stored)


async def current(reader: Reader, stored: Stored) -> Readable:
    """Return what a write replaces: the version that the proxy's own link leads to, but a client's link itself."""
    link = Link.of(stored.info)
    if link is None or link.version is not None:
        return await resolve(reader, stored)
    return LinkItself(stored, link)
