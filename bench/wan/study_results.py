"""What the study has measured: lines of a file, and medians of them."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.wan.load import Cell

_FIRST_SECOND_S = 1.0


@dataclass(frozen=True, slots=True)
class Measured:
    """One cell of one store (`way`) in one place and round."""

    round: int
    place: str
    way: str
    cell: Cell
    done: int
    failed: int
    unfinished: int
    mb_s: float
    """Bytes of what was served over the time until the last of it, in 10^6 bytes per second."""
    bandwidth_mb_s: float
    """The sum of what each thread had while it was at work, as COSBench counts."""
    mean_s: float | None
    """The mean response time of what was served; None when nothing was."""
    first_s: float | None
    """The response time of the operation that ended first."""
    median_rest_s: float | None
    """The median of the others."""
    steady_mib_s: float | None
    """For a single stream: MiB/s after its first second."""
    load: float
    """The load average of the machine."""
    example: str
    cpu_s: float | None = None
    """Processor time of all processes of the store; it depends less on what else the machine does than rates."""
    congestion: str = "cubic"
    """The congestion control of TCP in all regions."""

    @classmethod
    def of(
        cls, number: int, place: str, way: str, told: Mapping[str, Any], load: float, cpu_s: float | None = None
    ) -> Measured:
        """Return what a line of the client says."""
        cell, outcome = Cell(**told["cell"]), told["outcome"]
        taken, seconds = outcome["taken_s"], outcome["seconds"]
        return cls(
            number,
            place,
            way,
            cell,
            len(taken),
            outcome["failed"],
            outcome["unfinished"],
            outcome["done_bytes"] / 1e6 / seconds if seconds else 0.0,
            sum(outcome["busy_rates"]) / 1e6,
            statistics.fmean(taken) if taken else None,
            taken[0] if taken else None,
            statistics.median(taken[1:]) if len(taken) > 1 else None,
            steady(outcome["samples"], cell.size, seconds) if taken and cell.has_samples else None,
            load,
            outcome["example"],
            cpu_s,
        )

    @property
    def cpu_per_gb_s(self) -> float | None:
        """Return the processor seconds for 10^9 bytes that were served; None when none were, or it is not known."""
        served = self.done * self.cell.size
        return None if self.cpu_s is None or not served else self.cpu_s / served * 1e9

    def line(self) -> str:
        """Return the result in a few words."""
        mean = "-" if self.mean_s is None else f"{self.mean_s:.3f} s"
        steady_text = "" if self.steady_mib_s is None else f", {self.steady_mib_s:.1f} MiB/s after the first second"
        bad = f", {self.failed} failed, {self.unfinished} unfinished" if self.failed or self.unfinished else ""
        return f"{self.mb_s:.1f} MB/s, mean {mean}{steady_text}{bad} {self.example}".rstrip()


def steady(samples: Sequence[Sequence[float]], size: int, seconds: float) -> float | None:
    """Return the MiB/s of a stream after its first second; None when it had ended by then.

    What a sender had handed to its buffers in the first second counts for that second, so that a rate is rather too low
    than too high.
    """
    at_s, before = _FIRST_SECOND_S, 0.0
    for when, count in samples:
        if when <= _FIRST_SECOND_S:
            before = count
    if seconds <= at_s:
        return None
    return (size - before) / (seconds - at_s) / (1 << 20)


def append(path: Path, found: Iterable[Measured]) -> None:
    """Add lines to the file; what a run that was killed had not written to its end is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+b") as out:
        out.seek(0)
        out.truncate(out.read().rfind(b"\n") + 1)
        for one in found:
            out.write((json.dumps(asdict(one)) + "\n").encode())


def read(path: Path) -> list[Measured]:
    """Return what the file has; nothing when there is none. A last line that was cut off is left out."""
    if not path.exists():
        return []
    found = []
    lines = path.read_text(encoding="utf-8").split("\n")
    for line in lines[:-1]:
        fields = json.loads(line)
        found.append(Measured(**{**fields, "cell": Cell(**fields["cell"])}))
    return found


def done_cells(found: Iterable[Measured]) -> set[tuple[int, str, str]]:
    """Return the rounds, places and ways that have been measured."""
    return {(one.round, one.place, one.way) for one in found}


def median(found: Iterable[Measured], place: str, way: str, cell: str, field: str) -> float | None:
    """Return the median over rounds of a number of a cell; None when it was never measured."""
    values = [
        value
        for one in found
        if (one.place, one.way, one.cell.name) == (place, way, cell) and (value := getattr(one, field)) is not None
    ]
    return statistics.median(values) if values else None
