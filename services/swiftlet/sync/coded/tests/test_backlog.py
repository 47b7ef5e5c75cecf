"""The order and the bounds of repairs."""

from __future__ import annotations

from dataclasses import dataclass

from swiftlet.sync.coded.backlog import Backlog, Bounds, Budget


@dataclass(frozen=True)
class Repair:
    """One of an object with so many fragments."""

    key: int
    redundancy: int


def test_the_least_redundant_come_first_and_are_kept_where_there_is_no_room_for_all() -> None:
    backlog = Backlog[Repair](4)
    for number, redundancy in enumerate((5, 4, 5, 4, 6, 5, 3)):
        assert backlog.add(redundancy, Repair(number, redundancy))
    assert (len(backlog), backlog.dropped) == (4, 3)
    assert [repair.redundancy for repair in backlog.take_all()] == [3, 4, 4, 5]
    assert (len(backlog), backlog.dropped) == (0, 3)


def test_those_of_equal_redundancy_come_in_no_order() -> None:
    orders: set[tuple[int, ...]] = set()
    for _ in range(50):
        backlog = Backlog[Repair](8)
        for number in range(8):
            backlog.add(4, Repair(number, 4))
        orders.add(tuple(repair.key for repair in backlog.take_all()))
    assert len(orders) > 1


def test_what_is_found_twice_is_there_once_and_may_come_again_after_it_was_dropped() -> None:
    backlog = Backlog[Repair](2)
    assert [backlog.add(4, Repair(number, 4)) for number in (1, 1, 2, 2)] == [True, False, True, False]
    assert (len(backlog), backlog.dropped) == (2, 0)
    assert not backlog.add(3, Repair(1, 3))
    assert backlog.add(3, Repair(3, 3))
    dropped = ({1, 2} - {repair.key for repair in backlog.take_all()}).pop()
    assert backlog.add(4, Repair(dropped, 4))


def test_a_round_ends_with_the_fragments_or_the_bytes_that_it_may_rebuild() -> None:
    by_number, by_size = Budget(Bounds(2, 1000)), Budget(Bounds(100, 1000))
    spent = []
    for size_bytes in (0, 999, 500):
        spent.append((by_number.is_spent, by_size.is_spent))
        by_number.spend(size_bytes)
        by_size.spend(size_bytes)
    assert spent == [(False, False), (False, False), (True, False)]
    assert by_size.is_spent
