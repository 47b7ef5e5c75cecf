"""Conditions of requests that change an object (RFC 9110, section 13): If-Match, If-Unmodified-Since, If-None-Match: *.

They are weighed against the newest version before the write begins, not in one step with it: of two writers at the
same moment both may find their condition true. Without such a header nothing is asked.
"""

from __future__ import annotations

from swiftlet.api.conditions import etags, may_write
from swiftlet.api.core import Call
from swiftlet.api.problems import ApiError
from swiftlet.api.resolver import current, reader_of
from swiftlet.errors import NotFound
from swiftlet.names import Path

_HEADERS = ("If-Match", "If-None-Match", "If-Unmodified-Since")


async def check_write(call: Call, path: Path) -> None:
    """412 unless the request's conditions hold for the object as it is; 400 for one that makes no sense."""
    headers = call.request.headers
    if not any(name in headers for name in _HEADERS):
        return
    if "If-None-Match" in headers and etags(headers["If-None-Match"]) != {"*"}:
        raise ApiError(400, f"If-None-Match of a {call.request.method} only supports '*'")
    reader = reader_of(call)
    try:
        stored = await reader.head(path, newest=True)
    except NotFound:
        if "If-Match" in headers:
            raise ApiError(412, "there is no object, and If-Match asks for one") from None
        return
    readable = await current(reader, stored)
    if "If-None-Match" in headers:
        raise ApiError(412, "the object exists, and If-None-Match: * asks to keep it")
    if not may_write(headers, readable.etag, readable.modified.http_seconds):
        raise ApiError(
            412, "a condition on the object's Etag or date does not hold", {"Etag": readable.headers["Etag"]}
        )
