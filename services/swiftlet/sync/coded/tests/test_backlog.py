"""The order and the bounds of repairs."""

from __future__ import annotations

from swiftlet.sync.coded.backlog import Backlog, Bounds, Budget


def test_the_least_redundant_come_first_and_are_kept_where_there_is_no_room_for_all() -> None:
    backlog = Backlog[str](4)
    for redundancy in (5, 4, 5, 4, 6, 5, 3):
        backlog.add(redundancy, f"of {redundancy}")
    assert (len(backlog), backlog.dropped) == (4, 3)
    assert list(backlog.taken()) == ["of 3", "of 4", "of 4", "of 5"]
    assert (len(backlog), backlog.dropped) == (0, 3)


def test_those_of_equal_redundancy_come_in_no_order() -> None:
    orders: set[tuple[int, ...]] = set()
    for _ in range(50):
        backlog = Backlog[int](8)
        for number in range(8):
            backlog.add(4, number)
        orders.add(tuple(backlog.taken()))
    assert len(orders) > 1


def test_a_round_ends_with_the_fragments_or_the_bytes_that_it_may_rebuild() -> None:
    by_number, by_size = Budget(Bounds(2, 1000)), Budget(Bounds(100, 1000))
    spent = []
    for size_bytes in (0, 999, 500):
        spent.append((by_number.is_spent, by_size.is_spent))
        by_number.spend(size_bytes)
        by_size.spend(size_bytes)
    assert spent == [(False, False), (False, False), (True, False)]
    assert by_size.is_spent
