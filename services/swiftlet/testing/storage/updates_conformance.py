"""A conformance suite for every `UpdateTable`: the twin in memory, and the native one.

A test module subclasses `UpdatesConformance` and says how to make a table; pytest runs the rest.
"""

from __future__ import annotations

import select
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Protocol

import pytest

from swiftlet.listing.row_tables import Packed
from swiftlet.listing.schema import OFFSET
from swiftlet.listing.updates import UpdateTable

PLACE = (7, "account", "container")
OTHER = (7, "account", "other")


class TakingTable(UpdateTable, Protocol):
    """A table into which tests put rows."""

    def take(self, partition: int, account: str, container: str, rows: Sequence[Packed], /) -> bool:
        """Do what an UPDATE does; return whether the rows were taken."""
        ...


def packed_row(name: str, at: int = 1, size: int = 1, deleted: bool = False) -> Packed:
    """Return a row as `take` gets and `take_out` returns it."""
    return (name, at - OFFSET, size, "etag", "text/plain", None, None, int(deleted))


def _is_due(table: UpdateTable) -> bool:
    return bool(select.select([table.fileno()], [], [], 0)[0])


class UpdatesConformance(ABC):
    """What every table does."""

    @abstractmethod
    def start(self) -> TakingTable:
        """Return a table over the journal that this test has; it is read first."""

    def restarted(self, table: TakingTable) -> TakingTable:
        """Return the next process's table."""
        table.stop()
        self._next = self.start()
        return self._next

    @pytest.fixture
    def table(self) -> Iterator[TakingTable]:
        """The table at the first start."""
        made = self._next = self.start()
        yield made
        made.stop()
        self._next.stop()

    def test_rows_are_taken_only_for_open_databases(self, table: TakingTable) -> None:
        assert not table.take(*PLACE, [packed_row("a")])
        table.open(*PLACE)
        assert table.take(*PLACE, [packed_row("a")])
        assert not table.take(*OTHER, [packed_row("a")])
        table.close(*PLACE)
        assert not table.take(*PLACE, [packed_row("b")])
        assert table.has(*PLACE)
        assert not table.has(*OTHER)
        assert table.take_out(*PLACE) == [packed_row("a")]

    def test_no_database_is_open_after_close_all_until_it_is_opened_again(self, table: TakingTable) -> None:
        table.open(*PLACE)
        table.open(*OTHER)
        table.close_all("the device is full")
        assert not table.take(*PLACE, [packed_row("a")])
        assert not table.take(*OTHER, [packed_row("a")])
        table.open(*PLACE)
        assert table.take(*PLACE, [packed_row("a")])
        assert not table.take(*OTHER, [packed_row("a")])

    def test_the_newest_row_of_each_name_comes_out_in_the_order_of_utf_8(self, table: TakingTable) -> None:
        table.open(*PLACE)
        names = ["b", "a", "\U0001f600", "\uffff", "é", "B", "a/b", "z"]
        assert table.take(*PLACE, [packed_row(name, 5) for name in names])
        assert table.take(*PLACE, [packed_row("a", 4, 9), packed_row("b", 6, 2), packed_row("z", 5, 1, deleted=True)])
        assert table.take(*PLACE, [packed_row("z", 5, 3)])
        out = table.take_out(*PLACE)
        assert [row[0] for row in out] == sorted(names, key=str.encode)
        found = {row[0]: row for row in out}
        assert found["a"] == packed_row("a", 5)
        assert found["b"] == packed_row("b", 6, 2)
        assert (found["z"][1], found["z"][-1]) == (5 - OFFSET, 1), "at the same time a deletion wins"

    def test_rows_are_there_until_they_are_folded(self, table: TakingTable) -> None:
        table.open(*PLACE)
        table.take(*PLACE, [packed_row("a")])
        assert table.take_out(*PLACE) == [packed_row("a")]
        assert table.has(*PLACE)
        assert table.databases() == [PLACE]
        table.folded(*PLACE, True)
        assert not table.has(*PLACE)
        assert table.databases() == []
        assert table.take_out(*PLACE) == []
        table.folded(*PLACE, True)
        assert not table.has(*PLACE)

    def test_rows_are_out_for_one_at_a_time(self, table: TakingTable) -> None:
        table.open(*PLACE)
        table.take(*PLACE, [packed_row("a")])
        table.take_out(*PLACE)
        table.take(*PLACE, [packed_row("b")])
        with pytest.raises(ValueError, match="out for folding already"):
            table.take_out(*PLACE)
        table.folded(*PLACE, True)
        assert table.take_out(*PLACE) == [packed_row("b")]

    def test_rows_that_were_not_merged_come_back_and_the_newest_wins(self, table: TakingTable) -> None:
        table.open(*PLACE)
        table.take(*PLACE, [packed_row("a", 1), packed_row("b", 5), packed_row("c", 1)])
        table.take_out(*PLACE)
        table.take(*PLACE, [packed_row("a", 2), packed_row("b", 4)])
        table.folded(*PLACE, False)
        assert table.take_out(*PLACE) == [packed_row("a", 2), packed_row("b", 5), packed_row("c", 1)]
        table.take(*PLACE, [packed_row("d", 1)])
        table.folded(*PLACE, True)
        assert table.take_out(*PLACE) == [packed_row("d", 1)]

    def test_dropped_rows_are_gone_also_those_that_are_out(self, table: TakingTable) -> None:
        table.open(*PLACE)
        table.open(*OTHER)
        table.take(*PLACE, [packed_row("a")])
        table.take(*OTHER, [packed_row("a")])
        table.take_out(*PLACE)
        table.take(*PLACE, [packed_row("b")])
        table.drop(*PLACE)
        assert not table.has(*PLACE)
        table.folded(*PLACE, False)
        assert not table.has(*PLACE)
        assert table.databases() == [OTHER]

    def test_a_database_is_due_with_its_first_row_and_with_many(self, table: TakingTable) -> None:
        assert not _is_due(table)
        table.open(*PLACE)
        table.take(*PLACE, [packed_row("a")])
        assert _is_due(table)
        assert table.due() == [(PLACE, False)]
        assert not _is_due(table)
        assert table.due() == []
        for first in range(0, 5000, 1000):
            table.take(*PLACE, [packed_row(f"{first + n:05}") for n in range(1000)])
        assert _is_due(table)
        assert table.due() == [(PLACE, True)]
        table.take_out(*PLACE)
        assert table.due() == []
        table.take(*PLACE, [packed_row("b")])
        assert table.due() == [(PLACE, False)], "it has a first row again"
        table.folded(*PLACE, True)
        table.take_out(*PLACE)
        assert table.due() == [], "its rows are out"

    def test_a_start_has_the_rows_that_were_not_durable_in_their_databases(self, table: TakingTable) -> None:
        for place in (PLACE, OTHER):
            table.open(*place)
            table.take(*place, [packed_row("a", 3), packed_row("b", 1)])
        table.take(*PLACE, [packed_row("b", 2)])
        table.take_out(*OTHER)
        table.folded(*OTHER, True)
        again = self.restarted(table)
        assert sorted(again.databases()) == [PLACE, OTHER]
        assert not again.take(*PLACE, [packed_row("c")]), "nothing is open at a start"
        assert again.take_out(*PLACE) == [packed_row("a", 3), packed_row("b", 2)]

    def test_the_journal_forgets_what_is_durable_in_the_databases_and_nothing_else(self, table: TakingTable) -> None:
        for place in (PLACE, OTHER):
            table.open(*place)
            table.take(*place, [packed_row("a")])
        table.take_out(*PLACE)
        table.folded(*PLACE, True)
        table.durable_in_databases(table.mark())
        table.take_out(*OTHER)
        table.durable_in_databases(table.mark())
        table = self.restarted(table)
        assert OTHER in table.databases(), "its rows were out, and not folded"
        for place in table.databases():
            table.take_out(*place)
            table.folded(*place, True)
        mark = table.mark()
        table.open(*OTHER)
        table.take(*OTHER, [packed_row("b")])
        table.durable_in_databases(mark)
        table = self.restarted(table)
        assert table.databases() == [OTHER]
        assert table.take_out(*OTHER) == [packed_row("b")]

    def test_the_status_counts(self, table: TakingTable) -> None:
        table.open(*PLACE)
        table.take(*PLACE, [packed_row("a"), packed_row("b"), packed_row("a", 2)])
        table.take(*OTHER, [packed_row("a")])
        status = table.status()
        assert (status["rows"], status["databases"], status["taken"], status["not_taken"]) == (2, 1, 3, 1)
        assert status["refused"] == 0
