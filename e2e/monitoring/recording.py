"""What Prometheus would have stored of a store's metrics, while the store's time runs faster than it does.

Alerts last minutes and hours. A round of scrapes counts as one minute, however soon the next one follows; timestamps
and ages, which services tell in seconds, are converted with them. Rates, quotients and quantiles of durations do not
depend on it. So the rules are evaluated as they are shipped, on values that services exported.
"""

from __future__ import annotations

import math
import time
import urllib.request
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from prometheus_client.parser import text_string_to_metric_families

MINUTE_S = 60.0
SCRAPE_TIMEOUT_S = 0.8
Labels = frozenset[tuple[str, str]]
Exposed = Callable[[], str]


class Clock:
    """Minutes of the recording by moments of this machine; between two of them it runs evenly."""

    def __init__(self, now_s: float) -> None:
        """Minute 0 is now."""
        self._ticks = [now_s]

    @property
    def minute(self) -> int:
        """The minute of the last tick."""
        return len(self._ticks) - 1

    def tick(self, now_s: float) -> None:
        """A minute is over."""
        assert now_s > self._ticks[-1]
        self._ticks.append(now_s)

    def seconds(self, moment_s: float) -> float:
        """The recording's seconds at a moment of this machine; before and after it goes on as fast as at its edges."""
        ticks = self._ticks
        if len(ticks) == 1:
            return moment_s - ticks[0]
        index = min(max(bisect_right(ticks, moment_s), 1), len(ticks) - 1)
        before, after = ticks[index - 1], ticks[index]
        return (index - 1 + (moment_s - before) / (after - before)) * MINUTE_S


@dataclass(slots=True)
class Target:
    """One endpoint, with the labels that it has for Prometheus."""

    labels: Mapping[str, str]
    exposed: Exposed


@dataclass(slots=True)
class _Series:
    first: int
    values: list[float | None] = field(default_factory=list)


class Recording:
    """The series of some metrics of some targets, minute by minute."""

    def __init__(self, metrics: Iterable[str], targets: Iterable[Target], now: Callable[[], float] = time.time) -> None:
        """Keep these series alone; `now` is the clock of the targets."""
        self._metrics, self._targets, self._now = frozenset(metrics), list(targets), now
        self.clock = Clock(now())
        self._series: dict[tuple[str, Labels], _Series] = {}

    @property
    def minute(self) -> int:
        """The minute that was recorded last."""
        return self.clock.minute

    def wait(self, minutes: int, of_s: float = 0.6) -> int:
        """Record so many minutes, each of which takes so long or as long as it takes; the last of them."""
        for _ in range(minutes):
            time.sleep(of_s)
            self.tick()
        return self.minute

    def tick(self) -> None:
        """Record a minute, which is over."""
        self.clock.tick(self._now())
        for target in self._targets:
            self._scrape(target)

    def _scrape(self, target: Target) -> None:
        try:
            text = target.exposed()
        except OSError:
            self._keep("up", target.labels, 0.0)
            return
        self._keep("up", target.labels, 1.0)
        for name, labels, value in self._samples(text):
            self._keep(name, {**labels, **target.labels}, value)

    def _samples(self, text: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
        now_s = self._now()
        for family in text_string_to_metric_families(text):
            for name, labels, value, *_ in family.samples:
                if name not in self._metrics or math.isnan(value):
                    continue
                if name.endswith(("_timestamp_seconds", "_time_seconds")) and value > 0:
                    value = self.clock.seconds(value)
                elif family.type == "gauge" and name.endswith("_seconds") and value > 0:
                    value = self.clock.seconds(now_s) - self.clock.seconds(now_s - value)
                yield name, labels, value

    def _keep(self, name: str, labels: Mapping[str, str], value: float) -> None:
        known = self._series.setdefault((name, frozenset(labels.items())), _Series(self.minute))
        missing = self.minute - known.first - len(known.values)
        known.values += [None] * missing
        known.values.append(value)

    def input_series(self, metrics: Iterable[str]) -> list[dict[str, str]]:
        """The series of these metrics, as promtool reads them."""
        found, wanted = [], frozenset(metrics)
        for (name, labels), one in self._series.items():
            if name not in wanted:
                continue
            chosen = ",".join(f'{label}="{_quoted(value)}"' for label, value in sorted(labels))
            values = [*["_"] * one.first, *_written(one.values, self.minute + 1 - one.first)]
            found.append({"series": f"{name}{{{chosen}}}", "values": " ".join(values)})
        return found


def _written(values: list[float | None], count: int) -> Iterator[str]:
    """Values; a series that ends is stale at once, as when its target answers no more."""
    before: float | None = None
    for index in range(count):
        value = values[index] if index < len(values) else None
        if value is not None:
            yield f"{value:.6f}" if math.isfinite(value) else ("Inf" if value > 0 else "-Inf")
        else:
            yield "stale" if before is not None else "_"
        before = value


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def over_http(url: str) -> Exposed:
    """The text at an address; OSError when it does not answer in time."""

    def read() -> str:
        with urllib.request.urlopen(url, timeout=SCRAPE_TIMEOUT_S) as answer:
            found: bytes = answer.read()
        return found.decode()

    return read
