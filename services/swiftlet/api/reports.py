"""Answers that tell of many operations: of a manifest's segments, of a large object's deletion.

Fields and a list of (name, status) as text, JSON or XML, in the shapes of OpenStack Swift's bulk operations. While
the work goes on, white space keeps the connection alive; the outcome is in the body, the status has long been sent.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from xml.sax.saxutils import escape

from aiohttp import web

from swiftlet.api.core import Call
from swiftlet.api.listings import choose_type
from swiftlet.api.problems import CLIENT_GONE, ApiError

Failures = Sequence[tuple[str, str]]
"""Percent-encoded names and what is wrong with each."""
MAX_FAILURES = 1000
"""So many of them are told one by one; of the others only the number is told."""


def report_type(call: Call, default: str | None = None) -> str:
    """The report's media type by Accept; `default` when none is acceptable, 406 without a default."""
    try:
        return choose_type({}, call.request.headers.get("Accept"))
    except ApiError:
        if default is None:
            raise
        return default


def status_line(status: int) -> str:
    """`404 Not Found`."""
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)


def render_report(media_type: str, fields: Mapping[str, object], failures: Failures, root: str) -> bytes:
    """The report's body; `root` is the XML element around it."""
    if media_type == "application/json":
        return json.dumps({**fields, "Errors": [list(failure) for failure in failures]}).encode()
    if media_type.endswith("/xml"):
        lines = [f"<{root}>"]
        for key in sorted(fields):
            name = key.replace(" ", "_").lower()
            lines.append(f"<{name}>{escape(str(fields[key]))}</{name}>")
        lines.append("<errors>")
        for name, status in failures:
            lines.append(f"<object><name>{escape(name)}</name><status>{escape(status)}</status></object>")
        return "\n".join([*lines, "</errors>", f"</{root}>", ""]).encode()
    lines = [f"{key}: {fields[key]}" for key in sorted(fields)]
    return "\n".join([*lines, "Errors:", *(f"{name}, {status}" for name, status in failures), ""]).encode()


class ManyProblems(ApiError):
    """An answer other than success whose body lists what is wrong with each of many names."""

    def __init__(self, status: int, reason: str, failures: Failures, media_type: str, root: str) -> None:
        """Keep what a report needs."""
        super().__init__(status, reason)
        self.failures = tuple(failures[:MAX_FAILURES])
        hidden = len(failures) - MAX_FAILURES
        self.fields = {"Errors Not Shown": str(hidden)} if hidden > 0 else {}
        self._media_type = media_type
        self._root = root

    def response(self) -> web.Response:
        """The report as an answer of its own."""
        body = render_report(self._media_type, self.fields, self.failures, self._root)
        headers = {"Retry-After": "1"} if self.status == 503 else {}
        return web.Response(
            status=self.status, body=body, content_type=self._media_type, charset="utf-8", headers=headers
        )


async def report_alive(
    call: Call,
    status: int,
    media_type: str,
    work: Callable[[], Awaitable[bytes]],
    prologue: bytes = b"",
) -> web.StreamResponse:
    """Send the head at once and white space every `slo_yield_frequency_s` seconds until `work` has the body.

    A client that goes away ends the work.
    """
    response = web.StreamResponse(status=status)
    response.content_type, response.charset = media_type, "utf-8"
    await response.prepare(call.request)
    task = asyncio.ensure_future(work())
    try:
        await response.write(prologue + b" ")
        while not (await asyncio.wait({task}, timeout=call.api.options.limits.slo_yield_frequency_s))[0]:
            await response.write(b" ")
        await response.write(b"\r\n\r\n" + task.result())
        await response.write_eof()
    except ConnectionError as error:
        raise ApiError(CLIENT_GONE, "the client went away before the report") from error
    except BaseException:
        if call.request.transport is not None:
            call.request.transport.abort()
        raise
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    return response
