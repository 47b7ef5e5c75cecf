"""The client for programs without an event loop: the methods of `AsyncClient`, which it calls in a loop of its own."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from os import PathLike
from typing import Any, Self, TypeVar

from swiftlet.client.batches import some_of, weight
from swiftlet.client.bodies import Source
from swiftlet.client.client import AsyncClient, Name
from swiftlet.client.credentials import Credentials
from swiftlet.client.errors import ClientError
from swiftlet.client.loops import run
from swiftlet.client.objects import Reading
from swiftlet.client.options import Options
from swiftlet.client.progress import Progress
from swiftlet.client.values import (
    ALWAYS,
    AccountInfo,
    Conditions,
    ContainerInfo,
    Content,
    Downloaded,
    Entry,
    ObjectInfo,
    Span,
    Written,
)

T = TypeVar("T")
_ENTRIES = 1000
_TAKEN_WITHIN_S = 0.01
"""Seconds after which items that a caller has made are passed on, even if there could be more of them."""


class ObjectFile(io.RawIOBase):
    """An object as a file that is read from its beginning to its end; `info` is what the store tells of it."""

    def __init__(self, opening: AbstractAsyncContextManager[Reading]) -> None:
        """Begin the download on the client's loop."""
        self._opening = opening
        reading = run(self._enter())
        self.info: ObjectInfo = reading.info
        self._chunks = aiter(reading)
        self._left = memoryview(b"")

    async def _enter(self) -> Reading:
        return await self._opening.__aenter__()

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any, /) -> int:
        """Read some bytes; 0 at the end, where their digest has been compared."""
        if not self._left:
            self._left = memoryview(run(self._next()))
        wanted = memoryview(buffer).cast("B")
        size = min(len(wanted), len(self._left))
        wanted[:size], self._left = self._left[:size], self._left[size:]
        return size

    async def _next(self) -> bytes:
        return await anext(self._chunks, b"")

    def close(self) -> None:
        """Let go of what is left unread."""
        if not self.closed:
            super().close()
            run(self._leave())

    async def _leave(self) -> None:
        await self._opening.__aexit__(None, None, None)


class Client:
    """An account of a store, for programs without an event loop; see `AsyncClient` for those with one.

    It may be used by several threads and after a fork, and it can be pickled. Ctrl-C cancels what is under way.
    """

    def __init__(self, credentials: Credentials | None = None, options: Options | None = None) -> None:
        """Take credentials, or find them in the environment; nothing is connected before the first request."""
        self.asynchronous = AsyncClient(credentials, options)
        """The client whose methods this one calls."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.asynchronous.credentials, self.asynchronous.options)

    def __enter__(self) -> Self:
        """Use the client within the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the client's connections."""
        self.close()

    def close(self) -> None:
        """Close connections; they are made again when they are needed."""
        run(self.asynchronous.close())

    # --- objects ---

    def get(
        self,
        container: str,
        name: str,
        *,
        span: Span | None = None,
        conditions: Conditions = ALWAYS,
        version_id: str | None = None,
        headers: Mapping[str, str] | None = None,
        progress: Progress | None = None,
    ) -> Content:
        """Return an object's bytes, or those of a range, with what the store tells of it."""
        return run(
            self.asynchronous.get(
                container,
                name,
                span=span,
                conditions=conditions,
                version_id=version_id,
                headers=headers,
                progress=progress,
            )
        )

    def open(
        self,
        container: str,
        name: str,
        *,
        span: Span | None = None,
        conditions: Conditions = ALWAYS,
        version_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ObjectFile:
        """Return an object as a file to be read from its beginning; close it, or use it as a context manager."""
        return ObjectFile(
            self.asynchronous.open(
                container, name, span=span, conditions=conditions, version_id=version_id, headers=headers
            )
        )

    def get_ranges(self, container: str, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Return several ranges of an object, asked for in parallel and all of one version."""
        return run(self.asynchronous.get_ranges(container, name, spans))

    def download(
        self,
        container: str,
        name: str,
        path: str | PathLike[str],
        *,
        conditions: Conditions = ALWAYS,
        version_id: str | None = None,
        progress: Progress | None = None,
    ) -> Downloaded:
        """Write an object to a file: in ranges and in parallel if it is large, and compared with its digest."""
        return run(
            self.asynchronous.download(
                container, name, path, conditions=conditions, version_id=version_id, progress=progress
            )
        )

    def put(
        self,
        container: str,
        name: str,
        source: Source,
        *,
        size: int | None = None,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        conditions: Conditions = ALWAYS,
        headers: Mapping[str, str] | None = None,
        progress: Progress | None = None,
        resume: bool = False,
    ) -> Written:
        """Store bytes, a file (a `Path`, or one that is open) or an iterable of bytes; return when it is durable.

        A body above `options.segments_above_bytes` goes in segments, in parallel. With `resume`, segments of a file
        that an earlier attempt has stored are used, and those of a failed attempt are left for the next one.
        """
        return run(
            self.asynchronous.put(
                container,
                name,
                source,
                size=size,
                content_type=content_type,
                metadata=metadata,
                conditions=conditions,
                headers=headers,
                progress=progress,
                resume=resume,
            )
        )

    def head(
        self, container: str, name: str, *, conditions: Conditions = ALWAYS, version_id: str | None = None
    ) -> ObjectInfo:
        """Return what the store tells of an object."""
        return run(self.asynchronous.head(container, name, conditions=conditions, version_id=version_id))

    def post(
        self,
        container: str,
        name: str,
        metadata: Mapping[str, str],
        *,
        content_type: str | None = None,
        conditions: Conditions = ALWAYS,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Replace all of an object's metadata; the content type stays unless it is given."""
        run(
            self.asynchronous.post(
                container, name, metadata, content_type=content_type, conditions=conditions, headers=headers
            )
        )

    def delete(
        self,
        container: str,
        name: str,
        *,
        conditions: Conditions = ALWAYS,
        version_id: str | None = None,
        with_segments: bool = False,
    ) -> None:
        """Delete an object, with the segments of a static large object if asked to; NotFound when there is none."""
        run(
            self.asynchronous.delete(
                container, name, conditions=conditions, version_id=version_id, with_segments=with_segments
            )
        )

    def copy(
        self,
        source: Name,
        target: Name,
        *,
        conditions: Conditions = ALWAYS,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Written:
        """Copy an object within the store, with its metadata; a large object becomes a plain one.

        The conditions are about the source.
        """
        return run(self.asynchronous.copy(source, target, conditions=conditions, metadata=metadata, headers=headers))

    def segments(self, container: str, name: str) -> Sequence[tuple[int, str]]:
        """Return the sizes and the ETags of what a static large object consists of; nothing of other objects."""
        return run(self.asynchronous.segments(container, name))

    def list(
        self,
        container: str,
        prefix: str = "",
        *,
        delimiter: str = "",
        marker: str = "",
        end_marker: str = "",
        limit: int | None = None,
        versions: bool = False,
    ) -> Iterator[Entry]:
        """Yield the objects of a container by name; names that go on behind a delimiter are told as one prefix."""
        return _iterate(
            self.asynchronous.list(
                container,
                prefix,
                delimiter=delimiter,
                marker=marker,
                end_marker=end_marker,
                limit=limit,
                versions=versions,
            ),
            _ENTRIES,
        )

    # --- many objects ---

    def get_many(self, names: Iterable[Name]) -> Iterator[tuple[Name, Content | ClientError]]:
        """Yield each name with its content, or with the error, as they come; several are under way at a time."""
        return _flat(self.asynchronous.batches.get(_elsewhere(names)))

    def put_many(
        self, items: Iterable[tuple[Name, Source]]
    ) -> Iterator[tuple[tuple[Name, Source], Written | ClientError]]:
        """Store many objects; yield each item with what has come of it, as they end."""
        return _flat(self.asynchronous.batches.put(_elsewhere(items, weight)))

    def delete_many(self, names: Iterable[Name]) -> Iterator[tuple[Name, ClientError | None]]:
        """Delete many objects; yield each name with None, or with the error, as they end."""
        return _flat(self.asynchronous.batches.delete(_elsewhere(names)))

    def head_many(self, names: Iterable[Name]) -> Iterator[tuple[Name, ObjectInfo | ClientError]]:
        """Yield each name with what the store tells of it, or with the error, as they come."""
        return _flat(self.asynchronous.batches.head(_elsewhere(names)))

    # --- containers and the account ---

    def containers(self, prefix: str = "", *, marker: str = "") -> Iterator[ContainerInfo]:
        """Yield the account's containers by name."""
        return _iterate(self.asynchronous.containers(prefix, marker=marker), _ENTRIES)

    def container(self, name: str) -> ContainerInfo:
        """Return what the store tells of a container."""
        return run(self.asynchronous.container(name))

    def create_container(
        self,
        name: str,
        *,
        policy: str | None = None,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Create a container, in a storage policy if one is named; no harm if it is there."""
        run(self.asynchronous.create_container(name, policy=policy, metadata=metadata, headers=headers))

    def update_container(
        self, name: str, metadata: Mapping[str, str] | None = None, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Change metadata of a container; an empty value removes an item. Other headers set ACLs and the like."""
        run(self.asynchronous.update_container(name, metadata, headers=headers))

    def delete_container(self, name: str) -> None:
        """Delete an empty container; Conflict while it has objects."""
        run(self.asynchronous.delete_container(name))

    def account(self) -> AccountInfo:
        """Return what the store tells of the account."""
        return run(self.asynchronous.account())

    def update_account(
        self, metadata: Mapping[str, str] | None = None, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Change metadata of the account; an empty value removes an item."""
        run(self.asynchronous.update_account(metadata, headers=headers))

    def capabilities(self) -> dict[str, Any]:
        """Return what the store says of its limits, its policies and its features."""
        return run(self.asynchronous.capabilities())

    def storage_url(self) -> str:
        """Return the URL of the account; logs in if need be."""
        return run(self.asynchronous.storage_url())


async def _elsewhere(items: Iterable[T], weigh: Callable[[T], int] = lambda item: 0) -> AsyncGenerator[T, None]:
    """Yield items that are made by another thread than the event loop's: they may come from this client."""
    iterator = iter(items)
    while taken := await asyncio.to_thread(some_of, iterator, weigh, _TAKEN_WITHIN_S):
        for item in taken:
            yield item


def _flat(groups: AsyncGenerator[list[T], None]) -> Iterator[T]:
    """Yield what is in the groups that an asynchronous generator yields."""
    for group in _iterate(groups, 1):
        yield from group


def _iterate(items: AsyncGenerator[T, None], at_once: int) -> Iterator[T]:
    """Yield what an asynchronous generator does, taken `at_once` at a time."""

    async def take() -> list[T]:
        taken: list[T] = []
        async for item in items:
            taken.append(item)
            if len(taken) == at_once:
                break
        return taken

    try:
        while taken := run(take()):
            yield from taken
    finally:
        run(_close(items))


async def _close(items: AsyncGenerator[Any, None]) -> None:
    await items.aclose()
