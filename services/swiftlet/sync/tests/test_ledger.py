"""What is kept of a round: in which order partitions meet their peers, and what is told of them in the end."""

from __future__ import annotations

import pytest

from swiftlet.sync.planning.ledger import NOT_DONE, Found, PartitionLedger
from swiftlet.sync.tests.own_devices import own_device

EVERY = frozenset(range(8))


@pytest.fixture
def ledger() -> PartitionLedger:
    """Of device 0, which shares all eight partitions with devices 1 and 2."""
    return PartitionLedger(own_device(3, devices=3))


def ready(ledger: PartitionLedger, partitions: set[int]) -> tuple[list[tuple[int, bool, set[int]]], set[int]]:
    found, done = ledger.next_of(partitions)
    return [(peer, differs, set(some)) for peer, differs, some in found], done


def test_each_partition_is_with_one_peer_at_a_time(ledger: PartitionLedger) -> None:
    ledger.open(1, {1, 2}, differ=True)
    ledger.open(2, {2, 3}, differ=True)
    assert ready(ledger, {1, 2, 3}) == ([(1, True, {1, 2}), (2, True, {3})], set())
    assert ledger.under_way == {1, 2, 3}
    ledger.conclude(1, equal={1}, repaired={2})
    assert ready(ledger, {1, 2}) == ([(2, True, {2})], {1})
    assert ledger.under_way == {2, 3}


def test_what_came_is_new_to_those_compared_before_and_they_come_last(ledger: PartitionLedger) -> None:
    ledger.open(1, {1}, differ=True)
    ledger.open(2, {1, 2, 3}, differ=True)
    ledger.note(1, {2, 3}, ())
    ledger.conclude(1, repaired={1})
    ledger.compare_again(2, {1, 2})
    assert ledger.is_again(1, EVERY) == {1, 2}
    assert ledger.is_again(2, EVERY) == set()
    assert ready(ledger, {1, 2, 3}) == ([(2, True, {3}), (2, False, {1, 2})], set())
    ledger.conclude(2, repaired={1, 2, 3})
    assert ready(ledger, {1, 2, 3}) == ([(1, True, {2}), (1, False, {1})], {3})
    ledger.conclude(1, repaired={1, 2})
    ledger.compare_again(2, {1, 2})
    assert ready(ledger, {1, 2}) == ([], {1, 2}), "once more, and no more than that"


def test_news_come_to_nobody_twice_before_all_were_compared(ledger: PartitionLedger) -> None:
    ledger.open(1, {1}, differ=True)
    ledger.open(2, {1}, differ=True)
    ledger.conclude(1, repaired={1})
    ledger.compare_again(2, {1})
    assert ready(ledger, {1})[0] == [(2, False, {1})], "first those that were not compared yet"


def test_in_order_is_what_all_peers_have_shown(ledger: PartitionLedger) -> None:
    ledger.open(1, {1, 2, 3, 4}, differ=True)
    ledger.note(2, {1, 2}, {3})
    ledger.conclude(1, equal={1}, repaired={2, 3}, other={4: Found(behind=2, unsent=1)})
    assert ledger.in_order({1, 2, 3, 4}) == {1, 2}
    assert ledger.not_whole({1, 2, 3, 4}) == {3}
    assert NOT_DONE in ledger.found(3)
    assert sorted((one.behind, one.unsent, one.done) for one in ledger.found(4)) == [(0, 0, False), (2, 1, True)]
    ledger.conclude(2, equal={3})
    assert ledger.not_whole({3}) == set()
    assert ledger.in_order({3}) == {3}


def test_what_is_given_up_waits_for_nobody(ledger: PartitionLedger) -> None:
    ledger.open(1, {1, 2}, differ=True)
    ledger.next_of({1, 2})
    ledger.give_up({1})
    assert ledger.under_way == {2}
    assert ready(ledger, {1}) == ([], {1})
