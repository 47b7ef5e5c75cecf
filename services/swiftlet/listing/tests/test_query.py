"""Listing semantics against a naive model, on both a list and SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from swiftlet.errors import PageTooCostly
from swiftlet.listing.query import Span, beyond, list_page
from swiftlet.model import ListingQuery, Subdir


@dataclass(frozen=True)
class Row:
    name: str


class Names:
    """A fetch over sorted names that counts what it reads."""

    def __init__(self, names: set[str]) -> None:
        self.names = sorted(names, key=lambda name: name.encode())
        self.reads = 0
        self.seeks = 0

    def __call__(self, span: Span, reverse: bool, limit: int) -> Iterator[Row]:
        self.seeks += 1
        inside = [n for n in self.names if n >= span.low and (span.high is None or n < span.high)]
        for name in (inside[::-1] if reverse else inside)[:limit]:
            self.reads += 1
            yield Row(name)


def shown(page: list[Row | Subdir]) -> list[str]:
    return [f"<{entry.name}>" if isinstance(entry, Subdir) else entry.name for entry in page]


def naive(names: set[str], query: ListingQuery) -> list[str]:
    """The whole listing filtered and folded, one obvious step after the other."""
    low, high = (query.end_marker, query.marker) if query.reverse else (query.marker, query.end_marker)
    prefix, delimiter = query.prefix, query.delimiter
    if query.path is not None:
        prefix = query.path.rstrip("/") + "/" if query.path else ""
        delimiter = ""
    chosen = sorted((n for n in names if n.startswith(prefix)), key=lambda name: name.encode())
    chosen = [n for n in chosen if (not low or n > low) and (not high or n < high)]
    if query.path is not None:
        chosen = [n for n in chosen if n != prefix and "/" not in n[len(prefix) : -1]]
    page: list[str] = []
    for name in reversed(chosen) if query.reverse else chosen:
        end = name.find(delimiter, len(prefix)) if delimiter else -1
        if end < 0:
            page.append(name)
            continue
        subdir = name[: end + len(delimiter)]
        if subdir != low and f"<{subdir}>" not in page:
            page.append(f"<{subdir}>")
    return page[: query.limit]


ALPHABET = "ab/-\u00e9\ud7ff\U0010ffff"
texts = st.text(alphabet=ALPHABET, max_size=6)
queries = st.builds(
    ListingQuery,
    limit=st.integers(0, 8),
    marker=texts,
    end_marker=texts | st.just(""),
    prefix=st.text(alphabet=ALPHABET, max_size=3),
    delimiter=st.sampled_from(["", "", "/", "a", "--", "/-", "\U0010ffff", "\ud7ff"]),
    path=st.none() | st.text(alphabet="ab/", max_size=3),
    reverse=st.booleans(),
)
name_sets = st.sets(texts.filter(bool), max_size=25)


@given(name_sets, queries)
@settings(max_examples=600, deadline=None)
def test_page_is_the_naive_one(names: set[str], query: ListingQuery) -> None:
    assert shown(list_page(query, Names(names))) == naive(names, query)


@given(name_sets, queries.filter(lambda q: q.path is None))
@settings(max_examples=300, deadline=None)
def test_few_rows_are_read(names: set[str], query: ListingQuery) -> None:
    fetch = Names(names)
    page = list_page(query, fetch)
    assert fetch.reads <= len(page) + 2
    assert fetch.seeks <= len(page) + 2


@given(name_sets, queries)
@settings(max_examples=300, deadline=None)
def test_pages_by_marker_cover_everything_once(names: set[str], query: ListingQuery) -> None:
    query = replace(query, limit=max(1, query.limit))
    whole = naive(names, replace(query, limit=1000))
    pages: list[str] = []
    while page := list_page(query, Names(names)):
        pages.extend(shown(page))
        query = replace(query, marker=page[-1].name)
    assert pages == whole


@given(name_sets, queries)
@settings(max_examples=150, deadline=None)
def test_sqlite_orders_as_we_do(names: set[str], query: ListingQuery) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE t (name TEXT PRIMARY KEY) WITHOUT ROWID")
    connection.executemany("INSERT INTO t VALUES (?)", [(name,) for name in names])

    def fetch(span: Span, reverse: bool, limit: int) -> Iterator[Row]:
        sql = "SELECT name FROM t WHERE name >= ? AND (? IS NULL OR name < ?) ORDER BY name " + "DESC" * reverse
        for (name,) in connection.execute(sql + " LIMIT ?", (span.low, span.high, span.high, limit)):
            yield Row(name)

    assert shown(list_page(query, fetch)) == naive(names, query)
    connection.close()


PHOTOS = {"photos/animals/cat", "photos/animals/dog", "photos/me", "photos/plants/fern", "photos/", "readme"}


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (ListingQuery(delimiter="/"), ["<photos/>", "readme"]),
        (ListingQuery(delimiter="/", marker="photos/"), ["readme"]),
        (ListingQuery(delimiter="/", marker="photos/animals/cat"), ["<photos/>", "readme"]),
        (
            ListingQuery(delimiter="/", prefix="photos/"),
            ["photos/", "<photos/animals/>", "photos/me", "<photos/plants/>"],
        ),
        (ListingQuery(delimiter="/", prefix="photos/", end_marker="photos/m"), ["photos/", "<photos/animals/>"]),
        (ListingQuery(delimiter="/", reverse=True), ["readme", "<photos/>"]),
        (ListingQuery(delimiter="/", reverse=True, marker="readme", end_marker="photos/"), []),
        (ListingQuery(path="photos"), ["photos/me"]),
        (ListingQuery(path="photos/animals/"), ["photos/animals/cat", "photos/animals/dog"]),
        (ListingQuery(path=""), ["photos/", "readme"]),
        (ListingQuery(prefix="photos/a", limit=1, reverse=True), ["photos/animals/dog"]),
    ],
)
def test_examples(query: ListingQuery, expected: list[str]) -> None:
    assert shown(list_page(query, Names(PHOTOS))) == expected


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [("a", "b"), ("a\U0010ffff", "b"), ("\U0010ffff", None), ("\ud7ff", "\ue000"), ("", None)],
)
def test_beyond(prefix: str, expected: str | None) -> None:
    assert beyond(prefix) == expected


@pytest.mark.parametrize("reverse", [False, True])
def test_a_level_of_many_directories_is_refused(monkeypatch: pytest.MonkeyPatch, reverse: bool) -> None:
    """They cost a seek each and fill no page."""
    monkeypatch.setattr("swiftlet.listing.query.MAX_PASSED", 5)
    names = Names({f"d{number}/o" for number in range(5)} | {"a"})
    assert shown(list_page(ListingQuery(path="", reverse=reverse), names)) == ["a"]
    names = Names({f"d{number}/o" for number in range(6)} | {"a"})
    with pytest.raises(PageTooCostly, match="use prefix and delimiter"):
        list_page(ListingQuery(path="", reverse=reverse), names)
    assert names.seeks == 6
