"""Keystone 3: `/v3/auth/tokens` (get, show, check, revoke), and the catalog and projects of a token.

A token has no scope of its own: it is its user's, in the user's account. The scope that a login asks for decides which
account the catalog points to.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from swiftlet.api.context.core import SwiftApi
from swiftlet.api.http.problems import ApiError
from swiftlet.api.login.keystone_documents import DOMAIN, catalog_v3, project, token_v3
from swiftlet.api.login.keystone_scope import REFUSED, by_password, by_token, part, scoped, text
from swiftlet.api.login.tokens import base_url
from swiftlet.auth.identity import Identity, Role
from swiftlet.auth.tokens import Token
from swiftlet.errors import Forbidden, NotFound, Unauthorized

_SUBJECT = "X-Subject-Token"
_METHODS = ("password", "token")


async def log_in(api: SwiftApi, request: web.Request, document: Mapping[str, Any]) -> web.Response:
    """Return 201 with the token in X-Subject-Token and its description."""
    auth = part(document, "auth", "the body")
    identity = part(auth, "identity", "auth")
    wanted = _wanted_account(auth)
    method = _method(identity)
    if method == "token":
        old = text(part(identity, "token", "auth.identity"), "id", "auth.identity.token")
        if old is None:
            raise ApiError(400, "auth.identity.token.id is missing")
        token = by_token(api, old)
    else:
        login, secret = _credentials(identity)
        token = await by_password(api, request, login, wanted, secret)
    account = scoped(token.identity, wanted)
    return _described(api, request, token, account, method, 201, api.tokens.text(token))


async def show(api: SwiftApi, request: web.Request) -> web.Response:
    """Return 200 with the description of the token in X-Subject-Token; 404 if that is not valid."""
    subject = _subject(api, request)
    return _described(api, request, subject, subject.identity.tenant, "password", 200, request.headers[_SUBJECT])


async def revoke(api: SwiftApi, request: web.Request) -> web.Response:
    """Revoke the token in X-Subject-Token; 204."""
    await api.revocations.revoke(_subject(api, request), api.tokens.life_s)
    return web.Response(status=204)


async def show_catalog(api: SwiftApi, request: web.Request) -> web.Response:
    """Return 200 with the services for the sender's account."""
    account = _sender(api, request).tenant
    return web.json_response({"catalog": catalog_v3(base_url(api, request), account), "links": {}})


async def show_projects(api: SwiftApi, request: web.Request) -> web.Response:
    """Return 200 with the sender's account."""
    account = _sender(api, request).tenant
    known = project(account) | {"domain_id": DOMAIN["id"], "enabled": True}
    return web.json_response({"projects": [known], "links": {}})


def _described(
    api: SwiftApi, request: web.Request, token: Token, account: str, method: str, status: int, carried: str
) -> web.Response:
    wanted = "nocatalog" not in request.rel_url.query
    catalog = catalog_v3(base_url(api, request), account) if wanted else None
    headers = {_SUBJECT: carried, "Vary": "X-Auth-Token"}
    return web.json_response(token_v3(token, account, [method], catalog), status=status, headers=headers)


def _method(identity: Mapping[str, Any]) -> str:
    methods = identity.get("methods")
    if not isinstance(methods, list) or len(methods) != 1 or methods[0] not in _METHODS:
        raise ApiError(400, 'auth.identity.methods must be ["password"] or ["token"]')
    return str(methods[0])


def _credentials(identity: Mapping[str, Any]) -> tuple[str, str]:
    where = "auth.identity.password.user"
    user = part(part(identity, "password", "auth.identity"), "user", "auth.identity.password")
    login, secret = text(user, "id", where) or text(user, "name", where), text(user, "password", where)
    if login is None or secret is None:
        raise ApiError(400, f"{where} needs name (or id) and password")
    if "id" not in user:
        _check_domain(user, where)
    return login, secret


def _wanted_account(auth: Mapping[str, Any]) -> str | None:
    """Return the account that a token is requested for; None for the user's own."""
    if auth.get("scope") in (None, "unscoped"):
        return None
    scope = part(auth, "scope", "auth")
    if "project" not in scope:
        raise ApiError(400, "auth.scope can only be a project")
    wanted = part(scope, "project", "auth.scope")
    account = text(wanted, "id", "auth.scope.project") or text(wanted, "name", "auth.scope.project")
    if account is None:
        raise ApiError(400, "auth.scope.project needs name or id")
    if "id" not in wanted:
        _check_domain(wanted, "auth.scope.project")
    return account


def _check_domain(fields: Mapping[str, Any], where: str) -> None:
    """Check that the domain, if one is given, is the only one there is."""
    if fields.get("domain") is None:
        return
    domain = part(fields, "domain", where)
    known = text(domain, "id", f"{where}.domain") or text(domain, "name", f"{where}.domain")
    if known is None:
        raise ApiError(400, f"{where}.domain needs id or name")
    if known.lower() != DOMAIN["id"]:
        raise Unauthorized(REFUSED)


def _sender(api: SwiftApi, request: web.Request) -> Identity:
    token = request.headers.get("X-Auth-Token")
    if not token:
        raise Unauthorized(REFUSED)
    return api.tokens.check(token)


def _subject(api: SwiftApi, request: web.Request) -> Token:
    """Return the token that a request is about: one's own, for an admin any of the account, for a reseller
    admin any.
    """
    sender = _sender(api, request)
    carried = request.headers.get(_SUBJECT)
    if not carried:
        raise ApiError(400, f"{_SUBJECT} is missing; it must carry the token that is to be checked or revoked")
    try:
        subject = api.tokens.read(carried)
    except Unauthorized as error:
        raise NotFound("the token in X-Subject-Token is not valid or has expired") from error
    about = subject.identity
    same = (sender.account, sender.user) == (about.account, about.user)
    admin = Role.ADMIN in sender.roles and sender.account == about.account
    if not (same or admin or Role.RESELLER_ADMIN in sender.roles):
        raise Forbidden("You are not authorized to perform the requested action: the token belongs to another user")
    return subject
