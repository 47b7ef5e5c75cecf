"""What is kept of a round: in which order partitions meet their peers, and what is told of them in the end."""

from __future__ import annotations

import pytest

from swiftlet.sync.books import NOT_DONE, Book, Found
from swiftlet.sync.tests.shares import share_of

EVERY = frozenset(range(8))


@pytest.fixture
def book() -> Book:
    """Of device 0, which shares all eight partitions with devices 1 and 2."""
    return Book(share_of(3, devices=3))


def ready(book: Book, partitions: set[int]) -> tuple[list[tuple[int, bool, set[int]]], set[int]]:
    found, done = book.next_of(partitions)
    return [(peer, differs, set(some)) for peer, differs, some in found], done


def test_each_partition_is_with_one_peer_at_a_time(book: Book) -> None:
    book.open(1, {1, 2}, differ=True)
    book.open(2, {2, 3}, differ=True)
    assert ready(book, {1, 2, 3}) == ([(1, True, {1, 2}), (2, True, {3})], set())
    assert book.under_way == {1, 2, 3}
    book.conclude(1, equal={1}, settled={2})
    assert ready(book, {1, 2}) == ([(2, True, {2})], {1})
    assert book.under_way == {2, 3}


def test_what_came_is_new_to_those_compared_before_and_they_come_last(book: Book) -> None:
    book.open(1, {1}, differ=True)
    book.open(2, {1, 2, 3}, differ=True)
    book.note(1, {2, 3}, ())
    book.conclude(1, settled={1})
    book.compare_again(2, {1, 2})
    assert book.is_again(1, EVERY) == {1, 2}
    assert book.is_again(2, EVERY) == set()
    assert ready(book, {1, 2, 3}) == ([(2, True, {3}), (2, False, {1, 2})], set())
    book.conclude(2, settled={1, 2, 3})
    assert ready(book, {1, 2, 3}) == ([(1, True, {2}), (1, False, {1})], {3})
    book.conclude(1, settled={1, 2})
    book.compare_again(2, {1, 2})
    assert ready(book, {1, 2}) == ([], {1, 2}), "once more, and no more than that"


def test_news_come_to_nobody_twice_before_all_were_compared(book: Book) -> None:
    book.open(1, {1}, differ=True)
    book.open(2, {1}, differ=True)
    book.conclude(1, settled={1})
    book.compare_again(2, {1})
    assert ready(book, {1})[0] == [(2, False, {1})], "first those that were not compared yet"


def test_in_order_is_what_all_peers_have_shown(book: Book) -> None:
    book.open(1, {1, 2, 3, 4}, differ=True)
    book.note(2, {1, 2}, {3})
    book.conclude(1, equal={1}, settled={2, 3}, other={4: Found(behind=2, unsent=1)})
    assert book.in_order({1, 2, 3, 4}) == {1, 2}
    assert book.not_whole({1, 2, 3, 4}) == {3}
    assert NOT_DONE in book.found(3)
    assert sorted((one.behind, one.unsent, one.done) for one in book.found(4)) == [(0, 0, False), (2, 1, True)]
    book.conclude(2, equal={3})
    assert book.not_whole({3}) == set()
    assert book.in_order({3}) == {3}


def test_what_is_given_up_waits_for_nobody(book: Book) -> None:
    book.open(1, {1, 2}, differ=True)
    book.next_of({1, 2})
    book.give_up({1})
    assert book.under_way == {2}
    assert ready(book, {1}) == ([], {1})
