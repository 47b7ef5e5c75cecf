"""Conditions of requests that change an object (RFC 9110, section 13): If-Match, If-Unmodified-Since, If-None-Match: *.

They are evaluated against the newest version before the write begins, not in one step with it: of two concurrent
writers both may find their condition true. Without such a header no server is asked.
"""

from __future__ import annotations

from swiftlet.api.context.core import Call
from swiftlet.api.context.policy_lookup import with_policy
from swiftlet.api.http.conditions import etags, may_write
from swiftlet.api.http.problems import ApiError
from swiftlet.api.reading.resolver import current, reader_of
from swiftlet.errors import NotFound
from swiftlet.expiry.tasks import delete_at_of
from swiftlet.names import Path
from swiftlet.web.front_listener import may_have_stored

IF_DELETE_AT = "X-If-Delete-At"
_DIGITS = 18
_HEADERS = ("If-Match", "If-None-Match", "If-Unmodified-Since")


async def check_write(call: Call, path: Path) -> None:
    """Raise 412 unless the request's conditions hold for the present object; 400 for an invalid one."""
    headers = call.request.headers
    if call.request.method == "DELETE" and IF_DELETE_AT in headers:
        await _check_delete_at(call, path, headers[IF_DELETE_AT].strip())
    if not any(name in headers for name in _HEADERS):
        return
    if "If-None-Match" in headers and etags(headers["If-None-Match"]) != {"*"}:
        raise ApiError(400, "If-None-Match only supports *")
    reader = reader_of(call)
    try:
        stored = await reader.head(path, newest=True)
    except NotFound:
        if "If-Match" in headers:
            raise ApiError(412, "the object does not exist, and If-Match requires one") from None
        return
    if stored.info.timestamp.value == may_have_stored(call.request):
        # There was none when a native front began to store this one.
        return
    readable = await current(reader, stored)
    if "If-None-Match" in headers:
        raise ApiError(412, "the object exists, and If-None-Match: * allows only a new one")
    if not may_write(headers, readable.etag, readable.modified.http_seconds):
        raise ApiError(
            412, "a condition on the ETag or date of the object does not hold", {"Etag": readable.headers["Etag"]}
        )


async def _check_delete_at(call: Call, path: Path, text: str) -> None:
    """Check X-If-Delete-At: the DELETE is for an object that expires at that time, whether it has passed or not."""
    if not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
        raise ApiError(400, f"Bad {IF_DELETE_AT} header value")
    objects = call.api.objects
    await call.access.require("DELETE", path)
    info = await with_policy(call.api, path, lambda policy: objects.head(path, policy, newest=True))
    if delete_at_of(info.metadata) != int(text):
        raise ApiError(412, f"{IF_DELETE_AT} and X-Delete-At do not match")
