"""What is done to an answer's head just before it goes out, whoever made the answer and even if it is streamed."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

Finish = Callable[[web.StreamResponse], None]
_FINISHES = web.RequestKey("finishes", list[Finish])


def finish_with(request: web.Request, finish: Finish) -> None:
    """Have this request's answer finished so; the one added last comes last."""
    if _FINISHES not in request:
        request[_FINISHES] = []
    request[_FINISHES].append(finish)


async def finish(request: web.Request, response: web.StreamResponse) -> None:
    """The application's `on_response_prepare`."""
    for one in request.get(_FINISHES, ()):
        one(response)
