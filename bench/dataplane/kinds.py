"""What a sample of a profile is counted as."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


class Kinds:
    """Kinds of work, each by a pattern of what its frames are called."""

    def __init__(self, *kinds: tuple[str, str]) -> None:
        """Name and pattern of each; of two that fit a frame, the first one counts."""
        self.names = tuple(name for name, _ in kinds)
        self._patterns = tuple((name, re.compile(pattern)) for name, pattern in kinds)

    def of(self, frames: Sequence[str]) -> str:
        """The kind of a stack, outermost frame first: of the innermost frame that has any; "other" without one."""
        for frame in reversed(frames):
            for name, pattern in self._patterns:
                if pattern.search(frame):
                    return name
        return "other"


def print_shares(columns: Mapping[str, Mapping[str, float]]) -> None:
    """A markdown table of the share of each kind, in each column; most of the first one comes first."""
    head, *_ = columns.values()
    print("| share of samples | " + " | ".join(columns) + " |\n|---|" + "---|" * len(columns))
    kinds = dict.fromkeys(kind for column in columns.values() for kind in column)
    for kind in sorted(kinds, key=lambda kind: -head.get(kind, 0)):
        print(f"| {kind} | " + " | ".join(f"{column.get(kind, 0):.1%}" for column in columns.values()) + " |")
