"""A load, and what it takes of processors, networks and devices by unit costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from swiftlet.advice.costs import SERVICES, Curve, UnitCosts
from swiftlet.advice.hardware import Disk
from swiftlet.advice.load import Load
from swiftlet.advice.redundancy import Redundancy
from swiftlet.advice.sizes import Sizes
from swiftlet.folds import FOLD_AFTER_S, FOLDS_A_DEVICE

LARGE_SYNCS = 2
"""Syncs of an object in a file of its own: the file's and its directory's."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Per second, of all services and devices together.

    `cpu` is in processors, by service. `pieces` are copies or fragments written, `large` those of them in files of
    their own. `reads` are those of devices, of which a coded object's are as many as it has fragments with data. Bytes
    are of the same.
    """

    cpu: dict[str, float]
    pieces: float
    large: float
    written_bytes: float
    reads: float
    read_bytes: float
    in_bytes: float
    out_bytes: float
    rows: float
    """Rows of listings written, of all copies."""
    bytes_per_byte: float
    """Bytes that object servers are sent for each byte that a client sends."""

    @property
    def proxy_in(self) -> float:
        """Return the bytes that arrive at proxies per second: from clients, and from object servers."""
        return self.in_bytes + self.out_bytes

    @property
    def proxy_out(self) -> float:
        """Return the bytes that proxies send per second: to object servers, and to clients."""
        return self.in_bytes * self.bytes_per_byte + self.out_bytes

    @property
    def storage_in(self) -> float:
        """Return the bytes that arrive at object servers per second."""
        return self.in_bytes * self.bytes_per_byte

    @property
    def storage_out(self) -> float:
        """Return the bytes that object servers send per second."""
        return self.out_bytes


def demand(
    load: Load, costs: UnitCosts, redundancy: Redundancy, aggregate_below: float, listings: float = 3.0
) -> Demand:
    """Return what a load takes with so much redundancy of objects, and so many copies of listings.

    Copies or fragments above `aggregate_below` bytes have files of their own.
    """
    missed = load.of("read") * (1 - load.cached)
    return Demand(
        cpu={service: _cpu(load, costs, service, redundancy, listings) for service in SERVICES},
        pieces=load.writes * redundancy.pieces,
        large=load.writes * redundancy.pieces * load.sizes.share_above(aggregate_below * redundancy.data),
        written_bytes=load.in_bytes * redundancy.bytes_per_byte,
        reads=missed * redundancy.data,
        read_bytes=missed * load.read_sizes.mean,
        in_bytes=load.in_bytes,
        out_bytes=load.out_bytes,
        rows=load.rows * listings,
        bytes_per_byte=redundancy.bytes_per_byte,
    )


def folds(rows: float, containers: int) -> float:
    """Return how often per second rows are merged into databases, of one copy: rows change so many of them per second.

    Rows of a database wait for `FOLD_AFTER_S` from the first of them on, and the next first one comes some time later.
    """
    return rows / (rows * FOLD_AFTER_S / containers + 1) if rows else 0.0


_OF_EACH_PIECE = frozenset({"create", "update", "delete"})
_OF_ENOUGH = frozenset({"read", "head"})
"""Operations that ask as many devices as an object has fragments with data, and one that has a copy."""


def _cpu(load: Load, costs: UnitCosts, service: str, redundancy: Redundancy, listings: float) -> float:
    total = 0.0
    for operation, rate in load.per_second.items():
        if not rate:
            continue
        sizes = load.read_sizes if operation == "read" else load.sizes
        times, part = _times(service, operation, redundancy, listings)
        total += rate * times * mean_cost(costs.cpu_of(service, operation, redundancy.is_coded), sizes, part)
    if service == "container":
        total += listings * min(folds(load.rows, load.containers), FOLDS_A_DEVICE) * costs.fold_s
    return total


def _times(service: str, operation: str, redundancy: Redundancy, listings: float) -> tuple[float, int]:
    """Return how often a service does an operation for one of a client, and by how much its bytes are divided."""
    if service == "container" and operation in _OF_EACH_PIECE:
        return listings, 1
    if service in {"object", "replicator"}:
        if operation in _OF_EACH_PIECE:
            return redundancy.pieces, redundancy.data
        if operation in _OF_ENOUGH:
            return float(redundancy.data), redundancy.data
    return 1.0, 1


def mean_cost(curve: Curve, sizes: Sizes, part: int = 1) -> float:
    """Return the mean cost of an operation over sizes, of which a device has one part of so many."""
    return math.fsum(share * curve.at(size / part) for share, size in sizes.shares)


def device_busy(taken: Demand, disk: Disk, devices: float, share: float = 1.0) -> float:
    """Return the share of time that each of so many devices is busy, when they have this share of all objects.

    Bytes and random reads take their time one after the other. Writes that arrive during a sync share the next one: at
    L syncs asked for per second, of t seconds each, a device spends L*t / (1 + L*t) of its time on them.
    """
    if not devices:
        return math.inf
    each = share / devices
    syncs = (taken.pieces + taken.large * (LARGE_SYNCS - 1)) * each * disk.sync_s
    moved = taken.reads / disk.reads_per_s + taken.read_bytes / disk.read_bytes_per_s
    moved += taken.written_bytes / disk.write_bytes_per_s
    return moved * each + syncs / (1 + syncs)
