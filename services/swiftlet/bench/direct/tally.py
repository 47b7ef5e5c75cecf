"""Counts what one process measures: times to three digits, operations, failures by kind."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from swiftlet.bench.times import Times

SHORTEST_NS, LONGEST_NS = 1_000, 3_600_000_000_000
_DIGITS_BITS = 10
"""A time keeps so many bits, which is three digits."""
_MAX_EXAMPLE = 300
"""Characters of the example of a failure."""


class Histogram:
    """How many took about so long."""

    def __init__(self) -> None:
        self.counts: Counter[int] = Counter()

    def record(self, seconds: float) -> None:
        """Count a time, to three digits."""
        nanos = min(max(round(seconds * 1e9), SHORTEST_NS), LONGEST_NS)
        lost = max(0, nanos.bit_length() - _DIGITS_BITS)
        # The upper end of what is told as one, as a histogram of the native generator does.
        told = ((nanos >> lost) << lost) + (1 << lost) - 1 if lost else nanos
        self.counts[told] += 1

    def add(self, other: Histogram) -> None:
        """Add the times of another one."""
        self.counts.update(other.counts)

    def told(self) -> tuple[tuple[int, int], ...]:
        """Return times in nanoseconds, ascending, each with how many took about so long."""
        return tuple(sorted(self.counts.items()))

    def times(self) -> Times:
        """Return it as results have it."""
        return Times(counts=self.told())


@dataclass
class Operations:
    """Operations of one kind, as the native generator counts them."""

    succeeded: int = 0
    compared: int = 0
    """Reads among them whose bytes were compared with what was written."""
    ended: int = 0
    bytes: int = 0
    latency: Histogram = field(default_factory=Histogram)
    failures: dict[str, tuple[int, str]] = field(default_factory=dict)

    def fail(self, kind: str, example: str, count: int = 1) -> None:
        """Count failures of a kind."""
        before, first = self.failures.get(kind, (0, example[:_MAX_EXAMPLE]))
        self.failures[kind] = (before + count, first)

    def told(self) -> dict[str, Any]:
        """Return it as the native generator does. An answer is there as a whole: its first byte is not told apart."""
        counts = self.latency.told()
        return {
            "succeeded": self.succeeded,
            "compared": self.compared,
            "ended": self.ended,
            "bytes": self.bytes,
            "latency": counts,
            "first_byte": counts if self.succeeded else (),
            "failures": self.failures,
        }


@dataclass
class Tally:
    """Sums up what one process, or several, measured in one order."""

    operations: dict[str, Operations] = field(default_factory=dict)
    lateness: Histogram = field(default_factory=Histogram)
    moved: int = 0
    workers_operations_per_s: float = 0.0
    workers_bytes_per_s: float = 0.0
    window_s: float = 0.0
    cpu_s: float = 0.0
    busiest: float = 0.0
    over_http: int = 0
    ended_early: str | None = None

    def of(self, kind: str) -> Operations:
        """Return the operations of a kind."""
        return self.operations.setdefault(kind, Operations())

    def told(self) -> dict[str, Any]:
        """Return it as the native generator does."""
        return {
            "operations": {kind: one.told() for kind, one in self.operations.items()},
            "window_s": self.window_s,
            "moved_bytes": self.moved,
            "workers_operations_per_s": self.workers_operations_per_s,
            "workers_bytes_per_s": self.workers_bytes_per_s,
            "lateness": self.lateness.told(),
            "resent": 0,
            "ended_early": self.ended_early,
            "cpu_s": self.cpu_s,
            "busiest": self.busiest,
            "over_http": self.over_http,
        }


def added(several: list[Tally]) -> Tally:
    """Return what all processes measured."""
    total = Tally()
    for one in several:
        for kind, operations in one.operations.items():
            known = total.of(kind)
            known.succeeded += operations.succeeded
            known.compared += operations.compared
            known.ended += operations.ended
            known.bytes += operations.bytes
            known.latency.add(operations.latency)
            for failure, (count, example) in operations.failures.items():
                known.fail(failure, example, count)
        total.lateness.add(one.lateness)
        total.moved += one.moved
        total.workers_operations_per_s += one.workers_operations_per_s
        total.workers_bytes_per_s += one.workers_bytes_per_s
        total.window_s = max(total.window_s, one.window_s)
        total.cpu_s += one.cpu_s
        total.busiest = max(total.busiest, one.busiest)
        total.over_http += one.over_http
        total.ended_early = total.ended_early or one.ended_early
    return total
