"""Executes a planned round: holds its sessions, several at a time, as many as load allows.

What a session is about, and what comes of its result, is said by the round's state.
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
"""Seconds between looks whether load lets one more session begin; for so long small pieces are gathered."""


class Executor:
    """The executor holds the sessions of one round."""

    def __init__(
        self,
        state: RoundState,
        driver: Driver,
        terms: Callable[[DevicePartitions], Terms],
        neighbours: Neighbours,
        pace: Pace,
    ) -> None:
        """`terms` gives the terms of a device's sessions."""
        self._state = state
        self._driver = driver
        self._terms = terms
        self._neighbours = neighbours
        self._pace = pace
        self._under_way = 0
        self._news = asyncio.Event()

    async def work(self) -> None:
        """Do everything that was planned."""
        self._state.begin()
        await asyncio.gather(*(self._worker(number) for number in range(self._pace.concurrency)))

    async def _worker(self, number: int) -> None:
        """One of those who hold sessions, which ends when there is nothing left to do and nobody is at work."""
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
        """Do the next piece of work; whether there was one."""
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
        """Run one session with a peer."""
        if self._state.may_hold(task):
            self._state.take_result(task, await self._driver.drive(task.own, *self._sessions(task)))

    def _sessions(self, task: SessionTask) -> list[Session]:
        """One about all partitions, or, where a message is about one of them, as many as there are."""
        terms = self._terms(task.own)
        make = differing_session if task.differs else neighbour_session
        if terms.mode.first is First.BATCH:
            return [make(terms, task.peer.id, task.partitions)]
        return [make(terms, task.peer.id, (partition,)) for partition in task.partitions]

    async def _return_handoff(self, own: DevicePartitions, handoff: HandoffReturn) -> None:
        """Run the session of one handoff with its primaries."""
        task = self._state.return_task(own, handoff)
        if task is not None:
            session = handoff_session(self._terms(own), handoff.partition, handoff.primaries, task.absent)
            self._state.take_returned(task, await self._driver.drive(own, session))
