"""Logging in: credentials become a storage URL and a token."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp

from swiftlet.client.credentials import (
    V1,
    ApplicationCredential,
    Catalog,
    Credentials,
    KeystonePassword,
    KeystoneToken,
    MountedSecret,
    Token,
)
from swiftlet.client.errors import ConfigurationError, ConnectionFailed, status_error

_ERROR_BYTES = 4000


@dataclass(frozen=True, slots=True)
class Login:
    """Where the account is, and what opens it."""

    storage_url: str
    token: str = field(repr=False)


async def log_in(session: aiohttp.ClientSession, credentials: Credentials) -> Login:
    """Return a new login.

    Unauthorized when the store does not take the credentials, ConnectionFailed when it can't be reached,
    ConfigurationError when its answer has no storage URL.
    """
    try:
        match credentials:
            case Token():
                return Login(credentials.storage_url.rstrip("/"), credentials.token)
            case MountedSecret():
                return await _v1(session, await asyncio.to_thread(credentials.read))
            case V1():
                return await _v1(session, credentials)
            case _:
                return await _keystone(session, credentials)
    except aiohttp.InvalidURL as error:
        raise ConfigurationError(f"{error} is no URL to log in at") from error
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise ConnectionFailed(f"logging in failed: {error or type(error).__name__}", sent=False) from error
    except ValueError as error:
        raise ConfigurationError(f"the answer to logging in is not Swift's: {error}") from error


@lru_cache(maxsize=64)
def proxy_for(url: str) -> str | None:
    """Return the HTTP proxy that the environment names for a URL, None for none; looked up once.

    aiohttp itself would look at the environment, and for passwords in a .netrc, for each request anew.
    """
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return getproxies().get(parts.scheme)


async def _v1(session: aiohttp.ClientSession, given: V1) -> Login:
    headers = {"X-Auth-User": given.user, "X-Auth-Key": given.key}
    async with session.get(
        given.auth_url, headers=headers, proxy=proxy_for(given.auth_url), allow_redirects=False
    ) as answer:
        await _refuse(answer, "GET", given.auth_url)
        url, token = given.storage_url or answer.headers.get("X-Storage-Url"), answer.headers.get("X-Auth-Token")
    if not url or not token:
        raise ConfigurationError(f"{given.auth_url} gives no storage URL: is it the URL of /auth/v1.0?")
    return Login(url.rstrip("/"), token)


async def _keystone(
    session: aiohttp.ClientSession, given: KeystonePassword | KeystoneToken | ApplicationCredential
) -> Login:
    base = given.auth_url.rstrip("/").removesuffix("/v2.0")
    url = (base if base.endswith("/v3") else f"{base}/v3") + "/auth/tokens"
    async with session.post(
        url, json={"auth": _document(given)}, proxy=proxy_for(url), allow_redirects=False
    ) as answer:
        await _refuse(answer, "POST", url)
        token, document = answer.headers.get("X-Subject-Token"), json.loads(await answer.read())
    if not token:
        raise ConfigurationError(f"{url} gives no token: is it the URL of Keystone's version 3?")
    storage_url = given.catalog.storage_url or _storage_url(document, given.catalog)
    return Login(storage_url.rstrip("/"), token)


def _document(given: KeystonePassword | KeystoneToken | ApplicationCredential) -> dict[str, Any]:
    """Return the body of a request for a token."""
    match given:
        case ApplicationCredential(id=identity, name=name, secret=secret, user=user):
            named = {"id": identity} if identity else {"name": name, "user": user.document()}
            identified = {"application_credential": {**named, "secret": secret}}
            return {"identity": {"methods": ["application_credential"], **identified}}
        case KeystoneToken(token=token):
            document: dict[str, Any] = {"identity": {"methods": ["token"], "token": {"id": token}}}
        case KeystonePassword(user=user, password=password):
            who = {"user": {**user.document(), "password": password}}
            document = {"identity": {"methods": ["password"], "password": who}}
    if given.project:
        document["scope"] = {"project": given.project.document()}
    return document


def _storage_url(document: Any, wanted: Catalog) -> str:
    catalog = document.get("token", {}).get("catalog", [])
    for service in catalog:
        if service.get("type") != wanted.service_type:
            continue
        for endpoint in service.get("endpoints", []):
            regions = {endpoint.get("region"), endpoint.get("region_id")}
            if endpoint.get("interface") == wanted.interface and (wanted.region is None or wanted.region in regions):
                return str(endpoint["url"])
    where = f" in region {wanted.region}" if wanted.region else ""
    raise ConfigurationError(
        f"Keystone's catalog has no {wanted.interface} endpoint of type {wanted.service_type}{where}: name the project "
        "with OS_PROJECT_NAME, or the URL with OS_STORAGE_URL"
    )


async def _refuse(answer: aiohttp.ClientResponse, method: str, url: str) -> None:
    if 200 <= answer.status < 300:
        return
    text = (await answer.content.read(_ERROR_BYTES)).decode("utf-8", "replace").strip()
    raise status_error(
        answer.status, _reason(text) or answer.reason or "", f"{method} {url}", answer.headers.get("X-Trans-Id", "")
    )


def _reason(text: str) -> str:
    """Return the one line that an error's body has for people; Keystone's are JSON."""
    try:
        return str(json.loads(text)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return "" if text.startswith("<") else text.partition("\n")[0][:200]
