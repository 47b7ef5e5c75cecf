"""What a GET reads: stored objects, and objects that are made of them.

`Stored` is one version of an object as devices hold it. A `Readable` is what the client sees instead: the same
(`PlainObject`), a large object put together from segments, a manifest shown as such. `resolver.resolve` chooses.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Protocol

from swiftlet.api.context.core import Call
from swiftlet.api.context.expiring import check_not_expired
from swiftlet.api.context.policy_lookup import with_policy
from swiftlet.api.http.content_types import split_mark
from swiftlet.api.http.reserved import is_reserved
from swiftlet.api.reading.segment_stream import Source
from swiftlet.errors import BrokenSegment, NotFound, Unavailable
from swiftlet.model import ObjectInfo
from swiftlet.names import Path
from swiftlet.placement.transfers import Download
from swiftlet.segments import MAX_DEPTH
from swiftlet.timestamp import Timestamp

STATIC_LARGE_OBJECT = "X-Static-Large-Object"
"""Key in an object's system metadata: the object is the manifest of a static large object."""
OBJECT_MANIFEST = "X-Object-Manifest"
"""Key in an object's metadata: the object is the manifest of a dynamic large object."""
LINK_TARGET = "Symlink-Target"
"""Key in an object's system metadata: the object is a symbolic link, to the path in the value."""


class Readable(Protocol):
    """An object as a GET shows it."""

    headers: dict[str, str]
    """All headers that describe it, except Content-Length and Content-Range."""
    etag: str
    """The entity tag, unquoted, for conditions."""
    modified: Timestamp
    at_least: int
    """The number of bytes that it certainly has; the size where that is known."""
    content_type: str

    @property
    def size(self) -> int | None:
        """Return the size; None when it is unknown, and with it the response's length."""
        ...

    async def open(self, start: int, stop: int) -> Source:
        """Open bytes `[start, stop)`; an error in the first of them is raised here."""
        ...

    async def close(self) -> None:
        """Release what was opened to look at it; harmless a second time."""
        ...


class Stored:
    """One version of a stored object, perhaps with an open stream of some of its bytes."""

    def __init__(self, call: Call, path: Path, info: ObjectInfo, held: Download | None = None) -> None:
        """Keep a description and perhaps a stream; `held` is used where it fits, otherwise closed."""
        self._call = call
        self._held = held
        self.path = path
        self.info = info

    async def open(self, start: int, stop: int) -> Download:
        """Open bytes `[start, stop)` of this very version, from whichever replica has it; 503 when none has it any
        more.
        """
        held, self._held = self._held, None
        if held is not None:
            if (held.start, held.stop) == (start, stop):
                return held
            await held.close()
        objects, version = self._call.api.objects, self.info.timestamp
        try:
            return await with_policy(
                self._call.api,
                self.path,
                lambda policy: objects.get(self.path, policy, start, stop, version=version),
            )
        except NotFound as error:
            raise Unavailable(f"{self.path} was replaced or deleted while it was read; try again") from error

    async def read(self) -> bytes:
        """Return all bytes, for manifests, which are small."""
        download = await self.open(0, self.info.size)
        try:
            return b"".join([chunk async for chunk in download.chunks()])
        finally:
            await download.close()

    async def close(self) -> None:
        """Close a held stream that nobody took."""
        held, self._held = self._held, None
        if held is not None:
            await held.close()


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads objects for one request, with the rights of its sender."""

    call: Call
    resolve: Callable[[Reader, Stored], Awaitable[Readable]]
    """`resolver.resolve`, by which objects that are made of others read them."""
    depth: int = 1
    """How deep this is in manifests, the outermost included."""

    def deeper(self, depth: int) -> Reader:
        """Return a reader for what a manifest at `depth` refers to. Raises BrokenSegment when that is too deep, as in a
        circle.
        """
        if depth >= MAX_DEPTH:
            raise BrokenSegment(f"manifests are nested more than {MAX_DEPTH} deep")
        return replace(self, depth=depth + 1)

    async def get(self, path: Path, start: int = 0, stop: int | None = None, newest: bool = False) -> Stored:
        """Open an object with bytes from `start` to `stop`, or as many of them as there are."""
        if not is_reserved(path):
            await self.call.access.require("GET", path)
        objects = self.call.api.objects
        download = await with_policy(self.call.api, path, lambda policy: objects.get(path, policy, start, stop, newest))
        try:
            check_not_expired(self.call.api, path, download.info)
        except NotFound:
            await download.close()
            raise
        return Stored(self.call, path, download.info, download)

    async def head(self, path: Path, newest: bool = False) -> Stored:
        """Return an object without opening its bytes."""
        if not is_reserved(path):
            await self.call.access.require("HEAD", path)
        objects = self.call.api.objects
        info = await with_policy(self.call.api, path, lambda policy: objects.head(path, policy, newest))
        check_not_expired(self.call.api, path, info)
        return Stored(self.call, path, info)


def object_headers(info: ObjectInfo) -> dict[str, str]:
    """Return an object's description as response headers, without Content-Length."""
    headers = {
        "Content-Type": split_mark(info.content_type)[0],
        "Etag": info.etag,
        "Last-Modified": info.modified.http_date,
        "X-Timestamp": info.modified.normal,
        "Accept-Ranges": "bytes",
    }
    return headers | dict(info.metadata)


class PlainObject:
    """An object that is shown as its stored bytes."""

    def __init__(self, stored: Stored) -> None:
        """Take headers and ETag from the stored version."""
        self._stored = stored
        self.info = info = stored.info
        self.headers = object_headers(info)
        self.etag = info.etag
        self.modified = info.modified
        self.size = self.at_least = info.size
        self.content_type = self.headers["Content-Type"]

    async def open(self, start: int, stop: int) -> Source:
        """Open the bytes from `start` to `stop` of the stored object."""
        return await self._stored.open(start, stop)

    async def close(self) -> None:
        """Release what is held."""
        await self._stored.close()


def is_made_up(info: ObjectInfo) -> bool:
    """Return whether a GET shows something else than the stored bytes."""
    return STATIC_LARGE_OBJECT in info.sysmeta or OBJECT_MANIFEST in info.metadata or LINK_TARGET in info.sysmeta
