"""Byte ranges (RFC 9110, section 14): what a Range header asks of an object of a known size.

A header that is not understood is ignored, as the RFC asks. Many, overlapping or disordered ranges would cost a server
much work: they are refused beyond the bounds below.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass

MAX_RANGES = 50
MAX_OVERLAPS = 2
MAX_DISORDERED = 8
"""From so many ranges on, they must begin in ascending order."""
_SPEC = re.compile(r"([0-9]{0,19})\s*-\s*([0-9]{0,19})", re.ASCII)


@dataclass(frozen=True, slots=True)
class RangeSpec:
    """One range as written: `first-last`, `first-` (last None) or `-suffix` (first None)."""

    first: int | None
    last: int | None

    def resolve(self, size: int) -> tuple[int, int] | None:
        """Return `[start, stop)` within an object of `size` bytes; None when no byte of it exists."""
        if self.first is None:
            assert self.last is not None
            start, stop = max(0, size - self.last), size
        else:
            start, stop = self.first, size if self.last is None else min(self.last + 1, size)
        return (start, stop) if start < stop else None


def parse_range(header: str | None) -> list[RangeSpec]:
    """Return the ranges of a header; empty when it is absent or not a valid byte range."""
    if header is None:
        return []
    unit, _, rest = header.partition("=")
    if unit.strip().lower() != "bytes":
        return []
    specs = []
    for text in rest.split(","):
        match = _SPEC.fullmatch(text.strip())
        if match is None or match.groups() == ("", ""):
            return []
        first, last = (int(group) if group else None for group in match.groups())
        if first is not None and last is not None and last < first:
            return []
        specs.append(RangeSpec(first, last))
    return specs


def resolve(specs: list[RangeSpec], size: int) -> list[tuple[int, int]]:
    """Return the satisfiable ranges in the order asked; empty means 416."""
    if len(specs) > MAX_RANGES:
        return []
    found = [span for span in (spec.resolve(size) for spec in specs) if span is not None]
    ordered = sorted(found)
    overlaps = sum(a[1] > b[0] for a, b in itertools.pairwise(ordered))
    disordered = len(found) >= MAX_DISORDERED and any(a[0] > b[0] for a, b in itertools.pairwise(found))
    return [] if overlaps > MAX_OVERLAPS or disordered else found
