"""A load, hardware and unit costs that tests change."""

from __future__ import annotations

from typing import Any

from swiftlet.advice.costs import (
    CODED_OPERATIONS,
    CODED_SERVICES,
    OPERATIONS,
    SERVICES,
    CodedCosts,
    Curve,
    UnitCosts,
)
from swiftlet.advice.hardware import Disk, Hardware, Node
from swiftlet.advice.load import Load
from swiftlet.advice.sizes import fixed

MB, GB, TB = 1e6, 1e9, 1e12

HDD = Disk("hdd", 10 * TB, 200 * MB, 200 * MB, 100, 0.01, "slow", price=200)
SSD = Disk("ssd", TB, 500 * MB, 500 * MB, 50_000, 0.001, "fast", price=100)
DENSE = Node("dense", 16, 64 * 2**30, GB, HDD, 12, price=4000)
STRONG = Node("strong", 64, 128 * 2**30, 10 * GB, SSD, 8, price=9000)
PLAIN = Node("plain", 32, 64 * 2**30, 2 * GB, price=3000)


def hardware(*nodes: Node, **fields: Any) -> Hardware:
    """These nodes, with SSDs for databases."""
    return Hardware(nodes or (DENSE,), **{"database_disks": (SSD,), **fields})


def load(size: float = MB, stored: float = 100 * TB, **rates: float) -> Load:
    """Objects of one size."""
    return Load(per_second=rates or {"read": 1.0}, sizes=fixed(size), read_sizes=fixed(size), stored_bytes=stored)


def costs(microseconds: float = 100, per_mb: float = 1000) -> UnitCosts:
    """The same for everything: so much for an operation, and for a megabyte of it in proxies and object servers."""
    curve = Curve(((0.0, microseconds * 1e-6), (MB, (microseconds + per_mb) * 1e-6)))
    each = dict.fromkeys(OPERATIONS, curve)
    return UnitCosts(
        cpu_s={**dict.fromkeys(SERVICES, each), "container": dict.fromkeys(OPERATIONS, Curve(curve.points[:1]))},
        fold_s=0.0,
        written_bytes={"object": each, "container": each},
        memory_bytes=dict.fromkeys(SERVICES, 100e6),
        overhead_bytes=1000,
        row_bytes=300,
        container_bytes=20_000,
        index_bytes=100,
        measured={"at": "now", "processor": "one", "load_average": 0.0},
    )


def coded_costs(microseconds: float = 1000, rebuild_s: float = 0.0) -> CodedCosts:
    """Of 4+2, the same for every operation on an object or a fragment, however large."""
    each = dict.fromkeys(CODED_OPERATIONS, Curve(((0.0, microseconds * 1e-6),)))
    return CodedCosts(4, 2, dict.fromkeys(CODED_SERVICES, each), rebuild_s, {"at": "then"})
