"""Which bytes of which segments a range is made of: found by a search, and the same as by a walk."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from hypothesis import given
from hypothesis import strategies as st

from swiftlet.segments import Layout, Segment, following, pieces_of


async def never(segment: Segment) -> Layout:
    raise AssertionError(f"{segment} is no manifest")


class Counted(Sequence[Segment]):
    """Segments that know how often one of them was taken."""

    def __init__(self, segments: Sequence[Segment]) -> None:
        self._segments, self.taken = segments, 0

    def __len__(self) -> int:
        return len(self._segments)

    @overload
    def __getitem__(self, index: int) -> Segment: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Segment]: ...
    def __getitem__(self, index: int | slice) -> Segment | Sequence[Segment]:
        self.taken += 1
        return self._segments[index]


async def read(layout: Layout, start: int, stop: int) -> bytes:
    begins, segments = layout.since(start)
    pieces = [piece async for piece in pieces_of(following(segments), start, stop, never, begins=begins)]
    return b"".join((piece.segment.data or b"")[piece.start : piece.stop] for piece in pieces)


@given(st.lists(st.binary(max_size=5), max_size=12), st.integers(0, 60), st.integers(0, 60))
async def test_any_range_is_the_same_bytes_of_the_whole(data: list[bytes], start: int, length: int) -> None:
    layout = Layout([Segment(len(piece), piece) for piece in data])
    whole = b"".join(data)
    assert layout.size == len(whole)
    assert await read(layout, start, start + length) == whole[start : start + length]


async def test_a_range_near_the_end_looks_at_no_segment_before_it() -> None:
    segments = Counted([Segment(1, bytes([number % 256])) for number in range(100_000)])
    layout = Layout(segments)
    segments.taken = 0
    assert await read(layout, 99_990, 99_995) == bytes(number % 256 for number in range(99_990, 99_995))
    assert segments.taken <= 6
