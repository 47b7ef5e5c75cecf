"""Auth v1: `GET /auth/v1.0` with X-Auth-User and X-Auth-Key gives a token and the storage URL."""

from __future__ import annotations

from aiohttp import web

from swiftlet.api.context.core import SwiftApi
from swiftlet.errors import Unauthorized

PATHS = frozenset({"/auth/v1.0", "/auth/v1.0/", "/auth/v1", "/auth/v1/"})


def base_url(api: SwiftApi, request: web.Request) -> str:
    """Return the URL of this proxy as the client reaches it, without a slash at the end."""
    return (api.options.storage_url or f"{request.scheme}://{request.host}").rstrip("/")


def storage_url(api: SwiftApi, request: web.Request, account: str) -> str:
    """Return the URL of the account's data as the client reaches this proxy."""
    return f"{base_url(api, request)}/v1/{account}"


async def get(api: SwiftApi, request: web.Request) -> web.Response:
    """Check the user and the key; 401, or 429 after too many failures."""
    headers = request.headers
    login = headers.get("X-Auth-User") or headers.get("X-Storage-User")
    secret = headers.get("X-Auth-Key") or headers.get("X-Storage-Pass")
    if not login or not secret:
        raise Unauthorized("send X-Auth-User: ACCOUNT:USER and X-Auth-Key: KEY")
    user = await api.logins.log_in(request, login, secret)
    identity = user.identity
    token, life_s = api.tokens.issue(identity, user.generation)
    answer = {
        "X-Storage-Url": storage_url(api, request, identity.account),
        "X-Auth-Token": token,
        "X-Storage-Token": token,
        "X-Auth-Token-Expires": str(life_s),
    }
    return web.Response(status=200, headers=answer)
