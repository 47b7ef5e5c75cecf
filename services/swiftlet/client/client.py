"""The asynchronous client: everything that a program does with an object store."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from os import PathLike
from pathlib import Path
from typing import Any, Self

from swiftlet.client.account import Account
from swiftlet.client.batches import Batches, Item, Names, flat
from swiftlet.client.batches import Name as Name
from swiftlet.client.bodies import Source, body_of
from swiftlet.client.concurrency import run_all
from swiftlet.client.credentials import Credentials, find_credentials
from swiftlet.client.downloads import Downloads
from swiftlet.client.errors import ClientError, ConfigurationError
from swiftlet.client.http import Http, HttpWay
from swiftlet.client.objects import Objects, Reading
from swiftlet.client.options import Options
from swiftlet.client.progress import Meter, Progress
from swiftlet.client.surroundings import find_options
from swiftlet.client.uploads import Uploads
from swiftlet.client.values import (
    ALWAYS,
    AccountInfo,
    Conditions,
    ContainerInfo,
    Content,
    Downloaded,
    Entry,
    ObjectInfo,
    ObjectRequest,
    Span,
    Written,
    metadata_headers,
)
from swiftlet.client.way import Way


class AsyncClient:
    """An account of a store, for programs with an event loop; see `Client` for those without.

    Use it as a context manager, or call `close`, in each event loop that uses it. It goes on after a fork, and can be
    pickled, with its credentials and options and without connections. Methods raise `ClientError` and its subclasses.
    """

    def __init__(self, credentials: Credentials | None = None, options: Options | None = None) -> None:
        """Take credentials and options, or find them in the environment; nothing is connected before the first request.

        Raises ConfigurationError for options that can't be met: `metadata_url` needs the package `swiftlet-native`.
        """
        self.credentials = credentials if credentials is not None else find_credentials()
        self.options = options if options is not None else find_options()
        self._http = Http(self.credentials, self.options)
        self._objects = Objects(_way(self._http, self.options), self.options)
        self._account = Account(self._http, self._objects.attempts)
        self._uploads = Uploads(self._objects, self._account)
        self._downloads = Downloads(self._objects, self._account)
        self.batches = Batches(self._objects, self._uploads.put)
        """Many objects, with their outcomes in groups."""

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.credentials, self.options)

    async def __aenter__(self) -> Self:
        """Use the client within the block."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close the connections of this event loop."""
        await self.close()

    @property
    def over_http(self) -> int:
        """Return how many requests for objects went over HTTP though `options.metadata_url` is set."""
        return self._objects.way.over_http

    async def close(self) -> None:
        """Close the connections of this event loop; they are made again when they are needed."""
        await self._objects.way.close()

    # --- objects ---

    async def get(
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
        request = _request(container, name, headers, conditions, version_id)
        return await self._objects.get(request, span, Meter(progress, None))

    @asynccontextmanager
    async def open(
        self,
        container: str,
        name: str,
        *,
        span: Span | None = None,
        conditions: Conditions = ALWAYS,
        version_id: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> AsyncIterator[Reading]:
        """Yield an object as an asynchronous iterator of bytes, which need not fit into memory."""
        request = _request(container, name, headers, conditions, version_id)
        async with await self._objects.open(request, span) as reading:
            yield reading

    async def get_ranges(self, container: str, name: str, spans: Sequence[Span]) -> list[bytes]:
        """Return several ranges of an object, asked for in parallel and all of one version."""
        if not spans:
            return []
        first = await self.get(container, name, span=spans[0])
        same = Conditions(if_match=first.info.etag) if first.info.etag else ALWAYS

        async def one(span: Span) -> bytes:
            return (await self.get(container, name, span=span, conditions=same)).data

        return [first.data, *await run_all(spans[1:], one, self.options.concurrency)]

    async def download(
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
        request = _request(container, name, None, conditions, version_id)
        return await self._downloads.to_path(request, Path(path), progress)

    async def put(
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
        sent = {**(headers or {}), **metadata_headers("Object", metadata)}
        if content_type is not None:
            sent["Content-Type"] = content_type
        request = _request(container, name, sent, conditions, None)
        return await self._uploads.put(request, body_of(source, size), progress=progress, resume=resume)

    async def head(
        self, container: str, name: str, *, conditions: Conditions = ALWAYS, version_id: str | None = None
    ) -> ObjectInfo:
        """Return what the store tells of an object."""
        return await self._objects.head(_request(container, name, None, conditions, version_id))

    async def post(
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
        sent = {**(headers or {}), **metadata_headers("Object", metadata)}
        if content_type is not None:
            sent["Content-Type"] = content_type
        await self._account.update_object(_request(container, name, sent, conditions, None))

    async def delete(
        self,
        container: str,
        name: str,
        *,
        conditions: Conditions = ALWAYS,
        version_id: str | None = None,
        with_segments: bool = False,
    ) -> None:
        """Delete an object; NotFound when there is none.

        With `with_segments`, the segments of a static large object are deleted too: its copies by manifest and other
        large objects that use them are broken then.
        """
        request = _request(container, name, None, conditions, version_id)
        if with_segments and (await self._objects.head(request)).is_static_large:
            await self._account.delete_with_segments(request)
        else:
            await self._objects.delete(request)

    async def copy(
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
        sent = {**(headers or {}), **metadata_headers("Object", metadata)}
        return await self._account.copy(_request(*source, sent, conditions, None), *target)

    async def segments(self, container: str, name: str) -> Sequence[tuple[int, str]]:
        """Return the sizes and the ETags of what a static large object consists of; nothing of other objects.

        The ETag is empty where it is not that of all the bytes: of a part of a segment, or of a manifest in it.
        """
        manifest = await self._account.manifest(ObjectRequest(container, name))
        return [(int(one["bytes"]), "" if _is_part(one) else str(one.get("hash", ""))) for one in manifest]

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
    ) -> AsyncGenerator[Entry, None]:
        """Return the objects of a container by name, asked for page by page.

        With a delimiter, names that go on behind it are told as one prefix. `marker` and `end_marker` are left out.
        """
        query = {"prefix": prefix, "delimiter": delimiter, "marker": marker, "end_marker": end_marker}
        if limit is not None:
            query["limit"] = str(limit)
        if versions:
            query["versions"] = "true"
        return self._account.entries(container, query)

    # --- many objects ---

    def get_many(self, names: Names) -> AsyncGenerator[tuple[Name, Content | ClientError], None]:
        """Yield each name with its content, or with the error, as they come; several are under way at a time.

        Directly, small objects are asked for in one message for each device and 64 names. The same holds for the other
        methods for many objects; over HTTP, `options.concurrency` requests are made at a time.
        """
        return flat(self.batches.get(names))

    def put_many(
        self, items: Iterable[Item] | AsyncIterable[Item]
    ) -> AsyncGenerator[tuple[Item, Written | ClientError], None]:
        """Store many objects; yield each item with what has come of it, as they end."""
        return flat(self.batches.put(items))

    def delete_many(self, names: Names) -> AsyncGenerator[tuple[Name, ClientError | None], None]:
        """Delete many objects; yield each name with None, or with the error, as they end."""
        return flat(self.batches.delete(names))

    def head_many(self, names: Names) -> AsyncGenerator[tuple[Name, ObjectInfo | ClientError], None]:
        """Yield each name with what the store tells of it, or with the error, as they come."""
        return flat(self.batches.head(names))

    # --- containers and the account ---

    def containers(self, prefix: str = "", *, marker: str = "") -> AsyncGenerator[ContainerInfo, None]:
        """Return the account's containers by name."""
        return self._account.containers(prefix, marker)

    async def container(self, name: str) -> ContainerInfo:
        """Return what the store tells of a container."""
        return await self._account.container(name)

    async def create_container(
        self,
        name: str,
        *,
        policy: str | None = None,
        metadata: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Create a container, in a storage policy if one is named; no harm if it is there."""
        sent = {**(headers or {}), **metadata_headers("Container", metadata)}
        if policy is not None:
            sent["X-Storage-Policy"] = policy
        await self._account.create_container(name, sent)

    async def update_container(
        self, name: str, metadata: Mapping[str, str] | None = None, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Change metadata of a container; an empty value removes an item. Other headers set ACLs and the like."""
        await self._account.update_container(name, {**(headers or {}), **metadata_headers("Container", metadata)})

    async def delete_container(self, name: str) -> None:
        """Delete an empty container; Conflict while it has objects."""
        await self._account.delete_container(name)

    async def account(self) -> AccountInfo:
        """Return what the store tells of the account."""
        return await self._account.info()

    async def update_account(
        self, metadata: Mapping[str, str] | None = None, *, headers: Mapping[str, str] | None = None
    ) -> None:
        """Change metadata of the account; an empty value removes an item."""
        await self._account.update({**(headers or {}), **metadata_headers("Account", metadata)})

    async def capabilities(self) -> dict[str, Any]:
        """Return what the store says of its limits, its policies and its features."""
        return await self._account.capabilities()

    async def storage_url(self) -> str:
        """Return the URL of the account; logs in if need be."""
        return await self._http.storage_url()


def _way(http: Http, options: Options) -> Way:
    if options.metadata_url is None:
        return HttpWay(http)
    try:
        from swiftlet.client.direct.way import DirectWay
    except ImportError as error:
        raise ConfigurationError(
            f"direct access (metadata_url) needs the package swiftlet-native, which is not installed: {error}"
        ) from error
    return DirectWay(http, options, options.metadata_url)


def _is_part(entry: Mapping[str, Any]) -> bool:
    return bool(entry.get("range") or entry.get("sub_slo"))


def _request(
    container: str, name: str, headers: Mapping[str, str] | None, conditions: Conditions, version_id: str | None
) -> ObjectRequest:
    query = {"version-id": version_id} if version_id is not None else {}
    return ObjectRequest(container, name, {**(headers or {}), **conditions.headers}, query)
