"""Questions to a metadata server: grants and rings, with the token that the HTTP way has."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote, urlsplit

from swiftlet.client.bodies import BytesBody
from swiftlet.client.errors import ConfigurationError, ConnectionFailed, NotModified
from swiftlet.client.http import Http

ANSWER_S = 5.0
"""Seconds within which a metadata server has to answer; requests go over HTTP instead after that."""
MAX_RING_BYTES = 256 << 20
"""The largest ring that is taken: some 2^24 partitions with 8 replicas each."""


class MetadataServer:
    """Asks a metadata server for a client. Raises the errors of `swiftlet.client.errors`."""

    def __init__(self, http: Http, url: str) -> None:
        """`url` is that of the metadata servers, without a path."""
        self._http = http
        self._url = url.rstrip("/")

    async def account(self) -> str:
        """Return the name of the client's account, from its storage URL."""
        path = urlsplit(await self._http.storage_url()).path
        version, _, account = path.strip("/").rpartition("/")
        if not version.endswith("v1") or not account:
            raise ConfigurationError(f"direct access needs a storage URL that ends in /v1/ACCOUNT, not in {path!r}")
        return unquote(account)

    async def grant(self, fields: Mapping[str, object]) -> dict[str, Any]:
        """Return the answer to a request for a grant."""
        return _object(await self._post("v1/grants", fields, "grant"))

    async def missed(self, fields: Mapping[str, object]) -> None:
        """Name devices that have missed writes."""
        await self._post("v1/missed", fields, "answer about missed writes")

    async def _post(self, path: str, fields: Mapping[str, object], what: str) -> bytes:
        body, headers = BytesBody(json.dumps(fields).encode()), {"Content-Type": "application/json"}
        with _in_time(what):
            async with (
                asyncio.timeout(ANSWER_S),
                self._http.request("POST", path, headers=headers, body=body, base=self._url) as answer,
            ):
                return await answer.read()

    async def ring(self, policy: int, etag: str | None) -> tuple[bytes, str] | None:
        """Return the ring of a policy with its ETag; None when it still has this one."""
        try:
            data, headers = await self._ring(f"v1/rings/{policy}", {"If-None-Match": etag} if etag is not None else {})
        except NotModified:
            return None
        return data, headers.get("ETag", "")

    async def ring_of(self, account: str, container: str) -> tuple[bytes, str, int]:
        """Return the ring of a container's policy, with its ETag and the policy's index."""
        data, headers = await self._ring("v1/rings", query={"account": account, "container": container})
        index = headers.get("X-Policy-Index", "")
        if not (index.isascii() and index.isdigit() and len(index) <= 5):
            raise ConnectionFailed(f"the metadata server's answer does not say whose ring it is: {index[:64]!r}")
        return data, headers.get("ETag", ""), int(index)

    async def _ring(
        self, path: str, headers: Mapping[str, str] | None = None, query: Mapping[str, str] | None = None
    ) -> tuple[bytes, Mapping[str, str]]:
        with _in_time("ring"):
            async with (
                asyncio.timeout(ANSWER_S),
                self._http.request("GET", path, query=query, headers=headers, base=self._url) as answer,
            ):
                if (answer.content_length or 0) > MAX_RING_BYTES:
                    raise ConnectionFailed(f"a ring of {answer.content_length} bytes is larger than any can be")
                return await answer.read(), answer.headers


class _in_time:
    """Turns the end of the time for an answer into ConnectionFailed."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, TimeoutError):
            raise ConnectionFailed(f"no {self._what} came from the metadata server within {ANSWER_S:g} s") from error


def _object(data: bytes) -> dict[str, Any]:
    try:
        found = json.loads(data)
    except ValueError as error:
        raise ConnectionFailed(f"the metadata server's answer is not JSON: {error}") from error
    if not isinstance(found, dict):
        raise ConnectionFailed("the metadata server's answer is not a JSON object")
    return found
