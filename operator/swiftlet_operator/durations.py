"""Durations in words. Pure."""

from __future__ import annotations

import math

_UNITS = ((86_400, "days"), (3600, "hours"), (60, "minutes"))


def roughly(seconds: float) -> str:
    """Return a time by one digit, so that it seldom changes."""
    for unit_s, name in _UNITS:
        if seconds >= 2 * unit_s:
            count = seconds / unit_s
            digits = 10 ** max(0, math.floor(math.log10(count)))
            return f"{round(count / digits) * digits} {name}"
    return "2 minutes"
