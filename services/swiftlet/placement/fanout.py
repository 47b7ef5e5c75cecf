"""Runs plans: one write to all replicas at once, one read down a list of devices.

Trouble with a node (`NODE_TROUBLE`) makes the fan-out try the next device. Every other domain error is a decision of
the device (superseded, not empty, ...) and is returned as such. There is one exception: that a handoff does not have
something proves little, since it may not have been needed when that was written. The next device is asked; the
handoff's "not found" counts only if it holds a tombstone.

A device that may have missed a write raises `Unproved`: the next one is asked, and the caller decides what the answers
of the others are worth without it.

Fault model: any node may refuse, hang until the transport's deadline, or answer after the caller has gone. A write that
did not reach its quorum may nevertheless exist on some devices; the caller answers 503 and the replicas converge to
either outcome later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from swiftlet.boundaries.objects import SentWrite, WriteReply
from swiftlet.errors import (
    DeviceFailed,
    DiskFull,
    GuestRefused,
    NodeError,
    NotFound,
    SwiftletError,
    Unavailable,
    Unproved,
)
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.hedges import Hedged
from swiftlet.placement.plan import ReadPlan
from swiftlet.placement.quorums import Quorum
from swiftlet.placement.write_plan import WritePlan
from swiftlet.ring.model import Device

T = TypeVar("T")
E = TypeVar("E", bound=SwiftletError)

NODE_TROUBLE = (NodeError, DiskFull, DeviceFailed)
"""Errors after which another device is tried."""


@dataclass(slots=True)
class Outcome(Generic[T]):
    """The answers of a fan-out: results by replica index, refusals, and nodes in trouble.

    Errors are kept without their tracebacks. Those refer to the frames that hold the outcome, in a circle that only the
    garbage collector breaks, and then for thousands of outcomes at a time.
    """

    replies: list[tuple[int, Device, T]] = field(default_factory=list)
    refusals: list[tuple[Device, SwiftletError]] = field(default_factory=list)
    troubles: list[tuple[Device, SwiftletError]] = field(default_factory=list)
    unproved: list[tuple[Device, SwiftletError]] = field(default_factory=list)
    """Devices that may have missed something and therefore gave no answer."""

    def snapshot(self) -> Outcome[T]:
        """Return a copy that later answers do not change."""
        return Outcome(list(self.replies), list(self.refusals), list(self.troubles), list(self.unproved))

    def refused_by(self, kind: type[E]) -> list[E]:
        """Return the refusals of one kind."""
        return [error for _, error in self.refusals if isinstance(error, kind)]

    def add(self, other: Outcome[T]) -> None:
        """Add the answers of other devices."""
        self.replies += other.replies
        self.refusals += other.refusals
        self.troubles += other.troubles
        self.unproved += other.unproved

    @property
    def done(self) -> list[Device]:
        """The devices with results."""
        return [device for _, device, _ in self.replies]

    def unavailable(self, what: str, quorum: Quorum, live: Sequence[Device] = ()) -> Unavailable:
        """Return the 503 of this outcome, which names the replicas needed, the replicas that answered, and the other
        errors. `live` are further devices, which have answered so far.
        """
        answers = [*self.troubles, *self.unproved, *self.refusals]
        ailments = "; ".join(_ailment(device, error) for device, error in answers) or "nothing ails the others"
        answered = [*self.done, *live, *(device for device, _ in self.refusals)]
        return Unavailable(f"{what}: {quorum.told(answered)} ({ailments})")


def _ailment(device: Device, error: SwiftletError) -> str:
    """Return what ails a device. The transport's errors name it themselves."""
    text = str(error)
    return text if text.startswith(f"{device.address}: ") else f"{device.name}: {text}"


def _counts(device: Device, handoffs: frozenset[int], error: SwiftletError) -> bool:
    """Return whether a refusal counts; a handoff's "not found" does so only if it holds a tombstone."""
    return device.id not in handoffs or not isinstance(error, NotFound) or error.timestamp is not None


class SlotRunner(Generic[T]):
    """Runs one operation per slot of a write plan, replacing devices in trouble by the plan's spares."""

    def __init__(self, plan: WritePlan, health: NodeHealth) -> None:
        self._spares: list[Device] | None = None
        """Those that are left; searched for when the first one is needed."""
        self._plan = plan
        self._health = health
        self.outcome: Outcome[T] = Outcome()

    def _spare(self, device: Device) -> Device | None:
        """Return the next spare that may replace a device, which is then used."""
        if self._spares is None:
            self._spares = list(self._plan.spares)
        for spare in self._spares:
            if self._plan.stands_in(spare, device):
                self._spares.remove(spare)
                return spare
        return None

    async def _slot(self, index: int, operation: Callable[[int, Device], Awaitable[T]]) -> None:
        device: Device | None = self._plan.slots[index]
        while device is not None:
            try:
                reply = await operation(index, device)
            except NODE_TROUBLE as error:
                self._health.failed(device)
                self.outcome.troubles.append((device, error.with_traceback(None)))
                device = self._spare(device)
            except Unproved as error:
                self._health.unproved(device)
                self.outcome.unproved.append((device, error.with_traceback(None)))
                device = self._spare(device)
            except SwiftletError as error:
                self._health.succeeded(device)
                if _counts(device, self._plan.handoffs, error):
                    self.outcome.refusals.append((device, error.with_traceback(None)))
                if device.id not in self._plan.handoffs or not isinstance(error, NotFound):
                    return
                device = self._spare(device)
            else:
                self._health.succeeded(device)
                self.outcome.replies.append((index, device, reply))
                return

    async def run(
        self,
        operation: Callable[[int, Device], Awaitable[T]],
        post_quorum_wait_s: float,
        at_quorum: Callable[[], None] = lambda: None,
    ) -> Outcome[T]:
        """Run all slots at once; return when all ended, or `post_quorum_wait_s` after a quorum of successes.

        Slots still running then go on in the background: a slow replica gets its copy all the same. `at_quorum` is
        called when there is a quorum of successes and others are still to come.
        """
        slots = {asyncio.ensure_future(self._slot(i, operation)) for i in range(len(self._plan.slots))}
        pending = slots
        deadline: float | None = None
        clock = asyncio.get_running_loop().time
        try:
            while pending:
                if deadline is None and self._plan.quorum.met(self.outcome.done):
                    deadline = clock() + post_quorum_wait_s
                    at_quorum()
                wait_s = None if deadline is None else deadline - clock()
                if wait_s is not None and wait_s <= 0:
                    break
                done, pending = await asyncio.wait(pending, timeout=wait_s, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        except BaseException:
            for task in slots:
                task.cancel()
            raise
        for task in pending:
            _background.add(task)
            task.add_done_callback(_background.discard)
        return self.outcome.snapshot()


_background: set[asyncio.Future[None]] = set()
"""Tasks of slots that outlived their request, referenced here so that they are not collected while they run."""


async def drain_background(timeout_s: float) -> None:
    """Wait for slots that outlived their requests; for shutdown."""
    if _background:
        await asyncio.wait(_background, timeout=timeout_s)


async def write_all(
    plan: WritePlan,
    operation: Callable[[int, Device], Awaitable[T]],
    health: NodeHealth,
    post_quorum_wait_s: float = 0.5,
    at_quorum: Callable[[], None] = lambda: None,
) -> Outcome[T]:
    """Run `operation(replica index, device)` for every slot of the plan; see `SlotRunner.run`."""
    return await SlotRunner[T](plan, health).run(operation, post_quorum_wait_s, at_quorum)


async def finish_sent(
    plan: WritePlan,
    sent: SentWrite,
    operation: Callable[[int, Device], Awaitable[WriteReply]],
    replied: Callable[[int, Device, WriteReply], None],
    health: NodeHealth,
    post_quorum_wait_s: float = 0.5,
    at_quorum: Callable[[], None] = lambda: None,
) -> Outcome[WriteReply]:
    """Finish a write that was sent to the devices of all slots at once.

    When all have done it, `replied` is called for each. Otherwise `operation(replica index, device)` is run for all
    slots: it returns what such a device has answered, and asks those that replace devices.
    """
    try:
        left_s = await sent.settle(plan.quorum.count, post_quorum_wait_s)
        if left_s is not None:
            return await SlotRunner[WriteReply](plan, health).run(operation, left_s, at_quorum)
    except BaseException:
        sent.cancel()
        raise
    outcome = Outcome[WriteReply]()
    for index, (device, reply) in enumerate(zip(plan.slots, sent.replies, strict=True)):
        health.succeeded(device)
        replied(index, device, reply)
        outcome.replies.append((index, device, reply))
    return outcome


async def read_each(
    plan: ReadPlan,
    operation: Callable[[Device], Awaitable[T]],
    health: NodeHealth,
    good_enough: Callable[[Outcome[T]], bool],
    hedged: Hedged[T] | None = None,
) -> Outcome[T]:
    """Ask devices one after the other until `good_enough` is true of the outcome or no device is left. When one is
    late, `hedged` asks another at the same time.

    Raises GuestRefused, which no other device would decide otherwise.
    """
    outcome: Outcome[T] = Outcome()
    asked: list[int] = []
    for index, device in enumerate(plan):
        answered = device
        try:
            if hedged is None:
                reply = await operation(device)
            else:
                asked.append(device.id)
                answered, reply = await hedged.first(operation, device, asked)
        except NODE_TROUBLE as error:
            health.failed(device)
            outcome.troubles.append((device, error.with_traceback(None)))
        except Unproved as error:
            health.unproved(device)
            outcome.unproved.append((device, error.with_traceback(None)))
        except GuestRefused:
            # It is about the request, not about the device.
            raise
        except SwiftletError as error:
            health.succeeded(device)
            if _counts(device, plan.handoffs, error):
                outcome.refusals.append((device, error.with_traceback(None)))
        else:
            health.succeeded(answered)
            outcome.replies.append((index, answered, reply))
        if good_enough(outcome) or (outcome.unproved and index + 1 == len(plan.first)):
            # A handoff may be older than a primary that has missed something.
            break
    return outcome
