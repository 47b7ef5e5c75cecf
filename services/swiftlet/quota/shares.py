"""How large a part of the room that a quota leaves may be held ahead of the writes that it is for."""

from __future__ import annotations

from swiftlet.model import Amounts, Bounds

ALL_SLICES, ONE_SLICE = 16, 64
"""All slices together take at most one in so many parts of the room that is left, and one of them one in so many."""
LEAST_OBJECTS, LEAST_BYTES = 4, 64 << 10
"""Smaller slices are not worth their messages."""


def share(want: Amounts, bounds: Bounds, used: Amounts) -> tuple[Amounts, Bounds] | None:
    """Return the size of the next slice, and the bounds within which it may be held; None when too little is left.

    All slices together are a small part of the room that is left, whoever holds them: the last of it is for claims of
    single writes, and a process that does not use its slice keeps little from others.
    """
    objects = _part(want.objects, bounds.objects, used.objects, LEAST_OBJECTS)
    size = _part(want.bytes, bounds.bytes, used.bytes, LEAST_BYTES)
    if objects is None or size is None:
        return None
    within = Bounds(None, _within(bounds.objects, used.objects), _within(bounds.bytes, used.bytes))
    return Amounts(0, objects, size), within


def _part(want: int, most: int | None, used: int, least: int) -> int | None:
    if most is None:
        return want
    part = max(0, most - used) // ONE_SLICE
    return None if part < least else min(want, part)


def _within(most: int | None, used: int) -> int | None:
    return None if most is None else used + max(0, most - used) // ALL_SLICES
