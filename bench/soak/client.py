"""The client of the soak: requests with a token, answers read to their end and thrown away."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from io import BytesIO

import aiohttp
from yarl import URL


@dataclass(frozen=True)
class Told:
    """The outcome of a request."""

    status: int
    size: int
    begin: bytes


class Client:
    """One store, with the rights of its admin."""

    def __init__(self, session: aiohttp.ClientSession, endpoint: str, token: str) -> None:
        """`endpoint` ends with the account."""
        self._session = session
        self.endpoint = endpoint
        self.token = token

    @property
    def account(self) -> str:
        return self.endpoint.rsplit("/", 1)[1]

    async def call(
        self,
        method: str,
        path: str = "",
        headers: Mapping[str, str] | None = None,
        body: bytes | AsyncIterator[bytes] | None = None,
        query: str = "",
        anonymous: bool = False,
    ) -> Told:
        """One request; status 0 for a connection that the server closed without an answer."""
        url = URL(f"{self.endpoint}/{path}" + (f"?{query}" if query else ""), encoded=True)
        given = {} if anonymous else {"X-Auth-Token": self.token}
        data = BytesIO(body) if isinstance(body, bytes) else body
        size, begin = 0, b""
        try:
            async with self._session.request(method, url, headers={**given, **(headers or {})}, data=data) as answer:
                async for piece in answer.content.iter_any():
                    size += len(piece)
                    begin = begin or piece[:200]
                return Told(answer.status, size, begin)
        except aiohttp.ClientError as error:
            return Told(0, size, str(error).encode()[:200])

    async def need(self, status: int, method: str, path: str, **more: object) -> Told:
        """Call as `call` does, for requests that the soak depends on: another answer ends it."""
        told = await self.call(method, path, **more)  # type: ignore[arg-type]
        assert told.status == status, (method, path, told)
        return told
