"""Rebalances beside the reconciles: ordered once, taken by who ordered it, made anew when it is out of date."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import pytest

from swiftlet.ring import RingBuilder
from swiftlet_operator.rebalances import Rebalances
from swiftlet_operator.reconcile import Key
from swiftlet_operator.rings import AT_WORK, Outcome, Rebalance, Shape, Task, Wanted, advance

KEY, OTHER = Key("data", "store"), Key("data", "other")
NOW = 1_800_000_000
WAIT_S = 20.0


def task(count: int = 3, ring: str = "object-0") -> Task:
    """A ring of small devices."""
    wanted = tuple(Wanted(f"p-{i}/d0", f"p-{i}", 6200, "d0", "r", 1.0, f"z{i}", f"n{i}") for i in range(count))
    return Task(ring, Shape(4, 3, 1, 0.1), wanted)


class Woken:
    """Who was woken, to be waited for."""

    def __init__(self) -> None:
        self.keys: list[Key] = []
        self._more = threading.Semaphore(0)

    def __call__(self, key: Key) -> None:
        self.keys.append(key)
        self._more.release()

    def wait(self) -> None:
        """For one more."""
        assert self._more.acquire(timeout=WAIT_S)


@pytest.fixture
def woken() -> Woken:
    """Nobody yet."""
    return Woken()


@pytest.fixture
def rebalances(woken: Woken) -> Iterator[Rebalances]:
    """Rebalances that end with the test."""
    made = Rebalances(woken)
    yield made
    made.close()


def test_a_first_ring_is_ordered_and_then_taken(rebalances: Rebalances, woken: Woken) -> None:
    waiting = advance(task(), None, NOW, rebalances.of(KEY))
    assert (waiting.saved, waiting.waiting) == (None, AT_WORK)

    woken.wait()

    made = advance(task(), None, NOW + 1, rebalances.of(KEY))
    assert made.saved is not None
    assert replace(made, saved=None) == replace(advance(task(), None, NOW), saved=None)
    # Whoever lost it, for his write failed, orders another.
    assert advance(task(), None, NOW + 2, rebalances.of(KEY)).waiting == AT_WORK


def test_while_it_is_made_the_ring_stays_as_it_is(rebalances: Rebalances, woken: Woken) -> None:
    saved = advance(task(), None, NOW).saved
    later = NOW + 2 * 3600

    waiting = advance(task(4), saved, later, rebalances.of(KEY))
    woken.wait()
    made = advance(task(4), saved, later, rebalances.of(KEY))

    assert (waiting.saved, waiting.version, waiting.devices, waiting.waiting) == (saved, 1, 3, AT_WORK)
    assert (made.version, made.devices) == (2, 4)


def test_what_was_ordered_for_another_task_or_cluster_is_not_taken(rebalances: Rebalances, woken: Woken) -> None:
    advance(task(3), None, NOW, rebalances.of(KEY))
    woken.wait()

    assert advance(task(3), None, NOW, rebalances.of(OTHER)).waiting == AT_WORK
    assert advance(task(4), None, NOW, rebalances.of(KEY)).waiting == AT_WORK
    woken.wait()
    woken.wait()
    assert advance(task(4), None, NOW, rebalances.of(KEY)).devices == 4
    assert advance(replace(task(3), hurry=True), None, NOW, rebalances.of(OTHER)).devices == 3


def test_a_cluster_is_woken_when_the_last_of_its_rings_is_made(rebalances: Rebalances, woken: Woken) -> None:
    gate = Gate()
    ask = rebalances.of(KEY)
    for ring in ("account", "container"):
        assert ask(gate.due(ring)) is None
    gate.open.release()
    assert gate.entered.acquire(timeout=WAIT_S)
    assert gate.entered.acquire(timeout=WAIT_S)
    assert woken.keys == []
    gate.open.release()
    woken.wait()

    assert woken.keys == [KEY]
    assert ask(gate.due("account")) is not None


def test_a_rebalance_that_fails_fails_who_comes_for_it(rebalances: Rebalances, woken: Woken) -> None:
    ask = rebalances.of(KEY)
    assert ask(Broken(task(), RingBuilder(4, 3, 1), None, True, NOW)) is None
    woken.wait()

    with pytest.raises(ZeroDivisionError):
        ask(Broken(task(), RingBuilder(4, 3, 1), None, True, NOW))
    assert ask(Broken(task(), RingBuilder(4, 3, 1), None, True, NOW)) is None


class Broken(Rebalance):
    """Fails in a way that nobody foresaw."""

    def run(self) -> Outcome:
        raise ZeroDivisionError


class Gate:
    """Rebalances that wait until they are let through, one by one."""

    def __init__(self) -> None:
        self.open = threading.Semaphore(0)
        self.entered = threading.Semaphore(0)

    def due(self, ring: str) -> Rebalance:
        """One that waits."""
        gate = self

        class Waiting(Rebalance):
            def run(self) -> Outcome:
                gate.entered.release()
                assert gate.open.acquire(timeout=WAIT_S)
                return Outcome(self.task.ring, None)

        return Waiting(task(ring=ring), RingBuilder(4, 3, 1), None, True, NOW)
