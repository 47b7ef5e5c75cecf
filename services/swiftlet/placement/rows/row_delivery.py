"""The delivery of one write's row to the container's replicas, and what follows from their answers.

Object servers keep the row pending with the write's record. It is sent from here once the write has its quorum and
never before: a row must not be listed for an object that may never exist. A device gets an acknowledgement when the
replicas of its share have answered that the row is durable; until then it keeps the row pending, and delivers it later.
The write itself only waits until the replicas list the row: what they lose in a power failure comes back from the
devices.

Fault model: container servers may be slow or gone. The write waits for them within bounds, answers that come later are
still acknowledged; a row that nobody took stays pending. This process may die at any moment: whatever it has not
acknowledged stays pending too. Object servers may answer after the write was answered, and get an acknowledgement all
the same.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

import structlog

from swiftlet.boundaries.objects import ContainerUpdate, WriteReply
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.model import ObjectRow
from swiftlet.placement.metrics import UPDATE_OUTCOMES
from swiftlet.placement.owed import ReadRow
from swiftlet.placement.quorums import write_quorum
from swiftlet.placement.rows.row_queues import RowQueues, Taken
from swiftlet.ring.model import Device

_log = structlog.get_logger("placement")


Acknowledge = Callable[[int, Device | None], None]
"""Called with a slot, and the device that has the row pending for it, when the device need not keep it any longer."""


class Answer(Enum):
    """A container replica's answer about a row."""

    TAKEN = "taken"
    """It lists the row, but may lose it in a power failure."""
    LISTED = "listed"
    """It lists the row durably."""
    REFUSED = "refused"
    """There is no such container."""
    SILENT = "silent"
    """The replica could not be asked, or gave no usable answer."""


class UpdateOutcome(Enum):
    """The fate of a row, as it is counted."""

    LISTED = "listed"
    QUEUED = "queued"
    """No replica has it; it stays pending at the devices."""
    NO_CONTAINER = "no-container"


_SHOWS = frozenset({Answer.TAKEN, Answer.LISTED})


def container_missing(answers: Mapping[int, Answer], replicas: int) -> bool:
    """Return whether most replicas of the container answered that it does not exist."""
    return sum(answer is Answer.REFUSED for answer in answers.values()) >= write_quorum(replicas)


def through(share: Collection[int], answers: Mapping[int, Answer], replicas: int) -> bool:
    """Return whether a device may drop a row, by the answers of the replicas of its share.

    Each of them has the row, or refused it while another one took it: it missed the container's creation, and gets the
    row with it from the others. When most refused, no device need keep the row.
    """
    if container_missing(answers, replicas):
        return True
    return Answer.LISTED in answers.values() and all(
        answers.get(replica) in {Answer.LISTED, Answer.REFUSED} for replica in share
    )


def outcome_of(answers: Mapping[int, Answer], replicas: int) -> UpdateOutcome:
    """Return the outcome for the row from the answers of all replicas."""
    if container_missing(answers, replicas):
        return UpdateOutcome.NO_CONTAINER
    return UpdateOutcome.LISTED if _SHOWS.intersection(answers.values()) else UpdateOutcome.QUEUED


@dataclass(frozen=True, slots=True)
class RowWaits:
    """How long a write waits for its row."""

    row_wait_s: float = 2.0
    """Seconds for which a write waits for its row altogether."""
    straggler_wait_s: float = 0.5
    """Seconds for which it waits for the remaining replicas of the container once most have answered."""


@dataclass(frozen=True, slots=True)
class Awaited:
    """The container replicas that a write waits for; the others get its row as well, when they get to it."""

    replicas: frozenset[int]
    are_most: Callable[[Collection[int]], bool]
    """Returns whether those of them that have answered are so many that the rest gets little more time."""
    or_all: bool = False
    """Whether all others are waited for as well while none of these lists the row."""


class RowDelivery:
    """The delivery of one row; it is created before the write, and told of each object server's answer.

    `finish_all` delivers the rows of several stored objects of one container instead.
    """

    def __init__(
        self,
        queues: RowQueues,
        acknowledge: Acknowledge,
        waits: RowWaits,
        share_of: Callable[[int], ContainerUpdate],
        replicas: int,
        late: Callable[[Collection[int]], None] = lambda _replicas: None,
        awaited: Awaited | None = None,
    ) -> None:
        """`share_of` a slot returns the container replicas it keeps the row for; `replicas` are all of them.

        `late` is called with the replicas that have not taken the row when the write is answered, while others have.
        `awaited` says which of them the write waits for; for all when it is None.
        """
        self._queues = queues
        self._tell = acknowledge
        self._waits = waits
        self._share_of = share_of
        self._replicas = replicas
        self._late = late
        self._awaited = awaited or Awaited(frozenset(range(replicas)), lambda said: len(said) >= write_quorum(replicas))
        self._answers: dict[int, Answer] = {}
        self._asked: dict[int, asyncio.Future[Taken]] = {}
        self._pending: list[tuple[int, Device | None, tuple[int, ...]]] = []
        self._waiting: asyncio.Future[None] | None = None
        self._ends: asyncio.TimerHandle | None = None
        self._mostly = False
        """Whether most replicas have answered."""

    def share(self, slot: int) -> ContainerUpdate:
        """Return the container replicas for which a slot keeps the row."""
        return self._share_of(slot)

    def replied(self, slot: int, device: Device, reply: WriteReply) -> None:
        """Note that an object server has made the write durable; also possible after the write was answered."""
        if reply.pending:
            self._pending.append((slot, device, self._share_of(slot).replicas))
        self._acknowledge()

    def begin(self, row: ObjectRow) -> None:
        """Send the row to the container's replicas; called when the write has its quorum."""
        if self._pending:
            self._send((row,))

    @property
    def is_listed(self) -> bool:
        """Return whether some replica of the container lists the row durably."""
        return Answer.LISTED in self._answers.values()

    async def finish_all(self, rows: Sequence[ObjectRow], slots: int) -> bool:
        """Deliver the pending rows of objects that devices in all slots have stored; return whether the container is
        missing.
        """
        self._pending = [(slot, None, self._share_of(slot).replicas) for slot in range(slots)]
        return await self._finish(rows)

    async def finish(self, row: ObjectRow | None, read: ReadRow | None = None) -> bool:
        """Deliver the row if that has not begun, and wait for the answers; return whether the container is missing.

        It is called when no further device is waited for. Without a `row` it is `read` from devices that have it
        pending, if there are any.
        """
        if row is None and read is not None and self._pending and not self._is_missing():
            row = await self._read(read)
        return await self._finish(() if row is None else (row,))

    async def _finish(self, rows: Sequence[ObjectRow]) -> bool:
        pending = bool(self._pending) or bool(self._asked)
        if not self._is_missing():
            if rows:
                self._send(rows)
            await self._wait()
        if _SHOWS.intersection(self._answers.values()):
            self._late([one for one in range(self._replicas) if self._answers.get(one) not in _SHOWS])
        if pending:
            UPDATE_OUTCOMES.labels(outcome_of(self._answers, self._replicas).value).inc(max(len(rows), 1))
        return self._is_missing()

    def _is_missing(self) -> bool:
        return container_missing(self._answers, self._replicas)

    async def _read(self, read: ReadRow) -> ObjectRow | None:
        try:
            return await read([device for _, device, _ in self._pending if device is not None])
        except SwiftletError as error:
            _log.info("a container update stays pending, because its row could not be read", error=str(error))
            return None

    def _send(self, rows: Sequence[ObjectRow]) -> None:
        place = self._share_of(0)
        pending = {replica for _, _, share in self._pending for replica in share}
        for replica in range(self._replicas):
            if replica in self._answers or replica in self._asked:
                continue
            # A row that no device has pending must be durable when the write is answered.
            future = self._queues.submit_all(
                place.account, place.container, replica, rows, self._waits.row_wait_s, later=replica in pending
            )
            self._asked[replica] = future
            future.add_done_callback(functools.partial(self._answered, replica))

    def _answered(self, replica: int, future: asyncio.Future[Taken]) -> None:
        answer = Answer.SILENT
        error = None if future.cancelled() else future.exception()
        if isinstance(error, NotFound):
            answer = Answer.REFUSED
        elif isinstance(error, SwiftletError):
            _log.info("a container update did not reach a replica of the container", replica=replica, error=str(error))
        elif error is not None:
            _log.error("a container update did not reach a replica of the container", replica=replica, exc_info=error)
        elif not future.cancelled():
            durable = future.result()
            answer = Answer.LISTED if durable is None else Answer.TAKEN
            if durable is not None:
                durable.add_done_callback(functools.partial(self._durable, replica))
        self._learn(replica, answer)
        self._acknowledge()

    def _durable(self, replica: int, future: asyncio.Future[None]) -> None:
        """Note that a replica has made the row durable; when that can't be known, the row stays pending."""
        if future.cancelled() or future.exception() is not None:
            _log.info(
                "a container update stays pending, because a replica may not have it durably",
                replica=replica,
                error=str(None if future.cancelled() else future.exception()),
            )
            return
        self._learn(replica, Answer.LISTED)
        self._acknowledge()

    def _learn(self, replica: int, answer: Answer) -> None:
        """Record a replica's answer, unless a previous answer says more."""
        known = self._answers.get(replica, Answer.SILENT)
        if known is Answer.SILENT or (known is Answer.TAKEN and answer is not Answer.SILENT):
            self._answers[replica] = answer
            self._look()

    def _acknowledge(self) -> None:
        """Acknowledge the row to the devices that need not keep it any longer."""
        waiting: list[tuple[int, Device | None, tuple[int, ...]]] = []
        for slot, device, share in self._pending:
            if through(share, self._answers, self._replicas):
                self._tell(slot, device)
            else:
                waiting.append((slot, device, share))
        self._pending = waiting

    async def _wait(self) -> None:
        """Wait for the answers to what was sent, within the bounds."""
        if not self._unanswered():
            return
        loop = asyncio.get_running_loop()
        self._waiting = loop.create_future()
        self._ends = loop.call_later(self._waits.row_wait_s, self._wait_no_more)
        self._look()
        try:
            await self._waiting
        finally:
            self._ends.cancel()
            self._waiting = None

    def _look(self) -> None:
        """End the wait when all have answered; shorten it when most have."""
        if self._waiting is None or self._ends is None:
            return
        if not self._unanswered():
            self._wait_no_more()
            return
        said = [one for one in self._awaited.replicas if self._answers.get(one, Answer.SILENT) is not Answer.SILENT]
        if not self._mostly and self._awaited.are_most(said):
            self._mostly = True
            loop = asyncio.get_running_loop()
            ends_s = min(self._ends.when(), loop.time() + self._waits.straggler_wait_s)
            self._ends.cancel()
            self._ends = loop.call_at(ends_s, self._wait_no_more)

    def _wait_no_more(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _unanswered(self) -> bool:
        """Whether an answer is still unknown: a future may be done before its result has been noted."""
        awaited = self._awaited.replicas
        if self._awaited.or_all and not any(self._answers.get(replica) in _SHOWS for replica in awaited):
            awaited = frozenset(self._asked)
        return any(replica in awaited and replica not in self._answers for replica in self._asked)
