"""Judges the study's numbers: whether Swiftlet reaches its bars, and whether the orderings of the paper hold again."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from bench.wan.links import ROUND_TRIP_MS
from bench.wan.study_results import Measured, median

OURS, CODED, LOCAL = "Swiftlet, 3 copies", "Swiftlet, 6+3", "Swiftlet, 3 copies, local"
SWIFT, NEAR = "Swift", "Swift, affinity"
TAHOE, TAHOE_WIDE = "Tahoe, 3 of 10", "Tahoe, 6 of 9"
WAYS = (OURS, CODED, LOCAL, SWIFT, NEAR, TAHOE, TAHOE_WIDE)
PLACES = {"three": "three sites", "remote": "one site, remote", "local": "one site, local"}
THREADED = ("small 10", "small 30", "small 50", "large 10")
"""The groups whose throughput is compared."""
_WRITE_BAR, _READ_BAR, _TRIP_BAR = 3.0, 2.0, 1.1


@dataclass(frozen=True, slots=True)
class Verdict:
    """A statement, what was found, and whether it holds; None when something of it was not measured."""

    statement: str
    found: str
    holds: bool | None


def ratios(found: Sequence[Measured], place: str, kind: str, one: str, other: str) -> list[float]:
    """Return how many times the throughput of `other` `one` has, for each group that both were measured in."""
    pairs = [[median(found, place, way, f"{group} {kind}", "mb_s") for way in (one, other)] for group in THREADED]
    return [ours / theirs for ours, theirs in pairs if ours is not None and theirs]


def bars(found: Sequence[Measured]) -> Iterator[Verdict]:
    """Judge what Swiftlet is to reach."""
    for kind, bar in (("write", _WRITE_BAR), ("read", _READ_BAR)):
        for way in (OURS, CODED):
            yield _times(
                f"{way}: {bar:g} times Swift, three sites, {kind}", ratios(found, "three", kind, way, SWIFT), bar
            )
    yield _times(
        f"{LOCAL}: {_WRITE_BAR:g} times Swift with affinity, three sites, write",
        ratios(found, "three", "write", LOCAL, NEAR),
        _WRITE_BAR,
    )
    yield _small_put(found)


def _small_put(found: Sequence[Measured]) -> Verdict:
    statement = f"a small PUT with majority: {_TRIP_BAR:g} times one round trip and the local time at most"
    far = median(found, "three", OURS, "latency write", "median_rest_s")
    near = median(found, "local", OURS, "latency write", "median_rest_s")
    if far is None or near is None:
        return Verdict(statement, "not measured", None)
    share = far * 1e3 / (ROUND_TRIP_MS + near * 1e3)
    return Verdict(statement, f"{share:.2f} ({far * 1e3:.1f} ms; {near * 1e3:.1f} ms locally)", share <= _TRIP_BAR)


def orderings(found: Sequence[Measured]) -> Iterator[Verdict]:
    """Judge the orderings of the paper."""
    for place, name in PLACES.items():
        for kind in ("read", "write"):
            yield _times(f"Swift before Tahoe-LAFS, {name}, {kind}", ratios(found, place, kind, SWIFT, TAHOE_WIDE), 1.0)
    for way in (OURS, SWIFT, TAHOE_WIDE):
        for kind in ("read", "write"):
            yield _times(
                f"{way}: one site locally before three sites, {kind}", _between(found, way, kind, "local", "three"), 1.0
            )
            yield _times(
                f"{way}: three sites before one remotely, {kind}", _between(found, way, kind, "three", "remote"), 1.0
            )
    for way in (OURS, SWIFT, TAHOE_WIDE):
        yield _times(f"{way}: reads before writes, three sites", _reads_before_writes(found, way), 1.0)
    for way in (OURS, SWIFT, TAHOE_WIDE):
        small, large = (median(found, "three", way, f"{group} 10 write", "mb_s") for group in ("small", "large"))
        yield _times(
            f"{way}: large objects written before small ones, three sites, 10 threads",
            [large / small] if small and large else [],
            1.0,
        )


def _between(found: Sequence[Measured], way: str, kind: str, one: str, other: str) -> list[float]:
    pairs = [[median(found, place, way, f"{group} {kind}", "mb_s") for place in (one, other)] for group in THREADED]
    return [first / second for first, second in pairs if first is not None and second]


def _reads_before_writes(found: Sequence[Measured], way: str) -> list[float]:
    pairs = [
        [median(found, "three", way, f"{group} {kind}", "mb_s") for kind in ("read", "write")] for group in THREADED
    ]
    return [first / second for first, second in pairs if first is not None and second]


def _times(statement: str, found: Sequence[float], bar: float) -> Verdict:
    """Judge by the geometric mean, and tell the least and the most beside it."""
    if not found or min(found) <= 0:
        return Verdict(statement, "not measured" if not found else "nothing was served", None if not found else False)
    mean = statistics.geometric_mean(found)
    return Verdict(statement, f"{mean:.2f} times ({min(found):.2f} to {max(found):.2f})", mean >= bar)
