"""The user and account of a request for a Keystone token, parsed in the same way for both versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import web

from swiftlet.api.context.core import SwiftApi
from swiftlet.api.http.problems import ApiError
from swiftlet.auth.identity import Identity, Role
from swiftlet.auth.tokens import Token
from swiftlet.errors import Unauthorized

REFUSED = "The request you have made requires authentication."
"""Keystone's own message for any error in names and secrets."""


def part(fields: Mapping[str, Any], name: str, where: str) -> Mapping[str, Any]:
    """Return an object within an object; 400 names a wrong one."""
    value = fields.get(name)
    if not isinstance(value, dict):
        raise ApiError(400, f"{where}.{name} is missing or is not a JSON object")
    return value


def text(fields: Mapping[str, Any], name: str, where: str) -> str | None:
    """Return a text that may be left out; 400 names a wrong one."""
    value = fields.get(name)
    if value is None or (isinstance(value, str) and value):
        return value
    raise ApiError(400, f"{where}.{name} must be a string that is not empty")


async def by_password(api: SwiftApi, request: web.Request, login: str, account: str | None, secret: str) -> Token:
    """Return a new token for a user. Raises Unauthorized and TooManyFailures.

    `login` is `ACCOUNT:USER`, or a name in `account`, or the name of the only user with this name. Where several users
    have it, the error does not say so.
    """
    if ":" not in login:
        login = f"{account or api.users.only_account_of(login) or ''}:{login}"
    try:
        user = await api.logins.log_in(request, login, secret)
    except Unauthorized as error:
        raise Unauthorized(REFUSED) from error
    return api.tokens.fresh(user.identity, user.generation)


def by_token(api: SwiftApi, text: str) -> Token:
    """Return a new token for the holder of a valid one, which ends when that one does. Raises Unauthorized."""
    old = api.tokens.read(text)
    return api.tokens.fresh(old.identity, old.generation, old.expires)


def scoped(identity: Identity, account: str | None) -> str:
    """Return the account that a token is to be for; 401 for another than the user's own, except for reseller admins."""
    if account in {None, identity.tenant}:
        return identity.tenant
    if Role.RESELLER_ADMIN in identity.roles and account is not None and "/" not in account:
        return account
    raise Unauthorized(REFUSED)
