"""Large objects as sequences of segments: which bytes of which objects a range of the whole is made of.

Pure but for `expand`, which fetches a nested manifest when, and only when, bytes of it are needed.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import dataclass

from swiftlet.api.problems import ApiError
from swiftlet.names import Path

MAX_DEPTH = 10
"""Manifests within manifests that are followed, the outermost included; the reference's recursion limit."""


class BrokenSegment(ApiError):
    """A segment is gone or not what the manifest says: 409, or a cut connection once bytes have been sent."""

    def __init__(self, reason: str) -> None:
        """`reason` names the segment."""
        super().__init__(409, reason)


@dataclass(frozen=True, slots=True)
class Segment:
    """One entry of a large object: bytes of its own, or `[start, start + length)` of another object."""

    length: int
    data: bytes | None = None
    path: Path | None = None
    start: int = 0
    size: int | None = None
    """The whole object's size, when it must be this."""
    etag: str | None = None
    """The whole object's entity tag, unquoted, when it must be this."""
    nested: bool = False
    """Whether the object is a static large object itself."""
    raw: bool = False
    """Whether the object's own bytes count, even if it is a dynamic large object's manifest."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes `[start, stop)` of what one segment refers to, or of its own data."""

    segment: Segment
    start: int
    stop: int

    @property
    def bytes(self) -> int:
        """How many."""
        return self.stop - self.start


Expand = Callable[[Segment], Awaitable[Iterable[Segment]]]
"""The segments of a nested manifest; BrokenSegment when it is not what it was."""


async def following(segments: Iterable[Segment]) -> AsyncIterator[Segment]:
    """Segments that are all known, in the shape of those that are fetched by and by."""
    for segment in segments:
        yield segment


async def pieces_of(
    segments: AsyncIterator[Segment], start: int, stop: int, expand: Expand, depth: int = 1
) -> AsyncGenerator[Piece, None]:
    """What bytes `[start, stop)` of the whole are made of, in order; nested manifests are taken apart."""
    end = 0
    async for segment in segments:
        begin, end = end, end + segment.length
        low, high = max(start, begin), min(stop, end)
        if low < high:
            shift = segment.start - begin
            if not segment.nested:
                yield Piece(segment, low + shift, high + shift)
            elif depth >= MAX_DEPTH:
                raise BrokenSegment(f"manifests are nested more than {MAX_DEPTH} deep at {segment.path}")
            else:
                inner = following(await expand(segment))
                async with aclosing(pieces_of(inner, low + shift, high + shift, expand, depth + 1)) as pieces:
                    async for piece in pieces:
                        yield piece
        if end >= stop:
            return
