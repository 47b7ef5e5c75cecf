"""Whether something more fits: pure, the same at the servers that decide and in a proxy's memory."""

from __future__ import annotations

from collections.abc import Iterable

from swiftlet.model import Amounts, Bounds, Excess

_WHAT = ("containers", "objects", "bytes")


def total(amounts: Iterable[Amounts]) -> Amounts:
    """The sum of each."""
    held = list(amounts)
    return Amounts(*(sum(getattr(one, what) for one in held) for what in _WHAT))


def excess_of(used: Amounts, asked: Amounts, bounds: Bounds) -> Excess | None:
    """The first limit that `asked` on top of `used` would pass; None when all fits.

    What takes nothing of something is not refused for it: a container with too many bytes takes empty objects.
    """
    for what in _WHAT:
        most, more = getattr(bounds, what), getattr(asked, what)
        if most is not None and more > 0 and getattr(used, what) + more > most:
            return Excess(what, most, getattr(used, what), more)
    return None
