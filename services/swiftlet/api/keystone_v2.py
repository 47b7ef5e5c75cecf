"""Keystone 2.0: `POST /v2.0/tokens` by password or token, with the tenant."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from swiftlet.api.core import SwiftApi
from swiftlet.api.keystone_documents import access_v2
from swiftlet.api.keystone_scope import by_password, by_token, part, scoped, text
from swiftlet.api.problems import ApiError
from swiftlet.api.tokens import base_url


async def log_in(api: SwiftApi, request: web.Request, document: Mapping[str, Any]) -> web.Response:
    """200 with the token and the catalog."""
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
    answer = access_v2(token, api.tokens.text(token), account, base_url(api, request))
    return web.json_response(answer, headers={"Vary": "X-Auth-Token"})
