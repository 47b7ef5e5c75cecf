"""The fan-out: quorums, spares, and what becomes of slow and failing nodes."""

from __future__ import annotations

import asyncio

import pytest

from swiftlet.boundaries.objects import WriteReply
from swiftlet.errors import DiskFull, NodeTimeout, NodeUnreachable, NotFound, Superseded, SwiftletError, Unavailable
from swiftlet.placement.fanout import Outcome, drain_background, finish_sent, read_each, write_all
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.outcomes import refusal
from swiftlet.placement.plan import ReadPlan
from swiftlet.placement.quorums import Quorum
from swiftlet.placement.tests.test_plan_health import DEVICES
from swiftlet.placement.write_plan import WritePlan
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp

PLAN = WritePlan(tuple(DEVICES[:3]), Quorum(2), lambda: (tuple(DEVICES[3:]), frozenset()))


async def test_all_slots_answer() -> None:
    async def operation(index: int, device: Device) -> int:
        return device.id

    outcome = await write_all(PLAN, operation, NodeHealth())
    assert sorted((i, r) for i, _, r in outcome.replies) == [(0, 0), (1, 1), (2, 2)]


async def test_a_failing_device_is_replaced_by_the_next_spare_and_remembered() -> None:
    health = NodeHealth(limit=1)

    async def operation(index: int, device: Device) -> int:
        if device.id == 1:
            raise NodeUnreachable("refused")
        if device.id == 3:
            raise DiskFull("full")
        return device.id

    outcome = await write_all(PLAN, operation, health)
    assert sorted((i, r) for i, _, r in outcome.replies) == [(0, 0), (1, 4), (2, 2)]
    assert [d.id for d, _ in outcome.troubles] == [1, 3]
    assert health.suppressed(DEVICES[1])


async def test_too_few_devices_name_what_ails_them() -> None:
    async def operation(index: int, device: Device) -> int:
        if device.id:
            raise NodeTimeout("silent for 10 s")
        return 0

    outcome = await write_all(PLAN, operation, NodeHealth())
    error = refusal(outcome, Quorum(2), "/a/c/o")
    assert isinstance(error, Unavailable)
    assert "2 replicas must answer, 1 did" in str(error)
    assert "d5: silent for 10 s" in str(error)


async def test_the_slowest_replica_is_waited_for_a_little_and_then_goes_on_alone() -> None:
    released = asyncio.Event()
    finished: list[int] = []

    async def operation(index: int, device: Device) -> int:
        if index == 2:
            await released.wait()
        finished.append(index)
        return index

    outcome = await write_all(PLAN, operation, NodeHealth(), post_quorum_wait_s=0.01)
    assert len(outcome.replies) == 2
    released.set()
    await drain_background(5)
    assert sorted(finished) == [0, 1, 2]
    assert len(outcome.replies) == 2, "an outcome does not change after it was handed out"


async def test_a_bug_in_an_operation_is_not_taken_for_a_node_in_trouble() -> None:
    async def operation(index: int, device: Device) -> int:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await write_all(PLAN, operation, NodeHealth())


async def test_considered_refusals_are_kept_apart_from_trouble() -> None:
    newer = Timestamp.at(9)

    async def operation(index: int, device: Device) -> int:
        if index < 2:
            raise Superseded("newer", newer)
        return 1

    outcome = await write_all(PLAN, operation, NodeHealth())
    error = refusal(outcome, Quorum(2), "/a/c/o")
    assert isinstance(error, Superseded)
    assert error.timestamp == newer


async def test_reads_go_down_the_list_until_one_has_it() -> None:
    asked: list[int] = []

    async def operation(device: Device) -> str:
        asked.append(device.id)
        if device.id == 0:
            raise NodeUnreachable("refused")
        if device.id == 1:
            raise NotFound("not here")
        return "here"

    plan = ReadPlan(DEVICES, Quorum(2))
    outcome: Outcome[str] = await read_each(plan, operation, NodeHealth(), lambda o: bool(o.replies))
    assert asked == [0, 1, 2]
    assert outcome.replies[0][2] == "here"
    assert len(outcome.refused_by(NotFound)) == 1


class Sent:
    """A write that was sent to all slots at once, with what their devices answer."""

    def __init__(self, *answers: WriteReply | SwiftletError, left_s: float | None = 0.5) -> None:
        self.answers = answers
        self.left_s = left_s
        self.cancelled = False

    @property
    def replies(self) -> list[WriteReply]:
        return [answer for answer in self.answers if isinstance(answer, WriteReply)]

    async def settle(self, quorum: int, patience_s: float) -> float | None:
        return self.left_s

    async def reply(self, index: int) -> WriteReply:
        answer = self.answers[index]
        if isinstance(answer, SwiftletError):
            raise answer
        return answer

    def cancel(self) -> None:
        self.cancelled = True


DONE = WriteReply(pending=True)


async def finished(sent: Sent, health: NodeHealth | None = None) -> tuple[Outcome[WriteReply], list[int], list[int]]:
    """Return the outcome, the slots that replied, and the devices that were asked one by one."""
    replied: list[int] = []
    asked: list[int] = []

    async def operation(index: int, device: Device) -> WriteReply:
        if device is PLAN.slots[index]:
            return await sent.reply(index)
        asked.append(device.id)
        return DONE

    outcome = await finish_sent(PLAN, sent, operation, lambda *reply: replied.append(reply[0]), health or NodeHealth())
    return outcome, replied, asked


async def test_a_write_that_was_sent_to_all_at_once_is_done_when_all_have_it() -> None:
    health = NodeHealth(limit=1)
    health.failed(DEVICES[1])
    outcome, replied, asked = await finished(Sent(DONE, DONE, DONE, left_s=None), health)
    assert [(index, device.id) for index, device, _ in outcome.replies] == [(0, 0), (1, 1), (2, 2)]
    assert (replied, asked) == ([0, 1, 2], [])
    assert not health.suppressed(DEVICES[1])


async def test_of_a_write_that_was_sent_to_all_at_once_devices_in_trouble_are_replaced() -> None:
    outcome, _, asked = await finished(Sent(DONE, NodeUnreachable("refused"), DONE))
    assert sorted((index, device.id) for index, device, _ in outcome.replies) == [(0, 0), (1, 3), (2, 2)]
    assert ([device.id for device, _ in outcome.troubles], asked) == ([1], [3])


async def test_who_does_not_want_a_write_any_more_ends_what_was_sent() -> None:
    sent = Sent(DONE, DONE, DONE)
    begun = asyncio.Event()

    async def for_ever(quorum: int, patience_s: float) -> float | None:
        begun.set()
        return float(await asyncio.get_running_loop().create_future())

    sent.settle = for_ever  # type: ignore[method-assign]
    waiting = asyncio.ensure_future(finished(sent))
    await begun.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert sent.cancelled
