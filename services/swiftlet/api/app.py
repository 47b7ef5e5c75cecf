"""Dispatches requests: from a request line, through authentication, to the handler of its resource and method."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

import structlog
from aiohttp import hdrs, web

from swiftlet.api.context import cors
from swiftlet.api.context.access import Access, SignedAccess, TokenAccess
from swiftlet.api.context.core import Call, SwiftApi, parse_query
from swiftlet.api.context.deleted_accounts import refuse_deleted
from swiftlet.api.context.reports import ManyProblems
from swiftlet.api.http.body import defer_continue
from swiftlet.api.http.finishing import finish, finish_with
from swiftlet.api.http.problems import ApiError, answer, status_of
from swiftlet.api.login import container_sync, keystone, temp_url, tokens
from swiftlet.api.reading import get_object, static_web
from swiftlet.api.requests import (
    accounts,
    bulk,
    bulk_delete,
    bulk_extract,
    containers,
    delete_object,
    form_post,
    info,
    objects,
    put_object,
)
from swiftlet.errors import SwiftletError
from swiftlet.names import Path, parse_path

Handler = Callable[[Call], Awaitable[web.StreamResponse]]
PlainHandler = Callable[[SwiftApi, web.Request], Awaitable[web.StreamResponse]]

_log = structlog.get_logger("api")

_ACCOUNT: dict[str, Handler] = {
    "GET": accounts.get,
    "HEAD": accounts.head,
    "PUT": accounts.put,
    "POST": accounts.post,
    "DELETE": accounts.delete,
}
_CONTAINER: dict[str, Handler] = {
    "GET": containers.get,
    "HEAD": containers.head,
    "PUT": containers.put,
    "POST": containers.post,
    "DELETE": containers.delete,
}
_OBJECT: dict[str, Handler] = {
    "GET": get_object.get,
    "HEAD": get_object.head,
    "PUT": put_object.put,
    "POST": objects.post,
    "DELETE": delete_object.delete,
    "COPY": put_object.copy,
}
_BULK: Mapping[str, Handler] = {bulk.EXTRACT: bulk_extract.extract, bulk.DELETE: bulk_delete.delete_all}
INFO = "/info"
_PLAIN: Mapping[str, PlainHandler] = {
    INFO: info.get,
    "/healthcheck": info.healthcheck,
} | dict.fromkeys(tokens.PATHS, tokens.get)


def add_api_routes(app: web.Application, api: SwiftApi) -> None:
    """Route everything that no earlier route of `app` takes to the Swift API."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if "Upgrade" in request.headers:
            # Reading has not begun; what follows is no HTTP to aiohttp any more, and nobody would be answered.
            finish_with(request, web.StreamResponse.force_close)
        try:
            return await _dispatch(api, request)
        except SwiftletError as error:
            return _problem(request, error)

    async def expect(request: web.Request) -> web.StreamResponse | None:
        try:
            await defer_continue(request)
        except SwiftletError as error:
            return _problem(request, error)
        return None

    app.on_response_prepare.append(finish)
    # `[\s\S]`: the router matches decoded paths, and a name may contain a newline.
    app.router.add_route("*", r"/{tail:[\s\S]*}", handle, expect_handler=expect)


def _problem(request: web.Request, error: SwiftletError) -> web.StreamResponse:
    status = status_of(error)
    if isinstance(error, ManyProblems):
        return error.response()
    if status >= 500:
        _log.warning("a request failed", method=request.method, path=request.rel_url.raw_path, error=str(error))
    if request.method == hdrs.METH_HEAD:
        response = answer(error, _realm(request))
        headers = {k: v for k, v in response.headers.items() if k not in {"Content-Type", "Content-Length"}}
        return web.Response(status=status, reason=response.reason, headers=headers | {"Content-Length": "0"})
    return answer(error, _realm(request))


def _realm(request: web.Request) -> str:
    pieces = request.rel_url.raw_path.split("/", 3)
    return pieces[2][:256] if len(pieces) > 2 and pieces[1] == "v1" else "unknown"


async def _dispatch(api: SwiftApi, request: web.Request) -> web.StreamResponse:
    if "#" in request.raw_path:
        # The parser has cut the target there, so `rel_url` names another object than the client does.
        raise ApiError(400, "the request target contains a '#'; a '#' that is part of a name is written as %23")
    raw = request.rel_url.raw_path
    if keystone.is_keystone(raw):
        return await keystone.handle(api, request)
    if raw in _PLAIN:
        if request.method == "OPTIONS" and raw == INFO:
            return web.Response(headers={"Allow": "HEAD, GET, OPTIONS"})
        if request.method not in {"GET", "HEAD"}:
            raise _not_allowed(request.method, ["GET", "HEAD"])
        return await _PLAIN[raw](api, request)
    version, slash, rest = raw[1:].partition("/")
    if version not in {"v1", "v1.0"}:
        raise ApiError(
            404,
            "there is nothing at this path; paths of the Swift API begin with /v1/ACCOUNT, and tokens are "
            "issued at /auth/v1.0",
        )
    path = parse_path(slash + rest)
    return await _call(api, request, path)


async def _call(api: SwiftApi, request: web.Request, path: Path) -> web.StreamResponse:
    handlers = _OBJECT if path.obj is not None else _CONTAINER if path.container is not None else _ACCOUNT
    if request.method == "OPTIONS":
        return await cors.options(api, request, path, [*handlers, "OPTIONS"])
    await cors.note_origin(api, request, path)
    if request.method not in handlers:
        raise _not_allowed(request.method, list(handlers))
    if api.options.formpost.enabled and form_post.is_form(request):
        return await form_post.post(api, request, path)
    query = parse_query(request.rel_url.raw_query_string)
    if container_sync.is_signed(api, request, path):
        return await _carry_out(await container_sync.admit(api, request, path, query))
    access: Access
    if api.options.tempurl.enabled and temp_url.is_temp_url(query):
        request, access = await temp_url.admit(api, request, path, query)
        asked, query = query, {}
    else:
        asked, access = query, _authenticate(api, request)
    call = Call(api, request, path, query, access)
    many = bulk.asked_for(request.method, query)
    if many is not None:
        return await _BULK[many](call)
    if static_web.is_visit(call, asked):
        return await static_web.visit(call, asked, lambda shown: _carry_out(replace(call, path=shown)))
    return await _carry_out(call)


async def _carry_out(call: Call) -> web.StreamResponse:
    """Carry out one request for one resource; the method is known to exist for this kind of path."""
    path, method = call.path, call.request.method
    if path.obj is None and isinstance(call.access, SignedAccess):
        raise temp_url.Invalid  # A signature gives access to pages of a site, never to the container's own listing.
    handlers = _OBJECT if path.obj is not None else _CONTAINER if path.container is not None else _ACCOUNT
    if path.obj is not None and put_object.is_copy(call):
        # A copy checks the rights to what it reads and to what it writes itself, in this order.
        return await handlers[method](call)
    owner = await call.access.require(method, path)
    await refuse_deleted(call.api.accounts, method, path)
    await call.api.rates.admit(method, path)
    return await handlers[method](replace(call, owner=owner))


def _not_allowed(method: str, allowed: list[str]) -> ApiError:
    names = ", ".join(allowed)
    return ApiError(405, f"{method} is not allowed for this path; allowed are {names}", {"Allow": names})


def _authenticate(api: SwiftApi, request: web.Request) -> TokenAccess:
    """Return the sender's rights; without a token, those of anybody. Raises Unauthorized for an invalid token."""
    token = request.headers.get("X-Auth-Token") or request.headers.get("X-Storage-Token")
    identity = api.tokens.check(token) if token else None
    return TokenAccess(api.containers, api.accounts, identity, request.headers.get("Referer"))
