"""Whether something more fits. Pure, and used by the servers that decide and by a proxy with remembered usage."""

from __future__ import annotations

from collections.abc import Iterable

from swiftlet.model import Amounts, Bounds, Excess

_WHAT = ("containers", "objects", "bytes")


def total(amounts: Iterable[Amounts]) -> Amounts:
    """Return the sums of all amounts."""
    held = list(amounts)
    return Amounts(*(sum(getattr(one, what) for one in held) for what in _WHAT))


def excess_of(used: Amounts, asked: Amounts, bounds: Bounds) -> Excess | None:
    """Return the first limit that `asked` in addition to `used` would exceed; None when all fits.

    What takes nothing of an amount is not refused because of it: a container with too many bytes takes empty objects.
    """
    for what in _WHAT:
        most, more = getattr(bounds, what), getattr(asked, what)
        if most is not None and more > 0 and getattr(used, what) + more > most:
            return Excess(what, most, getattr(used, what), more)
    return None
