"""Rings over time: first layouts, growth by steps, drains, refusals, and what is kept between two looks."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftlet.ring import codec
from swiftlet_operator import rings
from swiftlet_operator.problems import BrokenState
from swiftlet_operator.rings import Outcome, Saved, Shape, Task, Wanted, advance

NOW = 1_800_000_000
HOUR = 3600
SHAPE = Shape(part_power=6, replicas=3, min_part_hours=1, overload=0.1)


def device(index: int, zone: str | None = "", weight: float = 100.0) -> Wanted:
    """Device `index`, in one of three zones unless told otherwise."""
    place = f"z{index % 3}" if zone == "" else zone
    return Wanted(f"p-{index}/d0", f"p-{index}.s", 6200, "d0", "r", weight, place, place and f"n{index}")


def task(count: int, *more: Wanted, shape: Shape = SHAPE) -> Task:
    """A ring of `count` devices and some more."""
    return Task("object-0", shape, (*(device(index) for index in range(count)), *more))


def saved_of(outcome: Outcome) -> Saved:
    """What was saved."""
    assert outcome.saved is not None
    return outcome.saved


def first(count: int = 6) -> Saved:
    """A first layout."""
    return saved_of(advance(task(count), None, NOW))


def weights(outcome: Outcome) -> dict[str, float]:
    """Weight by name of device."""
    builder = codec.decode_builder(saved_of(outcome).builder)
    return {one.name: one.weight for one in builder.devices if one is not None}


def test_a_first_layout_takes_full_weights() -> None:
    outcome = advance(task(6), None, NOW)

    assert outcome.version == 1
    assert set(weights(outcome).values()) == {100.0}
    assert codec.join(outcome.chunks).version == 1
    assert not outcome.waiting


def test_a_first_layout_waits_for_devices_unless_it_is_late() -> None:
    some = task(4, device(4, zone=None))

    assert "1 of 5" in advance(some, None, NOW).waiting
    assert advance(replace(some, hurry=True), None, NOW).devices == 4


def test_a_first_layout_needs_as_many_devices_as_replicas() -> None:
    outcome = advance(task(2), None, NOW)

    assert outcome.refused is not None
    assert outcome.refused[0] == "TooFewDevices"
    assert outcome.saved is None


def test_nothing_changes_when_nothing_changed() -> None:
    saved = first()

    assert advance(task(6), saved, NOW + 5 * HOUR).saved is saved


def test_a_change_waits_for_the_hours_to_pass() -> None:
    saved = first()

    outcome = advance(task(7), saved, NOW + HOUR // 2)

    assert outcome.saved is saved
    assert outcome.again_in_s == HOUR / 2
    assert outcome.waiting


def test_a_new_device_gains_weight_by_quarters() -> None:
    saved, seen = first(), []

    for hour in range(1, 7):
        outcome = advance(task(7), saved, NOW + hour * HOUR)
        seen.append(weights(outcome)["p-6/d0"])
        saved = saved_of(outcome)

    assert seen == [25.0, 50.0, 75.0, 100.0, 100.0, 100.0]


def test_a_device_that_was_not_scheduled_yet_does_not_enter() -> None:
    saved = first()

    assert advance(task(6, device(6, zone=None)), saved, NOW + HOUR).saved is saved


def test_a_device_whose_pod_is_pending_stays() -> None:
    saved = first()
    pending = Task("object-0", SHAPE, (*(device(i) for i in range(5)), device(5, zone=None)))

    assert advance(pending, saved, NOW + HOUR).saved is saved


def test_a_drained_device_leaves_when_it_is_known_to_be_empty() -> None:
    saved, hour = first(), 0
    while True:
        hour += 1
        outcome = advance(task(5), saved, NOW + hour * HOUR)
        saved = saved_of(outcome)
        if outcome.drained:
            break
        assert hour < 20
    assert outcome.drained == {"p-5/d0"}

    still = advance(task(5), saved, NOW + (hour + 5) * HOUR)
    gone = advance(replace(task(5), empty=frozenset({"p-5/d0"})), saved_of(still), NOW + (hour + 10) * HOUR)

    assert "p-5/d0" in still.present
    assert "p-5/d0" not in gone.present


def test_an_empty_report_alone_does_not_remove_a_device() -> None:
    outcome = advance(replace(task(5), empty=frozenset({"p-5/d0"})), first(), NOW + HOUR)

    assert "p-5/d0" in outcome.present


def test_too_few_devices_drain_nothing() -> None:
    saved = first(4)

    outcome = advance(task(2), saved, NOW + HOUR)

    assert outcome.saved is saved
    assert outcome.refused is not None
    assert "nothing is drained" in outcome.refused[1]


def test_a_changed_part_power_is_refused() -> None:
    outcome = advance(task(6, shape=replace(SHAPE, part_power=7)), first(), NOW + HOUR)

    assert outcome.refused is not None
    assert outcome.refused[0] == "PartPowerChanged"


def test_a_pod_that_moved_to_another_node_alone_moves_nothing() -> None:
    saved = first()
    moved = replace(task(6), wanted=(replace(device(0), node="n9"), *(device(index) for index in range(1, 6))))

    assert advance(moved, saved, NOW + HOUR).saved is saved


def test_builders_survive_pieces_and_damage_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rings, "BUILDER_PIECE_BYTES", 200)
    data = first().builder
    pieces = rings.split(data)

    assert len(pieces) > 1
    assert rings.unite(pieces) == data
    assert rings.unite(pieces[:-1]) is None
    assert rings.unite([]) is None


def test_a_builder_can_be_made_from_its_ring() -> None:
    ring = rings.ring_of(advance(task(6), None, NOW).chunks)
    assert ring is not None

    saved = rings.rebuilt(ring, SHAPE, NOW + HOUR)

    assert advance(task(6), saved, NOW + HOUR).version == 1
    assert advance(task(7), saved, NOW + HOUR).waiting


def test_a_broken_builder_is_said_to_be_broken() -> None:
    with pytest.raises(BrokenState, match="object-0"):
        advance(task(6), Saved(b"nonsense", NOW, 0, 0), NOW)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(3, 9), min_size=1, max_size=6))
def test_any_history_of_sizes_keeps_replicas_apart_and_ends(sizes: list[int]) -> None:
    saved: Saved | None = None
    hour = 0
    for size in sizes:
        for _ in range(60):
            hour += 1
            before = rings.ring_of(advance(task(size), saved, NOW).chunks) if saved else None
            empty = frozenset(f"p-{index}/d0" for index in range(size, 9))
            outcome = advance(replace(task(size), empty=empty), saved, NOW + hour * HOUR)
            if outcome.saved is saved:
                break
            saved = saved_of(outcome)
            after = codec.join(outcome.chunks)
            for partition in range(1 << SHAPE.part_power):
                held = [row[partition] for row in after.rows]
                assert len(set(held)) == 3
                if before is not None:
                    assert sum(row[partition] != held[index] for index, row in enumerate(before.rows)) <= 1
        else:
            pytest.fail("the ring never comes to rest")
        assert outcome.present == {f"p-{index}/d0" for index in range(size)}


def test_a_rebalance_waits_for_devices_that_are_behind_and_for_a_hold() -> None:
    saved = first()
    late = tuple(f"p-{index}/d0" for index in range(5))
    waiting = advance(replace(task(7), behind=late), saved, NOW + HOUR)
    held = advance(replace(task(7), hold="hands off"), saved, NOW + HOUR)

    assert waiting.saved is saved
    assert "p-0/d0, p-1/d0, p-2/d0 and 2 more" in waiting.waiting
    assert waiting.again_in_s == rings.GATE_S
    assert (held.saved, held.waiting) == (saved, "hands off")
    assert advance(replace(task(6), behind=late, hold="hands off"), saved, NOW + HOUR).waiting == ""


def test_a_full_device_gets_no_more_weight_but_less() -> None:
    full = replace(device(6), full=True)
    saved = saved_of(advance(task(6, full), first(), NOW + HOUR))

    assert weights(advance(task(6, full), saved, NOW + 2 * HOUR))["p-6/d0"] == 25
    less = advance(task(6, replace(full, weight=10.0)), saved, NOW + 2 * HOUR)
    assert weights(less)["p-6/d0"] == 10


def test_a_device_that_stands_in_another_zone_now_is_a_change_and_another_node_is_not() -> None:
    saved = first()
    same_zone = Task("object-0", SHAPE, (replace(device(0), node="n9"), *(device(index) for index in range(1, 6))))
    other_zone = Task("object-0", SHAPE, (replace(device(0), zone="z9"), *(device(index) for index in range(1, 6))))

    assert advance(same_zone, saved, NOW + HOUR).saved is saved
    moved = advance(other_zone, saved, NOW + HOUR)
    assert moved.version == 2
    assert "z9" in moved.zones


def test_weight_0_counts_for_no_replica_and_the_device_stays() -> None:
    idle = [replace(device(index), weight=0.0) for index in range(4)]
    few = Task("object-0", SHAPE, (*idle, device(4), device(5)))
    enough = Task("object-0", SHAPE, (idle[0], *(device(index) for index in range(1, 6))))

    assert advance(few, first(), NOW + HOUR).refused is not None
    done = advance(enough, first(), NOW + HOUR)
    assert weights(done)["p-0/d0"] == 0
    assert "p-0/d0" in done.present
    assert "p-0/d0" not in rings.known("object-0", saved_of(done)).assigned
    assert rings.look(enough, first()).version == 1
