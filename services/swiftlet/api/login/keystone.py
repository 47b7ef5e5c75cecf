"""Keystone's token endpoints, versions 2.0 and 3, over the same users and tokens as v1 auth.

https://docs.openstack.org/api-ref/identity/v3/ and https://docs.openstack.org/api-ref/identity/v2/. A project (tenant)
is an account, with the name that its users use; there is one domain, `default`. A token of either version is the same
token as that of `/auth/v1.0`. This module has the paths, bodies, errors in Keystone's form, and version 2.0.

Fault model: anybody may send anything. A body is limited before it is parsed; a malformed one is 400 with the name of
the field. Wrong names and secrets are 401, without a word on which of them it was.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from aiohttp import web

from swiftlet.api.context.core import SwiftApi
from swiftlet.api.http.body import Body
from swiftlet.api.http.problems import ApiError, answer, status_of
from swiftlet.api.login import keystone_v3
from swiftlet.api.login.keystone_documents import access_v2, versions
from swiftlet.api.login.keystone_scope import by_password, by_token, part, scoped, text
from swiftlet.api.login.tokens import base_url
from swiftlet.errors import SwiftletError

MAX_BODY = 16 * 1024
"""The largest size in bytes of a request for a token."""

Handler = Callable[[SwiftApi, web.Request], Awaitable[web.Response]]
WithBody = Callable[[SwiftApi, web.Request, Mapping[str, Any]], Awaitable[web.Response]]


def _with_body(handler: WithBody) -> Handler:
    async def handle(api: SwiftApi, request: web.Request) -> web.Response:
        body = Body(request, MAX_BODY, api.options.client_timeout_s)
        raw = b"".join([piece async for piece in body.pieces()])
        try:
            document = json.loads(raw)
        except (ValueError, RecursionError) as error:
            raise ApiError(400, 'the body is not JSON; send {"auth": {...}}') from error
        if not isinstance(document, dict):
            raise ApiError(400, 'the body is not a JSON object; send {"auth": {...}}')
        return await handler(api, request, document)

    return handle


def _version(number: str) -> Handler:
    async def handle(api: SwiftApi, request: web.Request) -> web.Response:
        return web.json_response({"version": versions(base_url(api, request))[number]})

    return handle


async def _choices(api: SwiftApi, request: web.Request) -> web.Response:
    """Return 300 with all versions, for clients that know only the host."""
    known = [versions(base_url(api, request))[number] for number in ("v3", "v2.0")]
    headers = {"Vary": "X-Auth-Token", "Location": f"{base_url(api, request)}/v3/"}
    return web.json_response({"versions": {"values": known}}, status=300, headers=headers)


async def _log_in_v2(api: SwiftApi, request: web.Request, document: Mapping[str, Any]) -> web.Response:
    """Return 200 with the token and the catalog, by password or token, with the tenant."""
    auth = part(document, "auth", "the body")
    tenant = text(auth, "tenantName", "auth") or text(auth, "tenantId", "auth")
    if "passwordCredentials" in auth:
        where = "auth.passwordCredentials"
        given = part(auth, "passwordCredentials", "auth")
        login = text(given, "username", where) or text(given, "userId", where)
        secret = text(given, "password", where)
        if login is None or secret is None:
            raise ApiError(400, f"{where} needs username and password")
        token = await by_password(api, request, login, tenant, secret)
    elif "token" in auth:
        old = text(part(auth, "token", "auth"), "id", "auth.token")
        if old is None:
            raise ApiError(400, "auth.token.id is missing")
        token = by_token(api, old)
    else:
        raise ApiError(400, "auth needs passwordCredentials or token")
    account = scoped(token.identity, tenant)
    access = access_v2(token, api.tokens.text(token), account, base_url(api, request))
    return web.json_response(access, headers={"Vary": "X-Auth-Token"})


_V3_TOKENS: Mapping[str, Handler] = {
    "POST": _with_body(keystone_v3.log_in),
    "GET": keystone_v3.show,
    "HEAD": keystone_v3.show,
    "DELETE": keystone_v3.revoke,
}
_PATHS: Mapping[str, Mapping[str, Handler]] = {
    "/": dict.fromkeys(("GET", "HEAD"), _choices),
    "/v3": dict.fromkeys(("GET", "HEAD"), _version("v3")),
    "/v3/auth/tokens": _V3_TOKENS,
    "/v3/auth/catalog": dict.fromkeys(("GET", "HEAD"), keystone_v3.show_catalog),
    "/v3/auth/projects": dict.fromkeys(("GET", "HEAD"), keystone_v3.show_projects),
    "/v2.0": dict.fromkeys(("GET", "HEAD"), _version("v2.0")),
    "/v2.0/tokens": {"POST": _with_body(_log_in_v2)},
}


def is_keystone(raw_path: str) -> bool:
    """Return whether a path is one of Keystone's."""
    return raw_path.startswith(("/v3/", "/v2.0/")) or raw_path in _PATHS


async def handle(api: SwiftApi, request: web.Request) -> web.Response:
    """Answer a request for one of Keystone's paths, including errors."""
    raw = request.rel_url.raw_path
    methods = _PATHS.get(raw.rstrip("/") or "/")
    try:
        if methods is None:
            raise ApiError(404, "of the Keystone API, only tokens are implemented, at /v3/auth/tokens and /v2.0/tokens")
        if request.method not in methods:
            names = ", ".join(methods)
            raise ApiError(405, f"{request.method} is not allowed for this path; allowed are {names}", {"Allow": names})
        return await methods[request.method](api, request)
    except SwiftletError as error:
        return _problem(api, request, error)


def _problem(api: SwiftApi, request: web.Request, error: SwiftletError) -> web.Response:
    """Return an error in Keystone's form, with the headers that errors have everywhere."""
    status, plain = status_of(error), answer(error)
    headers = {name: value for name, value in plain.headers.items() if name != "Content-Type"}
    if status == 401:
        headers["WWW-Authenticate"] = f'Keystone uri="{base_url(api, request)}/v3"'
    document = {"error": {"code": status, "message": str(error), "title": plain.reason or "Error"}}
    headers.pop("Content-Length", None)
    return web.json_response(document, status=status, reason=plain.reason, headers=headers)
