"""The failure table: the limits and times of source 1, and merging."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from swiftlet.sync.failures.table import Exceptions, FailureTable

A, B = "a:1", "b:1"


def table(**rows: tuple[int, float]) -> FailureTable:
    made = FailureTable(limit=10, interval_s=60)
    made.merge({f"{name}:1": Exceptions(*row) for name, row in rows.items()}, 1000)
    return made


def test_a_node_is_suppressed_when_its_exceptions_reach_the_limit_until_the_interval_is_over() -> None:
    failures = table()
    news = [failures.failed(A, 100 + n) for n in range(12)]
    assert news == [False] * 9 + [True] + [False] * 2, "told once"
    assert failures.suppressed(A, 111 + 59.9)
    assert not failures.suppressed(B, 111)
    assert not failures.suppressed(A, 111 + 60)
    assert failures.rows(111 + 60) == {}, "and the count begins anew"


def test_a_success_clears() -> None:
    failures = table()
    for _ in range(9):
        failures.failed(A, 100)
    failures.succeeded(A, 101)
    assert failures.rows(101) == {}
    assert not failures.failed(A, 102)


def test_exceptions_far_apart_never_add_up() -> None:
    failures = table()
    assert not any(failures.failed(A, 61.0 * n) for n in range(50))


def test_a_failed_probe_begins_the_interval_anew() -> None:
    failures = table()
    assert failures.suppress(A, 100)
    assert not failures.suppress(A, 130)
    assert failures.suppressed(A, 189)


def test_the_table_is_bounded() -> None:
    failures = FailureTable(limit=1, interval_s=60, max_nodes=3)
    for number in range(10):
        failures.failed(f"n{number}:1", 100)
        failures.succeeded(f"m{number}:1", 100)
    assert set(failures.rows(100)) == {"n7:1", "n8:1", "n9:1"}
    failures.keep(frozenset({"n9:1"}))
    assert set(failures.rows(100)) == {"n9:1"}


def test_merging_takes_the_worse_and_nothing_from_before_a_success() -> None:
    failures = table(a=(3, 990), b=(12, 950))
    failures.succeeded("c:1", 980)
    theirs = {A: Exceptions(11, 960), B: Exceptions(1, 2000), "c:1": Exceptions(20, 979), "d:1": Exceptions(20, 900)}
    failures.merge(theirs, 1000)
    assert failures.rows(1000) == {A: Exceptions(11, 990), B: Exceptions(12, 1000)}


rows = st.dictionaries(
    st.sampled_from([A, B, "c:1"]), st.builds(Exceptions, st.integers(1, 30), st.floats(941, 1000)), max_size=3
)


@given(rows, rows)
def test_merging_is_the_same_in_any_order_and_any_number_of_times(
    one: dict[str, Exceptions], other: dict[str, Exceptions]
) -> None:
    first, second = table(), table()
    for merged in (one, other, one):
        first.merge(merged, 1000)
    for merged in (other, one):
        second.merge(merged, 1000)
    assert first.rows(1000) == second.rows(1000)
