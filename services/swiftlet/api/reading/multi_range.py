"""Several ranges in one response: multipart/byteranges (RFC 9110, section 14.6)."""

from __future__ import annotations

import secrets

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.reading.readables import Readable
from swiftlet.api.reading.sending import Span, copy_to, cut_on_error, length_of


def part_heads(readable: Readable, spans: list[Span], boundary: str) -> list[bytes]:
    """Return the text before each range, its boundary included."""
    return [
        (
            f"--{boundary}\r\nContent-Type: {readable.content_type}\r\n"
            f"Content-Range: bytes {start}-{stop - 1}/{readable.size}\r\n\r\n"
        ).encode()
        for start, stop in spans
    ]


async def send_parts(call: Call, readable: Readable, spans: list[Span]) -> web.StreamResponse:
    """Send the ranges in the order asked for (206); the first is open before the head is sent."""
    boundary = secrets.token_hex(16)
    heads, end = part_heads(readable, spans, boundary), f"--{boundary}--".encode()
    response = web.StreamResponse(status=206, headers=readable.headers)
    response.headers["Content-Type"] = f"multipart/byteranges;boundary={boundary}"
    response.content_length = length_of([*heads, *[b"\r\n"] * len(spans), end], spans)
    source = await readable.open(*spans[0])
    try:
        async with cut_on_error(call):
            await response.prepare(call.request)
            for number, head in enumerate(heads):
                if number:
                    source = await readable.open(*spans[number])
                await response.write(head)
                await copy_to(call, source, response)
                await response.write(b"\r\n")
                await source.close()
            await response.write(end)
    finally:
        await source.close()
    await response.write_eof()
    return response
