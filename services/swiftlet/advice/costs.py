"""Unit costs: what one operation takes of processors, disks and memory, as it was measured on some machine.

The file of unit costs is JSON, so that the plugin of kubectl reads it, too. `swiftlet bench costs` writes one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from itertools import pairwise
from typing import Any

from swiftlet.advice.errors import AdviceError

VERSION = 1
OPERATIONS = ("create", "read", "update", "delete", "head", "list")
SERVICES = ("proxy", "object", "container", "replicator")
"""Services whose use depends on the load."""
CODED_OPERATIONS = ("create", "read", "update", "delete", "head")
CODED_SERVICES = ("proxy", "object")
"""Services that treat objects with erasure coding in another way than copies."""
MAX_POINTS = 100
"""Sizes of objects for which a cost is given."""
_HIGHEST = 1e18


@dataclass(frozen=True, slots=True)
class Curve:
    """A cost by the size of the object in bytes: straight between two sizes, and beyond the last as steep as before."""

    points: tuple[tuple[float, float], ...]

    def at(self, size: float) -> float:
        """Return the cost at a size."""
        first = self.points[0]
        if size <= first[0] or len(self.points) == 1:
            return first[1]
        stretches = list(pairwise(self.points))
        low, high = next((one for one in stretches if size <= one[1][0]), stretches[-1])
        slope = (high[1] - low[1]) / (high[0] - low[0])
        return max(0.0, low[1] + slope * (size - low[0]))


@dataclass(frozen=True, slots=True)
class CodedCosts:
    """What operations on objects with erasure coding take, as measured with a scheme of so many fragments.

    `cpu_s` is processor time by service and operation: a proxy's by the size of the object, and an object server's by
    the size of a fragment, for each of those that the operation asks. `rebuild_s` is the processor time of all
    services for a byte of a fragment that is made anew. `measured` says where and when.
    """

    data: int
    parity: int
    cpu_s: Mapping[str, Mapping[str, Curve]]
    rebuild_s: float
    measured: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnitCosts:
    """What operations take. Those of object and container servers and replicators are of one copy each.

    `cpu_s` is processor time by service and operation; `written_bytes` what object servers write to their device, and
    container servers to theirs. `overhead_bytes` is the space of a copy besides the object's bytes, `row_bytes` that
    of a row of a listing, `container_bytes` that of an empty database, `index_bytes` the memory that an object server
    needs for a copy. `fold_s` is the processor time of merging waiting rows into a database, however few they are.
    `memory_bytes` is what a process of a service has with a load, without the index. `measured` says where and when.
    Without `coded` objects with erasure coding are taken to cost what copies do.
    """

    cpu_s: Mapping[str, Mapping[str, Curve]]
    fold_s: float
    written_bytes: Mapping[str, Mapping[str, Curve]]
    memory_bytes: Mapping[str, float]
    overhead_bytes: float
    row_bytes: float
    container_bytes: float
    index_bytes: float
    measured: Mapping[str, Any]
    coded: CodedCosts | None = None

    def cpu_of(self, service: str, operation: str, is_coded: bool) -> Curve:
        """Return what an operation takes of a service, for objects with erasure coding or with copies."""
        if is_coded and self.coded is not None and service in CODED_SERVICES and operation in CODED_OPERATIONS:
            return self.coded.cpu_s[service][operation]
        return self.cpu_s[service][operation]


def read_costs(content: str | bytes, where: str) -> UnitCosts:
    """Return the unit costs in a file's content. Raises AdviceError, which names the field."""
    try:
        document = json.loads(content)
    except ValueError as error:
        raise AdviceError(f"{where} is no file of unit costs: {error}; `swiftlet bench costs` writes one") from error
    read = _Reader(where)
    top = read.mapping(document, "", ())
    if top.get("version") != VERSION:
        raise AdviceError(
            f"{where}: version: this release reads {VERSION}, the file has {top.get('version')!r}; measure anew"
        )
    return UnitCosts(
        cpu_s={service: read.curves(top, "cpu_us", service, 1e-6) for service in SERVICES},
        fold_s=read.number(top, "", "fold_us") * 1e-6,
        written_bytes={service: read.curves(top, "written_bytes", service, 1.0) for service in ("object", "container")},
        memory_bytes={
            service: read.number(
                read.mapping(top.get("memory_bytes"), "memory_bytes", SERVICES), "memory_bytes", service
            )
            for service in SERVICES
        },
        overhead_bytes=read.number(top, "", "overhead_bytes"),
        row_bytes=read.number(top, "", "row_bytes"),
        container_bytes=read.number(top, "", "container_bytes"),
        index_bytes=read.number(top, "", "index_bytes"),
        measured=read.mapping(top.get("measured"), "measured", ()),
        coded=None if "coded" not in top else read.coded(read.mapping(top["coded"], "coded", ("cpu_us", "measured"))),
    )


def shipped() -> UnitCosts:
    """Return the unit costs that ship with this release; `measured` says on which machine they were found."""
    content = (resources.files("swiftlet.advice") / "costs.json").read_text("utf-8")
    return read_costs(content, "the shipped unit costs")


class _Reader:
    def __init__(self, where: str) -> None:
        self._where = where

    def _refuse(self, field: str, why: str) -> AdviceError:
        return AdviceError(f"{self._where}: {field or 'the document'}: {why}")

    def mapping(self, value: Any, field: str, names: tuple[str, ...]) -> Mapping[str, Any]:
        if not isinstance(value, dict):
            raise self._refuse(field, "must be an object with fields")
        if missing := [name for name in names if name not in value]:
            raise self._refuse(field, f"lacks {', '.join(missing)}")
        return value

    def number(self, parent: Mapping[str, Any], field: str, name: str) -> float:
        value = parent.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < _HIGHEST:
            raise self._refuse(f"{field}.{name}".lstrip("."), f"must be a number of at least 0, not {value!r}")
        return float(value)

    def curves(self, top: Mapping[str, Any], field: str, service: str, unit: float) -> dict[str, Curve]:
        return self._curves(top.get(field), field, service, unit, OPERATIONS)

    def coded(self, top: Mapping[str, Any]) -> CodedCosts:
        data, parity = self._count(top, "data", 2), self._count(top, "parity", 1)
        kinds = CODED_OPERATIONS
        return CodedCosts(
            data=data,
            parity=parity,
            cpu_s={one: self._curves(top["cpu_us"], "coded.cpu_us", one, 1e-6, kinds) for one in CODED_SERVICES},
            rebuild_s=self.number(top, "coded", "rebuild_us_per_mb") * 1e-12,
            measured=self.mapping(top["measured"], "coded.measured", ()),
        )

    def _count(self, top: Mapping[str, Any], name: str, least: int) -> int:
        value = top.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._refuse(f"coded.{name}", f"must be a whole number of at least {least}, not {value!r}")
        return value

    def _curves(self, value: Any, field: str, service: str, unit: float, names: tuple[str, ...]) -> dict[str, Curve]:
        parts = self.mapping(value, field, (service,))
        operations = self.mapping(parts[service], f"{field}.{service}", names)
        return {name: self._curve(operations[name], f"{field}.{service}.{name}", unit) for name in names}

    def _curve(self, value: Any, field: str, unit: float) -> Curve:
        if not isinstance(value, list) or not 1 <= len(value) <= MAX_POINTS:
            raise self._refuse(field, f"must be a list of 1 to {MAX_POINTS} pairs of size and cost")
        points = []
        for number, pair in enumerate(value):
            if not isinstance(pair, list) or len(pair) != 2:
                raise self._refuse(f"{field}[{number}]", "must be a pair of size and cost")
            named = dict(zip(("size", "cost"), pair, strict=True))
            points.append(tuple(self.number(named, f"{field}[{number}]", name) for name in named))
        sizes = [size for size, _ in points]
        if sizes != sorted(set(sizes)):
            raise self._refuse(field, "sizes must ascend")
        return Curve(tuple((size, cost * unit) for size, cost in points))


def document(costs: UnitCosts) -> dict[str, Any]:
    """Return unit costs in the form of their file, which `read_costs` reads."""

    coded = costs.coded
    return {
        "version": VERSION,
        "measured": dict(costs.measured),
        "cpu_us": _plain(costs.cpu_s, 1e-6),
        "fold_us": round(costs.fold_s * 1e6, 1),
        "written_bytes": _plain(costs.written_bytes, 1.0),
        "memory_bytes": {service: round(value) for service, value in costs.memory_bytes.items()},
        "overhead_bytes": round(costs.overhead_bytes),
        "row_bytes": round(costs.row_bytes),
        "container_bytes": round(costs.container_bytes),
        "index_bytes": round(costs.index_bytes),
        **({} if coded is None else {"coded": coded_document(coded)}),
    }


def coded_document(costs: CodedCosts) -> dict[str, Any]:
    """Return unit costs of objects with erasure coding in the form that they have in the file."""
    return {
        "data": costs.data,
        "parity": costs.parity,
        "measured": dict(costs.measured),
        "cpu_us": _plain(costs.cpu_s, 1e-6),
        "rebuild_us_per_mb": round(costs.rebuild_s * 1e12, 1),
    }


def _plain(of: Mapping[str, Mapping[str, Curve]], unit: float) -> dict[str, Any]:
    return {
        service: {
            name: [[round(size), round(cost / unit, 1)] for size, cost in curve.points]
            for name, curve in operations.items()
        }
        for service, operations in of.items()
    }
