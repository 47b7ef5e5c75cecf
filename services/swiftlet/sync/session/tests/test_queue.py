"""What a round has to do, and in which order."""

from __future__ import annotations

from array import array
from random import Random

from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.session.queue import HandoffReturn, Item, SessionPlan, ordered, plan, session_plans
from swiftlet.sync.session.topology import ALL_TO_ALL, BATCHED, LIGHTSYNC


def ring(rows: list[list[int]], devices: int = 5) -> Ring:
    found = [Device(n, f"d{n}", f"h{n}", 1, "d", "r", "z", f"n{n}", 1.0) for n in range(devices)]
    return Ring(1, 2, len(rows), found, [array("H", row) for row in rows])


RING = ring([[0, 1, 2, 3], [1, 2, 3, 4], [2, 3, 4, 0]])


def test_a_device_s_round() -> None:
    work = plan(RING, 2, {0, 1, 2, 3, 99}, (), BATCHED)
    assert work.items == (Item(0, 0), Item(3, 1), Item(3, 2))
    assert work.handoffs == (HandoffReturn(3, (3, 4, 0)),)


def test_what_is_empty_here_is_compared_only_if_the_mode_pulls() -> None:
    assert plan(RING, 2, {1}, (), BATCHED).items == (Item(0, 0), Item(3, 1), Item(3, 2))
    assert plan(RING, 2, {1}, (), LIGHTSYNC).items == (Item(3, 1),)


def test_failed_neighbours_are_skipped() -> None:
    assert plan(RING, 2, {0, 1, 2}, {3}, LIGHTSYNC).items == (Item(0, 0), Item(1, 1), Item(4, 2))
    assert plan(RING, 2, {0}, {0, 1}, ALL_TO_ALL).items == ()


def test_a_device_that_is_not_in_the_ring_sends_everything_home() -> None:
    assert plan(RING, 77, {0, 5}, (), BATCHED).handoffs == (HandoffReturn(0, (0, 1, 2)),)


def test_rejoining_neighbours_come_first_and_the_rest_at_random() -> None:
    items = [Item(peer, partition) for peer in range(4) for partition in range(8)]
    one, other = (ordered(items, {2}, Random(seed)) for seed in (1, 2))
    assert sorted(one, key=lambda item: (item.peer, item.partition)) == items
    assert [item.peer for item in one[:8]] == [2] * 8
    assert 2 not in [item.peer for item in one[8:]]
    assert one != other
    assert one != sorted(one, key=lambda item: item.partition)


def test_sessions_share_messages_or_keep_the_order() -> None:
    items = [Item(1, 5), Item(2, 6), Item(1, 3), Item(1, 4), Item(1, 9)]
    assert list(session_plans(items, BATCHED, 3)) == [
        SessionPlan(1, (5, 3, 4)),
        SessionPlan(1, (9,)),
        SessionPlan(2, (6,)),
    ]
    assert list(session_plans(items, LIGHTSYNC, 2)) == [
        SessionPlan(1, (5,)),
        SessionPlan(2, (6,)),
        SessionPlan(1, (3, 4)),
        SessionPlan(1, (9,)),
    ]
    assert list(session_plans([], LIGHTSYNC, 2)) == []
