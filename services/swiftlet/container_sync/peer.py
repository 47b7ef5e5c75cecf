"""Another cluster's container, as container sync uses it: over the Swift API, with signed requests.

Fault model: the other cluster may be away, slow, refuse the signature, lack the container or answer nonsense. Then
`PeerFailed` ends work on the container for now. What it says against one object alone is `PeerRefused`. No redirect is
followed: only a realm's file says where copies go.
"""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol
from urllib.parse import quote, urlsplit

import aiohttp
from yarl import URL

from swiftlet.container_sync.realms import Target
from swiftlet.container_sync.signature import SYNC_AUTH, sign
from swiftlet.errors import SettingsError, SwiftletError
from swiftlet.timestamp import TICKS_PER_SECOND, Timestamp

LISTING_ROWS = 2000
"""The number of rows in a page of the other cluster's listing."""
MAX_LISTING_BYTES = 32 << 20
"""The longest page of a listing that is read."""
_EXPECT_BYTES = 1 << 16
"""Larger bodies wait until the other cluster wants them."""
_SHOWN_BYTES = 200
"""The bytes of an answer's text that an error tells."""
_ITSELF = {"symlink": "get", "multipart-manifest": "get"}
"""The query that asks for a link or manifest instead of what it stands for; a signature does not cover it."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TICK = timedelta(seconds=1) / TICKS_PER_SECOND


class PeerFailed(SwiftletError):
    """The other cluster can't be used now: it is away, or takes no request for this container."""


class PeerRefused(SwiftletError):
    """The other cluster refuses this one object."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A row of the other cluster's listing: a name, and when it was modified, in ticks."""

    name: str
    ticks: int


class Peer(Protocol):
    """The container that is the copy. All methods raise PeerFailed."""

    async def page(self, after: str) -> list[Listed]:
        """Return the next rows behind a name, in order; fewer than `LISTING_ROWS` at the end."""
        ...

    async def modified(self, name: str, at: Timestamp) -> int | None:
        """Return when an object was modified, in ticks; None when it is not there. `at` is signed. Raises
        PeerRefused.
        """
        ...

    async def put(self, name: str, headers: Mapping[str, str], body: AsyncIterator[bytes], size: int) -> bool:
        """Store an object; return whether it is there, and False where something newer is. Raises PeerRefused."""
        ...

    async def delete(self, name: str, at: Timestamp) -> None:
        """Delete what is older than `at`. Raises PeerRefused."""
        ...


class HttpPeer:
    """A container in another cluster, over HTTP."""

    def __init__(self, session: aiohttp.ClientSession, target: Target, user_key: str) -> None:
        """`user_key` is the X-Container-Sync-Key that both containers have."""
        self._session = session
        self._target = target
        self._user_key = user_key
        self._path = urlsplit(target.url).path

    async def page(self, after: str) -> list[Listed]:
        """Return the next rows of the listing."""
        query = {"format": "json", "limit": str(LISTING_ROWS), "marker": after}
        async with self._asking("GET", None, {}, query) as answer:
            if answer.status // 100 != 2:
                raise self._failed(answer.status, "its listing")
            data = await answer.content.read(MAX_LISTING_BYTES + 1)
            while not answer.content.at_eof() and len(data) <= MAX_LISTING_BYTES:
                data += await answer.content.read(MAX_LISTING_BYTES + 1 - len(data))
        if len(data) > MAX_LISTING_BYTES:
            raise PeerFailed(f"{self._target.url}: a page of the listing has more than {MAX_LISTING_BYTES} bytes")
        try:
            return await asyncio.to_thread(parse_listing, data) if data else []
        except ValueError as error:
            raise PeerFailed(f"{self._target.url}: the listing can't be read: {error}") from error

    async def modified(self, name: str, at: Timestamp) -> int | None:
        """Ask for the object itself."""
        async with self._asking("HEAD", name, {"X-Timestamp": at.normal}, _ITSELF) as answer:
            if answer.status == 404:
                return None
            if answer.status // 100 != 2:
                raise self._refused(answer.status, name)
            try:
                return Timestamp.parse(answer.headers.get("X-Timestamp", "")).ticks
            except ValueError as error:
                raise PeerFailed(f"{self._target.url}: {error}") from error

    async def put(self, name: str, headers: Mapping[str, str], body: AsyncIterator[bytes], size: int) -> bool:
        """Send the object; what is newer there stays."""
        given = {**headers, "Content-Length": str(size)}
        async with self._asking("PUT", name, given, {}, body if size else None, size > _EXPECT_BYTES) as answer:
            if answer.status == 404:
                raise self._failed(404, "an object in it")
            if answer.status not in {201, 202, 409}:
                raise self._refused(answer.status, name, await answer.content.read(_SHOWN_BYTES))
            return answer.status == 201

    async def delete(self, name: str, at: Timestamp) -> None:
        """Delete the object unless it is newer."""
        async with self._asking("DELETE", name, {"X-Timestamp": at.normal}, {}) as answer:
            if answer.status not in {204, 200, 404, 409}:
                raise self._refused(answer.status, name)

    def _asking(
        self,
        method: str,
        name: str | None,
        headers: Mapping[str, str],
        query: Mapping[str, str],
        body: AsyncIterator[bytes] | None = None,
        expect: bool = False,
    ) -> _Asking:
        rest = "" if name is None else "/" + quote(name)
        target = self._target
        signed = sign(method, self._path + rest, headers.get("X-Timestamp"), target.realm, target.key, self._user_key)
        asked = "&".join(f"{one}={quote(value, safe='')}" for one, value in query.items())
        url = URL(target.url + rest + (f"?{asked}" if asked else ""), encoded=True)
        request = self._session.request(
            method,
            url,
            headers={**headers, SYNC_AUTH: signed.header},
            data=body,
            allow_redirects=False,
            expect100=expect,
        )
        return _Asking(request, target.url)

    def _failed(self, status: int, what: str, said: str | None = None) -> PeerFailed:
        reasons = {
            401: "the signature is not accepted: do both clusters have the same realm key, and both containers the "
            "same X-Container-Sync-Key?",
            404: "the container is not there",
        }
        return PeerFailed(f"{self._target.url} answers {status} for {what}" + _reason(reasons.get(status, said)))

    def _refused(self, status: int, name: str, text: bytes = b"") -> PeerFailed | PeerRefused:
        said = ascii(text.decode("utf-8", "replace")) if text else None
        if status in {401, 403, 429} or status >= 500 or status // 100 == 3:
            return self._failed(status, "an object in it", said)
        return PeerRefused(f"{self._target.url} answers {status} for {quote(name)}" + _reason(said))


def _reason(text: str | None) -> str:
    return "" if text is None else f": {text}"


class _Asking:
    """A request whose errors are the other cluster's."""

    def __init__(self, request: aiohttp.client._RequestContextManager, url: str) -> None:
        self._request = request
        self._url = url

    async def __aenter__(self) -> aiohttp.ClientResponse:
        try:
            return await self._request.__aenter__()
        except (aiohttp.ClientError, TimeoutError, ssl.SSLError, ValueError) as error:
            raise self._away(error) from error

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        await self._request.__aexit__(kind, error, None)
        if isinstance(error, aiohttp.ClientError | TimeoutError):
            raise self._away(error) from error

    def _away(self, error: BaseException) -> PeerFailed:
        return PeerFailed(f"{self._url} can't be asked: {error or type(error).__name__}")


def parse_listing(data: bytes) -> list[Listed]:
    """Return the rows of a listing in JSON. Raises ValueError when it is none."""
    rows = json.loads(data)
    try:
        found = [Listed(row["name"], _ticks(row["last_modified"])) for row in rows]
    except (TypeError, KeyError) as error:
        raise ValueError("it is no list of objects with name and last_modified") from error
    if any(not isinstance(row.name, str) for row in found):
        raise ValueError("a name is no text")
    return found


def _ticks(text: str) -> int:
    return (datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH) // _TICK


def make_session(connections: int, timeout_s: float, ca_file: Path | None) -> aiohttp.ClientSession:
    """Return a session for requests to other clusters. Raises SettingsError when `ca_file` can't be used."""
    try:
        context = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise SettingsError(f"container_sync.ca_file: {ca_file} can't be used: {error}") from error
    return aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=connections, ssl=context),
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=timeout_s, sock_read=timeout_s),
        auto_decompress=False,
        skip_auto_headers=("Content-Type",),
    )
