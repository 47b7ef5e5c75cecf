"""Guessing is slowed down."""

from __future__ import annotations

import pytest

from swiftlet.auth.failures import FailureLimit
from swiftlet.errors import TooManyFailures


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_limit_holds_within_the_window_and_opens_after_it() -> None:
    clock = _Clock()
    limit = FailureLimit(limit=3, window_s=60, clock=clock)
    for _ in range(3):
        limit.admit("a:user", "10.0.0.1")
        limit.failed("a:user", "10.0.0.1")
        clock.now += 10
    for subject in ("a:user", "10.0.0.1"):
        with pytest.raises(TooManyFailures) as caught:
            limit.admit("somebody else", subject)
        assert caught.value.retry_after_s == 30
    limit.admit("somebody else")
    clock.now = 60.0
    limit.admit("a:user", "10.0.0.1")


def test_the_table_is_bounded() -> None:
    limit = FailureLimit(limit=1, max_subjects=100)
    for number in range(1000):
        limit.failed(str(number))
    assert len(limit._failures) == 100
    limit.admit("0")
    with pytest.raises(TooManyFailures):
        limit.admit("999")
