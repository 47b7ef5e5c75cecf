"""Advice as lines of text, for people. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from swiftlet.advice.costs import OPERATIONS, UnitCosts
from swiftlet.advice.load import Load
from swiftlet.advice.pitfalls.subject import Finding
from swiftlet.advice.plan import Plan, PoolPlan
from swiftlet.units import number_text, size_text

_WAYS: Mapping[str, str] = {
    "apart": "proxies on machines of their own",
    "sumo": "a proxy in every pod that stores objects (sumo nodes)",
    "mixed": "proxies in the pods of strong machines, which also store objects (sumo nodes); the rest stores only",
}
_SHOWN = 3
"""Other ways that are told."""


def load_lines(load: Load) -> Iterator[str]:
    """Return what is asked and stored."""
    asked = ", ".join(f"{name} {number_text(load.of(name))}/s" for name in OPERATIONS if load.of(name))
    yield f"asked    {asked or 'nothing'}: {size_text(load.in_bytes)}/s in, {size_text(load.out_bytes)}/s out"
    if load.stored_bytes:
        yield (
            f"stored   {size_text(load.stored_bytes)} in {_short(load.objects)} objects of "
            f"{size_text(load.sizes.mean)}, {load.growth:g} times as much later"
        )


def plan_lines(plan: Plan, others: Sequence[Plan], otherwise: Plan | None = None) -> Iterator[str]:
    """Return the store that was chosen, why it is as it is, and the other ways that would do; `otherwise` keeps objects
    in another way.
    """
    yield f"way      {_WAYS[plan.arrangement]}"
    for pool in plan.pools:
        yield f"pool     {_pool(pool)}"
    if plan.proxies.node is not None:
        yield f"proxies  {plan.proxies.pods} {plan.proxies.node.name}, {_counted(plan.proxies.workers, 'worker')} each"
    else:
        yield f"proxies  {plan.proxies.pods} in these pods, {_counted(plan.proxies.workers, 'worker')} each"
    tables = plan.databases
    yield f"lists    {tables.pods} container servers on {tables.disk.name}, {size_text(tables.size_bytes)} each"
    yield f"room     {size_text(plan.usable_bytes)}, {plan.rules.redundancy}, devices {plan.rules.full:.0%} full"
    yield from _redundancy(plan)
    yield f"restore  {_time(plan.restore_s)} until all that a lost node had is back"
    if plan.price is not None and plan.price_per_usable_tb is not None:
        yield f"price    {plan.price:,.0f}, {plan.price_per_usable_tb:,.2f} per usable TB"
    yield ""
    uses = [(use.where, use.what, f"{use.share:.0%}", f"{use.away:.0%}", f"{use.limit:.0%}") for use in plan.uses]
    yield from table(("in use at the busiest time", "", "all there", "one away", "limit"), uses)
    worst = plan.bottleneck
    yield ""
    if worst.away:
        yield f"At {plan.headroom:.1f} times this load {worst.where} would be at the limit first: {worst.what}."
    if others:
        yield "Other ways that would do:"
        yield from (f"  {_other(one)}" for one in others[:_SHOWN])
    if otherwise is not None:
        yield f"With {_kept(otherwise)} in place of {_kept(plan)}:"
        yield f"  {_other(otherwise)}"


def _redundancy(plan: Plan) -> Iterator[str]:
    """Return what may be lost, and which devices an object's operations take: told of erasure coding alone."""
    kept = plan.rules.redundancy
    if not kept.is_coded:
        return
    lost = [_counted(kept.may_be_lost, "device"), _counted(kept.places_lost(sum(p.pods for p in plan.pools)), "node")]
    if plan.zones:
        lost.append(_counted(kept.places_lost(len(plan.zones)), "zone"))
    yield f"survives any {', any '.join(lost[:-1])} or any {lost[-1]} lost at a time"
    yield (
        f"each     PUT writes on {kept.pieces:g} devices and waits for {kept.quorum}; GET reads from "
        f"{_counted(kept.data, 'device')}"
    )


def costs_line(costs: UnitCosts) -> str:
    """Return where unit costs come from."""
    known = costs.measured
    return (
        f"Unit costs: measured {known.get('at', 'at an unknown time')} on {known.get('processor', 'a machine')}, "
        f"load average {known.get('load_average', 'unknown')}"
    )


def finding_lines(found: Iterable[Finding]) -> Iterator[str]:
    """Return findings, each with its field, reason and change."""
    for one in found:
        yield f"{one.severity:8}{one.field}: {one.pitfall}"
        yield f"        why: {one.reason}"
        yield f"        set: {one.change}"


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Return columns as wide as they must be."""
    lines = [header, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    for line in lines:
        cells = [
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        yield "  ".join(cells).rstrip()


def _pool(pool: PoolPlan) -> str:
    weight = f", weight {pool.weight:g}" if pool.weight is not None else ""
    return (
        f"{pool.name}: {pool.pods} {pool.node.name} with {_counted(pool.disks, 'disk')} {pool.disk.name} each{weight}"
    )


def _other(plan: Plan) -> str:
    machines = ", ".join(f"{pool.pods} {pool.node.name} x {pool.disks} {pool.disk.name}" for pool in plan.pools)
    own = f", {plan.proxies.pods} {plan.proxies.node.name} as proxies" if plan.proxies.node is not None else ""
    price = f", {plan.price:,.0f}" if plan.price is not None else ""
    return f"{plan.arrangement}: {machines}{own}{price}"


def _kept(plan: Plan) -> str:
    """Return how objects are kept, without what it takes."""
    return str(plan.rules.redundancy).partition(",")[0]


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _short(number: float) -> str:
    for size, name in ((1e12, "trillion"), (1e9, "billion"), (1e6, "million")):
        if number >= size:
            return f"{number / size:.3g} {name}"
    return number_text(number)


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.0f} hours"
