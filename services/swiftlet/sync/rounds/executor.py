"""Executes a planned round: holds its sessions, several at a time, as many as the load allows.

The round's state decides what a session is about, and what follows from its result.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from swiftlet.sync.asking.driver import Driver
from swiftlet.sync.failures.neighbours import Neighbours
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.tasks import SessionTask
from swiftlet.sync.rounds.state import RoundState
from swiftlet.sync.session.effects import Session, Terms
from swiftlet.sync.session.handoff import handoff_session
from swiftlet.sync.session.neighbour import differing_session, neighbour_session
from swiftlet.sync.session.queue import HandoffReturn
from swiftlet.sync.session.topology import First

_LOOK_S = 0.05
"""Seconds between two looks at whether the load allows one more session; small groups of partitions are gathered as
long.
"""


class Executor:
    """Holds the sessions of one round."""

    def __init__(
        self,
        state: RoundState,
        driver: Driver,
        terms: Callable[[DevicePartitions], Terms],
        neighbours: Neighbours,
        pace: Pace,
    ) -> None:
        """`terms` returns the terms of a device's sessions."""
        self._state = state
        self._driver = driver
        self._terms = terms
        self._neighbours = neighbours
        self._pace = pace
        self._under_way = 0
        self._news = asyncio.Event()

    async def work(self) -> None:
        """Do all work of the plan, and return when nothing is left."""
        self._state.begin()
        await asyncio.gather(*(self._worker(number) for number in range(self._pace.concurrency)))

    async def _worker(self, number: int) -> None:
        """Hold sessions one after the other, until no work is left and no session is running that could leave some."""
        while True:
            if self._neighbours.somebody_is_back:
                self._state.take_up()
                self._news.set()
            began = False
            if number < self._pace.allowed:
                began = await self._next()
            if began:
                continue
            if not (self._under_way or self._state.task_queue):
                self._news.set()
                return
            self._news.clear()
            try:
                async with asyncio.timeout(_LOOK_S):
                    await self._news.wait()
            except TimeoutError:
                self._state.task_queue.ripen()

    async def _next(self) -> bool:
        """Do the next piece of work; return whether there was one."""
        work = self._state.task_queue.next(alone=not self._under_way)
        if work is None:
            return False
        await self._at_work(self._hold(work) if isinstance(work, SessionTask) else self._return_handoff(*work))
        return True

    async def _at_work(self, work: Awaitable[None]) -> None:
        self._under_way += 1
        try:
            await work
        finally:
            self._under_way -= 1
            self._news.set()

    async def _hold(self, task: SessionTask) -> None:
        """Hold a session with a peer, unless the state of the round says that it must not be held now."""
        if self._state.may_hold(task):
            self._state.take_result(task, await self._driver.drive(task.own, *self._sessions(task)))

    def _sessions(self, task: SessionTask) -> list[Session]:
        """Return one session about all partitions, or one for each where messages are about single partitions."""
        terms = self._terms(task.own)
        make = differing_session if task.differs else neighbour_session
        if terms.mode.first is First.BATCH:
            return [make(terms, task.peer.id, task.partitions)]
        return [make(terms, task.peer.id, (partition,)) for partition in task.partitions]

    async def _return_handoff(self, own: DevicePartitions, handoff: HandoffReturn) -> None:
        """Hold the session that returns one handoff to its primaries."""
        task = self._state.return_task(own, handoff)
        if task is not None:
            session = handoff_session(self._terms(own), handoff.partition, handoff.primaries, task.absent)
            self._state.take_returned(task, await self._driver.drive(own, session))
