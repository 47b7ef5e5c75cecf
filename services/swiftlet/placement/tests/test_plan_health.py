"""Plans and the memory of failures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from swiftlet.placement.health import NodeHealth
from swiftlet.placement.plan import Place, plan_read
from swiftlet.placement.quorums import Quorum, write_quorum
from swiftlet.placement.write_plan import plan_write
from swiftlet.ring.model import Device


def device(number: int) -> Device:
    return Device(number, f"d{number}", "127.0.0.1", 6200 + number, "d", "r", f"z{number}", f"n{number}", 1.0)


DEVICES = [device(n) for n in range(6)]


class _Ring:
    """Three primaries 0, 1, 2; handoffs 3, 4, 5."""

    def primaries(self, partition: int) -> tuple[Device, ...]:
        return tuple(DEVICES[:3])

    def handoffs(self, partition: int) -> Iterator[Device]:
        return iter(DEVICES[3:])


def ids(devices: tuple[Device, ...]) -> list[int]:
    return [d.id for d in devices]


@pytest.mark.parametrize(("replicas", "quorum"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)])
def test_two_quorums_share_a_copy(replicas: int, quorum: int) -> None:
    assert write_quorum(replicas) == quorum
    assert 2 * quorum > replicas


def test_a_write_goes_to_primaries_with_as_many_spares() -> None:
    plan = plan_write(_Ring(), 0)  # type: ignore[arg-type]
    assert (ids(plan.slots), ids(plan.spares), plan.quorum) == ([0, 1, 2], [3, 4, 5], Quorum(2))


def test_failed_primaries_change_places_with_sound_handoffs() -> None:
    plan = plan_write(_Ring(), 0, lambda d: d.id in {1, 3})  # type: ignore[arg-type]
    assert (ids(plan.slots), ids(plan.spares)) == ([0, 4, 2], [5, 1, 3])
    everything = plan_write(_Ring(), 0, lambda d: True)  # type: ignore[arg-type]
    assert (ids(everything.slots), ids(everything.spares)) == ([0, 1, 2], [3, 4, 5])


def test_reads_ask_failed_devices_last() -> None:
    order = plan_read(_Ring(), 0, lambda d: d.id == 0, shuffle=lambda devices: devices.reverse())  # type: ignore[arg-type]
    assert ids(order.devices) == [2, 1, 3, 4, 5, 0]
    assert order.handoffs == {3, 4, 5}
    assert order.quorum == Quorum(2)


@pytest.mark.parametrize(
    ("place", "behind", "order"),
    [
        (Place(), (), [2, 1, 0]),
        (Place("r", "z1"), (), [1, 2, 0]),
        (Place("r", "elsewhere"), (), [2, 1, 0]),
        (Place("r"), (), [2, 1, 0]),
        (Place("other", "z1"), (), [2, 1, 0]),
        (Place("r", "z1"), (1,), [2, 0, 1]),
    ],
)
def test_the_nearest_primaries_are_read_first(place: Place, behind: tuple[int, ...], order: list[int]) -> None:
    plan = plan_read(_Ring(), 0, shuffle=lambda devices: devices.reverse(), behind=behind, place=place)  # type: ignore[arg-type]
    assert ids(plan.devices) == [*order, 3, 4, 5]


def test_how_far_away_a_device_is() -> None:
    far = Device(9, "d9", "127.0.0.1", 6209, "d", "other", "z1", "n9", 1.0)
    place = Place("r", "z1")
    assert [place.distance(one) for one in (DEVICES[1], DEVICES[2], far)] == [0, 1, 2]
    assert Place().distance(far) == 0


def test_suppression_begins_at_the_limit_and_ends_with_success_or_time() -> None:
    now = [0.0]
    health = NodeHealth(limit=3, interval_s=10, clock=lambda: now[0])
    for _ in range(2):
        health.failed(DEVICES[0])
    assert not health.suppressed(DEVICES[0])
    health.failed(DEVICES[0])
    assert health.suppressed(DEVICES[0])
    assert not health.suppressed(DEVICES[1])
    health.succeeded(DEVICES[0])
    assert not health.suppressed(DEVICES[0])
    for _ in range(3):
        health.failed(DEVICES[0])
    now[0] = 10.5
    assert not health.suppressed(DEVICES[0])
