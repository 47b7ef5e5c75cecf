"""Completes each response's head just before it is sent, whoever made the response and even if it is streamed."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

Finish = Callable[[web.StreamResponse], None]
_FINISHES = web.RequestKey("finishes", list[Finish])


def finish_with(request: web.Request, finish: Finish) -> None:
    """Register a function that finishes this request's response; the one registered last runs last."""
    if _FINISHES not in request:
        request[_FINISHES] = []
    request[_FINISHES].append(finish)


HTML = "text/html; charset=UTF-8"
"""The content type of responses that have no body of their own, as in OpenStack Swift."""


async def finish(request: web.Request, response: web.StreamResponse) -> None:
    """Complete the headers of each response; the application calls it as `on_response_prepare`."""
    if response.status == 204:
        # The HTTP library leaves the length out, as RFC 9110 asks, but Swift's clients look for it.
        response.headers["Content-Length"] = "0"
    if response.status != 304:
        response.headers.setdefault("Content-Type", HTML)
    for one in request.get(_FINISHES, ()):
        one(response)


def accepted() -> web.Response:
    """Return the response 202 in OpenStack Swift's words."""
    text = "<html><h1>Accepted</h1><p>The request is accepted for processing.</p></html>"
    return web.Response(status=202, text=text, headers={"Content-Type": HTML})
