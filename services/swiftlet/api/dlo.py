"""Dynamic large objects: all objects of a container whose names begin with a prefix, in the order of their names.

`X-Object-Manifest: CONTAINER/PREFIX` on any object makes it one, until a PUT or POST without the header. What the
whole is made of is asked of the listing at every read. When one page holds it all, the whole has a size and an entity
tag (the MD5 of its segments' tags, as in the listing); otherwise the size is unknown and the tag is the manifest's own.

Fault model: a listing may lag behind what is stored. Where a size was announced, a segment of another size ends the
answer with an error rather than with a body of the wrong length; another content of the same size is sent.
"""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Mapping, Sequence

from swiftlet.api.content_types import split_link, split_mark
from swiftlet.api.problems import ApiError
from swiftlet.api.readables import OBJECT_MANIFEST, Reader, Stored, object_headers
from swiftlet.api.segment_stream import Source
from swiftlet.api.segments import Segment
from swiftlet.api.slo import open_segments
from swiftlet.api.storing import NewObject
from swiftlet.errors import InvalidName
from swiftlet.model import ListingQuery, ObjectRow, Subdir
from swiftlet.names import Path, decode


async def prepare(new: NewObject) -> None:
    """Refuse a malformed manifest header; the header itself is metadata like any other."""
    check_manifest_header(new.metadata)


def check_manifest_header(metadata: Mapping[str, str]) -> None:
    """400 unless X-Object-Manifest, if there is one, names a container and a prefix."""
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


class DynamicLargeObject:
    """The whole, as the first page of the listing shows it."""

    def __init__(self, reader: Reader, stored: Stored, container: str, prefix: str, page: Sequence[ObjectRow]) -> None:
        """`page` begins the listing of what `container` has under `prefix`."""
        self._reader = reader
        self._stored = stored
        self._account = stored.path.account
        self._container = container
        self._prefix = prefix
        self._page = page
        self._complete = len(page) < _limit(reader)
        self.at_least = sum(segment.length for segment in map(self._segment, page))
        self.modified = stored.info.modified
        self.headers = object_headers(stored.info)
        self.etag = stored.info.etag
        if self._complete:
            tags = "".join(row.etag for row in page)
            self.etag = hashlib.md5(tags.encode(), usedforsecurity=False).hexdigest()
            self.headers["Etag"] = f'"{self.etag}"'
        self.content_type = self.headers["Content-Type"]

    @property
    def size(self) -> int | None:
        """None when there may be more pages."""
        return self.at_least if self._complete else None

    def _segment(self, row: ObjectRow) -> Segment:
        mark, link = split_mark(row.content_type)[1], split_link(row.content_type)[1]
        path = Path(self._account, self._container, row.name)
        if link is not None and link.etag is not None:
            return Segment(link.size, path=path, size=link.size)
        if mark is not None:
            return Segment(mark.size, path=path, size=mark.size, nested=True)
        return Segment(row.size, path=path, size=row.size, raw=True)

    async def _segments(self) -> AsyncIterator[Segment]:
        page = self._page
        while True:
            for row in page:
                yield self._segment(row)
            if len(page) < _limit(self._reader):
                return
            page = await list_page(self._reader, self._account, self._container, self._prefix, page[-1].name)

    async def open(self, start: int, stop: int) -> Source:
        """The bytes of the segments; 409 when the first of them is not what the listing says."""
        return await open_segments(self._reader, self._segments(), start, stop)

    async def close(self) -> None:
        """Let go of the manifest."""
        await self._stored.close()


def _limit(reader: Reader) -> int:
    return reader.call.api.options.limits.container_listing_limit


async def list_page(reader: Reader, account: str, container: str, prefix: str, marker: str = "") -> list[ObjectRow]:
    """One page of the segments behind `marker`; NotFound when the container is not there."""
    await reader.call.access.require("GET", Path(account, container))
    query = ListingQuery(limit=_limit(reader), marker=marker, prefix=prefix)
    _, rows = await reader.call.api.listings.list_objects(account, container, query)
    return [row for row in rows if not isinstance(row, Subdir)]


async def dynamic_large_object(reader: Reader, stored: Stored) -> DynamicLargeObject:
    """The whole that a stored manifest stands for."""
    container, _, prefix = stored.info.metadata[OBJECT_MANIFEST].partition("/")
    container, prefix = decode(container), decode(prefix)
    page = await list_page(reader, stored.path.account, container, prefix)
    return DynamicLargeObject(reader, stored, container, prefix, page)
