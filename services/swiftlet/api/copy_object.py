"""COPY of an object: a PUT at the destination, with the object in the request line as its source."""

from __future__ import annotations

from aiohttp import web

from swiftlet.api.copying import named_object
from swiftlet.api.core import Call
from swiftlet.api.problems import ApiError
from swiftlet.api.put_object import put_at


async def copy(call: Call) -> web.StreamResponse:
    """COPY /v1/{account}/{container}/{object}: 201."""
    headers = call.request.headers
    if not headers.get("Destination"):
        raise ApiError(412, "Destination header required")
    if "X-Copy-From" in headers:
        raise ApiError(400, "COPY takes its source from the path; X-Copy-From is for PUT")
    destination = named_object(call, "Destination", "Destination-Account")
    return await put_at(call, destination, source=call.path)
