"""Objects over any way: repeated, hedged, continued in the middle of a body, and compared with their digests."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from dataclasses import replace

from swiftlet.client.attempts import Attempts
from swiftlet.client.bodies import Body
from swiftlet.client.digests import Buffer, Digest, digest_for
from swiftlet.client.errors import ChecksumMismatch, ClientError, ConnectionFailed, PreconditionFailed
from swiftlet.client.hedging import Hedge
from swiftlet.client.options import Options
from swiftlet.client.progress import Meter
from swiftlet.client.values import Content, ObjectInfo, ObjectRequest, Span, Written
from swiftlet.client.way import Stream, Way

_CONDITIONS = frozenset({"if-match", "if-none-match", "if-modified-since", "if-unmodified-since"})


class Objects:
    """Requests for objects, as they are meant to end."""

    def __init__(self, way: Way, options: Options) -> None:
        """Use a way; what is learned about its latency and its failures is kept here."""
        self.way = way
        self.options = options
        self.attempts = Attempts(options)
        self._hedge = Hedge()

    async def head(self, request: ObjectRequest) -> ObjectInfo:
        """Return what the store tells of an object."""
        return await self.attempts.run(lambda: self.way.head(request))

    async def open(self, request: ObjectRequest, span: Span | None = None, meter: Meter | None = None) -> Reading:
        """Return the object's bytes to be read, or those of a range, once the answer has begun."""
        stream = await self.begin(request, span)
        return Reading(self, request, span, stream, meter)

    async def begin(self, request: ObjectRequest, span: Span | None) -> Stream:
        """Return the body of an answer that has begun."""
        if not self.options.hedge:
            return await self.attempts.run(lambda: self.way.get(request, span))
        return await self.attempts.run(
            lambda: self._hedge.first(lambda: self.way.get(request, span), lambda stream: stream.close())
        )

    async def get(self, request: ObjectRequest, span: Span | None = None, meter: Meter | None = None) -> Content:
        """Return the object's bytes, or those of a range; they are asked for again when they are damaged."""

        async def once() -> Content:
            async with await self.open(request, span, meter) as reading:
                return Content(await reading.read(), reading.info)

        for number in range(self.options.retries + 1):
            try:
                return await once()
            except ChecksumMismatch as error:
                if not self.attempts.take(number):
                    raise
                await self.attempts.pause(number, error)
        raise AssertionError("the last attempt has neither returned nor raised")

    async def put(self, request: ObjectRequest, body: Body, meter: Meter | None = None) -> Written:
        """Store an object, and compare the store's ETag with the bytes."""
        is_conditional = bool(_CONDITIONS & {name.lower() for name in request.headers})

        async def once() -> Written:
            counted = _Counted(body, meter)
            try:
                written = await self.way.put(request, counted)
                if self.options.verify and not (written.is_compared or await body.matches(written.etag)):
                    raise ChecksumMismatch(f"{request}: the store has other bytes than were sent (ETag {written.etag})")
            except ClientError:
                counted.take_back()
                raise
            return written if written.size == counted.moved else replace(written, size=counted.moved)

        return await self.attempts.run(once, is_repeatable=lambda: body.is_repeatable, is_conditional=is_conditional)

    async def delete(self, request: ObjectRequest, *, uncertain: bool = False) -> None:
        """Delete an object; NotFound when there is none, unless an attempt before may have deleted it (`uncertain`)."""
        is_conditional = bool(_CONDITIONS & {name.lower() for name in request.headers})
        await self.attempts.delete(lambda: self.way.delete(request), is_conditional=is_conditional, uncertain=uncertain)


class Reading:
    """The bytes of an object, or of a range of it: an asynchronous iterator and context manager.

    When the connection breaks, the bytes that are missing are asked for, of the same version. At the end of a whole
    object its digest is compared with its ETag, or with the checksum that devices have told; ChecksumMismatch when they
    differ.
    """

    def __init__(
        self, objects: Objects, request: ObjectRequest, span: Span | None, stream: Stream, meter: Meter | None = None
    ) -> None:
        """Read on from an answer that has begun."""
        self.info = stream.info
        """Metadata of the object, from the head of the answer."""
        self._objects = objects
        self._request = request
        self._span = span
        self._stream = stream
        self._meter = meter or Meter(None, None)
        self._moved = 0
        self._is_continued = False
        is_whole = span is None and self.info.etag_is_of_bytes
        self._expected = self.info.checksum or self.info.etag
        self._digest: Digest | None = None
        """That of the bytes so far, where the stream does not have it."""
        self._is_verified = False
        if is_whole and objects.options.verify:
            self._digest = digest_for(self._expected) if stream.digest is None else None
            self._is_verified = self._digest is not None or stream.digest is not None

    @property
    def is_verified(self) -> bool:
        """Whether the end of the bytes comes with a comparison of their digest."""
        return self._is_verified

    @property
    def is_compared(self) -> bool:
        """Whether the way has compared all bytes, which have been read, with digests with which they were stored."""
        return not self._is_continued and self._stream.is_compared

    async def __aenter__(self) -> Reading:
        """Read within the block."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let go of what is left unread."""
        await self.close()

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return the bytes, in pieces as they come; they can be read once."""
        return self._chunks()

    async def _chunks(self) -> AsyncGenerator[bytes, None]:
        number = 0
        while True:
            try:
                async for data in self._stream:
                    self._moved += len(data)
                    self._meter.add(len(data))
                    if self._digest is not None:
                        self._digest.update(data)
                    yield data
                    number = 0
                break
            except ConnectionFailed as error:
                if not self._can_continue or not self._objects.attempts.take(number):
                    raise
                await self._objects.attempts.pause(number, error)
                number += 1
                await self._continue(error)
        digest = (self._digest or self._stream.digest) if self._is_verified else None
        if digest is not None and digest.etag() != self._expected:
            self._meter.add(-self._moved)
            raise ChecksumMismatch(f"{self._request}: the bytes that came are not those of the ETag {self._expected}")

    async def read(self) -> bytes:
        """Return all the bytes."""
        pieces = [data async for data in self]
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def close(self) -> None:
        """Let go of what is left unread."""
        await self._stream.close()

    @property
    def _can_continue(self) -> bool:
        """Whether the rest of the same version can be asked for."""
        return bool(self.info.etag) and (self._span is None or self._span.start >= 0)

    async def _continue(self, cause: ConnectionFailed) -> None:
        await self._stream.close()
        self._is_continued = True
        if self._is_verified and self._digest is None:
            self._digest = self._stream.digest
        start = (0 if self._span is None else self._span.start) + self._moved
        stop = None if self._span is None else self._span.stop
        if start == (self.info.size if stop is None else min(stop, self.info.size or stop)):
            self._stream = _Ended(self.info)
            return
        headers = {k: v for k, v in self._request.headers.items() if k.lower() not in _CONDITIONS}
        request = replace(self._request, headers={**headers, "If-Match": f'"{self.info.etag}"'})
        try:
            self._stream = await self._objects.begin(request, Span(start, stop))
        except PreconditionFailed as error:
            raise ConnectionFailed(f"{cause}; another version has been stored meanwhile") from error


class _Ended:
    """The body of an answer whose last byte was there already."""

    def __init__(self, info: ObjectInfo) -> None:
        self.info = info
        self.is_compared = False
        self.digest = None

    def __aiter__(self) -> AsyncIterator[bytes]:
        """Return itself, which has nothing."""
        return self

    async def __anext__(self) -> bytes:
        """End the iteration: the body is empty."""
        raise StopAsyncIteration

    async def close(self) -> None:
        """Do nothing: no connection is held."""


class _Counted:
    """A body whose bytes are counted while they are sent."""

    def __init__(self, body: Body, meter: Meter | None) -> None:
        self._body = body
        self._meter = meter or Meter(None, None)
        self.moved = 0

    @property
    def size(self) -> int | None:
        """That of the body."""
        return self._body.size

    @property
    def is_repeatable(self) -> bool:
        """Return the answer of the body that is sent."""
        return self._body.is_repeatable

    @property
    def reads_once(self) -> bool:
        """Return the answer of the body that is sent."""
        return self._body.reads_once

    async def chunks(self, *, hashed: bool = True) -> AsyncGenerator[Buffer, None]:
        """Yield the bytes, and count what was taken."""
        self.take_back()
        async with aclosing(self._body.chunks(hashed=hashed)) as chunks:
            async for data in chunks:
                yield data
                self.moved += len(data)
                self._meter.add(len(data))

    def whole(self) -> Buffer | None:
        """Return the bytes if they are in memory, and count them."""
        self.take_back()
        data = self._body.whole()
        if data is not None:
            self.moved = len(data)
            self._meter.add(self.moved)
        return data

    async def matches(self, etag: str) -> bool:
        """As the body does."""
        return await self._body.matches(etag)

    def take_back(self) -> None:
        """Forget what was counted: it has to be sent again."""
        self._meter.add(-self.moved)
        self.moved = 0
