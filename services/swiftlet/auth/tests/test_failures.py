"""Guessing is slowed down, and who guesses locks out nobody else."""

from __future__ import annotations

import pytest

from swiftlet.auth.failures import ADDRESS_FACTOR, LoginLimit, subject_of
from swiftlet.errors import TooManyFailures


class _Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_the_limit_holds_within_the_window_and_opens_after_it() -> None:
    clock = _Clock()
    limit = LoginLimit(limit=3, window_s=60, clock=clock)
    for _ in range(3):
        limit.begin("a:user", "10.0.0.1")
        clock.now += 10
    with pytest.raises(TooManyFailures) as caught:
        limit.begin("a:user", "10.0.0.1")
    assert caught.value.retry_after_s == 30
    clock.now = 60.0
    limit.begin("a:user", "10.0.0.1")


def test_logins_at_the_same_time_count_before_they_have_failed() -> None:
    limit = LoginLimit(limit=3)
    attempts = [limit.begin("a:user", "10.0.0.1") for _ in range(3)]
    with pytest.raises(TooManyFailures):
        limit.begin("a:user", "10.0.0.1")
    limit.forgive(attempts[1])
    limit.begin("a:user", "10.0.0.1")


def test_the_user_elsewhere_and_others_at_the_address_go_on() -> None:
    limit = LoginLimit(limit=3)
    for _ in range(3):
        limit.begin("a:victim", "10.0.0.1")
    limit.begin("a:victim", "10.0.0.2")
    limit.begin("a:neighbour", "10.0.0.1")


def test_an_address_has_a_limit_for_all_users_together() -> None:
    limit = LoginLimit(limit=2)
    for number in range(2 * ADDRESS_FACTOR):
        limit.begin(f"a:user-{number}", "10.0.0.1")
    with pytest.raises(TooManyFailures):
        limit.begin("a:another", "10.0.0.1")
    limit.begin("a:another", "10.0.0.2")


def test_the_table_is_bounded() -> None:
    limit = LoginLimit(limit=1, max_subjects=100)
    for number in range(1000):
        limit.begin("a:user", f"10.0.{number >> 8}.{number & 255}")
    assert len(limit._counted) == 100
    limit.begin("a:user", "10.0.0.0")
    with pytest.raises(TooManyFailures):
        limit.begin("a:user", "10.0.3.231")


def test_addresses_of_one_ipv6_network_are_one() -> None:
    assert subject_of("2001:db8::1") == subject_of("2001:db8::ffff:2") != subject_of("2001:db8:0:1::1")
    assert subject_of("::ffff:10.0.0.1") != subject_of("::ffff:10.0.0.2")
    assert len(subject_of("x" * 1000)) == 64
