"""Reads static large objects: the whole, a range, one part, or the manifest itself.

The whole's size and entity tag are in the manifest's system metadata, so a HEAD and a condition that does not hold cost
no more than those of a plain object. The manifest is read when bytes are wanted, each segment when its turn comes; one
that is missing or was changed since the upload ends the response with an error.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from swiftlet.api.context.core import Call
from swiftlet.api.http.concurrency import beside
from swiftlet.api.http.problems import ApiError
from swiftlet.api.reading.links import follow
from swiftlet.api.reading.readables import STATIC_LARGE_OBJECT, Readable, Reader, Stored, is_made_up, object_headers
from swiftlet.api.reading.segment_runs import Batch, Runs
from swiftlet.api.reading.segment_stream import Bytes, SegmentStream, Source
from swiftlet.api.reading.slo_manifest import layout_of, load_entries, raw_format
from swiftlet.errors import BrokenSegment, Forbidden, NotFound, Unauthorized
from swiftlet.model import ObjectInfo
from swiftlet.segments import Expand, Layout, Piece, Segment, following, pieces_of

ETAG, SIZE = "Slo-Etag", "Slo-Size"
"""Keys in the manifest's system metadata."""
_CACHED = 20
"""How many nested manifests are cached while one request is answered: as many as in the reference."""
_CACHED_BYTES = 16 << 20
"""The largest total size of their inline data."""


def is_manifest(info: ObjectInfo) -> bool:
    """Return whether a stored object is the manifest of a static large object."""
    return STATIC_LARGE_OBJECT in info.sysmeta


class StaticLargeObject:
    """A static large object, put together from its segments."""

    def __init__(self, reader: Reader, stored: Stored) -> None:
        """Show `stored`, the manifest."""
        self._reader = reader
        self._stored = stored
        self._layout: Layout | None = None
        self._expand = expander(reader)
        info = stored.info
        self.etag = info.sysmeta[ETAG]
        self.size = self.at_least = int(info.sysmeta[SIZE])
        self.modified = info.modified
        self.headers = object_headers(info) | {
            "Etag": f'"{self.etag}"',
            "X-Manifest-Etag": info.etag,
            STATIC_LARGE_OBJECT: "True",
        }
        self.content_type = self.headers["Content-Type"]

    async def layout(self) -> Layout:
        """Return the segments of the manifest, which is read at the first call."""
        if self._layout is None:
            stored = await self._stored.read()
            self._layout = await beside(len(stored), layout_of, stored, self._stored.path.account)
        return self._layout

    async def open(self, start: int, stop: int) -> Source:
        """Open the bytes of the segments; 409 when the first of them differs from the manifest."""
        begins, segments = (await self.layout()).since(start)
        return await open_segments(self._reader, following(segments), start, stop, self._expand, begins)

    async def close(self) -> None:
        await self._stored.close()


async def open_segments(
    reader: Reader, segments: AsyncIterator[Segment], start: int, stop: int, expand: Expand, begins: int
) -> SegmentStream[Piece | Batch]:
    """Return a stream of bytes `[start, stop)` of these segments, with its first piece open.

    The first of `segments` begins at byte `begins` of the whole.
    """
    runs = Runs(reader, lambda piece: open_piece(reader, piece))
    pieces = pieces_of(segments, start, stop, expand, reader.depth, begins)
    stream = SegmentStream(runs.batched(pieces), runs.open)
    try:
        await stream.begin()
    except BaseException:
        await stream.close()
        raise
    return stream


def expander(reader: Reader) -> Expand:
    """Return a function that fetches nested manifests and caches the last few: several ranges may need the same one."""
    known: dict[Segment, Layout] = {}

    async def expand(segment: Segment) -> Layout:
        found = known.get(segment)
        if found is None:
            found = await _nested(reader, segment)
            while known and (
                len(known) >= _CACHED
                or found.inline_bytes + sum(one.inline_bytes for one in known.values()) > _CACHED_BYTES
            ):
                del known[next(iter(known))]
            known[segment] = found
        return found

    return expand


async def _nested(reader: Reader, segment: Segment) -> Layout:
    assert segment.path is not None
    stored = await _stored(reader, segment, 0, None)
    try:
        if not is_manifest(stored.info):
            raise BrokenSegment(f"segment {segment.path} is no longer a static large object")
        whole = StaticLargeObject(reader, stored)
        check(segment, whole.etag, whole.size)
        return await whole.layout()
    finally:
        await stored.close()


async def _stored(reader: Reader, segment: Segment, start: int, stop: int | None) -> Stored:
    assert segment.path is not None
    try:
        return await reader.get(segment.path, start, stop)
    except NotFound as error:
        raise BrokenSegment(f"segment {segment.path} does not exist any more") from error
    except (Unauthorized, Forbidden) as error:
        raise BrokenSegment(f"segment {segment.path} can't be read with these rights: {error}") from error


def check(segment: Segment, etag: str, size: int | None) -> None:
    """Raise BrokenSegment unless the object is the one in the manifest."""
    if segment.size is not None and size != segment.size:
        raise BrokenSegment(f"segment {segment.path} has {size} bytes, but the manifest expects {segment.size}")
    if segment.etag is not None and etag != segment.etag:
        raise BrokenSegment(
            f"segment {segment.path} has changed: its ETag is {etag}, but the manifest expects {segment.etag}"
        )


async def open_piece(reader: Reader, piece: Piece) -> Source:
    """Open a piece's bytes; a dynamic large object is put together in turn."""
    segment = piece.segment
    if segment.data is not None:
        return Bytes(segment.data[piece.start : piece.stop])
    stored = await _stored(reader, segment, piece.start, piece.stop)
    try:
        if not segment.raw:
            # Links are not a level of their own, but may lead to a manifest.
            stored = (await follow(reader, stored)).stored
        if segment.raw or not is_made_up(stored.info):
            check(segment, stored.info.etag, stored.info.size)
            return await stored.open(piece.start, piece.stop)
        inside = reader.deeper(piece.depth)
        readable = await inside.resolve(inside, stored)
    except BaseException:
        await stored.close()
        raise
    try:
        check(segment, readable.etag, readable.size)
        return await readable.open(piece.start, piece.stop)
    finally:
        await readable.close()


class Manifest:
    """The manifest itself, as `multipart-manifest=get` shows it."""

    def __init__(self, stored: Stored) -> None:
        """`stored` is the object that holds the manifest."""
        self._stored = stored
        info = stored.info
        self.etag = info.etag
        self.modified = info.modified
        self.size = self.at_least = info.size
        self.content_type = "application/json; charset=utf-8"
        self.headers = object_headers(info) | {"Content-Type": self.content_type, STATIC_LARGE_OBJECT: "True"}

    async def open(self, start: int, stop: int) -> Source:
        """Open the manifest's bytes."""
        return await self._stored.open(start, stop)

    async def close(self) -> None:
        await self._stored.close()


class RawManifest:
    """The manifest in the form in which clients send one, with the large object's own content type."""

    def __init__(self, stored: Stored, data: bytes) -> None:
        """Show `data`, made by `raw_format`."""
        self._data = data
        self.etag = hashlib.md5(data, usedforsecurity=False).hexdigest()
        self.modified = stored.info.modified
        self.size = self.at_least = len(data)
        self.headers = object_headers(stored.info) | {"Etag": self.etag, STATIC_LARGE_OBJECT: "True"}
        self.content_type = self.headers["Content-Type"]

    async def open(self, start: int, stop: int) -> Source:
        """Return the bytes from `start` to `stop`, which are in memory."""
        return Bytes(self._data[start:stop])

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


async def raw_manifest(stored: Stored) -> RawManifest:
    """Read a manifest and return it as the client sent it."""
    try:
        data = await stored.read()
        return RawManifest(stored, await beside(len(data), lambda: raw_format(load_entries(data))))
    finally:
        await stored.close()


@dataclass(frozen=True, slots=True)
class Part:
    """One segment of the whole, requested by its number."""

    span: tuple[int, int]
    count: int


async def asked_part(call: Call, readable: Readable) -> Part | None:
    """Return the part that `part-number` asks for; it is ignored for objects other than static large ones."""
    number = call.query.get("part-number")
    if number is None or not isinstance(readable, StaticLargeObject):
        return None
    return await part_of(readable, number, "Range" in call.request.headers)


async def part_of(whole: StaticLargeObject, number: str, with_range: bool) -> Part:
    """Return segment `number` (from 1) of the whole; 400 for what is no number, 416 beyond the last."""
    if not (number.isascii() and number.isdigit()) or len(number) > 10 or int(number) < 1:
        raise ApiError(400, "Part number must be an integer greater than 0")
    if with_range:
        raise ApiError(400, "Range requests are not supported with part number queries")
    layout = await whole.layout()
    index, count = int(number) - 1, len(layout.segments)
    if index >= count or not layout.segments[index].length:
        described = {name: value for name, value in whole.headers.items() if name != "Content-Type"}
        headers = described | {"Content-Range": f"bytes */{whole.size}", "X-Parts-Count": str(count)}
        raise ApiError(416, "The requested part number is not satisfiable", headers)
    return Part(layout.span(index), count)
