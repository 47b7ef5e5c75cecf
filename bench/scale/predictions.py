"""The formulas of the model: which points each is fitted to, and what they say of stores beyond this machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from bench.scale.curves import REPLICAS, Curves, Point
from bench.scale.model import CONSTANT, Fit, Sample, Shape, Term, fit, logarithm, variable

NOTHING, OPEN = "nothing differs", "nothing differs, streams open"
FIRST = "the first of a process"
SHAPES = (
    Shape(nodes=10, devices_per_node=12, objects=1e9, part_power=16, containers=1e5),
    Shape(nodes=100, devices_per_node=12, objects=1e11, part_power=18, containers=1e7),
    Shape(nodes=1000, devices_per_node=12, objects=1e12, part_power=20, containers=1e8),
    Shape(nodes=1000, devices_per_node=12, objects=1e12, part_power=22, containers=1e8),
)
_BY_PLACES = Term("assignments", lambda at: at["assignments"])
_BY_ENTROPY = Term(
    f"assignments x log2(devices / {REPLICAS})", lambda at: at["assignments"] * math.log2(at["devices"] / REPLICAS)
)
"""A ring has to tell which of its devices hold a partition, and each may be beside any other."""
_RING = (CONSTANT, variable("devices"), _BY_PLACES, _BY_ENTROPY)
_TABLE = (CONSTANT, variable("devices"), _BY_PLACES)
_ROUND = (CONSTANT, variable("neighbours"), variable("partitions"))
_STORE = (CONSTANT, variable("objects"))
_DATABASES = (CONSTANT, variable("containers"))
_COST = (CONSTANT, logarithm("objects"))


@dataclass(frozen=True, slots=True)
class Amount:
    """One amount that the model has a formula for."""

    name: str
    unit: str
    parts: tuple[str, ...]
    """The parts of the benchmark whose points it is fitted to."""
    terms: tuple[Term, ...]
    of: Callable[[Point], float | None]
    """The amount at a point; None where the formula is not about it."""


def _chosen(name: str) -> Callable[[Point], float | None]:
    """Return an amount of rings in which there is a choice of devices."""
    return lambda point: point.amounts.get(name) if point.at["devices"] > REPLICAS else None


def _amount(name: str) -> Callable[[Point], float | None]:
    return lambda point: point.amounts.get(name)


def _round(kind: str, field: str) -> Callable[[Point], float | None]:
    def found(point: Point) -> float | None:
        return next((float(getattr(one, field)) for one in point.rounds if one.kind == kind), None)

    return found


def _cpu(operation: str) -> Callable[[Point], float | None]:
    return lambda point: next((one.cpu_s for one in point.operations if one.operation == operation), None)


_RINGS, _ROUNDS = ("devices", "powers", "rings"), ("devices", "powers")
AMOUNTS = (
    Amount("ring, file", "bytes", _RINGS, _RING, _chosen("ring_file_bytes")),
    Amount("ring, memory of a process", "bytes", _RINGS, _TABLE, _amount("ring_memory_bytes")),
    Amount("ring, processor to read it", "s", _RINGS, _TABLE, _amount("ring_read_cpu_s")),
    Amount("round of a device, processor, streams new", "s", _ROUNDS, _ROUND, _round(NOTHING, "cpu_s")),
    Amount("round of a device, processor", "s", _ROUNDS, _ROUND, _round(OPEN, "cpu_s")),
    Amount("round of a device, messages", "", _ROUNDS, _ROUND, _round(OPEN, "messages")),
    Amount("round of a device, on the network", "bytes", _ROUNDS, _ROUND, _round(OPEN, "bytes")),
    Amount("a device's index, memory", "bytes", ("objects",), _STORE, _amount("store_resident_bytes")),
    Amount("start of a device, processor", "s", ("objects",), _STORE, _amount("store_open_cpu_s")),
    Amount("put at one device, processor", "s", ("objects",), _COST, _cpu("put")),
    Amount("get at one device, processor", "s", ("objects",), _COST, _cpu("get")),
    Amount("first round of databases, processor", "s", ("containers",), _DATABASES, _round(FIRST, "cpu_s")),
    Amount("round of databases, processor", "s", ("containers",), _DATABASES, _round(NOTHING, "cpu_s")),
)  # fmt: skip


def fits(curves: Curves) -> Iterator[tuple[Amount, Fit | None, int]]:
    """Return each amount with its formula, None without points enough, and the number of points."""
    for amount in AMOUNTS:
        samples = samples_of(curves, amount)
        yield amount, fit(amount.terms, samples) if len(samples) >= len(amount.terms) else None, len(samples)


def samples_of(curves: Curves, amount: Amount) -> list[Sample]:
    """Return the points that an amount was measured at."""
    found: list[Sample] = []
    for part in amount.parts:
        for point in curves.parts.get(part, ()):
            value = amount.of(point)
            if value is not None and value > 0:
                found.append((point.at, value))
    return found
