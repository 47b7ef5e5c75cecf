"""A store that was chosen for a load: nodes, pods, disks, and how busy each part of it will be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from swiftlet.advice.demand import Demand
from swiftlet.advice.hardware import Disk, Node
from swiftlet.advice.redundancy import Redundancy, coded, copies

Arrangement = Literal["apart", "sumo", "mixed"]
AWAY = "space, a node away"
STANDING = frozenset({"space", AWAY, "memory"})
"""What depends on what is stored, not on what is asked."""


@dataclass(frozen=True, slots=True)
class Coding:
    """An erasure coding: fragments with data, and with parity."""

    data: int
    parity: int


@dataclass(frozen=True, slots=True)
class Rules:
    """How a store is to be sized.

    At the busiest time, with one node away, nothing may be busy for more than `busy` of the time. Devices may be `full`
    to this share with all of them, and to `full_away` with the largest node away. `etag` and `aggregate_below` are
    those of the StoragePolicy. With a `coding` its objects are fragments, and `replicas` are those of listings.
    """

    replicas: int = 3
    coding: Coding | None = None
    busy: float = 0.7
    full: float = 0.8
    full_away: float = 0.9
    memory: float = 0.8
    """Share of a node's memory that services may take: the rest is page cache, and for others."""
    aggregate_below: int = 1 << 20
    etag: Literal["md5", "xxh3"] = "md5"
    is_outside: bool = False
    """Whether clients are outside of Kubernetes."""

    @property
    def redundancy(self) -> Redundancy:
        """Return how objects are kept."""
        return copies(self.replicas) if self.coding is None else coded(self.coding.data, self.coding.parity)


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """A pool: one pod a node. `share` is that of all objects; `weight` of a device, None for its size."""

    name: str
    node: Node
    disk: Disk
    pods: int
    disks: int
    share: float
    has_proxy: bool = False
    weight: float | None = None

    @property
    def bytes(self) -> float:
        """Return the size of all devices."""
        return self.pods * self.disks * self.disk.size_bytes


@dataclass(frozen=True, slots=True)
class ProxyPlan:
    """The proxies; `node` is the kind of machine that they have for themselves, None in the pods of a pool."""

    pods: int
    workers: int
    node: Node | None = None


@dataclass(frozen=True, slots=True)
class DatabasePlan:
    """The container servers: their pods, the kind of their disks, and the volume of each."""

    pods: int
    disk: Disk
    size_bytes: float


@dataclass(frozen=True, slots=True)
class Use:
    """How much of something is in use at the busiest time: with all nodes, and with one of them away."""

    what: str
    where: str
    share: float
    away: float
    limit: float

    @property
    def fits(self) -> bool:
        """Return whether it stays within its limit."""
        return self.away <= self.limit


@dataclass(frozen=True, slots=True)
class Plan:
    """The store. Prices are in whatever money the hardware's are; `restore_s` is until what a lost node had is back.

    `cpu_requests` and `memory_requests` are of one pod each, by component: processors and bytes.
    """

    arrangement: Arrangement
    rules: Rules
    zones: tuple[str, ...]
    pools: tuple[PoolPlan, ...]
    proxies: ProxyPlan
    databases: DatabasePlan
    part_power: int
    demand: Demand
    uses: tuple[Use, ...]
    usable_bytes: float
    restore_s: float
    cpu_requests: dict[str, float]
    memory_requests: dict[str, float]
    price: float | None = None

    @property
    def nodes(self) -> int:
        """Return the number of machines."""
        return sum(pool.pods for pool in self.pools) + (self.proxies.pods if self.proxies.node is not None else 0)

    @property
    def disks(self) -> int:
        """Return the number of disks."""
        return sum(pool.pods * pool.disks for pool in self.pools) + self.databases.pods

    @property
    def devices(self) -> int:
        """Return the number of devices that hold objects."""
        return sum(pool.pods * pool.disks for pool in self.pools)

    @property
    def bottleneck(self) -> Use:
        """Return what comes closest to its limit as the load grows."""
        return max((use for use in self.uses if use.what not in STANDING), key=lambda use: use.away / use.limit)

    @property
    def headroom(self) -> float:
        """Return how many times the load fits."""
        worst = self.bottleneck
        return worst.limit / worst.away if worst.away else float("inf")

    @property
    def price_per_usable_tb(self) -> float | None:
        """Return the price of a terabyte (10^12 bytes) of objects, None without prices."""
        return None if self.price is None else self.price / (self.usable_bytes / 1e12)
