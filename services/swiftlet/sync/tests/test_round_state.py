"""What comes of the results of sessions, without holding any."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from swiftlet.errors import NodeError
from swiftlet.ring.model import Device
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.ledger import PartitionLedger
from swiftlet.sync.planning.planned_round import DevicePlan, LeftOut, PlannedRound
from swiftlet.sync.planning.progress import Progress
from swiftlet.sync.planning.report import RoundReport
from swiftlet.sync.planning.tasks import EVERYTHING, SessionTask
from swiftlet.sync.rounds.state import RoundState
from swiftlet.sync.session.effects import Repaired, Terms
from swiftlet.sync.session.queue import HandoffReturn
from swiftlet.sync.session.session_result import Outdated, SessionResult
from swiftlet.sync.session.topology import THOROUGH
from swiftlet.sync.tests.own_devices import own_device


class Executed:
    """The state of a round of device 0 among four, whose partitions are all to be compared with device 1."""

    def __init__(
        self, partitions: Sequence[int] = (), left_out: Sequence[int] = (), returns: Sequence[int] = ()
    ) -> None:
        self.own: DevicePartitions = own_device(6, devices=4)
        self.own.standing.begin(self.own.ring, (), 0, self.own.places.assigned)
        self.peer = self.own.device_of(1)
        self.shared = sorted(self.own.places.by_peer[1])
        self.ledger = PartitionLedger(self.own)
        self.ledger.open(1, [self.shared[index] for index in partitions], differ=False)
        for peer in (2, 3):
            self.ledger.note(peer, self.own.places.by_peer[peer], ())
        out = frozenset(self.shared[index] for index in left_out)
        plan = DevicePlan(
            self.ledger,
            out,
            (LeftOut(self.own, self.peer, out),) if out else (),
            tuple(HandoffReturn(partition, (1, 2, 3)) for partition in returns),
        )
        self.report = RoundReport()
        self.outdated = False
        self.neighbours = Neighbours(Observer("me:1", "me"), FailureTable(limit=1), self.answers, retry_s=60)
        self.neighbours.know(0, self.own.ring.devices)
        self.progress = Progress()
        terms = Terms(0, self.own.ring.version, THOROUGH)
        self.state = RoundState(
            PlannedRound(EVERYTHING, frozenset(), (plan,)),
            lambda own: terms,
            self.report,
            self.neighbours,
            self.progress,
            lambda own: self.outdated,
        )
        self.state.begin()

    async def answers(self, device: Device) -> bool:
        return False

    def next(self) -> SessionTask:
        task = self.state.task_queue.next(alone=True)
        assert isinstance(task, SessionTask)
        return task

    @property
    def done(self) -> object:
        report = self.progress.report()
        assert report is not None
        return report["done"]


def test_what_is_proved_is_done_and_checked() -> None:
    executed = Executed(range(8))
    task = executed.next()
    assert sorted(task.partitions) == executed.shared[:8]
    assert executed.state.may_hold(task)
    executed.state.take_result(task, SessionResult(proved=set(task.partitions)))
    assert not executed.state.task_queue
    assert executed.done == 8
    assert (executed.report.compared, executed.report.in_sync) == (8, 8)
    assert executed.own.standing.proved == set(task.partitions)


def test_what_a_session_did_not_tell_of_is_tried_in_smaller_ones_and_fails_alone() -> None:
    executed = Executed(range(16))
    task = executed.next()
    first = task.partitions[0]
    executed.state.take_result(task, SessionResult(proved={first}, error=NodeError("broken off")))
    sizes = []
    while executed.state.task_queue:
        small = executed.next()
        sizes.append(len(small.partitions))
        executed.state.take_result(small, SessionResult(error=NodeError("broken off")))
    assert sorted(sizes) == [1] * 15 + [2] * 7
    assert (executed.report.in_sync, executed.report.failed) == (1, 15)
    assert executed.done == 16
    assert executed.own.standing.proved == {first}


def test_what_is_left_to_do_after_a_repair_is_told_to_the_standing() -> None:
    executed = Executed([0, 1])
    task = executed.next()
    clean, lacking = sorted(task.partitions)
    result = SessionResult(repaired={clean: None, lacking: Repaired(1, lacking, behind=3)})
    executed.state.take_result(task, result)
    assert executed.own.standing.behind == 3
    assert clean in executed.own.standing.proved
    assert (executed.report.compared, executed.report.failed) == (2, 1)


@pytest.mark.parametrize("while_held", [False, True])
def test_under_a_newer_ring_partitions_are_given_up(while_held: bool) -> None:
    executed = Executed(range(4))
    task = executed.next()
    if while_held:
        executed.state.take_result(task, SessionResult(error=Outdated("newer")))
    else:
        executed.outdated = True
        assert not executed.state.may_hold(task)
    assert not executed.state.task_queue
    assert executed.done == 4
    assert executed.report.compared == 0


async def test_a_node_that_is_away_is_left_out_and_taken_up_when_it_is_back() -> None:
    executed = Executed(range(4))
    task = executed.next()
    executed.neighbours.failed(node_of(executed.peer))
    assert not executed.state.may_hold(task)
    assert not executed.state.task_queue
    assert executed.report.skipped == 4
    executed.neighbours.succeeded(node_of(executed.peer))
    executed.state.take_up()
    again = executed.next()
    assert sorted(again.partitions) == sorted(task.partitions)
    assert executed.state.may_hold(again)


async def test_what_the_plan_left_out_is_taken_up_as_well() -> None:
    executed = Executed(left_out=range(3))
    assert executed.done == 3
    assert not executed.state.task_queue
    executed.neighbours.failed(node_of(executed.peer))
    executed.neighbours.succeeded(node_of(executed.peer))
    executed.state.take_up()
    assert sorted(executed.next().partitions) == executed.shared[:3]


async def test_a_handoff_goes_without_who_is_away_and_again_to_them_when_they_are_back() -> None:
    executed = Executed(returns=[5])
    executed.neighbours.failed(node_of(executed.peer))
    pending = executed.state.task_queue.next(alone=True)
    assert isinstance(pending, tuple)
    task = executed.state.return_task(*pending)
    assert task is not None
    assert task.out == task.absent == {1}
    executed.state.take_returned(task, SessionResult())
    assert (executed.report.skipped, executed.report.in_sync) == (1, 2)
    executed.neighbours.succeeded(node_of(executed.peer))
    executed.state.take_up()
    assert executed.state.task_queue.next(alone=True) == pending
