"""What of a round's work comes next."""

from __future__ import annotations

import pytest

from swiftlet.sync.failures.neighbours import node_of
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.task_queue import TaskQueue
from swiftlet.sync.planning.tasks import SessionTask
from swiftlet.sync.session.queue import HandoffReturn
from swiftlet.sync.tests.own_devices import own_device

SIZE = 4


@pytest.fixture
def own() -> DevicePartitions:
    """Of device 0 among four."""
    return own_device(4, devices=4)


def left_of(task_queue: TaskQueue) -> list[SessionTask]:
    found = []
    while (one := task_queue.next(alone=True)) is not None:
        assert isinstance(one, SessionTask)
        found.append(one)
    return found


def test_each_partition_once_and_so_many_at_a_time(own: DevicePartitions) -> None:
    task_queue = TaskQueue(lambda own: SIZE, ())
    task_queue.compare(own, 1, list(range(10)), differ=True, late=set())
    task_queue.compare(own, 2, [20, 21], differ=False, late=set())
    assert task_queue
    tasks = left_of(task_queue)
    assert not task_queue
    assert sorted(len(one.partitions) for one in tasks) == [2, 2, 4, 4]
    assert sorted(p for one in tasks if one.peer.id == 1 for p in one.partitions) == list(range(10))
    assert {(one.peer.id, one.differs) for one in tasks} == {(1, True), (2, False)}


def test_who_is_back_comes_first_and_what_a_former_life_did_last(own: DevicePartitions) -> None:
    for _ in range(20):
        task_queue = TaskQueue(lambda own: SIZE, [node_of(own.device_of(3))])
        for peer in (1, 2, 3):
            task_queue.compare(own, peer, [1, 2], differ=False, late={2})
        tasks = [(one.peer.id, one.partitions[0]) for one in left_of(task_queue)]
        assert tasks[:2] == [(3, 1), (3, 2)]
        assert {partition for _, partition in tasks[2:4]} == {1}


def test_what_comes_back_meanwhile_comes_first(own: DevicePartitions) -> None:
    task_queue = TaskQueue(lambda own: SIZE, ())
    for peer in (1, 2, 3):
        task_queue.compare(own, peer, [5], differ=False, late=set())
    task_queue.first |= {node_of(own.device_of(2))}
    assert left_of(task_queue)[0].peer.id == 2


def test_what_failed_is_tried_again_before_anything_else(own: DevicePartitions) -> None:
    task_queue = TaskQueue(lambda own: SIZE, ())
    failed = SessionTask(own, own.device_of(1), False, [7])
    task_queue.add_returns([(own, HandoffReturn(3, (1, 2, 3)))])
    task_queue.compare(own, 2, [5], differ=False, late=set())
    task_queue.retry(failed)
    assert task_queue.next(alone=True) is failed


def test_handoffs_are_returned_in_between_and_those_of_who_is_back_first(own: DevicePartitions) -> None:
    returns = [HandoffReturn(partition, (1, 2, 3)) for partition in range(8)]
    task_queue = TaskQueue(lambda own: SIZE, ())
    task_queue.compare(own, 1, list(range(8)), differ=False, late=set())
    task_queue.add_returns((own, handoff) for handoff in returns[1:])
    task_queue.add_returns_first([(own, returns[0])])
    assert task_queue.returns[0] == (own, returns[0])
    found = [task_queue.next(alone=True) for _ in range(10)]
    assert task_queue.next(alone=True) is None
    assert sum(isinstance(one, SessionTask) for one in found) == 2
    assert {one[1].partition for one in found if isinstance(one, tuple)} == set(range(8))


def test_small_pieces_are_gathered_while_others_are_at_work(own: DevicePartitions) -> None:
    task_queue = TaskQueue(lambda own: SIZE, ())
    task_queue.compare(own, 1, [1], differ=False, late=set(), gather=True)
    assert task_queue
    assert task_queue.next(alone=False) is None
    task_queue.compare(own, 1, [2, 3], differ=False, late=set(), gather=True)
    task_queue.compare(own, 2, [1], differ=False, late=set(), gather=True)
    assert sorted(sorted(one.partitions) for one in left_of(task_queue)) == [[1], [1, 2, 3]]
    assert not task_queue


def test_they_wait_for_no_more_than_a_session_holds_or_than_they_are_told_to(own: DevicePartitions) -> None:
    task_queue = TaskQueue(lambda own: SIZE, ())
    task_queue.compare(own, 1, [1, 2], differ=False, late=set(), gather=True)
    task_queue.compare(own, 1, [3, 4], differ=False, late=set(), gather=True)
    whole = task_queue.next(alone=False)
    assert isinstance(whole, SessionTask)
    assert sorted(whole.partitions) == [1, 2, 3, 4]
    task_queue.compare(own, 1, [5], differ=False, late=set(), gather=True)
    assert task_queue.next(alone=False) is None
    task_queue.ripen()
    late = task_queue.next(alone=False)
    assert isinstance(late, SessionTask)
    assert late.partitions == [5]
