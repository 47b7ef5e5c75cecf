"""Whom the parts of a run are asked of.

Fault model: devices that may not be in a run, all of them or some; rings that change in between.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

import pytest

from swiftlet.model import ObjectKey
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.placement.rings import Rings
from swiftlet.placement.runs import STAY_BYTES, RunPlan
from swiftlet.ring.model import Device

DEVICES = [Device(n, f"d{n}", f"h{n}", 6200, f"d{n}", "r", f"z{n}", "n", 1.0) for n in range(5)]


class FakeRing:
    """Holders by partition; also the rings that have it for all policies."""

    def __init__(self, holders: Sequence[Sequence[int]]) -> None:
        self.holders = holders

    def objects(self, policy: int) -> FakeRing:
        """Itself."""
        return self

    def primaries(self, partition: int) -> tuple[Device, ...]:
        """Of one partition."""
        return tuple(DEVICES[number] for number in self.holders[partition])


def planned(
    holders: Sequence[Sequence[int]],
    size: int = 10,
    usable: Callable[[Device], bool] = lambda device: True,
    place: Place = ANYWHERE,
) -> tuple[RunPlan, list[bool]]:
    """A part of each partition, in order, and which were taken."""
    plan = RunPlan(cast("Rings", FakeRing(holders)), usable, place)
    keys = [ObjectKey(0, partition, bytes([partition]) * 16) for partition in range(len(holders))]
    return plan, [plan.add(key, 0, size, size, "etag", True) for key in keys]


def asked(plan: RunPlan) -> list[int]:
    return [part.device.id for part in plan.parts]


@pytest.mark.parametrize("_", range(10))
def test_one_device_is_asked_for_as_long_as_it_has_them(_: int) -> None:
    plan, _taken = planned([[0, 1, 2], [1, 2, 3], [2, 3, 0], [2, 1, 0], [0, 1, 3], [3, 1, 4]])
    chosen = asked(plan)
    assert chosen[:4] == [2] * 4, "the only one that has the first four"
    assert chosen[4] == chosen[5]
    assert chosen[4] in {1, 3}
    assert [part.key.partition for part in plan.parts] == [0, 1, 2, 3, 4, 5]


def test_the_nearest_is_asked() -> None:
    here = Place("r", "z1")
    assert asked(planned([[0, 1, 2], [2, 1, 3], [1, 3, 4]], place=here)[0]) == [1, 1, 1]
    others = asked(planned([[0, 1, 2]], usable=lambda device: device.id != 1, place=here)[0])
    assert others[0] in {0, 2}


def test_which_of_several_it_is_is_left_to_chance() -> None:
    assert {asked(planned([[0, 1, 2]] * 2)[0])[0] for _ in range(100)} == {0, 1, 2}


def test_after_some_bytes_it_is_decided_anew() -> None:
    for _ in range(100):
        chosen = asked(planned([[0, 1]] * 16, STAY_BYTES // 4)[0])
        stays = [chosen[at : at + 4] for at in range(0, 16, 4)]
        assert all(len(set(stay)) == 1 for stay in stays)
        if len(set(chosen)) == 2:
            return
    pytest.fail("always the same one")


def test_devices_that_may_not_be_in_a_run_are_in_none() -> None:
    looked: list[int] = []

    def usable(device: Device) -> bool:
        looked.append(device.id)
        return device.id in {1, 4}

    plan, taken = planned([[0, 1, 2], [0, 2, 3], [3, 4, 0], [1, 2, 4]], usable=usable)
    assert taken == [True, False, True, True]
    assert [(part.key.partition, part.device.id) for part in plan.parts] == [(0, 1), (2, 4), (3, 4)]
    assert sorted(looked) == [0, 1, 2, 3, 4], "each once"


def test_a_ring_that_changes_in_between_is_another_one() -> None:
    ring = FakeRing([[0]])
    rings = cast("Rings", ring)
    plan = RunPlan(rings, lambda device: True)
    key = ObjectKey(0, 0, bytes(16))
    assert plan.add(key, 0, 1, None, None, True)
    other = FakeRing([[0]])
    ring.objects = lambda policy: other  # type: ignore[method-assign]
    other.primaries = lambda partition: (DEVICES[3],)  # type: ignore[method-assign]
    assert plan.add(key, 5, 7, None, "x", False)
    assert asked(plan) == [0, 3]
    part = plan.parts[1]
    assert (part.start, part.stop, part.size, part.etag, part.unmarked) == (5, 7, None, "x", False)
