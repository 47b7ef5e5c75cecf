"""The figures of results: what tables, pages and comparisons show of each step and operation, in all runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from swiftlet.bench.results import OperationResult, Result, StepResult
from swiftlet.units import number_text, size_text, time_text

ALL = "all"
"""The name of all operations taken together."""


@dataclass(frozen=True, slots=True)
class Figure:
    """One kind of figure."""

    name: str
    title: str
    of: Callable[[StepResult, OperationResult], float | None]
    text: Callable[[float], str]
    is_higher_better: bool = False


def _quantile(share: float) -> Callable[[StepResult, OperationResult], float | None]:
    return lambda _, found: found.latency.quantile_s(share)


def _per_second(step: StepResult, amount: float) -> float | None:
    return amount / step.window_s if step.window_s else None


def _bytes_per_s(step: StepResult, found: OperationResult) -> float | None:
    """Return the rate of one operation: what ended within the window, at the mean size of what counts."""
    return _per_second(step, found.bytes / found.succeeded * found.ended) if found.succeeded else None


def _rate(value: float) -> str:
    return f"{size_text(value)}/s"


def _cpu_per_operation(step: StepResult, found: OperationResult) -> float | None:
    return step.usage.cpu_s / step.all_succeeded if step.usage is not None and step.all_succeeded else None


def _generator_per_operation(step: StepResult, found: OperationResult) -> float | None:
    return step.generator_cpu_s / step.all_succeeded if step.all_succeeded else None


OPERATIONS_PER_S = Figure(
    "operations_per_s", "op/s", lambda step, found: _per_second(step, found.ended), number_text, is_higher_better=True
)
BYTES_PER_S = Figure("bytes_per_s", "bytes/s", _bytes_per_s, _rate, is_higher_better=True)
MEAN = Figure("mean_s", "mean", lambda _, found: found.latency.mean_s, time_text)
P50 = Figure("p50_s", "p50", _quantile(0.5), time_text)
P95 = Figure("p95_s", "p95", _quantile(0.95), time_text)
P99 = Figure("p99_s", "p99", _quantile(0.99), time_text)
P999 = Figure("p999_s", "p99.9", _quantile(0.999), time_text)
MAX = Figure("max_s", "max", lambda _, found: found.latency.max_s, time_text)
FIRST_BYTE = Figure("first_byte_p50_s", "first byte", lambda _, found: found.first_byte.quantile_s(0.5), time_text)
FAILED = Figure("failed", "failed", lambda _, found: float(found.failed), number_text)
CPU = Figure("cpu_per_operation_s", "CPU/op", _cpu_per_operation, time_text)
GENERATOR_CPU = Figure("generator_cpu_per_operation_s", "generator's CPU/op", _generator_per_operation, time_text)

FIRST_SUCCESS = Figure("first_success_s", "first success after", lambda step, _: step.first_success_s, time_text)
WHOLE = Figure("whole_s", "whole again after", lambda step, _: step.whole_s, time_text)

FIGURES = (OPERATIONS_PER_S, BYTES_PER_S, MEAN, P50, P95, P99, P999, MAX, FIRST_BYTE, FAILED)
OF_PHASES = (OPERATIONS_PER_S, BYTES_PER_S, MEAN, P50, P99, MAX, FAILED, FIRST_SUCCESS, WHOLE)
"""What is shown of the phases of modes in which something is broken."""
OF_STEPS = (CPU, FIRST_SUCCESS, WHOLE)
"""Figures of a step as a whole, whatever its operations."""
COMPARED = (OPERATIONS_PER_S, BYTES_PER_S, MEAN, P50, P95, P99, FIRST_BYTE, FAILED)


@dataclass(frozen=True, slots=True)
class Key:
    """A step and an operation, in whichever run."""

    connections: int
    per_second: float | None
    operation: str
    phase: str = ""
    """The mode and its phase where something is broken; empty elsewhere."""

    @property
    def place(self) -> tuple[str, int, float | None]:
        """Return what tells its step from others."""
        return self.phase, self.connections, self.per_second

    @property
    def step(self) -> str:
        """Return the step for people."""
        if self.phase:
            return self.phase
        return f"{self.per_second:g}/s" if self.per_second is not None else f"{self.connections}"


def key_of(step: StepResult, operation: str) -> Key:
    """Return the key of an operation of a step."""
    phase = f"{step.mode}, {step.phase}" if step.mode else ""
    return Key(step.connections, step.per_second, operation, phase)


def shown(result: Result) -> tuple[list[Key], Sequence[Figure], str]:
    """Return the rows and the columns of a result's table, and the title of the column that tells steps apart.

    Where something is broken each phase has one row for all operations: there are many phases.
    """
    found = keys(result)
    if not result.modes:
        return found, FIGURES, "rate" if any(step.per_second is not None for step in result.steps) else "clients"
    last = {key.place: key for key in found}
    return list(last.values()), OF_PHASES, "mode, phase"


def keys(result: Result) -> list[Key]:
    """Return all steps and operations in their order; all operations together come last in a step of several."""
    found: dict[Key, None] = {}
    for step in result.steps:
        several = [ALL] if len(step.operations) > 1 else []
        for operation in [*step.operations, *several]:
            found[key_of(step, operation)] = None
    order = {place: number for number, place in enumerate(dict.fromkeys(key.place for key in found))}
    names = [*dict.fromkeys(key.operation for key in found if key.operation != ALL), ALL]
    return sorted(found, key=lambda key: (order[key.place], names.index(key.operation)))


def values(result: Result, key: Key, figure: Figure) -> list[float]:
    """Return a figure of all runs that have it."""
    found = []
    for step, operation in operations(result, key):
        value = figure.of(step, operation)
        if value is not None:
            found.append(value)
    return found


def operations(result: Result, key: Key) -> Sequence[tuple[StepResult, OperationResult]]:
    """Return what was measured of a step and an operation in each run."""
    found = []
    for step in result.steps:
        if key_of(step, key.operation) != key:
            continue
        operation = step.total if key.operation == ALL else step.operations.get(key.operation)
        if operation is not None:
            found.append((step, operation))
    return found
