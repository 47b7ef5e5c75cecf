"""The middleware around every request: its id, the count of requests in progress, and the answer to
unexpected errors.
"""

from __future__ import annotations

import re

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from swiftlet.context import REQUEST_ID_HEADER, new_request_id, request_id
from swiftlet.web.logs import get_logger
from swiftlet.web.metrics import HttpMetrics

OPENSTACK_HEADER = "X-Openstack-Request-Id"
EXTRA_HEADER = "X-Trans-Id-Extra"
"""A client's own mark, which is put behind the id so that the client finds its requests in our logs."""
CLIENT_GONE = 499
"""The status in logs and metrics of a request whose client went away before its answer."""
ID = web.RequestKey("request_id", str)
_BEGUN = web.RequestKey("begun_response", web.StreamResponse)

_PEER_ID = re.compile(r"[A-Za-z0-9._-]{1,80}", re.ASCII)
_NOT_EXTRA = re.compile(r"[^A-Za-z0-9._-]", re.ASCII)
_MAX_EXTRA_CHARS = 32

_log = get_logger("web")


def choose_id(request: web.Request, trust_peers: bool) -> str:
    """Return the id that a trusted peer sent, otherwise a new one, with the client's own mark behind it."""
    if trust_peers:
        sent = request.headers.get(REQUEST_ID_HEADER, "")
        if _PEER_ID.fullmatch(sent):
            return sent
    fresh = new_request_id()
    extra = request.headers.get(EXTRA_HEADER)
    if extra:
        return f"{fresh}-{_NOT_EXTRA.sub('_', extra)[:_MAX_EXTRA_CHARS]}"
    return fresh


def around_requests(metrics: HttpMetrics, trust_peers: bool) -> Middleware:
    """Return the outermost middleware of a service."""

    @web.middleware
    async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
        current = choose_id(request, trust_peers)
        request[ID] = current
        request_id.set(current)
        metrics.in_flight.inc()
        try:
            return await handler(request)
        except web.HTTPException:
            raise
        except Exception as error:
            return _client_gone(request, error) if _is_gone(request) else _unexpected(request)
        finally:
            metrics.in_flight.dec()

    return around


def _is_gone(request: web.Request) -> bool:
    return request.transport is None or request.transport.is_closing()


def _client_gone(request: web.Request, error: Exception) -> web.StreamResponse:
    """Return an answer for the access log, as the client is gone."""
    _log.info("the client closed the connection", method=request.method, path=path_of(request), error=repr(error))
    begun: web.StreamResponse | None = request.get(_BEGUN)
    return begun if begun is not None else web.Response(status=CLIENT_GONE)


def _unexpected(request: web.Request) -> web.StreamResponse:
    """Answer 500, or cut the connection when a part of another answer was already sent."""
    begun: web.StreamResponse | None = request.get(_BEGUN)
    _log.exception("unexpected error", method=request.method, path=path_of(request), response_begun=begun is not None)
    if begun is None:
        return web.Response(status=500, text=f"Internal error; request id {request[ID]}\n")
    # Only a cut tells the client that the body is truncated: after a proper end it would look complete.
    if request.transport is not None:
        request.transport.abort()
    return begun


async def mark_response(request: web.Request, response: web.StreamResponse) -> None:
    """Note that the head of an answer is about to be sent, and put the request id in it."""
    request[_BEGUN] = response
    response.headers.pop("Server", None)  # Clients need not know the versions of aiohttp and Python.
    current = request.get(ID)
    if current is not None:
        response.headers[REQUEST_ID_HEADER] = current
        response.headers[OPENSTACK_HEADER] = current


def path_of(request: web.BaseRequest) -> str:
    """Return the path as it came, without the query, which may have signatures."""
    return request.raw_path.partition("?")[0]
