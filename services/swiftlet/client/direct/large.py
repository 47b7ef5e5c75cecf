"""Large objects, whose manifests a proxy shows and whose segments are read from the devices.

A proxy is asked what the object is, so that conditions, versions and links are its business (HEAD), and for the
manifest of a static large object or the listing of a dynamic one. Manifests are kept, by their ETag. Then each segment
is an object that is read directly, or over HTTP where devices can't be reached, with the rights of this client.

What is not as the manifest says is a proxy's: an object that cannot be begun here raises GoByHttp, and the proxy
answers as it does. In the middle of a body the rest is asked for again, which ends there too. So is a segment that is
itself made up, other than a static large object that the manifest names as such.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any
from urllib.parse import quote, unquote

from swiftlet.client.direct.errors import GoByHttp, ShownByProxies
from swiftlet.client.direct.large_stream import AT_ONCE, PROBLEMS, Ahead, LargeStream, Part, parts_of
from swiftlet.client.errors import ClientError
from swiftlet.client.http import Http, HttpWay
from swiftlet.client.values import ObjectInfo, ObjectRequest, Span
from swiftlet.client.way import Stream
from swiftlet.errors import BrokenSegment
from swiftlet.names import Path
from swiftlet.segments import Layout, Piece, Segment, etag_of, following, pieces_of, segment_of

BY_HTTP_BYTES = 1 << 20
"""Up to so many bytes of a large object are read through a proxy, which answers at once."""
MAX_LAYOUTS = 16
"""Manifests that are kept; of more, the oldest are forgotten."""
MAX_KEPT_SEGMENTS = 20_000
"""Segments of those manifests together."""
MAX_KEPT_BYTES = 16 << 20
"""Bytes of segments that these manifests hold themselves, together."""
_PARSED_IN_LOOP = 128 << 10
_CONDITIONS = frozenset({"if-match", "if-none-match", "if-modified-since", "if-unmodified-since"})
_QUERY = frozenset({"version-id"})

Read = Callable[[ObjectRequest, Span | None], Awaitable[Stream]]


class LargeObjects:
    """Reads large objects of one account."""

    def __init__(
        self, http: Http, read: Read, account: Callable[[], Awaitable[str]], ahead: Callable[[], Ahead]
    ) -> None:
        """`read` reads a plain object from the devices, and raises GoByHttp where that can't be done."""
        self._http = http
        self._over_http = HttpWay(http)
        self._read = read
        self._account = account
        self._ahead = ahead
        self._layouts: dict[object, Layout] = {}

    def is_worth_it(self, request: ObjectRequest, span: Span | None, info: ObjectInfo) -> bool:
        """Return whether the answer to a request is of a large object whose segments could be read here."""
        if not (info.is_static_large or info.is_dynamic_large) or info.size is None:
            return False
        if any(name.lower() not in _CONDITIONS for name in request.headers) or not request.query.keys() <= _QUERY:
            return False
        start, stop = _bounds(span, info.size)
        return stop - start > BY_HTTP_BYTES

    async def open(self, request: ObjectRequest, span: Span | None, info: ObjectInfo) -> LargeStream:
        """Return the bytes of a large object that a proxy has described. Raises GoByHttp when they are a proxy's."""
        try:
            layout = await self._layout(request, info)
        except ClientError as error:
            raise GoByHttp(str(error)) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise GoByHttp(f"the manifest can't be understood: {error!r}") from error
        start, stop = _bounds(span, layout.size)
        begins, segments = layout.since(start)
        pieces = pieces_of(following(segments), start, stop, self._expand, begins=begins)
        at_once = min(AT_ONCE, self._http.options.concurrency)
        stream = LargeStream(_parts(pieces), self._open_part, self._ahead(), at_once, info, str(request))
        try:
            await stream.begin()
        except PROBLEMS as error:
            await stream.close()
            raise GoByHttp(str(error)) from error
        except BaseException:
            await stream.close()
            raise
        return stream

    async def _layout(self, request: ObjectRequest, info: ObjectInfo) -> Layout:
        """Return the segments of an object that has been described."""
        account = await self._account()
        place = info.headers.get("content-location")
        if place is not None and not place.startswith(f"/v1/{quote(account, safe='')}/"):
            raise GoByHttp("a link leads to another account")
        if not info.is_static_large:
            return await self._listed(account, info)
        tag = info.headers.get("x-manifest-etag", "").strip('"')
        if not tag:
            raise GoByHttp("the proxy does not tell which manifest it is")
        layout = self._layouts.get(tag)
        if layout is None:
            headers, body = await self._manifest(request)
            if headers.get("Etag", "").strip('"') != tag:
                raise GoByHttp("another version was stored meanwhile")
            layout = await self._kept(tag, body, account, info.etag)
        if layout.size != info.size:
            raise GoByHttp("the segments are not as long as the whole")
        return layout

    async def _manifest(self, request: ObjectRequest) -> tuple[Mapping[str, str], bytes]:
        """Return the manifest of a static large object as it is stored, with the headers of the answer."""
        query = {**request.query, "multipart-manifest": "get"}
        async with self._http.request("GET", str(request), query=query) as answer:
            if answer.headers.get("X-Static-Large-Object", "").lower() != "true":
                raise GoByHttp("another version was stored meanwhile")
            return answer.headers, await answer.read()

    async def _kept(self, tag: object, body: bytes, account: str, etag: str | None) -> Layout:
        """Return the segments of a manifest whose whole has this ETag, and keep them."""

        def made() -> Layout:
            entries: list[Mapping[str, Any]] = json.loads(body)
            if etag is not None and etag_of(entries) != etag:
                raise ValueError(f"it is not of the ETag {etag}")
            return Layout([segment_of(entry, account) for entry in entries])

        layout = made() if len(body) <= _PARSED_IN_LOOP else await asyncio.to_thread(made)
        self._layouts[tag] = layout
        while len(self._layouts) > 1 and (
            len(self._layouts) > MAX_LAYOUTS
            or sum(len(kept.segments) for kept in self._layouts.values()) > MAX_KEPT_SEGMENTS
            or sum(kept.inline_bytes for kept in self._layouts.values()) > MAX_KEPT_BYTES
        ):
            del self._layouts[next(iter(self._layouts))]
        return layout

    async def _listed(self, account: str, info: ObjectInfo) -> Layout:
        """Return the segments of a dynamic large object, if they are those of which the proxy has told."""
        container, _, prefix = (
            unquote(part, errors="strict") for part in info.headers["x-object-manifest"].partition("/")
        )
        query = {"format": "json", "prefix": prefix}
        async with self._http.request("GET", container, query=query) as answer:
            rows = json.loads(await answer.read() or b"[]")
        tag = hashlib.md5("".join(row["hash"] for row in rows).encode(), usedforsecurity=False).hexdigest()
        if tag != info.etag:
            raise GoByHttp("the listing has changed meanwhile, or has more pages")
        layout = Layout([_listed_segment(row, account, container) for row in rows])
        if layout.size != info.size:
            raise GoByHttp("the segments are not as long as the whole")
        return layout

    async def _expand(self, segment: Segment) -> Layout:
        """Return the segments of a static large object that is a segment. Raises one of `PROBLEMS`."""
        assert segment.path is not None
        path = segment.path
        known = self._layouts.get((path, segment.etag))
        if known is not None:
            return known
        _, body = await self._manifest(ObjectRequest(path.container or "", path.obj or ""))
        try:
            layout = await self._kept((path, segment.etag), body, path.account, segment.etag)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise BrokenSegment(f"the manifest of {path} can't be understood: {error!r}") from error
        if layout.size != segment.size:
            raise BrokenSegment(f"segment {path} has {layout.size} bytes, but the manifest expects {segment.size}")
        return layout

    async def _open_part(self, part: Part, is_first: bool) -> Stream:
        """Open a part. Raises one of `PROBLEMS`: the first part of a stream is read from devices or not at all."""
        segment, path = part.piece.segment, part.piece.segment.path
        if path is None:
            return _Inline((segment.data or b"")[part.start : part.stop])
        request = ObjectRequest(path.container or "", path.obj or "", {"If-Match": f'"{segment.etag}"'})
        span = None if (part.start, part.stop) == (0, segment.size) else Span(part.start, part.stop)
        try:
            stream = await self._read(request, span)
        except ShownByProxies as error:
            raise BrokenSegment(f"segment {path} is not stored as its bytes") from error
        except GoByHttp:
            if is_first:
                raise
            stream = await self._over_http.get(request, span)
        info = stream.info
        if info.size != segment.size or not info.etag_is_of_bytes:
            await stream.close()
            raise BrokenSegment(f"segment {path} has {info.size} bytes, but the manifest expects {segment.size}")
        return stream


class _Inline:
    """The stream of a segment whose bytes are in the manifest."""

    info = ObjectInfo(size=None, etag="")
    is_compared = False
    digest = None

    def __init__(self, data: bytes) -> None:
        self._data = data

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """Yield the bytes in one piece, as they are in memory."""
        yield self._data

    async def close(self) -> None:
        """Do nothing: nothing is open."""


async def _parts(pieces: AsyncGenerator[Piece, None]) -> AsyncGenerator[Part, None]:
    async with aclosing(pieces), aclosing(parts_of(pieces)) as parts:
        async for part in parts:
            yield part


def _listed_segment(row: Mapping[str, Any], account: str, container: str) -> Segment:
    """Return a row of a listing as a segment; it has to be the version of that row."""
    if "symlink_path" in row:
        raise GoByHttp("a link is among the segments")
    size, path = int(row["bytes"]), Path(account, container, str(row["name"]))
    slo_etag = row.get("slo_etag")
    if slo_etag is not None:
        return Segment(size, path=path, size=size, etag=str(slo_etag).strip('"'), nested=True)
    return Segment(size, path=path, size=size, etag=str(row["hash"]), raw=True)


def _bounds(span: Span | None, size: int) -> tuple[int, int]:
    """Return the first byte of a range of so many bytes, and the one after its last."""
    if span is None:
        return 0, size
    start = max(0, size + span.start) if span.start < 0 else min(span.start, size)
    return start, size if span.stop is None else min(span.stop, size)
