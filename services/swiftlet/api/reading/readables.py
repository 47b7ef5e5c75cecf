"""What a GET reads: stored objects, and the things that are made of them.

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
from swiftlet.api.reading.segments import MAX_DEPTH, BrokenSegment
from swiftlet.errors import NotFound, Unavailable
from swiftlet.model import ObjectInfo
from swiftlet.names import Path
from swiftlet.placement.transfers import Download
from swiftlet.timestamp import Timestamp

STATIC_LARGE_OBJECT = "X-Static-Large-Object"
"""In an object's system metadata: it is the manifest of a static large object."""
OBJECT_MANIFEST = "X-Object-Manifest"
"""In an object's metadata: it is the manifest of a dynamic large object."""
LINK_TARGET = "Symlink-Target"
"""In an object's system metadata: it is a symbolic link, and to which path."""


class Readable(Protocol):
    """An object as a GET shows it."""

    headers: dict[str, str]
    """All that describe it, but for Content-Length and Content-Range."""
    etag: str
    """Unquoted, as conditions are weighed against it."""
    modified: Timestamp
    at_least: int
    """So many bytes are known to be there; the size where that is known."""
    content_type: str

    @property
    def size(self) -> int | None:
        """None when it is not known: then the answer's length isn't either."""
        ...

    async def open(self, start: int, stop: int) -> Source:
        """Bytes `[start, stop)`; what is wrong with the first of them is raised here."""
        ...

    async def close(self) -> None:
        """Let go of what was opened to find out; harmless a second time."""
        ...


class Stored:
    """One version of a stored object, perhaps with a stream of some of its bytes that is open already."""

    def __init__(self, call: Call, path: Path, info: ObjectInfo, held: Download | None = None) -> None:
        """`held` is used where it fits, otherwise closed."""
        self._call = call
        self._held = held
        self.path = path
        self.info = info

    async def open(self, start: int, stop: int) -> Download:
        """Bytes `[start, stop)` of this very version, from whichever replica has it; 503 when none has any more."""
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
        """All of it, for manifests: they are small."""
        download = await self.open(0, self.info.size)
        try:
            return b"".join([chunk async for chunk in download.chunks()])
        finally:
            await download.close()

    async def close(self) -> None:
        """Let go of a held stream that nobody took."""
        held, self._held = self._held, None
        if held is not None:
            await held.close()


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads objects for one request, with the rights of who sent it."""

    call: Call
    resolve: Callable[[Reader, Stored], Awaitable[Readable]]
    """`resolver.resolve`: what is made of several objects reads them through it."""
    depth: int = 1
    """How many things made of others this is in, itself included."""

    def deeper(self, depth: int) -> Reader:
        """For what is read inside a manifest at `depth`; BrokenSegment when that is too deep, as in a circle."""
        if depth >= MAX_DEPTH:
            raise BrokenSegment(f"manifests are nested more than {MAX_DEPTH} deep")
        return replace(self, depth=depth + 1)

    async def get(self, path: Path, start: int = 0, stop: int | None = None, newest: bool = False) -> Stored:
        """An object with its bytes `[start, stop)` on their way, or as much of them as there are."""
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
        """An object whose bytes are not wanted yet."""
        if not is_reserved(path):
            await self.call.access.require("HEAD", path)
        objects = self.call.api.objects
        info = await with_policy(self.call.api, path, lambda policy: objects.head(path, policy, newest))
        check_not_expired(self.call.api, path, info)
        return Stored(self.call, path, info)


def object_headers(info: ObjectInfo) -> dict[str, str]:
    """An object's description as response headers, without Content-Length."""
    headers = {
        "Content-Type": split_mark(info.content_type)[0],
        "Etag": info.etag,
        "Last-Modified": info.modified.http_date,
        "X-Timestamp": info.modified.normal,
        "Accept-Ranges": "bytes",
    }
    return headers | dict(info.metadata)


class PlainObject:
    """An object that is nothing but its bytes."""

    def __init__(self, stored: Stored) -> None:
        """Shown as it is stored."""
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
        """Let go of what is held."""
        await self._stored.close()


def is_made_up(info: ObjectInfo) -> bool:
    """Whether a GET shows something else than the stored bytes."""
    return STATIC_LARGE_OBJECT in info.sysmeta or OBJECT_MANIFEST in info.metadata or LINK_TARGET in info.sysmeta
