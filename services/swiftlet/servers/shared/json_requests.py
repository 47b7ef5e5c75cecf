"""Small JSON requests between the cluster's services: limits, signatures, domain errors as answers.

Fault model: anybody who reaches the port may send anything. Bodies are limited while they are read, and the signature
over method, target and body is checked before any of them is used. Domain errors become answers here and nowhere else;
unexpected ones are left to the middleware around every request.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from swiftlet.errors import SwiftletError
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import (
    JSON_TYPE,
    SIGNATURE_HEADER,
    WireError,
    error_to_wire,
    json_bytes,
    json_object,
)

Answer = dict[str, Any]


async def read_limited(request: web.Request, limit: int) -> bytes:
    """Read the whole body. Raises WireError when it has more than `limit` bytes."""
    pieces: list[bytes] = []
    size = 0
    async for piece in request.content.iter_any():
        size += len(piece)
        if size > limit:
            raise WireError(f"the body has more than {limit} bytes; send less at a time")
        pieces.append(piece)
    return b"".join(pieces)


def signed_parts(request: web.Request) -> tuple[str | None, str, str, str]:
    """Return the signature, and what it covers of the head: method, host, target."""
    headers = request.headers
    return headers.get(SIGNATURE_HEADER), request.method, headers.get("Host", ""), request.raw_path


async def read_signed(request: web.Request, limit: int, key: ClusterKey | None, *, once: bool = False) -> bytes:
    """Return the body of a request with a valid signature. Raises Unauthorized and WireError.

    With `once` a repetition of the request is refused.
    """
    body = await read_limited(request, limit)
    if key is not None:
        check = key.check_once if once else key.check
        check(*signed_parts(request), body)
    return body


def parsed(body: bytes) -> Answer:
    """Return the JSON object in a body; an empty body is an empty object."""
    return json_object(body) if body else {}


def answer(fields: Answer, status: int = 200) -> web.Response:
    """Return an answer with a JSON body."""
    return web.Response(status=status, body=json_bytes(fields), content_type=JSON_TYPE)


def refusal(error: SwiftletError) -> web.Response:
    """Return the answer for a domain error."""
    status, fields = error_to_wire(error)
    return web.Response(status=status, body=json.dumps(fields).encode(), content_type=JSON_TYPE)


async def answered(work: Callable[[], Awaitable[Answer | bytes]]) -> web.Response:
    """Return the result of `work` as an answer, as JSON unless it is bytes already; a domain error becomes
    its answer.
    """
    try:
        found = await work()
        return web.Response(body=found) if isinstance(found, bytes) else answer(found)
    except SwiftletError as error:
        return refusal(error)
