"""What was measured: for each part of the benchmark points, each with what an operation and a round took there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from swiftlet.bench.errors import BenchError
from swiftlet.bench.results import Value

VERSION = 1
REPLICAS = 3


class Operation(Value):
    """One kind of operation at a point."""

    operation: str
    per_second: float
    p50_s: float
    p99_s: float
    cpu_s: float
    """Processor time of an operation, of all processes that have a part in it."""


class Round(Value):
    """A round of the replicator for one device; processor time and memory are of both sides."""

    kind: str
    seconds: float
    cpu_s: float
    bytes: float
    """Between the device's replicator and the others, headers of HTTP included."""
    messages: float
    memory_bytes: float
    """By how much the process grew at most."""


class Point(Value):
    """One size of a store."""

    at: dict[str, float]
    """What the size is: the part's own variable, and what else the model has to know."""
    operations: tuple[Operation, ...] = ()
    rounds: tuple[Round, ...] = ()
    amounts: dict[str, float] = Field(default_factory=dict)
    """Bytes and seconds that belong to neither, by name."""


class Curves(Value):
    """All parts that were measured."""

    version: int = VERSION
    machine: dict[str, Any]
    parts: dict[str, tuple[Point, ...]]

    def with_part(self, name: str, points: Sequence[Point], machine: dict[str, Any]) -> Curves:
        """Return the same with one part measured anew."""
        return Curves(machine={**self.machine, name: machine}, parts={**self.parts, name: tuple(points)})


def read_curves(path: Path) -> Curves:
    """Return the curves in a file, none when it does not exist; BenchError when it has something else."""
    if not path.exists():
        return Curves(machine={}, parts={})
    try:
        found = Curves.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise BenchError(f"{path} has no curves of `make bench-scale`: {error.errors()[0]['msg']}") from error
    if found.version != VERSION:
        raise BenchError(f"{path} has version {found.version} of curves; this is {VERSION}: remove it and measure anew")
    return found
