"""Sizes as people write them, and numbers as people read them."""

from __future__ import annotations

import re

_UNITS: dict[str, int] = {
    "": 1,
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGTPE", start=1)},
    **{f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGTPE", start=1)},
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


def parse_size(text: str | int) -> int:
    """Return a number of bytes; ValueError for what is none."""
    if isinstance(text, int):
        return text
    match = _SIZE.fullmatch(text)
    unit = {name.lower(): size for name, size in _UNITS.items()}.get(match[2].lower()) if match else None
    if match is None or unit is None:
        raise ValueError(f"is no size; write a number of bytes, or one with a unit such as 10 KB or 4 MiB: {text!r}")
    return round(float(match[1]) * unit)


def size_text(size: float) -> str:
    """Return a size in the largest decimal unit that fits, such as `1.5 MB`."""
    for unit in ("B", "KB", "MB", "GB", "TB"):
        if size < 1000:
            return f"{_digits(size)} {unit}"
        size /= 1000
    return f"{_digits(size)} PB"


def time_text(seconds: float) -> str:
    """Return a time with a unit that fits, such as `12.5 ms`."""
    for factor, unit in ((1, "s"), (1e3, "ms"), (1e6, "µs")):
        if seconds * factor >= 1 or unit == "µs":
            return f"{_digits(seconds * factor)} {unit}"
    raise AssertionError("the last unit takes everything")


def number_text(value: float) -> str:
    """Return a number with three digits that matter, and commas."""
    return f"{value:,.0f}" if value >= 100 else _digits(value)


def _digits(value: float) -> str:
    if value == 0 or value >= 100:
        return f"{value:.0f}"
    return f"{value:.3g}"
