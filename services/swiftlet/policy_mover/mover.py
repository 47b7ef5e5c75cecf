"""Moves many containers: some at a time are announced and wait, and one after the other has its objects moved.

A round goes through all containers that there are to move. What fails is tried again after a pause, and again in the
next round; what does not succeed is named at the end, and nothing is lost by that: the objects are where they were. A
container whose objects have been moved waits a day for what somebody may still be uploading, and is settled by a later
round, perhaps of another process.

Fault model: that of `phases` and `container_pass`. Nothing is kept here but what this process has tried.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass

from swiftlet.errors import NotFound, SwiftletError
from swiftlet.model import DatabaseName
from swiftlet.policy_mover.container_pass import ContainerPass, PassReport
from swiftlet.policy_mover.phases import CanNotMove, Phases, Standing
from swiftlet.policy_moves import Phase, PolicyMove

TOGETHER = 100
"""Containers of a move that have been begun and are not moved yet, at most: reads in them ask both policies."""
MAX_TOGETHER = 10_000
"""The highest number of containers that a mover can be told to have begun at the same time."""
TRIES = 18
"""How often a container is tried in one round: for longer than a write with erasure coding, which a mover that was
killed has left behind, may be undecided.
"""
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 60.0
"""The pause before a container is tried again doubles up to this."""

Listed = Callable[[], AsyncIterator[DatabaseName]]
"""Lists the containers of a move, anew at each call."""
MakePass = Callable[[DatabaseName, PolicyMove, PassReport], ContainerPass]


@dataclass(frozen=True, slots=True)
class Told:
    """What is new about a container: where it stands, what a pass has done, or what went wrong."""

    container: DatabaseName
    standing: Standing | None = None
    report: PassReport | None = None
    problem: str | None = None


@dataclass(slots=True)
class Round:
    """How far containers have come by one round."""

    settled: int = 0
    copied: int = 0
    """Containers whose objects have been moved, and which wait to be settled."""
    failed: int = 0
    settles_s: float = 0.0
    """When the last of those that wait may be settled, in seconds since the epoch."""


@dataclass(slots=True)
class _Job:
    container: DatabaseName
    wake_s: float = 0.0
    tries: int = 0
    phase: Phase | None = None


class Mover:
    """Moves containers from a policy to another one."""

    def __init__(
        self,
        phases: Phases,
        make_pass: MakePass,
        tell: Callable[[Told], None],
        now_s: Callable[[], float],
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        together: int = TOGETHER,
        again: bool = False,
    ) -> None:
        """`tell` is called as soon as something is new. `now_s` returns seconds since the epoch. With `again` settled
        containers are looked through, too: their listings may have got rows late.
        """
        self._phases, self._make_pass, self._tell = phases, make_pass, tell
        self._now_s, self._sleep, self._together, self._again = now_s, sleep, together, again
        self.running: tuple[DatabaseName, PassReport] | None = None
        """The pass that runs."""

    async def run(self, listed: Listed, *, leave: bool) -> Round:
        """Move all containers; return the last round. With `leave` those stay in `moving` that can't be settled yet,
        otherwise they are waited for.
        """
        while True:
            done = await self.round(listed())
            if leave or done.failed or not done.copied:
                return done
            await self._until(done.settles_s)

    async def round(self, containers: AsyncIterator[DatabaseName]) -> Round:
        """Bring each container as far as it can come now."""
        done, jobs, more = Round(), list[_Job](), True
        while more or jobs:
            while more and len(jobs) < self._together:
                try:
                    jobs.append(_Job(await anext(containers)))
                except StopAsyncIteration:
                    more = False
            for job in [job for job in jobs if job.wake_s <= self._now_s()]:
                if await self._is_done(job, done):
                    jobs.remove(job)
            if len(jobs) >= self._together or not more:
                await self._until(min((job.wake_s for job in jobs), default=0.0))
        return done

    async def _until(self, wake_s: float) -> None:
        if (left_s := wake_s - self._now_s()) > 0:
            await self._sleep(left_s)

    async def _is_done(self, job: _Job, done: Round) -> bool:
        """Work on a container; return whether it is done with for this round."""
        try:
            return await self._work(job, done)
        except NotFound:
            return True  # It was deleted.
        except CanNotMove as problem:
            self._tell(Told(job.container, problem=str(problem)))
            done.failed += 1
            return True
        except SwiftletError as problem:
            return self._failed(job, done, str(problem))

    def _failed(self, job: _Job, done: Round, problem: str) -> bool:
        self._tell(Told(job.container, problem=problem))
        job.tries += 1
        job.wake_s = self._now_s() + min(LONGEST_PAUSE_S, FIRST_PAUSE_S * 2 ** (job.tries - 1))
        done.failed += job.tries == TRIES
        return job.tries == TRIES

    async def _work(self, job: _Job, done: Round) -> bool:
        standing = await self._phases.advance(job.container)
        if standing.phase is not job.phase:
            job.phase, job.tries = standing.phase, 0
            self._tell(Told(job.container, standing))
        if standing.phase is Phase.SETTLED and not self._again:
            done.settled += 1
            return True
        if standing.phase is Phase.SETTLED:
            return await self._pass(job, standing, done)
        if standing.phase is Phase.ANNOUNCED or not standing.is_over(self._now_s()):
            # One that has just been set is looked at again at once, whether all replicas show it.
            is_known = standing.move is not None and standing.move.known is not None
            job.wake_s = standing.next_s if is_known else 0.0
            return False
        return await self._pass(job, standing, done)

    async def _pass(self, job: _Job, standing: Standing, done: Round) -> bool:
        """Move the objects, or make sure that there are none left."""
        assert standing.move is not None
        report, settles_s = PassReport(), standing.settles_s
        may_settle = settles_s is not None and self._now_s() >= settles_s
        self.running = job.container, report
        try:
            await self._make_pass(job.container, standing.move, report).move()
        finally:
            self.running = None
            self._tell(Told(job.container, standing, report))
        if not report.is_whole:
            return self._failed(job, done, f"{job.container}: {_told(report)}")
        if settles_s is None:
            done.settled += 1
            return True
        if not may_settle:
            done.copied += 1
            done.settles_s = max(done.settles_s, settles_s)
            return True
        if report.found_nothing:
            self._tell(Told(job.container, await self._phases.settle(job.container)))
            done.settled += 1
            return True
        job.tries = 0
        return False


def _told(report: PassReport) -> str:
    """Return why a pass was not whole."""
    told = [f"{len(report.failed)} objects could not be moved"] if report.failed else []
    told += [f"{device}: {why}" for device, why in report.unheard.items()]
    return "; ".join(told)
