"""Timestamps: text forms, order, and a clock that never goes back."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from swiftlet.timestamp import MAX_VALUE, ZERO, Timestamp, TimestampClock

timestamps = st.integers(0, MAX_VALUE).map(Timestamp)


@given(timestamps)
def test_the_internal_form_loses_nothing(timestamp: Timestamp) -> None:
    assert Timestamp.parse(timestamp.internal) == timestamp
    assert str(timestamp) == timestamp.internal


@given(timestamps, timestamps)
def test_text_sorts_like_time(one: Timestamp, other: Timestamp) -> None:
    assert (one < other) == (one.internal < other.internal)


@given(timestamps)
def test_dates_are_those_of_http(timestamp: Timestamp) -> None:
    assert timestamp.http_date == formatdate(timestamp.http_seconds, usegmt=True)


def test_forms() -> None:
    timestamp = Timestamp.parse("1700000000.12345_01ff")
    assert timestamp.normal == "1700000000.12345"
    assert timestamp.isoformat == "2023-11-14T22:13:20.123450"
    assert timestamp.http_date == "Tue, 14 Nov 2023 22:13:21 GMT"
    assert timestamp.http_seconds == 1_700_000_001
    assert Timestamp.at(1_700_000_000).http_seconds == 1_700_000_000
    assert Timestamp.parse("12") == Timestamp.at(12)
    assert Timestamp.parse("12.5") == Timestamp.at(12.5)


@pytest.mark.parametrize(
    "text", ["", "x", "-1", "1.", "1.123456", "1_1", "1.0_ffff", "10000000000", "1700000000.1_01FF", " 1", "\u0661"]
)
def test_what_is_no_timestamp(text: str) -> None:
    with pytest.raises(ValueError):
        Timestamp.parse(text)


@pytest.mark.parametrize("value", [-1, MAX_VALUE + 1, 1 << 64])
def test_values_out_of_range(value: int) -> None:
    with pytest.raises(ValueError, match="out of range"):
        Timestamp(value)


class Wall:
    """A wall clock under the test's control, in nanoseconds."""

    now_ns = 1_700_000_000_000_000_000

    def __call__(self) -> int:
        return self.now_ns


def test_a_clock_never_repeats_itself_nor_goes_back() -> None:
    wall = Wall()
    clock = TimestampClock(wall, nonce=7)
    issued = [clock.next() for _ in range(1000)]
    wall.now_ns -= 3600 * 10**9
    issued += [clock.next() for _ in range(1000)]
    assert issued == sorted(set(issued))
    assert issued[0].seconds == 1_700_000_000
    assert clock.now() >= issued[-1]


def test_a_clock_passes_what_it_hears_of_but_not_the_far_future() -> None:
    wall = Wall()
    clock = TimestampClock(wall)
    ahead = Timestamp.at(1_700_000_030)
    assert clock.observe(ahead)
    assert clock.next() > ahead
    before = clock.next()
    assert not clock.observe(Timestamp.at(1_700_000_090))
    assert clock.next().ticks == before.ticks + 1
    assert clock.observe(ZERO)


def test_two_processes_hardly_ever_issue_the_same() -> None:
    wall = Wall()
    nonces = {TimestampClock(wall).next() for _ in range(100)}
    assert len(nonces) > 90
