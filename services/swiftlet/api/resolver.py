"""From a stored object to what a GET of it reads: the one place that knows all the kinds of objects.

A kind that is made of something else (a large object, a link) is recognised by the stored object's metadata, so a
plain object costs two look-ups in dictionaries and no question to anybody.
"""

from __future__ import annotations

from swiftlet.api import dlo, slo
from swiftlet.api.core import Call
from swiftlet.api.problems import ApiError
from swiftlet.api.readables import PlainObject, Readable, Reader, Stored, is_made_up


def reader_of(call: Call) -> Reader:
    """Reads with the rights of the request's sender."""
    return Reader(call, resolve)


async def resolve(reader: Reader, stored: Stored) -> Readable:
    """What the stored object is to its readers."""
    if not is_made_up(stored.info):
        return PlainObject(stored)
    if slo.is_manifest(stored.info):
        return slo.StaticLargeObject(reader, stored)
    return await dlo.dynamic_large_object(reader, stored)


async def resolve_asked(call: Call, stored: Stored) -> Readable:
    """As `resolve`, or the manifest itself when the request asks for that."""
    if "multipart-manifest" not in call.query:
        return await resolve(reader_of(call), stored)
    if call.query["multipart-manifest"] != "get":
        raise ApiError(400, f"multipart-manifest of a {call.request.method} can only be 'get'")
    if not slo.is_manifest(stored.info):
        return PlainObject(stored)
    if call.query.get("format") == "raw":
        return await slo.raw_manifest(stored)
    return slo.Manifest(stored)
