"""Simulated time and messages: order, loss, doubling, cuts, deadlines, and the same again from the same seed."""

from __future__ import annotations

from random import Random

from swiftlet.errors import NodeTimeout, NotFound
from swiftlet.testing.sim.network import TIMEOUT_S, Network, Outcome, Timeline, Weather


def network(weather: Weather, unheard: float = 0.0) -> tuple[Timeline, Network]:
    timeline = Timeline()
    return timeline, Network(timeline, Random(1), weather, unheard)


def call(timeline: Timeline, net: Network, times: int = 1, source: int = 1, target: int = 2) -> list[Outcome]:
    found: list[Outcome] = []
    for number in range(times):
        net.call(source, target, lambda number=number: number, found.append)  # type: ignore[misc]
    timeline.run_until(timeline.now_s + 100.0, 10**6)
    return found


def test_events_happen_in_order_and_are_counted() -> None:
    timeline, seen = Timeline(), list[int]()
    timeline.after(2.0, lambda: seen.append(2))
    timeline.after(1.0, lambda: timeline.after(0.5, lambda: seen.append(1)))
    timeline.after(2.0, lambda: seen.append(3))
    assert timeline.run_until(2.0, 100)
    assert (seen, timeline.now_s, timeline.ran) == ([1, 2, 3], 2.0, 4)
    timeline.after(0.0, lambda: None)
    assert not timeline.run_until(3.0, 4)


def test_a_sound_network_answers_everything_once_and_not_always_in_order() -> None:
    found = call(*network(Weather(delay_s=0.5)), times=50)
    assert sorted(found) == list(range(50))  # type: ignore[type-var]
    assert found != list(range(50))


def test_what_is_lost_times_out() -> None:
    found = call(*network(Weather(loss=0.5)), times=100)
    lost = sum(isinstance(outcome, NodeTimeout) for outcome in found)
    assert len(found) == 100
    assert 50 < lost < 95


def test_only_proxies_messages_go_unheard() -> None:
    timeline, net = network(Weather(), unheard=1.0)
    assert call(timeline, net) == [0]
    assert isinstance(call(timeline, net, source=-1)[0], NodeTimeout)


def test_what_comes_twice_is_served_twice_and_answered_once() -> None:
    timeline, net = network(Weather(doubled=1.0))
    served, found = list[int](), list[Outcome]()
    net.call(1, 2, lambda: served.append(1), found.append)
    timeline.run_until(50.0, 100)
    assert (len(served), len(found)) == (2, 1)


def test_cuts_and_the_dead_are_silent_and_slow_is_too_late() -> None:
    timeline, net = network(Weather())
    net.parts = {1: 1}
    assert isinstance(call(timeline, net)[0], NodeTimeout)
    assert call(timeline, net, source=-1, target=1) == [0]
    net.parts = {}
    net.down = {2}
    assert isinstance(call(timeline, net)[0], NodeTimeout)
    net.down = set()
    net.slow = {2}
    late = call(timeline, net, times=40)
    assert any(isinstance(outcome, NodeTimeout) for outcome in late)
    assert TIMEOUT_S < 100.0


def test_an_error_travels_as_an_answer() -> None:
    timeline, net = network(Weather())
    found: list[Outcome] = []

    def refuse() -> None:
        raise NotFound("not here")

    net.call(1, 2, refuse, found.append)
    timeline.run_until(10.0, 100)
    assert isinstance(found[0], NotFound)


def test_what_befalls_messages_is_counted() -> None:
    timeline, net = network(Weather(loss=0.2, doubled=0.3, delay_s=0.5))
    call(timeline, net, times=200)
    assert net.messages > 200
    assert 0.1 < net.lost / net.messages < 0.3
    assert 0.1 < net.doubled / net.messages < 0.4
    assert net.overtaken > 100
    assert net.cut == 0
    net.down.add(2)
    call(timeline, net, times=20)
    assert net.cut >= 10
    timeline, net = network(Weather())
    for _ in range(20):
        call(timeline, net)
    assert (net.lost, net.doubled, net.overtaken, net.cut) == (0, 0, 0, 0)
