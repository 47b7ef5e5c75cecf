"""Large objects as sequences of segments: which bytes of which objects make up a range of the whole.

Proxies and clients that read segments from the devices share it. Pure except for `expand`, which fetches a nested
manifest when, and only when, bytes of it are needed.
"""

from __future__ import annotations

import base64
import hashlib
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from swiftlet.errors import BrokenSegment
from swiftlet.names import Path

MAX_DEPTH = 10
"""How many levels of nested manifests are followed, the outermost included; the reference's recursion limit."""


@dataclass(frozen=True, slots=True)
class Segment:
    """One entry of a large object: bytes of its own, or `[start, start + length)` of another object."""

    length: int
    data: bytes | None = None
    path: Path | None = None
    start: int = 0
    size: int | None = None
    """The whole object's size, if the manifest requires one."""
    etag: str | None = None
    """The whole object's entity tag, unquoted, if the manifest requires one."""
    nested: bool = False
    """Whether the object is a static large object itself."""
    raw: bool = False
    """Whether the object's own bytes are meant, even if it is a dynamic large object's manifest."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `[start, stop)` of what one segment refers to, or of its own data."""

    segment: Segment
    start: int
    stop: int
    depth: int = 1
    """How many levels of manifests lead to the segment, the outermost included."""

    @property
    def bytes(self) -> int:
        """Return the size of the range in bytes."""
        return self.stop - self.start


class Layout:
    """Segments that are all known, with the end of each: the one with a byte is found by binary search."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        """Take `segments` in the order of the whole."""
        self.segments = segments
        self._ends = list(accumulate(segment.length for segment in segments))

    @property
    def size(self) -> int:
        """Return the number of bytes of all segments."""
        return self._ends[-1] if self._ends else 0

    @property
    def inline_bytes(self) -> int:
        """Return the number of bytes that the segments hold themselves."""
        return sum(len(segment.data) for segment in self.segments if segment.data is not None)

    def span(self, index: int) -> tuple[int, int]:
        """Return the position of a segment in the whole: `[start, stop)`."""
        return self._ends[index] - self.segments[index].length, self._ends[index]

    def since(self, start: int) -> tuple[int, Iterable[Segment]]:
        """Return where the segment that holds byte `start` begins, and the segments from that one on."""
        index = bisect_right(self._ends, start)
        return (self._ends[index - 1] if index else 0), map(self.segments.__getitem__, range(index, len(self.segments)))


Expand = Callable[[Segment], Awaitable[Layout]]
"""Fetches the segments of a nested manifest. Raises BrokenSegment when it has changed."""


async def following(segments: Iterable[Segment]) -> AsyncIterator[Segment]:
    """Yield segments that are all known, in the form of those that are fetched one after the other."""
    for segment in segments:
        yield segment


async def pieces_of(
    segments: AsyncIterator[Segment], start: int, stop: int, expand: Expand, depth: int = 1, begins: int = 0
) -> AsyncGenerator[Piece, None]:
    """Yield the pieces that make up bytes `[start, stop)` of the whole, in order; nested manifests are expanded.

    The first of `segments` begins at byte `begins` of the whole.
    """
    end = begins
    async for segment in segments:
        begin, end = end, end + segment.length
        low, high = max(start, begin), min(stop, end)
        if low < high:
            shift = segment.start - begin
            if not segment.nested:
                yield Piece(segment, low + shift, high + shift, depth)
            elif depth >= MAX_DEPTH:
                raise BrokenSegment(f"manifests are nested more than {MAX_DEPTH} deep at {segment.path}")
            else:
                first, inner = (await expand(segment)).since(low + shift)
                within = pieces_of(following(inner), low + shift, high + shift, expand, depth + 1, first)
                async with aclosing(within) as pieces:
                    async for piece in pieces:
                        yield piece
        if end >= stop:
            return


def segment_of(entry: Mapping[str, Any], account: str) -> Segment:
    """Return an entry of a manifest as it is stored; KeyError, TypeError or ValueError when it is damaged."""
    if "data" in entry:
        data = base64.b64decode(entry["data"])
        return Segment(len(data), data)
    size = int(entry["bytes"])
    first, stop = 0, size
    if "range" in entry:
        first, last = map(int, entry["range"].split("-"))
        stop = last + 1
    return Segment(
        stop - first,
        path=path_of(entry, account),
        start=first,
        size=size,
        etag=entry["hash"],
        nested=bool(entry.get("sub_slo")),
    )


def path_of(entry: Mapping[str, Any], account: str) -> Path:
    """Return the object that a stored entry refers to."""
    container, _, obj = entry["name"].removeprefix("/").partition("/")
    return Path(account, container, obj)


def etag_of(entries: Sequence[Mapping[str, Any]]) -> str:
    """Return the whole's entity tag: the MD5 of its segments' tags, each with its range where it has one."""
    digest = hashlib.md5(usedforsecurity=False)
    for entry in entries:
        if "data" in entry:
            text = hashlib.md5(base64.b64decode(entry["data"]), usedforsecurity=False).hexdigest()
        elif "range" in entry:
            text = f"{entry['hash']}:{entry['range']};"
        else:
            text = entry["hash"]
        digest.update(text.encode("utf-8"))
    return digest.hexdigest()
