"""Prints what `make bench-degrade` has found: the page of all modes, and rows of a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from swiftlet.bench.degrade.phases import together
from swiftlet.bench.degrade.pictures import phases_of
from swiftlet.bench.page import render as render_result
from swiftlet.bench.results import Result, StepResult
from swiftlet.bench.scenario import Scenario
from swiftlet.units import number_text, time_text

HEADS = ("mode", "phase", "op/s", "p50", "p99", "max", "failed", "whole again after")


def render(found: Sequence[Result], skipped: Mapping[str, str], load: Scenario) -> str:
    """Return the page of all modes, and why some were not measured."""
    return render_result(together(found, load), [f"Not done: {name}: {why}" for name, why in skipped.items()])


def rows(found: Sequence[Result]) -> Iterator[tuple[str, ...]]:
    """A row for each phase of each mode."""
    for one in found:
        for mode in one.modes:
            for step in phases_of(one, mode):
                figures = plain(step)
                yield (
                    mode,
                    step.phase,
                    number_text(figures["operations_per_s"]),
                    time_text(figures["p50_s"]),
                    time_text(figures["p99_s"]),
                    time_text(figures["max_s"]),
                    f"{figures['failed']:,} of {figures['failed'] + figures['succeeded']:,}",
                    whole(step.whole_s) if step.is_whole is not None else "",
                )


def whole(whole_s: float | None) -> str:
    """Return the time to full redundancy for people."""
    return "not in time" if whole_s is None else f"{whole_s:.0f} s"


def plain(step: StepResult) -> dict[str, float]:
    """Return the figures of a phase that tables show."""
    total = step.total
    return {
        "operations_per_s": total.ended / step.window_s if step.window_s else 0.0,
        "p50_s": total.latency.quantile_s(0.5) or 0.0,
        "p99_s": total.latency.quantile_s(0.99) or 0.0,
        "max_s": total.latency.max_s or 0.0,
        "lasted_s": step.window_s,
        "succeeded": total.succeeded,
        "failed": total.failed,
    }
