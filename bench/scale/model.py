"""What a store of any size takes, by formulas that are fitted to measured points.

Each amount is a sum of terms, such as so much for each neighbour and so much for each partition. Coefficients are those
of least squares of relative errors, none below 0: a round does not become cheaper by more neighbours. How far the
formula is from the points it was fitted to is its error; how far it is from the largest point when it is fitted to the
others alone says what it is worth beyond them. Nothing here measures.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Sample = tuple[Mapping[str, float], float]
"""Where something was measured, and how much it was."""

_LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class Term:
    """A part of a formula: a name for people, and its size at a point."""

    name: str
    of: Callable[[Mapping[str, float]], float]


CONSTANT = Term("1", lambda at: 1.0)


def variable(name: str) -> Term:
    """Return the term that is a variable itself."""
    return Term(name, lambda at: at[name])


def logarithm(name: str) -> Term:
    """Return the binary logarithm of a variable as a term."""
    return Term(f"log2({name})", lambda at: math.log2(max(1.0, at[name])))


@dataclass(frozen=True, slots=True)
class Fit:
    """A formula with its coefficients and errors, all errors as shares of what was measured."""

    terms: tuple[Term, ...]
    coefficients: tuple[float, ...]
    mean_error: float
    worst_error: float
    beyond_error: float | None
    """At the point with the largest value of a variable, when fitted to all others; of several variables the worst.
    None when there are too few others.
    """

    def at(self, where: Mapping[str, float]) -> float:
        """Return what the formula says for a point."""
        return _sum(self.terms, self.coefficients, where)

    def formula(self, text: Callable[[float], str]) -> str:
        """Return the formula for people; terms that count nothing are left out."""
        parts = [
            text(coefficient) if term is CONSTANT else f"{text(coefficient)} x {term.name}"
            for term, coefficient in zip(self.terms, self.coefficients, strict=True)
            if coefficient
        ]
        return " + ".join(parts) or text(0.0)


def fit(terms: Sequence[Term], samples: Sequence[Sample]) -> Fit:
    """Fit a formula to samples. Raises ValueError without as many samples as terms, or with an amount not above 0."""
    if len(samples) < len(terms):
        raise ValueError(f"{len(samples)} samples are too few for {len(terms)} terms")
    if any(amount <= 0 for _, amount in samples):
        raise ValueError("amounts have to be above 0, as errors are shares of them")
    coefficients = _coefficients(terms, samples)
    errors = [abs(_sum(terms, coefficients, at) / amount - 1) for at, amount in samples]
    beyond = None
    if len(samples) > len(terms):
        found = [_without(number, terms, samples) for number in _largest(terms, samples)]
        beyond = max(found, key=abs, default=None)
    return Fit(tuple(terms), tuple(coefficients), sum(errors) / len(errors), max(errors), beyond)


def _largest(terms: Sequence[Term], samples: Sequence[Sample]) -> set[int]:
    """Return the number of the sample at which each term is largest; constant terms are largest nowhere."""
    found = set()
    for term in terms:
        values = [term.of(at) for at, _ in samples]
        if max(values) > min(values):
            found.add(values.index(max(values)))
    return found


def _without(number: int, terms: Sequence[Term], samples: Sequence[Sample]) -> float:
    """Return the error at one sample of the formula that is fitted to all others."""
    at, amount = samples[number]
    others = [*samples[:number], *samples[number + 1 :]]
    return _sum(terms, _coefficients(terms, others), at) / amount - 1


def _sum(terms: Sequence[Term], coefficients: Sequence[float], at: Mapping[str, float]) -> float:
    return sum(coefficient * term.of(at) for term, coefficient in zip(terms, coefficients, strict=True))


def _coefficients(terms: Sequence[Term], samples: Sequence[Sample]) -> list[float]:
    """Least squares of relative errors; terms that would be negative, or can't be told from others, count nothing."""
    rows = [[term.of(at) / amount for term in terms] for at, amount in samples]
    # Terms differ by many powers of ten; columns of one length keep the equations solvable.
    lengths = [math.sqrt(sum(row[column] ** 2 for row in rows)) for column in range(len(terms))]
    kept = [column for column in range(len(terms)) if lengths[column] > 0]
    while kept:
        scaled = [[row[column] / lengths[column] for column in kept] for row in rows]
        solution = _solved(scaled)
        lowest = min(range(len(kept)), key=lambda place: solution[place])
        if solution[lowest] >= 0:
            # What adds less than that to any sum is what rounding leaves.
            found = {column: value for column, value in zip(kept, solution, strict=True) if value > _LEAST}
            return [found[column] / lengths[column] if column in found else 0.0 for column in range(len(terms))]
        del kept[lowest]
    return [0.0] * len(terms)


def _solved(rows: Sequence[Sequence[float]]) -> list[float]:
    """Return the x for which each row's sum is nearest to 1: the normal equations, by elimination with pivots.

    An unknown that follows from the others becomes 0.
    """
    size = len(rows[0])
    matrix = [
        [sum(row[one] * row[other] for row in rows) for other in range(size)] + [sum(row[one] for row in rows)]
        for one in range(size)
    ]
    pivots = []
    for column in range(size):
        free = [row for row in range(size) if row not in pivots]
        pivot = max(free, key=lambda row: abs(matrix[row][column]))
        if abs(matrix[pivot][column]) < 1e-9:
            pivots.append(-1)
            continue
        pivots.append(pivot)
        for row in range(size):
            if row != pivot:
                factor = matrix[row][column] / matrix[pivot][column]
                matrix[row] = [a - factor * b for a, b in zip(matrix[row], matrix[pivot], strict=True)]
    return [matrix[pivot][size] / matrix[pivot][column] if pivot >= 0 else 0.0 for column, pivot in enumerate(pivots)]


@dataclass(frozen=True, slots=True)
class Shape:
    """A store of a size that this machine can't have."""

    nodes: int
    devices_per_node: int
    objects: float
    part_power: int
    containers: float
    replicas: int = 3

    @property
    def devices(self) -> int:
        """Return the number of devices."""
        return self.nodes * self.devices_per_node

    def at(self) -> dict[str, float]:
        """Return the variables of formulas, of one device where they are of a device."""
        partitions = 2.0**self.part_power * self.replicas / self.devices
        return {
            "devices": float(self.devices),
            "assignments": 2.0**self.part_power * self.replicas,
            "partitions": partitions,
            "neighbours": neighbours(self.devices, partitions, self.replicas),
            "objects": self.objects * self.replicas / self.devices,
            "containers": self.containers * self.replicas / self.devices,
        }


def neighbours(devices: int, partitions: float, replicas: int) -> float:
    """Return how many other devices share at least one partition with a device, when replicas lie evenly at random."""
    others = devices - 1
    if others <= 0:
        return 0.0
    if others == 1:
        return 1.0 if partitions * (replicas - 1) >= 1 else 0.0
    return others * -math.expm1(partitions * (replicas - 1) * math.log1p(-1 / others))
