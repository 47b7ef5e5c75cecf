"""How many nodes of a kind it takes: the least number with which nothing exceeds its limit, one of them away."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from swiftlet.advice.costs import UnitCosts
from swiftlet.advice.demand import Demand, device_busy
from swiftlet.advice.errors import AdviceError
from swiftlet.advice.hardware import Disk, Hardware, Node
from swiftlet.advice.load import Load
from swiftlet.advice.plan import AWAY, DatabasePlan, PoolPlan, ProxyPlan, Rules, Use
from swiftlet.advice.redundancy import Redundancy

MAX_PODS = 1000
"""Pods of a pool, as the custom resource allows."""
MAX_PROXIES = 500
"""Proxies of a Deployment, as the custom resource allows."""
MAX_DISKS = 32
"""Devices of a pod, as the custom resource allows."""
MAX_WORKERS = 256
"""Workers of a proxy, as the custom resource allows."""
MAX_PART_POWER = 22
"""The highest part power, as the custom resource allows."""
PARTITIONS = 100
"""Partitions that a device should have at the largest size of the store."""
DATABASE_IOS = 2
"""Pages that a changed row reads and writes on its device when databases are larger than memory."""
DATABASE_SLACK = 1.5
"""Space of databases beyond their rows: journals, and room to be written anew."""
LEAST_DATABASE_BYTES = 10 * 2**30
"""The smallest volume that is advised for a container server."""


@dataclass(frozen=True, slots=True)
class Case:
    """All that a size depends on."""

    load: Load
    costs: UnitCosts
    hardware: Hardware
    rules: Rules
    demand: Demand

    @property
    def raw_bytes(self) -> float:
        """Return the space that all copies or fragments take."""
        kept = self.rules.redundancy
        overhead = self.load.objects * self.costs.overhead_bytes * kept.pieces
        return self.load.stored_bytes * kept.bytes_per_byte + overhead

    @property
    def step(self) -> int:
        """Return the number of pods by which a component grows, so that every zone has as many."""
        return max(1, len(self.hardware.zones))

    def cpu(self, *services: str) -> float:
        """Return the processors that services take on this hardware."""
        return sum(self.demand.cpu[service] for service in services) / self.hardware.speed


def holds(redundancy: Redundancy, pools: Iterable[PoolPlan]) -> bool:
    """Return whether these pods have places enough for all copies or fragments of an object, by the rules of the
    operator; of coded objects also with the pod away that has most devices, so that others stand in.
    """
    devices = sorted((pool.disks for pool in pools for _ in range(pool.pods)), reverse=True)
    if redundancy.is_coded:
        most = max(1, redundancy.may_be_lost)
        return sum(min(most, count) for count in devices[1:]) >= redundancy.pieces
    return len(devices) >= redundancy.pieces


def pool_uses(case: Case, pool: PoolPlan) -> Iterator[Use]:
    """Return how much of a pool's nodes is in use."""
    rules, taken, node, costs = case.rules, case.demand, pool.node, case.costs
    share, where = pool.share, f"pool {pool.name}"
    cpu = share * case.cpu("object", "container", "replicator")
    incoming, outgoing = share * taken.storage_in, share * taken.storage_out
    services: tuple[str, ...] = ("object", "replicator", "container")
    if pool.has_proxy:
        proxied = case.cpu("proxy")
        cpu += proxied
        incoming, outgoing = incoming + taken.proxy_in, outgoing + taken.proxy_out
        services = (*services, "proxy")
    own = sum(costs.memory_bytes[service] for service in services)
    index = share * case.load.objects * rules.redundancy.pieces * costs.index_bytes
    raw = share * case.raw_bytes

    def use(what: str, limit: float, of: Callable[[int], float]) -> Use:
        return Use(what, where, of(pool.pods), of(pool.pods - 1) if pool.pods > 1 else math.inf, limit)

    devices = pool.disk.size_bytes * pool.disks
    yield Use("space", where, raw / (devices * pool.pods), raw / (devices * pool.pods), rules.full)
    yield use(AWAY, rules.full_away, lambda pods: raw / (devices * pods))
    yield use("disks", rules.busy, lambda pods: device_busy(taken, pool.disk, pods * pool.disks, share))
    yield use("processors", rules.busy, lambda pods: cpu / (pods * node.processors))
    yield use("network", rules.busy, lambda pods: max(incoming, outgoing) / (pods * node.network_bytes_per_s))
    yield use("memory", rules.memory, lambda pods: (index / pods + own) / node.memory_bytes)


def proxy_uses(case: Case, node: Node, pods: int) -> Iterator[Use]:
    """Return how much of the proxies' own nodes is in use."""
    rules, taken = case.rules, case.demand
    cpu = case.cpu("proxy")
    moved = max(taken.proxy_in, taken.proxy_out)
    memory = case.costs.memory_bytes["proxy"] * _workers(case, node, pods) / node.memory_bytes
    for what, limit, total, of in (
        ("processors", rules.busy, cpu, node.processors),
        ("network", rules.busy, moved, node.network_bytes_per_s),
    ):
        away = total / ((pods - 1) * of) if pods > 1 else math.inf
        yield Use(what, "proxies", total / (pods * of), away, limit)
    yield Use("memory", "proxies", memory, memory, rules.memory)


def least(fits: Callable[[int], bool], first: int, step: int, most: int) -> int | None:
    """Return the least number of steps from `first` on with which it fits, None when not even the most does."""
    low, high = 0, 1
    if fits(first):
        return first
    while not fits(min(first + high * step, most)):
        if first + high * step >= most:
            return None
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fits(min(first + middle * step, most)) else (middle, high)
    return min(first + high * step, most)


def whole_steps(count: float, step: int) -> int:
    """Return the least multiple of a step that is no less than a number."""
    return math.ceil(count / step) * step


def _workers(case: Case, node: Node, pods: int, away: int = 1) -> int:
    """Return the processes of each proxy: as many as it keeps busy with a pod away."""
    needed = case.cpu("proxy") / max(1, pods - away) / case.rules.busy
    return max(1, min(math.ceil(needed), math.floor(node.processors), MAX_WORKERS))


def proxies_apart(case: Case, node: Node) -> tuple[ProxyPlan, tuple[Use, ...]]:
    """Return the proxies on nodes of their own. Raises AdviceError when no number of them will do."""
    pods = least(
        lambda count: all(use.fits for use in proxy_uses(case, node, count)), max(2, case.step), case.step, MAX_PROXIES
    )
    if pods is None:
        worst = max(proxy_uses(case, node, MAX_PROXIES), key=lambda use: use.away / use.limit)
        raise AdviceError(
            f"hardware.nodes.{node.name}: {MAX_PROXIES} of them as proxies would be too few, for their {worst.what} "
            f"would be at {worst.away:.0%}; ask for less (per_second) or give stronger machines"
        )
    return ProxyPlan(pods, _workers(case, node, pods), node), tuple(proxy_uses(case, node, pods))


def proxies_within(case: Case, pool: PoolPlan) -> ProxyPlan:
    """Return the proxies in the pods of a pool."""
    return ProxyPlan(pool.pods, _workers(case, pool.node, pool.pods))


def databases(case: Case) -> DatabasePlan:
    """Return the container servers: as few as can be, on the cheapest disks that follow the rows.

    Raises AdviceError when no disk does.
    """
    rules, rows = case.rules, case.demand.rows
    rows_bytes = case.load.objects * case.costs.row_bytes + case.load.containers * case.costs.container_bytes
    space = rows_bytes * rules.replicas * DATABASE_SLACK
    candidates = sorted(case.hardware.database_disks, key=lambda disk: disk.price or 0.0)
    first = whole_steps(max(rules.replicas, case.step), case.step)
    for pods in range(first, MAX_PODS + 1, case.step):
        # One of them away; each is one process, which is mostly Python.
        if case.cpu("container") / max(1, pods - 1) > rules.busy:
            continue
        size = max(LEAST_DATABASE_BYTES, space / pods)
        for disk in candidates:
            if size <= disk.size_bytes and database_busy(rows, disk, pods - 1) <= rules.busy:
                return DatabasePlan(pods, disk, size)
    raise AdviceError(
        f"hardware.databases: no number of container servers will do for {rows:,.0f} rows per second and "
        f"{space / 1e12:,.1f} TB of databases on these disks; name others, or spread the load over several stores"
    )


def database_busy(rows: float, disk: Disk, servers: int) -> float:
    """Return the share of time for which the device of a container server is busy."""
    return rows * DATABASE_IOS / disk.reads_per_s / max(1, servers)


def part_power(devices: int, growth: float, pieces: float) -> int:
    """Return the part power with which each device has enough partitions when the store has grown."""
    wanted = PARTITIONS * devices * growth / pieces
    return max(1, min(MAX_PART_POWER, math.ceil(math.log2(max(2.0, wanted)))))


def restore_s(case: Case, pools: tuple[PoolPlan, ...]) -> float:
    """Return the time until what a lost node had is back: the others read and write at half of their speed.

    A fragment is made of as many others as have data, so that so many times its bytes are read, and it takes processor
    time, of which half goes to it.
    """
    coded = case.costs.coded if case.rules.redundancy.is_coded else None
    of_processors = 0.0 if coded is None else coded.rebuild_s / case.hardware.speed
    longest = 0.0
    for pool in pools:
        lost = pool.share * case.raw_bytes / pool.pods
        speed = processors = 0.0
        for other in pools:
            disks = other.disks * min(other.disk.read_bytes_per_s, other.disk.write_bytes_per_s)
            count = other.pods - (1 if other is pool else 0)
            speed += count * min(other.node.network_bytes_per_s, disks) / 2
            processors += count * other.node.processors / 2
        if not speed:
            return math.inf
        longest = max(longest, lost * case.rules.redundancy.data / speed, lost * of_processors / processors)
    return longest


def requests(
    case: Case, pools: tuple[PoolPlan, ...], proxies: ProxyPlan, servers: int
) -> Mapping[str, Mapping[str, float]]:
    """Return what a pod of each component should ask for with a pod away: processors (`cpu`) and bytes (`memory`)."""
    memory, costs = case.costs.memory_bytes, case.costs
    cpu = {
        "proxy": case.cpu("proxy") / max(1, proxies.pods - 1),
        "container": case.cpu("container") / max(1, servers - 1),
    }
    asked = {"proxy": memory["proxy"] * proxies.workers, "container": memory["container"]}
    for pool in pools:
        left = max(1, pool.pods - 1)
        index = pool.share * case.load.objects * case.rules.redundancy.pieces * costs.index_bytes
        cpu[pool.name] = pool.share * case.cpu("object") / left
        asked[pool.name] = memory["object"] + index / left
    return {"cpu": cpu, "memory": asked}
