"""The direct way: one attempt at a request, made to the devices where that can be done, otherwise over HTTP.

What devices do not show as it is stored may be a large object; then its segments are read from the devices
(`swiftlet.client.direct.large`).

A request that fails directly is made over HTTP at once: the same bytes under the same name are the same object, and a
read changes nothing. What may have been deleted and is not there is deleted. A body that can be read only once and has
been begun is not sent again: then the caller is told.

Connections belong to an event loop and to a process, as those over HTTP do: see `swiftlet.client.http`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from swiftlet_native import Hasher

from swiftlet.client.bodies import Body, BytesBody
from swiftlet.client.digests import Buffer, Digest, checksum_of
from swiftlet.client.direct import plain
from swiftlet.client.direct.errors import GoByHttp, ShownByProxies
from swiftlet.client.direct.grants import Kind
from swiftlet.client.direct.large import BY_HTTP_BYTES, LargeObjects
from swiftlet.client.direct.many import DirectMany
from swiftlet.client.direct.metadata import MetadataServer
from swiftlet.client.direct.parts import Parts, Rights
from swiftlet.client.errors import ConnectionFailed, status_error
from swiftlet.client.errors import NotFound as NothingThere
from swiftlet.client.http import Http, HttpWay
from swiftlet.client.options import Options
from swiftlet.client.values import ObjectInfo, ObjectRequest, Span, Written
from swiftlet.client.way import Stream
from swiftlet.context import new_request_id, request_id
from swiftlet.errors import GuestRefused, NotFound, Superseded, SwiftletError
from swiftlet.model import PutFooter, PutRecord
from swiftlet.names import Path
from swiftlet.placement.objects import ReplicatedObjects
from swiftlet.placement.transfers import ReplicatedDownload, Upload
from swiftlet.timestamp import Timestamp

T = TypeVar("T")
_log = logging.getLogger("swiftlet.client")
SMALL_BYTES = 1 << 20
"""A body of up to so many bytes is sent in one frame to each device; guests' frames may have no more."""
_ATTEMPTS = 5
"""How often a write is made with a newer time, when something newer is there already."""


@dataclass(frozen=True, slots=True)
class Directly:
    """The things that a request works with when it goes directly."""

    parts: Parts
    objects: ReplicatedObjects
    path: Path
    rights: Rights


class DirectWay:
    """Objects to and from the devices, and over HTTP what can't go there."""

    def __init__(self, http: Http, options: Options, metadata_url: str) -> None:
        """Ask the metadata servers at `metadata_url`; what goes over HTTP, and tokens, are those of `http`."""
        self._http = http
        self._proxies = HttpWay(http)
        self._over_http = 0
        self._metadata = MetadataServer(http, metadata_url)
        self._writes = options.write_directly
        self._parts = PartsByLoop(lambda: Parts(self._metadata, options))
        self._large = LargeObjects(http, self._read, self._metadata.account, lambda: self._parts.here().ahead)
        self._many = DirectMany(self._parts.here, writes=self._writes)
        http.beside.append(self._parts)

    @property
    def many(self) -> DirectMany:
        """Return what moves many objects at once."""
        return self._many

    @property
    def over_http(self) -> int:
        """Return how many requests for objects went over HTTP so far."""
        return self._over_http

    def _by_http(self) -> HttpWay:
        """Return the way over HTTP for one request, which is counted."""
        self._over_http += 1
        return self._proxies

    async def head(self, request: ObjectRequest) -> ObjectInfo:
        """Return what the store tells of an object."""

        async def attempt(to: Directly) -> ObjectInfo:
            info = plain.described(await to.objects.head(to.path, to.rights.policy))
            plain.check("HEAD", request, info)
            return info

        if plain.is_read(request):
            try:
                return await self._try(request, Kind.READ, attempt, what="HEAD")
            except GoByHttp:
                pass
        return await self._by_http().head(request)

    async def get(self, request: ObjectRequest, span: Span | None) -> Stream:
        """Return the object's bytes, or those of a range, once the answer has begun."""
        if plain.is_read(request, span):
            try:
                return await self._read(request, span)
            except ShownByProxies:
                if span is None or span.stop is None or span.stop - span.start > BY_HTTP_BYTES:
                    return await self._get_made_up(request, span)
            except GoByHttp:
                pass
        proxied = await self._by_http().get(request, span)
        try:
            stream = await self._large_stream(request, span, proxied.info)
        except BaseException:
            await proxied.close()
            raise
        if stream is None:
            return proxied
        await proxied.close()
        return stream

    async def _read(self, request: ObjectRequest, span: Span | None) -> Stream:
        """Return bytes of a plain object from devices. Raises GoByHttp and the errors of an answer."""

        async def attempt(to: Directly) -> Stream:
            start, stop = (0, None) if span is None else (span.start, span.stop)
            download = await to.objects.get_copy(to.path, to.rights.policy, start, stop)
            try:
                info = plain.described(download.info)
                if span is not None and not info.size:
                    raise GoByHttp("a range of nothing")
                plain.check("GET", request, info, span)
            except BaseException:
                await download.close()
                raise
            return DirectStream(download, info, str(request))

        return await self._try(request, Kind.READ, attempt, what="GET")

    async def _get_made_up(self, request: ObjectRequest, span: Span | None) -> Stream:
        """Return bytes of what is not stored as they are: of a large object from devices, of others over HTTP."""
        if not self._parts.here().by_proxies.has(request.container, request.name):
            info = await self._by_http().head(request)
            stream = await self._large_stream(request, span, info)
            if stream is not None:
                return stream
        return await self._by_http().get(request, span)

    async def _large_stream(self, request: ObjectRequest, span: Span | None, info: ObjectInfo) -> Stream | None:
        """Return bytes of a large object, which a proxy has described, from devices; None where that can't be done."""
        parts = self._parts.here()
        place = request.container, request.name
        if parts.devices.lasts or parts.by_proxies.has(*place) or not self._large.is_worth_it(request, span, info):
            return None
        try:
            return await self._large.open(request, span, info)
        except GoByHttp as reason:
            _log.debug("GET %s goes over HTTP: %s", request, reason)
            parts.by_proxies.note(*place)
            return None

    async def put(self, request: ObjectRequest, body: Body) -> Written:
        """Store an object; return when it is durable."""
        new, size = plain.new_object(request), body.size
        if new is None or size is None or not self._writes:
            return await self._by_http().put(request, body)
        if size <= SMALL_BYTES:
            return await self._put_small(request, new, body)
        return await self._put_large(request, new, body, size)

    async def delete(self, request: ObjectRequest) -> None:
        """Delete an object; NotFound when there is none."""
        may_be_deleted = False

        async def attempt(to: Directly) -> bool:
            nonlocal may_be_deleted
            try:
                return await _stamped(to, lambda at: _deleted(to, at))
            except SwiftletError as error:
                may_be_deleted = may_be_deleted or not isinstance(error, (GuestRefused, NotFound))
                raise

        if self._writes and plain.is_deletion(request):
            try:
                if not await self._try(request, Kind.WRITE, attempt, what="DELETE"):
                    raise status_error(404, "Not Found", f"DELETE {request}")
                return
            except GoByHttp:
                pass
        try:
            await self._by_http().delete(request)
        except NothingThere:
            if not may_be_deleted:
                raise

    async def close(self) -> None:
        """Close the connections of this event loop; they are made again when they are needed."""
        await self._http.close()

    async def _put_small(self, request: ObjectRequest, new: plain.NewObject, body: Body) -> Written:
        """Store a body that fits into a frame."""
        whole = body.whole()
        if whole is None:
            async with aclosing(body.chunks()) as chunks:
                whole = b"".join([bytes(chunk) async for chunk in chunks])
        # What may still change is copied.
        data = whole if isinstance(whole, bytes) else bytes(whole)

        async def attempt(to: Directly) -> Written:
            hasher = _hasher(to)
            hasher.update(data)
            footer = _footer(to, hasher)

            async def once(at: Timestamp) -> Written:
                await to.objects.put(to.path, to.rights.policy, _record(to, new, at), data, footer)
                return _written(footer, at)

            return await _stamped(to, once, overtaken=lambda at: _written(footer, at))

        try:
            return await self._try(request, Kind.WRITE, attempt, what="PUT", size=len(data))
        except GoByHttp:
            return await self._by_http().put(request, BytesBody(data))

    async def _put_large(self, request: ObjectRequest, new: plain.NewObject, body: Body, size: int) -> Written:
        """Store a body as it is read."""
        begun = False

        async def attempt(to: Directly) -> Written:
            nonlocal begun

            async def opened(at: Timestamp) -> tuple[Timestamp, Upload]:
                return at, await to.objects.upload(to.path, to.rights.policy, _record(to, new, at), size)

            async with AsyncExitStack() as after:
                digesting = to.parts.hashing.begin(_hasher(to))
                after.push_async_callback(digesting.close)
                # What the devices store is compared with the digest in the footer.
                chunks = await after.enter_async_context(aclosing(body.chunks(hashed=False)))
                first: memoryview | None = None
                if not body.reads_once:
                    # It is digested while devices are asked whether they would take it.
                    first = _lasting(await anext(chunks))
                    digesting.add(first)
                at, upload = await _stamped(to, opened)
                after.push_async_callback(upload.abort)
                begun = True
                if first is not None:
                    await upload.write(first)
                async for chunk in chunks:
                    # It is digested while it is sent, and while the next ones are read.
                    lasting = _lasting(chunk)
                    digesting.add(lasting)
                    await upload.write(lasting)
                    await digesting.room()
                await digesting.finish()
                footer = _footer(to, digesting.hasher)
                try:
                    await upload.commit(footer)
                except Superseded as error:
                    if error.timestamp > to.parts.clock.now():
                        raise
            return _written(footer, at)

        try:
            return await self._try(request, Kind.WRITE, attempt, what="PUT", size=size)
        except GoByHttp as reason:
            if begun and not body.is_repeatable:
                raise ConnectionFailed(f"PUT {request}: {reason}") from reason
        return await self._by_http().put(request, body)

    async def _try(
        self,
        request: ObjectRequest,
        kind: Kind,
        attempt: Callable[[Directly], Awaitable[T]],
        *,
        what: str,
        size: int | None = None,
    ) -> T:
        """Return what an attempt at the devices returns; a second one follows a grant, clock or ring that was old.

        Raises GoByHttp when a proxy has to be asked, and the errors of `swiftlet.client.errors` that are an answer.
        """
        parts = self._parts.here()
        if parts.devices.lasts:
            raise GoByHttp("the devices could not be reached a moment ago")
        if kind is Kind.READ and parts.not_plain.has(request.container, request.name):
            raise ShownByProxies("a device has not shown the object to a guest a moment ago")
        token = request_id.set(new_request_id())
        try:
            for is_last in (False, True):
                granted = await parts.granted(request.container, kind, size)
                rights = granted.rights
                if size is not None and size > rights.max_size:
                    raise GoByHttp("the object is larger than the grant allows")
                version, before = parts.rings.objects(rights.policy).version, parts.answers
                path = parts.path(rights, request.container, request.name)
                try:
                    result = await attempt(
                        Directly(parts, parts.objects(rights, request.container, request.name), path, rights)
                    )
                except GuestRefused as refusal:
                    if refusal.kind == "Unauthorized":
                        parts.grants.drop(request.container, kind, granted)
                    elif refusal.kind == "ClockDiffers":
                        parts.follow_devices()
                    else:
                        is_last = True
                        if refusal.kind == "NotPlain":
                            parts.not_plain.note(request.container, request.name)
                            raise ShownByProxies(str(refusal)) from refusal
                    if is_last:
                        if refusal.kind == "Unauthorized":
                            parts.grants.refused(request.container, kind, str(refusal))
                        raise GoByHttp(str(refusal)) from refusal
                except NotFound as error:
                    if is_last or not await parts.rings.newer(rights.policy, version):
                        raise status_error(404, "Not Found", f"{what} {request}") from error
                except SwiftletError as error:
                    if parts.answers == before:
                        parts.devices.failed(error)
                    raise GoByHttp(str(error)) from error
                else:
                    parts.devices.worked()
                    return result
            raise AssertionError("the last attempt has neither returned nor raised")
        finally:
            request_id.reset(token)


class PartsByLoop:
    """The parts of each event loop."""

    def __init__(self, make: Callable[[], Parts]) -> None:
        """`make` returns new ones."""
        self._make = make
        self._by_loop: dict[asyncio.AbstractEventLoop, Parts] = {}

    def here(self) -> Parts:
        """Return those of this event loop, made if there are none."""
        loop = asyncio.get_running_loop()
        known = self._by_loop.get(loop)
        if known is None:
            for other in [other for other in self._by_loop if other.is_closed()]:
                # Its connections can't be closed any more without it.
                del self._by_loop[other]
            known = self._by_loop[loop] = self._make()
        return known

    async def close(self) -> None:
        """Close those of this event loop."""
        parts = self._by_loop.pop(asyncio.get_running_loop(), None)
        if parts is not None:
            await parts.close()

    def leave_to_parent(self) -> object:
        """In a process made by fork: forget the parent's, and return them, untouched."""
        left, self._by_loop = self._by_loop, {}
        return left


class DirectStream:
    """The body of an object that is read from devices."""

    def __init__(self, download: ReplicatedDownload, info: ObjectInfo, name: str) -> None:
        """Take over a download that has begun."""
        self._download = download
        self._name = name
        self.info = info
        self.is_compared = False

    @property
    def digest(self) -> Digest:
        """Return the digest of the bytes that were yielded so far: it is computed while they are received."""
        return Checksummed(self._download.hasher)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield the bytes as they come; another device goes on where one fails."""
        try:
            async for data in self._download.chunks():
                yield data
        except SwiftletError as error:
            raise ConnectionFailed(f"GET {self._name}: {error}") from error

    async def close(self) -> None:
        """Let go of what is left unread."""
        await self._download.close()


class Checksummed:
    """A digest of bytes that devices have sent, which makes checksums as they tell them."""

    def __init__(self, hasher: Hasher) -> None:
        """Take the hasher over."""
        self._hasher = hasher

    def update(self, data: Buffer, /) -> None:
        """Hash the next bytes."""
        self._hasher.update(data)

    def etag(self) -> str:
        """Return the checksum of all bytes so far."""
        return checksum_of(self._hasher.xxh3_64())


async def _stamped(
    to: Directly,
    write: Callable[[Timestamp], Awaitable[T]],
    overtaken: Callable[[Timestamp], T] | None = None,
) -> T:
    """Return what a write returns, made with a newer time when something newer is there already.

    With `overtaken` a newer version that was written since this write was refused once stays, and this write counts as
    having happened just before it; that function returns its outcome. What the first attempt finds may be older than
    this write, made by a clock that is ahead of this one: nothing may be lost for that.
    """
    clock = to.parts.clock
    for number in range(_ATTEMPTS):
        at = clock.next()
        try:
            return await write(at)
        except Superseded as error:
            if number and overtaken is not None and error.timestamp <= clock.now():
                return overtaken(at)
            if number == _ATTEMPTS - 1 or not clock.observe(error.timestamp):
                raise
    raise AssertionError("the last attempt has neither returned nor raised")


async def _deleted(to: Directly, at: Timestamp) -> bool:
    return (await to.objects.delete(to.path, to.rights.policy, at)).existed


def _lasting(chunk: Buffer) -> memoryview:
    """Return the bytes as they can be sent to several devices: those that may still change are copied, once for all."""
    view = memoryview(chunk)
    return view if isinstance(view.obj, bytes) else memoryview(bytes(view))


def _hasher(to: Directly) -> Hasher:
    return Hasher(md5=to.rights.etag == "md5")


def _footer(to: Directly, hasher: Hasher) -> PutFooter:
    etag = hasher.md5_hexdigest() if to.rights.etag == "md5" else f"xxh3-{hasher.xxh3_128_hexdigest()}"
    return PutFooter(hasher.size, etag, hasher.xxh3_64())


def _record(to: Directly, new: plain.NewObject, at: Timestamp) -> PutRecord:
    return PutRecord(str(to.path), at, new.content_type, new.metadata)


def _written(footer: PutFooter, at: Timestamp) -> Written:
    """Return the answer to a PUT whose devices have compared what came with the footer's xxh3."""
    return Written(footer.etag, footer.size, datetime.fromtimestamp(at.http_seconds, UTC), is_compared=True)
