"""What requests to a metadata server have in common: a token, and a body of a bounded size."""

from __future__ import annotations

from aiohttp import web

from swiftlet.api.http.problems import ApiError
from swiftlet.errors import Unauthorized


def token_text(request: web.Request) -> str:
    """Return the text of the token that a request has. Raises Unauthorized."""
    text = request.headers.get("X-Auth-Token") or request.headers.get("X-Storage-Token")
    if not text:
        raise Unauthorized("send X-Auth-Token; the proxy issues tokens at /auth/v1.0")
    return text


async def whole_body(request: web.Request, limit: int) -> bytes:
    """Return the body of a request, which has to tell its size. Raises ApiError 411, and 413 above `limit` bytes."""
    size = request.content_length
    if size is None or size > limit:
        raise ApiError(413 if size else 411, f"a body of a known size up to {limit} bytes is needed")
    return await request.content.readexactly(size)
