"""Leaving out and coming back, with a clock and a network of the tests' own."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

import pytest

from swiftlet.ring.model import Device
from swiftlet.sync.failures.neighbours import Neighbours, News, Notice, node_of
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable

LIMIT, INTERVAL_S = 10, 60.0


def device(number: int) -> Device:
    return Device(number, f"d{number}", f"h{number}", 6200, "d", "r", f"z{number}", f"n{number}", 1.0)


class Net:
    """Nodes that answer, or don't; a clock that is moved by hand; notices that go to everybody at once."""

    def __init__(self, size: int) -> None:
        self.now = 1000.0
        self.devices = [device(number) for number in range(size)]
        self.broken: set[tuple[int, int]] = set()
        self.probes: list[tuple[int, int]] = []
        self.told: list[tuple[int, Notice]] = []
        self.deaf = False
        self.views = [self._view(number) for number in range(size)]

    def _view(self, number: int) -> Neighbours:
        async def probe(asked: Device) -> bool:
            self.probes.append((number, asked.id))
            await asyncio.sleep(0)
            return (number, asked.id) not in self.broken

        me = Observer(node_of(self.devices[number]), f"z{number}")
        table = FailureTable(LIMIT, INTERVAL_S)
        view = Neighbours(me, table, probe, retry_s=2.0, clock=lambda: self.now, tell=self._telling(number))
        view.know(0, self.devices)
        return view

    def _telling(self, number: int) -> Callable[[Notice], None]:
        def tell(notice: Notice) -> None:
            self.told.append((number, notice))
            if not self.deaf:
                self._deliver(number, notice)

        return tell

    def _deliver(self, number: int, notice: Notice) -> None:
        by = self.views[number].me
        for view in self.views:
            if view.me != by:
                view.hear(notice, by)

    def node(self, number: int) -> str:
        return node_of(self.devices[number])

    def out(self, number: int) -> set[int]:
        return {other for other in range(len(self.devices)) if self.views[number].skips(self.node(other))}

    def try_(self, number: int, other: int, times: int = 1) -> None:
        """Compare with another one as a round does."""
        for _ in range(times):
            if self.views[number].skips(self.node(other)):
                return
            if (number, other) in self.broken:
                self.views[number].failed(self.node(other))
            else:
                self.views[number].succeeded(self.node(other))

    def kill(self, number: int) -> None:
        self.broken |= {(other, number) for other in range(len(self.devices))}

    def cut(self, number: int) -> None:
        """It reaches nobody, though notices (Redis) still come and go."""
        self.broken |= {(number, other) for other in range(len(self.devices))}


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_dead_node_is_left_out_by_all_once_one_gave_it_up_and_all_probed_it() -> None:
    net = Net(5)
    net.kill(4)
    net.try_(0, 4, LIMIT - 1)
    assert net.out(0) == set()
    net.try_(0, 4)
    assert net.out(0) == {4}
    await settle()
    assert [net.out(number) for number in range(4)] == [{4}] * 4
    assert sorted(net.probes) == [(1, 4), (2, 4), (3, 4)], "one request each, instead of ten"


async def test_two_voices_are_acted_on_at_once_and_then_looked_into() -> None:
    net = Net(5)
    net.broken |= {(0, 4), (1, 4)}
    net.deaf = True
    net.try_(0, 4, LIMIT)
    net.try_(1, 4, LIMIT)
    for number in (0, 1):
        net._deliver(number, Notice(News.FAILED, net.node(4)))
    assert net.out(2) == {4}, "before any answer of a probe"
    await settle()
    assert net.out(2) == set(), "this one reaches it: its replicas are kept equal by way of this one"
    assert net.out(0) == net.out(1) == {4}


async def test_one_voice_does_nothing_to_a_node_that_answers() -> None:
    net = Net(5)
    net.broken.add((0, 4))
    net.try_(0, 4, LIMIT)
    assert all(net.out(number) == set() for number in (1, 2, 3))
    await settle()
    assert all(net.out(number) == set() for number in (1, 2, 3))
    net.now += 5
    for number in (1, 2, 3):
        net.views[number].heard()
    await settle()
    assert len(net.probes) == 3, "and it is asked once, not with everything that is heard"


@pytest.mark.parametrize("size", [3, 5, 8])
async def test_an_observer_that_is_cut_off_declares_nobody_dead(size: int) -> None:
    net = Net(size)
    net.cut(0)
    for other in range(1, size):
        net.try_(0, other, LIMIT)
        await settle()
        assert all(net.out(number) == set() for number in range(1, size))
    cut_off = net.views[0]
    assert cut_off.cut_off
    assert (0, Notice(News.CUT_OFF, cut_off.me.name)) in net.told
    assert all(view.opinions.nodes(net.now) == set() for view in net.views[1:]), "what it said does not count"
    assert {found["verdict"] for found in cut_off.report()["nodes"].values()} == {"doubted"}  # type: ignore[attr-defined]
    # It is back as soon as it reaches anybody, not after the interval.
    net.broken.clear()
    net.now += 2.1
    assert net.out(0) == set(range(1, size))
    await settle()
    assert net.out(0) == set()
    assert cut_off.report()["cutOff"] is False
    assert cut_off.take_back() == {net.node(other) for other in range(1, size)}
    assert cut_off.take_back() == frozenset()


async def test_two_that_are_cut_off_together_convince_nobody() -> None:
    net = Net(6)
    for one, other in ((0, 1), (1, 0)):
        net.cut(one)
        net.broken.discard((one, other))
    for round_ in range(3):
        for one in (0, 1):
            for other in range(6):
                if other != one:
                    net.try_(one, other, LIMIT)
        await settle()
        net.now += 3
        assert all(net.out(number) == set() for number in range(2, 6)), round_
    assert net.views[0].cut_off
    assert net.views[1].cut_off


async def test_hearsay_alone_never_makes_a_majority() -> None:
    net = Net(5)
    net.deaf = True
    hanging = asyncio.Event()

    async def probe(asked: Device) -> bool:
        await hanging.wait()
        return True

    net.views[0]._probe = probe
    for liar in (1, 2):
        for victim in (3, 4, 5 - liar - 2):
            net._deliver(liar, Notice(News.FAILED, net.node(victim)))
    for victim in (1, 2):
        for liar in (3, 4):
            net._deliver(liar, Notice(News.FAILED, net.node(victim)))
    assert len(net.out(0)) == 2
    hanging.set()
    await settle()
    assert net.out(0) == set()


async def test_a_node_that_was_left_out_is_asked_now_and_then_and_comes_back_by_its_answer() -> None:
    net = Net(5)
    net.kill(4)
    net.try_(0, 4, LIMIT)
    net.deaf = True
    await settle()
    net.probes.clear()
    for _ in range(200):
        net.now += 1
        net.out(0)
        await settle()
    assert len(net.probes) == 100, "every 2 s, and nothing but that"
    net.broken.clear()
    net.now += INTERVAL_S * 2
    assert net.out(0) == {4}, "an interval that is over does not bring it back by itself"
    await settle()
    assert net.out(0) == set()
    assert net.views[0].take_back() == {net.node(4)}


async def test_who_joins_is_asked_by_all_at_once() -> None:
    net = Net(5)
    net.kill(4)
    net.try_(0, 4, LIMIT)
    await settle()
    net.broken.clear()
    net._deliver(4, Notice(News.JOINED, net.node(4)))
    await settle()
    assert [net.out(number) for number in range(4)] == [set()] * 4
    assert all(view.take_back() == {net.node(4)} for view in net.views[:4])


async def test_waiting_ends_when_a_node_is_back() -> None:
    net = Net(3)
    view = net.views[0]
    await view.wait_for_back(0.01)
    net.kill(2)
    net.try_(0, 2, LIMIT)
    net.broken.clear()
    waiting = asyncio.create_task(view.wait_for_back(30))
    await settle()
    assert not waiting.done()
    view.maybe_back(net.node(2))
    await waiting
    assert view.somebody_is_back


async def test_a_missed_heartbeat_and_a_failed_probe_are_enough() -> None:
    net = Net(5)
    net.deaf = True
    net.views[0].suspect(net.node(4))
    await settle()
    assert net.out(0) == set()
    net.kill(4)
    net.views[0].suspect(net.node(4))
    await settle()
    assert net.out(0) == {4}


async def test_what_was_known_in_a_former_life_counts() -> None:
    net = Net(5)
    net.kill(4)
    net.try_(0, 4, LIMIT)
    rows = net.views[0].table.rows(net.now)
    net.views[0] = net._view(0)
    net.views[0].adopt({**rows, "stranger:1": rows[net.node(4)]})
    assert net.out(0) == {4}
    net.views[0].know(0, net.devices[:4])
    assert net.views[0].report()["nodes"] == {}, "what left the rings is forgotten"


async def test_watching_probes_without_rounds_and_ends_its_probes_with_itself() -> None:
    net = Net(3)
    view = Neighbours(net.views[0].me, FailureTable(1, 0.01), net.views[0]._probe, retry_s=0.005)
    view.know(0, net.devices)
    net.kill(2)
    view.failed(net.node(2))
    net.broken.clear()
    watching = asyncio.create_task(view.watch())
    await view.wait_for_back(10)
    assert not view.skips(net.node(2))
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)


@pytest.mark.parametrize("seed", range(15))
async def test_random_faults_leave_nobody_out_for_good(seed: int) -> None:
    chooser = random.Random(seed)
    size = chooser.randint(3, 9)
    net = Net(size)
    for _ in range(60):
        match chooser.randrange(5):
            case 0:
                net.broken.add((chooser.randrange(size), chooser.randrange(size)))
            case 1:
                net.kill(chooser.randrange(size))
            case 2:
                net.cut(chooser.randrange(size))
            case 3:
                net.broken = {pair for pair in net.broken if chooser.random() < 0.5}
            case 4:
                net.deaf = chooser.random() < 0.3
        for one in range(size):
            for other in range(size):
                if one != other:
                    net.try_(one, other, chooser.choice([1, 3, LIMIT]))
        net.now += chooser.choice([0.1, 1, 30, 70])
        for view in net.views:
            view.heard()
        await settle()
    net.broken.clear()
    for _ in range(3):
        net.now += INTERVAL_S + 1
        for number in range(size):
            net.out(number)
        await settle()
    assert [net.out(number) for number in range(size)] == [set()] * size
    assert not any(view.cut_off for view in net.views)
