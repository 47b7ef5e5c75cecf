"""A way whose store is a dictionary, with faults that a test orders: what stands above ways is tried against it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from swiftlet.client.bodies import Body
from swiftlet.client.digests import Digest, digest_for, etag_of
from swiftlet.client.errors import ClientError, ConnectionFailed, status_error
from swiftlet.client.values import ObjectInfo, ObjectRequest, Span, Written
from swiftlet.client.way import Many

_LIKE_MD5 = "0" * 32
PIECE = 10
_MOST_PIECES = 1000
"""About the largest number of pieces in which an object is read."""


@dataclass
class Fault:
    """A fault of one request: an error before or after its effect, or in the middle of a body."""

    error: ClientError | None = None
    has_effect: bool = False
    after_bytes: int | None = None
    until: asyncio.Event | None = None
    """The event that the request waits for before it begins."""
    sets: asyncio.Event | None = None
    """The event that is set when the request begins."""


@dataclass
class MemoryWay:
    """A way to objects that are kept in memory, with faults for the next requests."""

    objects: dict[tuple[str, str], bytes] = field(default_factory=dict)
    faults: deque[Fault] = field(default_factory=deque)
    calls: list[str] = field(default_factory=list)
    closed: int = 0
    """Streams that were closed."""
    digests: bool = False
    """Whether streams have a digest of what they gave."""
    many: Many | None = None
    """The answer to who wants to ask for many objects at once; None: each is asked for singly."""
    over_http: int = 0
    """It knows no proxies."""

    async def _begin(self, call: str) -> Fault:
        self.calls.append(call)
        fault = self.faults.popleft() if self.faults else Fault()
        if fault.sets is not None:
            fault.sets.set()
        if fault.until is not None:
            await fault.until.wait()
        if fault.error is not None and not fault.has_effect and fault.after_bytes is None:
            raise fault.error
        return fault

    def _find(self, method: str, request: ObjectRequest) -> tuple[bytes, ObjectInfo]:
        data = self.objects.get((request.container, request.name))
        if data is None:
            raise status_error(404, "Not Found", f"{method} {request}")
        etag = etag_of(data, _LIKE_MD5) or ""
        if request.headers.get("If-Match", f'"{etag}"') != f'"{etag}"':
            raise status_error(412, "Precondition Failed", f"{method} {request}")
        return data, ObjectInfo(size=len(data), etag=etag)

    async def head(self, request: ObjectRequest) -> ObjectInfo:
        """Return what there is."""
        await self._begin("HEAD")
        return self._find("HEAD", request)[1]

    async def get(self, request: ObjectRequest, span: Span | None) -> MemoryStream:
        """Return a stream of the bytes, which breaks where the fault says so."""
        fault = await self._begin("GET" if span is None else f"GET {span.start}")
        data, info = self._find("GET", request)
        if span is not None and span.start >= max(1, len(data)):
            raise status_error(416, "Range Not Satisfiable", f"GET {request}")
        digest = digest_for(info.checksum) if self.digests else None
        return MemoryStream(data[span.start : span.stop] if span else data, info, fault, self._closed, digest)

    async def put(self, request: ObjectRequest, body: Body) -> Written:
        """Keep the bytes of the body under the name; 412 for one that must be new and is not."""
        fault = await self._begin("PUT")
        data = b"".join([bytes(piece) async for piece in body.chunks()])
        key = (request.container, request.name)
        if request.headers.get("If-None-Match") == "*" and key in self.objects:
            raise status_error(412, "Precondition Failed", f"PUT {request}")
        self.objects[key] = data
        if fault.error is not None:
            raise fault.error
        return Written(etag=etag_of(data, _LIKE_MD5) or "", size=len(data))

    async def delete(self, request: ObjectRequest) -> None:
        """Forget the object; 404 when there is none."""
        fault = await self._begin("DELETE")
        self._find("DELETE", request)
        del self.objects[request.container, request.name]
        if fault.error is not None:
            raise fault.error

    async def close(self) -> None:
        """Do nothing: a dictionary has no connections."""

    def _closed(self) -> None:
        self.closed += 1


class MemoryStream:
    """A body that may break after some bytes."""

    def __init__(
        self, data: bytes, info: ObjectInfo, fault: Fault, closed: Callable[[], None], digest: Digest | None
    ) -> None:
        """Give `data`, as far as the fault lets it; `closed` is called at the end, and `digest` gets what is given."""
        self.info = info
        self.is_compared = False
        self.digest = digest
        self._data = data
        self._fault = fault
        self._closed = closed

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """Yield pieces of `PIECE` bytes, larger ones of a large object; ConnectionFailed where the fault is."""
        end = len(self._data) if self._fault.after_bytes is None else self._fault.after_bytes
        step = max(PIECE, end // _MOST_PIECES)
        for start in range(0, end, step):
            piece = self._data[start : min(start + step, end)]
            if self.digest is not None:
                self.digest.update(piece)
            yield piece
        if self._fault.after_bytes is not None:
            raise self._fault.error or ConnectionFailed("the connection broke")

    async def close(self) -> None:
        """Say that the stream was closed."""
        self._closed()
