"""Which nodes a store has, and what runs on which: all ways that will do, the cheapest first.

apart: proxies have nodes of their own. sumo: every pod of the pool has a proxy, too. mixed: a pool of strong nodes has
the proxies and some of the objects (sumo nodes, whose devices may have more weight), and another pool has the rest.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

from swiftlet.advice.costs import UnitCosts
from swiftlet.advice.demand import Demand, demand
from swiftlet.advice.errors import AdviceError
from swiftlet.advice.hardware import Disk, Hardware, Node
from swiftlet.advice.load import Load
from swiftlet.advice.plan import AWAY, Arrangement, Coding, DatabasePlan, Plan, PoolPlan, ProxyPlan, Rules, Use
from swiftlet.advice.sizing import (
    MAX_PODS,
    Case,
    databases,
    holds,
    least,
    part_power,
    pool_uses,
    proxies_apart,
    proxies_within,
    proxy_uses,
    requests,
    restore_s,
    whole_steps,
)

GIB = 2.0**30
OTHER_CODING = Coding(4, 2)
"""What copies are compared with: it takes half of their bytes, and six devices."""
SUMO_SHARE = 0.9
"""The largest share of all copies on sumo nodes in `mixed`; with more they could as well hold all."""
_WORTH_A_WEIGHT = 1.05

Way = Callable[[Case, Node, Node, DatabasePlan], list[Plan]]


def plans(load: Load, hardware: Hardware, costs: UnitCosts, rules: Rules) -> list[Plan]:
    """Return all stores that will do, the best first: by price where there are prices, otherwise by nodes, then disks.

    Raises AdviceError when there is none, with the reasons.
    """
    case = Case(load, costs, hardware, rules, _demand(load, costs, rules))
    check_balancer(case)
    found: list[Plan] = []
    reasons: dict[str, None] = {}
    has_prices = hardware.has_prices
    tables = databases(case)
    for storage in (node for node in hardware.nodes if node.disk is not None and node.most_disks):
        ways: list[tuple[Way, Node]] = [(_sumo, storage), *((_apart, other) for other in hardware.nodes)]
        ways += [(_mixed, other) for other in hardware.nodes if other.disk is not None and other is not storage]
        for way, other in ways:
            try:
                found.append(min(way(case, storage, other, tables), key=lambda plan: _cost(plan, has_prices)))
            except AdviceError as error:
                reasons[str(error)] = None
    if not found:
        raise AdviceError("; ".join(reasons) or "hardware.nodes: none of them has disks; give one of them some")
    return sorted(found, key=lambda plan: _cost(plan, has_prices))


def kept_otherwise(load: Load, hardware: Hardware, costs: UnitCosts, rules: Rules) -> Plan | None:
    """Return the best store whose objects are kept the other way: coded in place of copies, or three copies in place of
    a coding. None when no such store will do.
    """
    others = replace(rules, coding=OTHER_CODING if rules.coding is None else None, replicas=3)
    try:
        return plans(load, hardware, costs, others)[0]
    except AdviceError:
        return None


def _demand(load: Load, costs: UnitCosts, rules: Rules) -> Demand:
    return demand(load, costs, rules.redundancy, rules.aggregate_below, float(rules.replicas))


def check_balancer(case: Case) -> None:
    """Raise AdviceError when all clients together are too much for the balancer."""
    most, moved = case.hardware.balancer_bytes_per_s, max(case.demand.in_bytes, case.demand.out_bytes)
    if most is not None and moved > most * case.rules.busy:
        raise AdviceError(
            f"hardware.balancer_bytes_per_s: {most / 1e6:,.0f} MB/s would be {moved / most:.0%} busy with clients' "
            f"bytes, and {case.rules.busy:.0%} is the limit: name a stronger balancer, or several behind one name"
        )


def _cost(plan: Plan, has_prices: bool) -> tuple[float, ...]:
    return (plan.price or 0.0, plan.nodes, plan.disks) if has_prices else (plan.nodes, plan.disks)


def _disk_of(node: Node) -> Disk:
    assert node.disk is not None
    return node.disk


def _apart(case: Case, storage: Node, other: Node, tables: DatabasePlan) -> list[Plan]:
    proxies, uses = proxies_apart(case, other)
    return [_made("apart", case, (pool,), proxies, tables, uses) for pool in _pools(case, storage, has_proxy=False)]


def _sumo(case: Case, storage: Node, _: Node, tables: DatabasePlan) -> list[Plan]:
    pools = _pools(case, storage, has_proxy=True)
    return [_made("sumo", case, (pool,), proxies_within(case, pool), tables, ()) for pool in pools]


def _mixed(case: Case, storage: Node, strong: Node, tables: DatabasePlan) -> list[Plan]:
    found = []
    for sumo in _sumo_pools(case, strong):
        for pool in _pools(case, storage, has_proxy=False, name="bulk", share=1 - sumo.share):
            weighed = _weighed(case, sumo, pool)
            if _survives(case, (weighed, pool)):
                found.append(_made("mixed", case, (weighed, pool), proxies_within(case, weighed), tables, ()))
    if not found:
        raise AdviceError(
            f"hardware.nodes.{strong.name}: as sumo nodes beside {storage.name} they would hold all copies or none"
        )
    return found


def _pools(case: Case, node: Node, has_proxy: bool, name: str = "main", share: float = 1.0) -> list[PoolPlan]:
    """Return the pool with each number of disks a node that will do. Raises AdviceError when none does."""
    found, worst = [], None
    first = whole_steps(max(case.rules.redundancy.least_pods if share == 1 else 2, case.step), case.step)
    for disks in range(1, node.most_disks + 1):
        pool = PoolPlan(name, node, _disk_of(node), first, disks, share, has_proxy)
        pods = least(lambda count, pool=pool: _fits(case, replace(pool, pods=count)), first, case.step, MAX_PODS)  # type: ignore[misc]
        if pods is None:
            worst = max(pool_uses(case, replace(pool, pods=MAX_PODS)), key=lambda use: use.away / use.limit)
            continue
        found.append(replace(pool, pods=pods))
    if not found:
        assert worst is not None
        raise AdviceError(
            f"hardware.nodes.{node.name}: {MAX_PODS} of them would be too few, for their {worst.what} would be at "
            f"{worst.away:.0%}; give stronger ones, or spread the load over several stores"
        )
    return found


def _fits(case: Case, pool: PoolPlan) -> bool:
    has_places = pool.share < 1 or holds(case.rules.redundancy, (pool,))
    return has_places and all(use.fits for use in pool_uses(case, pool))


def _sumo_pools(case: Case, node: Node) -> Iterator[PoolPlan]:
    """Return pools of strong nodes with all proxies and as many copies as fit, from the least number of them on."""
    step = case.step
    pods = least(lambda count: all(use.fits for use in proxy_uses(case, node, count)), max(2, step), step, MAX_PODS)
    while pods is not None and pods <= MAX_PODS:
        pool = PoolPlan("sumo", node, _disk_of(node), pods, node.most_disks, 1.0, has_proxy=True)
        share = min(
            pool.bytes * case.rules.full / case.raw_bytes if case.raw_bytes else math.inf,
            pods / case.rules.redundancy.pieces,
        )
        if share >= SUMO_SHARE:
            return
        made = replace(pool, share=share)
        # A node that is away is missed by both pools together: that is looked at with both.
        if all(use.fits for use in pool_uses(case, made) if not use.what.startswith("space")):
            yield made
            return
        pods += step


def _weighed(case: Case, sumo: PoolPlan, storage: PoolPlan) -> PoolPlan:
    """Return the sumo pool with the weight by which it gets its share of copies, where its size does not say so."""
    even = sumo.bytes / (sumo.bytes + storage.bytes)
    factor = sumo.share / (1 - sumo.share) * (1 - even) / even
    if factor < _WORTH_A_WEIGHT:
        return sumo
    return replace(sumo, weight=float(round(sumo.disk.size_bytes / GIB * factor)))


def _survives(case: Case, pools: tuple[PoolPlan, ...]) -> bool:
    largest = max(pool.disks * pool.disk.size_bytes for pool in pools)
    return (
        holds(case.rules.redundancy, pools)
        and case.raw_bytes <= (sum(pool.bytes for pool in pools) - largest) * case.rules.full_away
    )


def _made(
    arrangement: Arrangement,
    case: Case,
    pools: tuple[PoolPlan, ...],
    proxies: ProxyPlan,
    tables: DatabasePlan,
    uses: tuple[Use, ...],
) -> Plan:
    asked = requests(case, pools, proxies, tables.pods)
    raw = sum(pool.bytes for pool in pools)
    of_pools = tuple(use for pool in pools for use in pool_uses(case, pool) if len(pools) == 1 or use.what != AWAY)
    plan = Plan(
        arrangement=arrangement,
        rules=case.rules,
        zones=case.hardware.zones,
        pools=pools,
        proxies=proxies,
        databases=tables,
        part_power=part_power(
            sum(pool.pods * pool.disks for pool in pools), case.load.growth, case.rules.redundancy.pieces
        ),
        demand=case.demand,
        uses=(*of_pools, *uses),
        usable_bytes=raw * case.rules.full / case.rules.redundancy.bytes_per_byte,
        restore_s=restore_s(case, pools),
        cpu_requests=dict(asked["cpu"]),
        memory_requests=dict(asked["memory"]),
    )
    return replace(plan, price=_price(plan)) if case.hardware.has_prices else plan


def _price(plan: Plan) -> float:
    total = sum(pool.pods * ((pool.node.price or 0.0) + pool.disks * (pool.disk.price or 0.0)) for pool in plan.pools)
    if plan.proxies.node is not None:
        total += plan.proxies.pods * (plan.proxies.node.price or 0.0)
    return total + plan.databases.pods * (plan.databases.disk.price or 0.0)
