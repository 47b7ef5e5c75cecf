"""The input of all checks, and the form in which they say what they have found."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from swiftlet.advice.cluster import ClusterShape, PoolShape
from swiftlet.advice.costs import UnitCosts
from swiftlet.advice.demand import Demand, demand
from swiftlet.advice.hardware import Disk
from swiftlet.advice.load import Load
from swiftlet.advice.plan import Rules
from swiftlet.advice.sizes import Sizes, of_pieces

WARNING, NOTE = "WARNING", "NOTE"
SMALL_STORE = 12
"""Devices below which a store without a known load is taken for one that is tried out: some warnings are notes, and
proportions are not looked at."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A pitfall: `field` is what to change, and `change` to what."""

    severity: str
    pitfall: str
    field: str
    reason: str
    change: str


@dataclass(frozen=True, slots=True)
class Subject:
    """A cluster, and what is known besides. `disks` are kinds of disks by StorageClass, None for the default one."""

    cluster: ClusterShape
    costs: UnitCosts
    load: Load | None = None
    rules: Rules = field(default_factory=Rules)
    disks: Mapping[str | None, Disk] = field(default_factory=dict)
    balancer_bytes_per_s: float | None = None
    speed: float = 1.0
    """That of the processors, compared with the one that unit costs were measured on."""

    @property
    def demand(self) -> Demand | None:
        """Return what the load takes, None without one."""
        return None if self.load is None else self.demand_of(self.load)

    def demand_of(self, load: Load) -> Demand:
        """Return what a load takes."""
        policy = self.cluster.policy
        return demand(load, self.costs, policy.redundancy, policy.aggregate_below, self.cluster.replicas)

    def cpu(self, taken: Demand, *services: str) -> float:
        """Return the processors that services take."""
        return sum(taken.cpu[service] for service in services) / self.speed

    @property
    def raw_bytes(self) -> float:
        """Return the space that all copies or fragments of the load take, 0 without one."""
        if self.load is None:
            return 0.0
        kept = self.cluster.policy.redundancy
        overhead = self.load.objects * self.costs.overhead_bytes * kept.pieces
        return self.load.stored_bytes * kept.bytes_per_byte + overhead

    @property
    def usual(self) -> str:
        """Return the severity of what matters under load only."""
        is_tried_out = self.load is None and self.cluster.devices < SMALL_STORE
        return NOTE if is_tried_out else WARNING


Check = Callable[[Subject], Iterator[Finding]]


def processors_of(pool: PoolShape) -> float:
    """Return the processors of a pod's object server: its limit or its request, or else one a device."""
    return pool.share.cpu_limit or max(pool.share.cpu, float(pool.devices))


def counted(number: int, one: str, many: str | None = None) -> str:
    """Return a number with what it counts."""
    return f"{number} {one if number == 1 else many or f'{one}s'}"


def _typical(sizes: Sizes, create: float, read: float, delete: float) -> Load:
    rates = {"create": create, "read": read, "delete": delete}
    return Load(per_second=rates, sizes=sizes, read_sizes=sizes, stored_bytes=0.0)


_SMALL, _LARGE = of_pieces([(1, 1_000, 100_000, None, 0.0)]), of_pieces([(1, 1_000_000, 10_000_000, None, 0.0)])
TYPICAL: Mapping[str, Load] = {
    "small objects, mostly uploads": _typical(_SMALL, 90, 5, 5),
    "small objects, mostly downloads": _typical(_SMALL, 5, 90, 5),
    "large objects, mostly uploads": _typical(_LARGE, 90, 5, 5),
    "large objects, mostly downloads": _typical(_LARGE, 5, 90, 5),
}
"""GET/PUT/DELETE 5/90/5 and 90/5/5 of small and large objects, by which OpenStack Swift was measured."""
