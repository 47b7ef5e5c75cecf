"""Numbers in what a service says of itself. Services are untrusted: what is no such number is None. Pure."""

from __future__ import annotations

import math


def count_of(value: object) -> int | None:
    """Return a number of things."""
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def moment_of(value: object) -> float | None:
    """Return a time in seconds since the epoch."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    try:
        moment = float(value)
    except OverflowError:
        # JSON's integers have any size.
        return None
    return moment if math.isfinite(moment) else None
