"""Dynamic large objects: all objects of a container whose names begin with a prefix, in the order of their names.

`X-Object-Manifest: CONTAINER/PREFIX` on any object makes it one, until a PUT or POST without the header. Every read
asks the listing for the segments. When one page holds them all, the whole has a size and an entity tag (the MD5 of its
segments' tags, as in the listing); otherwise the size is unknown and the tag is the manifest's own. A symbolic link
among the segments counts with its target's size, which the listing has for static ones only: a dynamic link makes the
whole unreadable (409), since leaving it out would go unnoticed.

Fault model: a listing may lag behind what is stored. Where a size was announced, a segment of another size ends the
response with an error rather than with a body of the wrong length; other content of the same size is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass

from swiftlet.api.context.new_object import NewObject
from swiftlet.api.http.concurrency import ROW_BYTES, beside
from swiftlet.api.http.content_types import split_link, split_mark
from swiftlet.api.http.problems import ApiError
from swiftlet.api.reading.readables import OBJECT_MANIFEST, Reader, Stored, object_headers
from swiftlet.api.reading.segment_stream import Source
from swiftlet.api.reading.slo import expander, open_segments
from swiftlet.errors import BrokenSegment, InvalidName
from swiftlet.model import ListingQuery, ObjectRow, Subdir
from swiftlet.names import Path, decode
from swiftlet.segments import Layout, Segment


async def prepare(new: NewObject) -> None:
    """Refuse a malformed manifest header; the header itself is metadata like any other."""
    check_manifest_header(new.metadata)


def check_manifest_header(metadata: Mapping[str, str]) -> None:
    """Raise 400 unless X-Object-Manifest, if there is one, names a container and a prefix."""
    value = metadata.get(OBJECT_MANIFEST)
    if value is None:
        return
    container, slash, prefix = value.partition("/")
    if not (container and slash and prefix) or "?" in value or "&" in value or prefix.startswith("/"):
        raise ApiError(400, f"{OBJECT_MANIFEST} must be in the format container/prefix")
    try:
        decode(value)
    except InvalidName as error:
        raise ApiError(400, f"{OBJECT_MANIFEST} must be in the format container/prefix: {error}") from error


@dataclass(frozen=True, slots=True)
class Page:
    """One page of the listing, as segments."""

    layout: Layout
    tag: str
    """The MD5 of the rows' entity tags."""
    last: str
    """The name of the last row; empty when there is none."""


def page_of(rows: Sequence[ObjectRow], account: str, container: str) -> Page:
    """Return rows as segments. Raises BrokenSegment for a row without a known size."""
    tag = hashlib.md5("".join(row.etag for row in rows).encode(), usedforsecurity=False).hexdigest()
    layout = Layout([_segment(row, Path(account, container, row.name)) for row in rows])
    return Page(layout, tag, rows[-1].name if rows else "")


def _segment(row: ObjectRow, path: Path) -> Segment:
    mark, link = split_mark(row.content_type)[1], split_link(row.content_type)[1]
    if link is not None:
        if link.etag is None:
            raise BrokenSegment(
                f"{path} is a dynamic symbolic link and can't be a segment, because its size is not known"
            )
        return Segment(link.size, path=path, size=link.size)
    if mark is not None:
        return Segment(mark.size, path=path, size=mark.size, nested=True)
    return Segment(row.size, path=path, size=row.size, raw=True)


class DynamicLargeObject:
    """A dynamic large object, as the first page of the listing shows it."""

    def __init__(self, reader: Reader, stored: Stored, container: str, prefix: str, page: Page) -> None:
        """Begin with `page`, the start of the listing of `container` under `prefix`."""
        self._reader = reader
        self._stored = stored
        self._container = container
        self._prefix = prefix
        self._page = page
        self._expand = expander(reader)
        self._complete = len(page.layout.segments) < _limit(reader)
        self.at_least = page.layout.size
        self.modified = stored.info.modified
        self.headers = object_headers(stored.info)
        self.etag = stored.info.etag
        if self._complete:
            self.etag = page.tag
            self.headers["Etag"] = f'"{self.etag}"'
        self.content_type = self.headers["Content-Type"]

    @property
    def size(self) -> int | None:
        """Return the size of the large object; None when there may be more pages."""
        return self.at_least if self._complete else None

    async def _since(self, segments: Iterable[Segment]) -> AsyncIterator[Segment]:
        """Yield these segments of the first page, and those of all pages after it."""
        page, account = self._page, self._stored.path.account
        while True:
            for segment in segments:
                yield segment
            if len(page.layout.segments) < _limit(self._reader):
                return
            page = await list_page(self._reader, account, self._container, self._prefix, page.last)
            segments = page.layout.segments

    async def open(self, start: int, stop: int) -> Source:
        """Open the bytes of the segments; 409 when the first of them differs from the listing."""
        begins, segments = self._page.layout.since(start)
        return await open_segments(self._reader, self._since(segments), start, stop, self._expand, begins)

    async def close(self) -> None:
        await self._stored.close()


def _limit(reader: Reader) -> int:
    return reader.call.api.options.limits.container_listing_limit


async def list_page(reader: Reader, account: str, container: str, prefix: str, marker: str = "") -> Page:
    """Return one page of the segments after `marker`. Raises NotFound when the container does not exist."""
    await reader.call.access.require("GET", Path(account, container))
    query = ListingQuery(limit=_limit(reader), marker=marker, prefix=prefix)
    _, rows = await reader.call.api.listings.list_objects(account, container, query)
    found = [row for row in rows if not isinstance(row, Subdir)]
    return await beside(len(found) * ROW_BYTES, page_of, found, account, container)


async def dynamic_large_object(reader: Reader, stored: Stored) -> DynamicLargeObject:
    """Return the large object that a stored manifest stands for."""
    container, _, prefix = stored.info.metadata[OBJECT_MANIFEST].partition("/")
    container, prefix = decode(container), decode(prefix)
    page = await list_page(reader, stored.path.account, container, prefix)
    return DynamicLargeObject(reader, stored, container, prefix, page)
