"""The direct client as what `swiftlet bench --api direct` loads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from functools import partial

from swiftlet.bench.direct.store import OpenStore, StoreFailure
from swiftlet.bench.errors import BenchError
from swiftlet.bench.target import Target
from swiftlet.client.client import AsyncClient
from swiftlet.client.credentials import Token
from swiftlet.client.errors import ChecksumMismatch, ClientError, ConfigurationError, ConnectionFailed, StatusError
from swiftlet.client.options import Options
from swiftlet.client.surroundings import find_options

_CONNECTIONS = 1024
"""More than a scenario has: the generator says how many requests are under way."""


class DirectStore:
    """An account over the direct client, which repeats and hedges nothing: what fails is to be counted."""

    def __init__(self, credentials: Token, options: Options) -> None:
        self._client = AsyncClient(credentials, options)

    @property
    def over_http(self) -> int:
        """Return how many requests for objects went over HTTP so far."""
        return self._client.over_http

    async def create_container(self, container: str) -> None:
        """Create a container."""
        with _failures():
            await self._client.create_container(container)

    async def delete_container(self, container: str) -> None:
        """Delete a container, which may be gone."""
        with _failures(absent_is_fine=True):
            await self._client.delete_container(container)

    async def put(self, container: str, name: str, body: bytes) -> None:
        """Store an object."""
        with _failures():
            await self._client.put(container, name, body)

    async def get(self, container: str, name: str) -> bytes:
        """Return an object's bytes."""
        with _failures():
            return bytes((await self._client.get(container, name)).data)
        raise AssertionError("a failure is raised above")

    async def head(self, container: str, name: str) -> int:
        """Return an object's size in bytes."""
        with _failures():
            return (await self._client.head(container, name)).size or 0
        raise AssertionError("a failure is raised above")

    async def delete(self, container: str, name: str) -> None:
        """Delete an object."""
        with _failures():
            await self._client.delete(container, name)

    async def names(self, container: str, after: str, most: int) -> list[str]:
        """Return a page of names, which comes over HTTP: listings are not on the devices of objects."""
        with _failures():
            return await self._page(container, after, most)
        raise AssertionError("a failure is raised above")

    async def _page(self, container: str, after: str, most: int) -> list[str]:
        found: list[str] = []
        async with aclosing(self._client.list(container, marker=after, limit=most)) as entries:
            async for one in entries:
                found.append(one.name)
                if len(found) == most:
                    break
        return found

    async def close(self) -> None:
        """Close connections."""
        await self._client.close()


@contextmanager
def _failures(*, absent_is_fine: bool = False) -> Iterator[None]:
    try:
        yield
    except StatusError as error:
        if not (absent_is_fine and error.status == 404):
            raise StoreFailure(f"status {error.status}", str(error)) from error
    except ChecksumMismatch as error:
        raise StoreFailure("corrupt", str(error)) from error
    except ConnectionFailed as error:
        raise StoreFailure("no connection", str(error)) from error
    except ClientError as error:
        raise StoreFailure("client error", str(error)) from error


def directly(target: Target, mounted: str | None) -> Target:
    """Return the target, loaded directly; BenchError when nothing says where the metadata servers are."""
    try:
        options = replace(
            find_options() if mounted is None else find_options(mounted_at=mounted),
            connections=_CONNECTIONS,
            retries=0,
            hedge=False,
            ca_file=str(target.ca_file) if target.ca_file is not None else None,
        )
    except ConfigurationError as error:
        raise BenchError(str(error)) from error
    if options.metadata_url is None:
        raise BenchError("--api direct needs the URL of the metadata servers: set SWIFTLET_METADATA_URL")
    credentials = Token(storage_url=target.storage_url, token=target.token)
    opens: OpenStore = partial(DirectStore, credentials, options)
    return replace(target, api="direct", opens=opens)
