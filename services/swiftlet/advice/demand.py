"""A load, and what it takes of processors, networks and devices by unit costs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from swiftlet.advice.costs import SERVICES, Curve, UnitCosts
from swiftlet.advice.hardware import Disk
from swiftlet.advice.load import Load
from swiftlet.advice.sizes import Sizes

LARGE_SYNCS = 2
"""Syncs of an object in a file of its own: the file's and its directory's."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Per second, of all services and devices together.

    `cpu` is in processors, by service. `copies` are copies written, `large` those of them in files of their own.
    `reads` are those that need a device. Bytes are of the same.
    """

    cpu: dict[str, float]
    copies: float
    large: float
    copied_bytes: float
    reads: float
    read_bytes: float
    in_bytes: float
    out_bytes: float
    rows: float
    """Rows of listings written, of all copies."""
    replicas: float

    @property
    def proxy_in(self) -> float:
        """Return the bytes that arrive at proxies per second: from clients, and from object servers."""
        return self.in_bytes + self.out_bytes

    @property
    def proxy_out(self) -> float:
        """Return the bytes that proxies send per second: to object servers, and to clients."""
        return self.in_bytes * self.replicas + self.out_bytes

    @property
    def storage_in(self) -> float:
        """Return the bytes that arrive at object servers per second."""
        return self.in_bytes * self.replicas

    @property
    def storage_out(self) -> float:
        """Return the bytes that object servers send per second."""
        return self.out_bytes


def demand(load: Load, costs: UnitCosts, replicas: float, aggregate_below: float) -> Demand:
    """Return what a load takes with so many replicas; objects above `aggregate_below` bytes have their own files."""
    missed = load.of("read") * (1 - load.cached)
    return Demand(
        cpu={service: _cpu(load, costs, service, replicas) for service in SERVICES},
        copies=load.writes * replicas,
        large=load.writes * replicas * load.sizes.share_above(aggregate_below),
        copied_bytes=load.in_bytes * replicas,
        reads=missed,
        read_bytes=missed * load.read_sizes.mean,
        in_bytes=load.in_bytes,
        out_bytes=load.out_bytes,
        rows=load.rows * replicas,
        replicas=replicas,
    )


FOLD_AFTER_S = 1.0
"""How long rows wait before they are merged into their database (setting `container.fold_after_s`)."""
FOLDS_A_DEVICE = 25.0
"""Databases that a device merges rows into by the clock, per second; with more of them rows wait longer."""


def folds(rows: float, containers: int) -> float:
    """Return how often per second rows are merged into databases, of one copy: rows change so many of them per second.

    Rows of a database wait for `FOLD_AFTER_S` from the first of them on, and the next first one comes some time later.
    """
    return rows / (rows * FOLD_AFTER_S / containers + 1) if rows else 0.0


_OF_EACH_COPY = frozenset({"create", "update", "delete"})


def _cpu(load: Load, costs: UnitCosts, service: str, replicas: float) -> float:
    total = 0.0
    for operation, rate in load.per_second.items():
        if not rate:
            continue
        sizes = load.read_sizes if operation == "read" else load.sizes
        copies = replicas if service != "proxy" and operation in _OF_EACH_COPY else 1.0
        total += rate * copies * mean_cost(costs.cpu_s[service][operation], sizes)
    if service == "container":
        total += replicas * min(folds(load.rows, load.containers), FOLDS_A_DEVICE) * costs.fold_s
    return total


def mean_cost(curve: Curve, sizes: Sizes) -> float:
    """Return the mean cost of an operation over sizes."""
    return math.fsum(share * curve.at(size) for share, size in sizes.shares)


def device_busy(taken: Demand, disk: Disk, devices: float, share: float = 1.0) -> float:
    """Return the share of time that each of so many devices is busy, when they have this share of all copies.

    Bytes and random reads take their time one after the other. Writes that arrive during a sync share the next one: at
    L syncs asked for per second, of t seconds each, a device spends L*t / (1 + L*t) of its time on them.
    """
    if not devices:
        return math.inf
    each = share / devices
    syncs = (taken.copies + taken.large * (LARGE_SYNCS - 1)) * each * disk.sync_s
    moved = taken.reads / disk.reads_per_s + taken.read_bytes / disk.read_bytes_per_s
    moved += taken.copied_bytes / disk.write_bytes_per_s
    return moved * each + syncs / (1 + syncs)
