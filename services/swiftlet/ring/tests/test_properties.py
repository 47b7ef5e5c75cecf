"""Properties of rings over random clusters and random changes."""

from __future__ import annotations

import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from swiftlet.ring import Device, Ring, RingBuilder, report
from swiftlet.ring.model import replica_classes
from swiftlet.ring.plan import make_plan, weighted_shares
from swiftlet.ring.tests.clusters import HOUR, Place, add, add_zone, builders, grid, held, places, table
from swiftlet.ring.topology import Topology

bounded = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def tiers(device: Device) -> tuple[tuple[str, ...], ...]:
    return (device.region,), (device.region, device.zone), (device.region, device.zone, device.node)


def assert_as_planned(builder: RingBuilder) -> None:
    """Every tier holds the floor or the ceiling of its planned mean number of replicas of every partition."""
    devices = [device for device in builder.devices if device is not None]
    position = {device.id: index for index, device in enumerate(devices)}
    topology = Topology(devices)
    ring = builder.ring
    for start, end, replicas in replica_classes([len(row) for row in ring.rows]):
        plan = make_plan(topology, end - start, replicas, builder.overload)
        for partition in range(start, end):
            count: Counter[int] = Counter()
            for device in ring.primaries(partition):
                tier = topology.leaf[position[device.id]]
                while tier >= 0:
                    count[tier] += 1
                    tier = topology.parent[tier]
            for tier in range(len(topology.parent)):
                assert plan.least[tier] <= count[tier] <= plan.most[tier], (partition, tier)


def assert_as_unique_as_possible(ring: Ring) -> None:
    """In each tier, no child holds two more than a sibling that still has a free device."""
    capacity: Counter[tuple[str, ...]] = Counter()
    children: defaultdict[tuple[str, ...], set[tuple[str, ...]]] = defaultdict(set)
    for device in ring.devices:
        if device is not None and device.weight:
            above: tuple[str, ...] = ()
            for tier in tiers(device):
                capacity[tier] += 1
                children[above].add(tier)
                above = tier
    for partition in range(ring.partition_count):
        count = Counter(tier for device in ring.primaries(partition) for tier in tiers(device))
        for siblings in children.values():
            fullest = max(count[tier] for tier in siblings)
            for tier in siblings:
                assert count[tier] >= fullest - 1 or count[tier] == capacity[tier], (partition, tier)


def assert_moves_allowed(old: Ring, builder: RingBuilder, before: Sequence[int], now: int) -> int:
    """At most one replica of a partition moved, none too early, except off removed devices; returns the moves."""
    new = builder.ring
    moves = 0
    for partition, (was, is_) in enumerate(zip(table(old), table(new), strict=True)):
        changed = [a for a, b in zip(was, is_, strict=False) if a != b]
        forced = [id_ for id_ in changed if builder.devices[id_] is None]
        moves += len(changed)
        if forced:
            assert changed == forced
        elif changed:
            assert len(changed) == 1
            assert now - before[partition] >= builder.min_part_hours
    return moves


@given(builders())
@bounded
def test_first_layout_is_exactly_as_planned(builder: RingBuilder) -> None:
    builder.rebalance(HOUR)
    assert all(len(set(holders)) == len(holders) for holders in table(builder.ring))
    assert_as_planned(builder)


@given(builders())
@bounded
def test_with_overload_enough_replicas_are_as_unique_as_the_topology_allows(builder: RingBuilder) -> None:
    builder.set_overload(1e6)
    result = builder.rebalance(HOUR)
    assert result.dispersion == 0
    assert_as_unique_as_possible(builder.ring)


@given(builders())
@bounded
def test_weights_are_met_within_what_overload_allows(builder: RingBuilder) -> None:
    builder.rebalance(HOUR)
    loads = report(builder.ring).devices
    classes = len(replica_classes([len(row) for row in builder.ring.rows]))
    for load in loads:
        # Roundings to whole replicas: one for each class of partitions and one for the limit.
        assert load.replicas <= load.wanted * (1 + builder.overload) + 2 * classes
        if builder.overload == 0:
            # Every device may be rounded up for the sake of dispersion, together at the expense of one.
            assert abs(load.replicas - load.wanted) < 2 * classes + len(loads)


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[str, float, Place]]:
    kinds = st.sampled_from(["add", "remove", "weight", "replicas", "move"])
    return draw(st.lists(st.tuples(kinds, st.floats(0, 0.999), places), min_size=1, max_size=3))


def apply(builder: RingBuilder, kind: str, where: float, place: Place) -> None:
    live = [device for device in builder.devices if device is not None]
    chosen = live[int(where * len(live))]
    if kind == "remove" and len(live) > 5:
        builder.remove_device(chosen.id)
    elif kind == "weight":
        builder.set_weight(chosen.id, place.weight)
    elif kind == "replicas":
        builder.set_replicas([1, 2, 2.5, 3, 3.25][int(where * 5)])
    elif kind == "move":
        builder.update_device(chosen.id, region=f"r{place.region}", zone=f"z{place.zone}", node=f"n{place.node}")
    else:
        add(builder, place)


@given(builders(), changes(), st.integers(0, 4))
@bounded
def test_changes_move_one_replica_at_a_time_and_end_as_planned(
    builder: RingBuilder, wanted: list[tuple[str, float, Place]], hours: int
) -> None:
    builder.rebalance(HOUR)
    now = HOUR
    for change in wanted:
        apply(builder, *change)
        old, before = builder.ring, array("I", builder.moved_at)
        now += hours
        result = builder.rebalance(now)
        assert assert_moves_allowed(old, builder, before, now) == result.moved
        assert all(len(set(holders)) == len(holders) for holders in table(builder.ring))
    for _ in range(12):
        now += builder.min_part_hours
        result = builder.rebalance(now)
        if not result.moved:
            break
    assert result.moved == 0
    assert_as_planned(builder)


@given(builders(whole_replicas=True))
@bounded
def test_a_balanced_ring_stays_as_it_is(builder: RingBuilder) -> None:
    surplus = builder.rebalance(HOUR).surplus
    before = table(builder.ring)
    result = builder.rebalance(HOUR + builder.min_part_hours)
    assert result.moved <= surplus
    if not surplus:
        assert table(builder.ring) == before


@given(st.integers(3, 5), st.integers(1, 3), st.integers(1, 3), st.sampled_from([1.0, 2.0, 3.0]), st.integers(0, 99))
@bounded
def test_adding_capacity_moves_about_as_much_as_it_takes(
    zones: int, nodes: int, devices: int, replicas: float, seed: int
) -> None:
    builder = grid(zones, nodes, devices, part_power=8, replicas=replicas, overload=0.3, seed=seed)
    builder.rebalance(HOUR)
    before = held(builder.ring)
    if seed % 2:
        add_zone(builder, "new", nodes, devices)
    else:
        builder.add_device(host="z0-n0", port=6200, device="new", region="r1", zone="z0", weight=100)
    result = builder.rebalance(HOUR + 1)
    # Whatever the layout, devices that hold more now must have been given the difference.
    least = sum(max(0, count - before[id_]) for id_, count in held(builder.ring).items())
    assert result.moved <= 1.3 * least
    # And what they were given is their share, no more.
    ideal = sum(max(0.0, load.wanted - before[load.device.id]) for load in result.report.devices)
    assert result.moved <= 1.3 * ideal + len(result.report.devices)


@given(builders(), changes())
@settings(bounded, max_examples=25)
def test_the_same_input_gives_the_same_ring(builder: RingBuilder, wanted: list[tuple[str, float, Place]]) -> None:
    twin = RingBuilder(builder.part_power, builder.replicas, builder.min_part_hours, builder.overload, builder.seed)
    for device in builder.devices:
        assert device is not None
        twin.add_device(
            **{name: getattr(device, name) for name in ("host", "port", "device", "region", "zone", "node", "weight")}
        )
    for one in (builder, twin):
        one.rebalance(HOUR)
        for change in wanted:
            apply(one, *change)
        one.rebalance(HOUR + 5)
    assert builder.ring == twin.ring
    assert builder.moved_at == twin.moved_at


@pytest.mark.parametrize(("zones", "nodes", "devices"), [(4, 2, 2), (3, 2, 3), (5, 2, 1)])
def test_a_failed_devices_partners_are_all_other_devices_evenly(zones: int, nodes: int, devices: int) -> None:
    builder = grid(zones, nodes, devices, part_power=13)
    builder.rebalance(HOUR)
    ring = builder.ring
    for failed in ring.devices:
        assert failed is not None
        partners: Counter[int] = Counter()
        for partition, _ in ring.partitions_of(failed.id):
            partners.update(device.id for device in ring.primaries(partition) if device.id != failed.id)
        eligible = [device for device in ring.devices if device is not None and device.zone != failed.zone]
        assert set(partners) == {device.id for device in eligible}
        mean = sum(partners.values()) / len(eligible)
        assert max(partners.values()) / mean < 1.15
        assert min(partners.values()) / mean > 0.75


def test_pairs_stay_even_through_changes() -> None:
    builder = grid(4, 2, 2, part_power=12)
    builder.rebalance(HOUR)
    builder.remove_device(3)
    assert builder.rebalance(HOUR + 1).report.pair_spread < 1.2
    add_zone(builder, "z9", 2, 2)
    assert builder.rebalance(HOUR + 2).report.pair_spread < 1.2


def test_pair_spread_is_the_highest_pair_count_over_the_mean() -> None:
    builder = grid(4, 2, 1, part_power=9)
    result = builder.rebalance(HOUR)
    pairs: Counter[tuple[int, int]] = Counter()
    for holders in table(builder.ring):
        pairs.update((a, b) for a in holders for b in holders if a < b)
    zone = {device.id: device.zone for device in builder.devices if device is not None}
    permitted = sum(1 for a in zone for b in zone if a < b and zone[a] != zone[b])
    assert result.report.pair_spread == pytest.approx(max(pairs.values()) / (sum(pairs.values()) / permitted), rel=0.02)


def test_weighted_shares_are_capped_at_one_replica_per_device() -> None:
    assert weighted_shares([1, 1, 100], 2) == pytest.approx([0.5, 0.5, 1.0])
    assert math.isclose(sum(weighted_shares([1, 2, 3, 4], 3)), 3)


def test_overload_trades_weight_for_dispersion() -> None:
    def dispersion(overload: float) -> float:
        builder = RingBuilder(10, 3, 1, overload)
        for zone, count in (("a", 4), ("b", 4), ("c", 3)):
            for number in range(count):
                builder.add_device(host=f"{zone}{number}", port=1, device="d", region="r", zone=zone, weight=10)
        return builder.rebalance(HOUR).dispersion

    assert dispersion(0.0) > dispersion(0.1) > dispersion(0.3) == 0
