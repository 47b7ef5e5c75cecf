"""What one replica sends the other."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from swiftlet.model import Entry, Kind
from swiftlet.sync.session.compare import Need, differing_suffixes, forgotten_before, need_of, pushes
from swiftlet.timestamp import ZERO, Timestamp

T1, T2, T3 = (Timestamp.at(n) for n in (1, 2, 3))
D = bytes(16)


def data(timestamp: Timestamp, meta: Timestamp = ZERO, kind: Timestamp = ZERO) -> Entry:
    return Entry(D, Kind.DATA, timestamp, max(timestamp, meta), max(timestamp, kind))


def gone(timestamp: Timestamp) -> Entry:
    return Entry(D, Kind.TOMBSTONE, timestamp)


def test_what_is_needed() -> None:
    assert need_of(data(T2), None) is Need.DATA
    assert need_of(data(T2), data(T1)) is Need.DATA
    assert need_of(data(T2), gone(T1)) is Need.DATA
    assert need_of(data(T1), data(T2)) is None
    assert need_of(data(T1), gone(T2)) is None
    assert need_of(gone(T2), data(T1)) is Need.TOMBSTONE
    assert need_of(gone(T2), None) is Need.TOMBSTONE
    assert need_of(gone(T2), gone(T2)) is None
    # Who moves a version to another policy deletes it with its own timestamp.
    assert need_of(gone(T2), data(T2)) is Need.TOMBSTONE
    assert need_of(data(T2), gone(T2)) is None
    assert need_of(data(T1, meta=T2), data(T1)) is Need.META
    assert need_of(data(T1), data(T1, meta=T2)) is None
    assert need_of(data(T1, meta=T3, kind=T1), data(T1, meta=T2, kind=T2)) is Need.META
    assert need_of(data(T1, meta=T2, kind=T2), data(T1, meta=T3, kind=T1)) is Need.META
    assert need_of(data(T2), data(T1, meta=T3)) is Need.DATA
    assert need_of(data(T1, meta=T3), data(T2)) is Need.META
    assert need_of(data(T1, meta=T2), data(T3)) is None
    assert need_of(data(T1, kind=T3), data(T2)) is Need.META


def test_suffixes_that_differ() -> None:
    assert differing_suffixes({"aaa": b"1", "bbb": b"2", "ccc": b"3"}, {"aaa": b"1", "bbb": b"x", "ddd": b"4"}) == [
        "bbb",
        "ccc",
    ]


def test_tombstones_are_forgotten_by_whole_periods() -> None:
    assert forgotten_before(10_000.0, 3_000.0, 1_000.0) == 7_000.0
    assert forgotten_before(10_999.0, 3_000.0, 1_000.0) == 7_000.0
    assert forgotten_before(10_000.0, math.inf) == 0.0


times = st.integers(1, 6).map(Timestamp.at)
entries = st.one_of(st.builds(gone, times), st.builds(data, times, times, times))


def merge(mine: Entry, theirs: Entry | None) -> Entry:
    """What the protocol's merge makes of both."""
    if theirs is None:
        return mine
    if mine.timestamp != theirs.timestamp:
        newer, older = (mine, theirs) if mine.timestamp > theirs.timestamp else (theirs, mine)
        if newer.kind is Kind.TOMBSTONE or older.kind is Kind.TOMBSTONE:
            return newer
        meta = max(newer.meta_timestamp, older.meta_timestamp)
        kind = max(newer.content_type_timestamp, older.content_type_timestamp)
        return Entry(D, Kind.DATA, newer.timestamp, meta, kind)
    if Kind.TOMBSTONE in (mine.kind, theirs.kind):
        return gone(mine.timestamp)
    return data(
        mine.timestamp,
        max(mine.meta_timestamp, theirs.meta_timestamp),
        max(mine.content_type_timestamp, theirs.content_type_timestamp),
    )


@given(entries, st.none() | entries)
def test_after_pushing_nothing_is_lacked(mine: Entry, theirs: Entry | None) -> None:
    sent = pushes([mine], [] if theirs is None else [theirs])
    after = merge(mine, theirs) if sent else theirs
    assert after is not None
    assert need_of(mine, after) is None
    assert pushes([mine], [after]) == []
