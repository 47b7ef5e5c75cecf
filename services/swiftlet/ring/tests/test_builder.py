"""The builder's rules: validation, ids, waiting times, removal, replicas."""

from __future__ import annotations

import math
from typing import Any

import pytest

from swiftlet.ring import Ring, RingBuilder, RingError
from swiftlet.ring.tests.clusters import HOUR, add_zone, grid, held, table

DEVICE: dict[str, Any] = {"host": "n1", "port": 6200, "device": "sda", "region": "r", "zone": "z", "weight": 1.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 3, 1), "part_power 0 is outside 1..32"),
        ((33, 3, 1), "part_power 33"),
        ((8, 0.5, 1), "replicas 0.5 is outside"),
        ((8, math.nan, 1), "replicas nan"),
        ((8, 3, -1), "min_part_hours -1"),
        ((8, 3, 1, -0.1), "overload -0.1"),
        ((8, 3, 1, math.inf), "overload inf"),
    ],
)
def test_impossible_rings_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(RingError, match=message):
        RingBuilder(*arguments)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight": -1.0}, "weight -1.0 of device"),
        ({"weight": math.nan}, "weight nan"),
        ({"port": 0}, "port 0"),
        ({"port": 70_000}, "port 70000"),
        ({"host": ""}, "host ''"),
        ({"zone": "a\nb"}, "zone 'a\\\\nb'"),
        ({}, "n1:6200/sda.* is taken by device 0"),
        ({"name": "other"}, "device 0 already has n1:6200/sda"),
        ({"device": "sdb", "name": "n1:6200/sda"}, "names must be unique"),
    ],
)
def test_impossible_devices_are_refused(change: dict[str, Any], message: str) -> None:
    builder = RingBuilder(4, 1, 0)
    builder.add_device(**DEVICE)
    with pytest.raises(RingError, match=message):
        builder.add_device(**{**DEVICE, **change})
    assert len(builder.devices) == 1


def test_unknown_ids_are_refused() -> None:
    builder = RingBuilder(4, 1, 0)
    builder.add_device(**DEVICE)
    for id_ in (-1, 1):
        for change in (builder.remove_device, builder.device, lambda id_: builder.set_weight(id_, 1)):
            with pytest.raises(RingError, match=f"no device with id {id_}"):
                change(id_)
    with pytest.raises(RingError, match="weight -2"):
        builder.set_weight(0, -2)
    with pytest.raises(RingError, match="replicas 99"):
        builder.set_replicas(99)
    with pytest.raises(RingError, match="now_hours"):
        builder.rebalance(0)


@pytest.mark.parametrize(("replicas", "weight"), [(3.0, 1.0), (2.5, 1.0), (2.0, 0.0)])
def test_too_few_devices_are_refused_and_change_nothing(replicas: float, weight: float) -> None:
    builder = RingBuilder(4, replicas, 0)
    builder.add_device(**DEVICE)
    builder.add_device(**{**DEVICE, "device": "sdb", "weight": weight})
    with pytest.raises(RingError, match="add devices or lower the number of replicas"):
        builder.rebalance(HOUR)
    assert builder.version == 0
    assert not builder.has_ring


def test_an_empty_builder_is_refused() -> None:
    with pytest.raises(RingError, match="there are 0"):
        RingBuilder(4, 1, 0).rebalance(HOUR)


def test_ids_are_never_used_again() -> None:
    builder = grid(3, 1, 2, part_power=4)
    builder.rebalance(HOUR)
    builder.remove_device(5)
    added = builder.add_device(**DEVICE)
    assert added.id == 6
    builder.rebalance(HOUR + 1)
    assert builder.add_device(**{**DEVICE, "device": "sdb"}).id == 7
    assert builder.ring.devices[5] is None


def test_the_old_ring_does_not_change_under_its_readers() -> None:
    builder = grid(3, 1, 2, part_power=4)
    builder.rebalance(HOUR)
    ring, before = builder.ring, table(builder.ring)
    builder.remove_device(0)
    builder.rebalance(HOUR + 1)
    assert table(ring) == before
    assert ring.version == 1
    assert builder.ring.version == 2


def test_min_part_hours_hold_back_moves_but_not_removals() -> None:
    builder = grid(4, 1, 2, part_power=6, min_part_hours=24)
    builder.rebalance(HOUR)
    add_zone(builder, "new", 1, 2)
    early = builder.rebalance(HOUR + 23)
    assert early.moved == 0
    assert early.surplus > 0
    lost = held(builder.ring)[0]
    builder.remove_device(0)
    removed = builder.rebalance(HOUR + 23)
    assert removed.moved == lost
    assert removed.moved_partitions == lost
    assert held(builder.ring)[0] == 0
    late = builder.rebalance(HOUR + 24)
    moved_before = {partition for partition, hour in enumerate(builder.moved_at) if hour == HOUR + 23}
    assert late.moved > 0
    assert len(moved_before) == lost


def test_waiting_can_be_overruled() -> None:
    builder = grid(4, 1, 2, part_power=6, min_part_hours=24)
    builder.rebalance(HOUR)
    add_zone(builder, "new", 1, 2)
    assert builder.rebalance(HOUR, ignore_min_part_hours=True).moved > 0


def test_all_replicas_on_removed_devices_are_replaced_at_once() -> None:
    builder = grid(3, 1, 2, part_power=6)
    builder.rebalance(HOUR)
    both = {p for p, holders in enumerate(table(builder.ring)) if {0, 2} <= set(holders)}
    assert both
    builder.remove_device(0)
    builder.remove_device(2)
    builder.rebalance(HOUR)
    assert not {0, 2} & set(held(builder.ring))


def test_draining_empties_a_device_one_replica_of_a_partition_at_a_time() -> None:
    builder = grid(3, 1, 3, part_power=6, overload=1.0)
    builder.rebalance(HOUR)
    for id_ in (0, 3):
        builder.set_weight(id_, 0)
    hours = HOUR
    for _ in range(4):
        hours += 1
        if not builder.rebalance(hours).moved:
            break
    assert held(builder.ring)[0] == held(builder.ring)[3] == 0


def test_replicas_come_and_go() -> None:
    builder = grid(4, 1, 2, part_power=6, replicas=2)
    builder.rebalance(HOUR)
    builder.set_replicas(3.25)
    more = builder.rebalance(HOUR + 1)
    assert more.assigned == 64 + 16
    assert [len(builder.ring.primaries(p)) for p in (0, 15, 16, 63)] == [4, 4, 3, 3]
    builder.set_replicas(1.5)
    fewer = builder.rebalance(HOUR + 2)
    assert fewer.dropped == 64 + 16 + 32
    assert [len(builder.ring.primaries(p)) for p in (0, 31, 32)] == [2, 2, 1]


def test_a_new_address_moves_nothing() -> None:
    builder = grid(4, 1, 2, part_power=6)
    builder.rebalance(HOUR)
    before = table(builder.ring)
    changed = builder.update_device(3, host="elsewhere", port=7000, name="new name")
    assert (changed.host, changed.port, changed.name, changed.zone) == ("elsewhere", 7000, "new name", "z1")
    assert builder.rebalance(HOUR + 5).moved == 0
    assert table(builder.ring) == before
    assert builder.ring.device(3).host == "elsewhere"
    with pytest.raises(RingError, match="device 0 already has"):
        builder.update_device(3, host="z0-n0", port=6200, device="d0")


def test_seeds_make_different_rings() -> None:
    rings: list[Ring] = []
    for seed in (1, 2):
        builder = grid(4, 1, 2, part_power=8, seed=seed)
        builder.rebalance(HOUR)
        rings.append(builder.ring)
    assert table(rings[0]) != table(rings[1])


def test_progress_is_reported_up_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    builder = grid(4, 1, 2, part_power=6)
    builder.rebalance(HOUR, progress=lambda done, total: seen.append((done, total)))
    assert seen
    assert seen[-1][0] == seen[-1][1]
