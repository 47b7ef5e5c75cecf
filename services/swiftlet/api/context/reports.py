"""Reports on many operations: on a manifest's segments, or on the deletion of a large object.

They have fields and a list of (name, status) as text, JSON or XML, in the forms of OpenStack Swift's bulk operations.
Short work is complete when its response begins. During long work white space keeps the connection alive: the status has
been sent before, and the outcome is in the body.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from xml.sax.saxutils import escape

from aiohttp import web

from swiftlet.api.context.core import Call
from swiftlet.api.http.listings import choose_type
from swiftlet.api.http.problems import CLIENT_GONE, ApiError, reason_of

Failures = Sequence[tuple[str, str]]
"""Percent-encoded names and what is wrong with each."""
MAX_FAILURES = 1000
"""The largest number of failures in a report; of further ones it has only the number."""

_XML = b'<?xml version="1.0" encoding="UTF-8"?>\n'


def report_type(call: Call, default: str | None = None) -> str:
    """Return the report's media type by Accept; `default` when none is acceptable, 406 without a default."""
    try:
        return choose_type({}, call.request.headers.get("Accept"))
    except ApiError:
        if default is None:
            raise
        return default


def status_line(status: int) -> str:
    """Return the status with its reason phrase, such as `404 Not Found`; the number alone when it has none."""
    reason = reason_of(status)
    return str(status) if reason is None else f"{status} {reason}"


def render_report(media_type: str, fields: Mapping[str, object], failures: Failures, root: str) -> bytes:
    """Return the report's body; `root` is its XML root element."""
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
    """A response other than success whose body lists what is wrong with each of many names."""

    def __init__(self, status: int, reason: str, failures: Failures, media_type: str, root: str) -> None:
        """Keep what the report needs."""
        super().__init__(status, reason)
        self.failures = tuple(failures[:MAX_FAILURES])
        hidden = len(failures) - MAX_FAILURES
        self.fields = {"Errors Not Shown": str(hidden)} if hidden > 0 else {}
        self._media_type = media_type
        self._root = root

    def response(self) -> web.Response:
        """Return the report as a response of its own."""
        body = render_report(self._media_type, self.fields, self.failures, self._root)
        headers = {"Retry-After": "1"} if self.status == 503 else {}
        return web.Response(
            status=self.status, body=body, content_type=self._media_type, charset="utf-8", headers=headers
        )


async def report_alive(
    call: Call, status: int, media_type: str, work: Callable[[], Awaitable[bytes]], at_once: bool = False
) -> web.StreamResponse:
    """Respond with the body that `work` returns in the end.

    When the work takes longer than `slo_yield_frequency_s` seconds, the head is sent then, and white space at this
    interval until its end; with `at_once` the head is sent before all work. The work ends once it is noticed that the
    client has gone.
    """
    # As in OpenStack Swift, a report after white space has no XML declaration.
    begun = _XML if media_type.endswith("/xml") and not at_once else b""
    task = asyncio.ensure_future(work())
    try:
        if not at_once and await _over(call, task):
            return web.Response(status=status, body=begun + task.result(), content_type=media_type, charset="utf-8")
        return await _stream(call, status, media_type, begun or b" ", task)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _over(call: Call, task: asyncio.Future[bytes]) -> bool:
    """Return whether the work ends before the next white space is due."""
    return bool((await asyncio.wait({task}, timeout=call.api.options.limits.slo_yield_frequency_s))[0])


async def _stream(
    call: Call, status: int, media_type: str, begun: bytes, task: asyncio.Future[bytes]
) -> web.StreamResponse:
    response = web.StreamResponse(status=status)
    response.content_type, response.charset = media_type, "utf-8"
    try:
        await response.prepare(call.request)
        await response.write(begun)
        while not await _over(call, task):
            await response.write(b" ")
        await response.write(b"\r\n\r\n" + task.result())
        await response.write_eof()
    except ConnectionError as error:
        raise ApiError(CLIENT_GONE, "the client closed the connection before the report was sent") from error
    except BaseException:
        if call.request.transport is not None:
            call.request.transport.abort()
        raise
    return response
