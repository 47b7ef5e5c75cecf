"""The expirer: rounds over the tasks in the queue that are due, which delete objects that have expired.

Of an object the newest version counts that a quorum of its devices knows; it is deleted only if it expires at the
task's time. The tombstone has the timestamp of that version, so that whatever was written since, or is being written,
is newer and stays. But a tombstone that old might be forgotten before all devices have it, so it is never older than
the longest upload takes; only an upload that has taken longer counts as older than the deletion.

Fault model: an expirer may stop at any point, several may work on the same tasks, devices and databases may be away,
clocks may differ. A task leaves the queue only after its object is gone, or no longer expires at that time; until then
every round tries it again. A POST that extends the time may have come just before the object expired: so work begins
`delay_s` later, when such a POST is done and the other clocks have passed that time, too.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from enum import Enum

import structlog
from prometheus_client import Counter, Gauge

from swiftlet.errors import NotFound, Superseded, SwiftletError
from swiftlet.expiry.queue import ExpiryQueue
from swiftlet.expiry.ranks import rank_of
from swiftlet.expiry.tasks import CONTAINERS, Task, delete_at_of
from swiftlet.model import ObjectInfo
from swiftlet.placement.routing import AnyObjects
from swiftlet.settings.expirer import ExpirerSection
from swiftlet.timestamp import Timestamp

LONGEST_UPLOAD_S = 86_400.0
ALL_EVERY = 100
"""In one of so many rounds, the first one among them, all containers that the queue may have are asked: an account can
lack a container that could not be reported to it. In other rounds those are asked that the account lists.
"""

TASKS = Counter(
    "swiftlet_expirer_tasks_total",
    "Tasks looked at: expired (the object was deleted), moot (it was gone, or goes at another time now) or failed "
    "(tried again in the next round).",
    ["outcome"],
)
LAST_ROUND = Gauge("swiftlet_expirer_last_round_timestamp_seconds", "When the last round ended.")
LAG = Gauge(
    "swiftlet_expirer_lag_seconds",
    "How long the oldest task that the last round found had been due; 0 when it found none.",
)


_log = structlog.get_logger("expirer")


class TaskOutcome(Enum):
    """The outcome of a task."""

    EXPIRED = "expired"
    MOOT = "moot"
    FAILED = "failed"


@dataclass(slots=True)
class ExpiryReport:
    """The numbers of one round."""

    expired: int = 0
    moot: int = 0
    failed: int = 0
    lag_s: float = 0.0
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether the round had nothing to do."""
        return not (self.expired or self.moot or self.failed)

    def count(self, outcome: TaskOutcome) -> None:
        """Count a task with this outcome."""
        TASKS.labels(outcome.value).inc()
        setattr(self, outcome.value, getattr(self, outcome.value) + 1)


class Pace:
    """Limits what is begun to so much per second, evenly: tasks, or bytes."""

    def __init__(self, per_second: float, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """`per_second` is how much may be begun in a second; the first may be at once."""
        self._gap_s = 1.0 / per_second
        self._sleep = sleep
        self._next_s = 0.0

    async def wait(self, much: int = 1) -> None:
        """Wait until so much more may be begun."""
        now_s = time.monotonic()
        start_s = max(now_s, self._next_s)
        self._next_s = start_s + much * self._gap_s
        if start_s > now_s:
            await self._sleep(start_s - now_s)


class Expirer:
    """The rounds of one process."""

    def __init__(
        self,
        queue: ExpiryQueue,
        objects: AnyObjects,
        settings: ExpirerSection,
        nodes: Callable[[], Collection[str]],
        mine: Collection[str],
        reclaim_age_s: float,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`nodes` (`host:port`) have expirers beside them, and this one runs beside those in `mine`."""
        self._queue = queue
        self._objects = objects
        self._settings = settings
        self._nodes = nodes
        self._mine = frozenset(mine)
        self._tombstone_age_s = min(LONGEST_UPLOAD_S, reclaim_age_s / 2)
        self._now_s = now_s
        self._pace = Pace(settings.tasks_per_second)
        self._rounds = 0

    async def run_round(self) -> ExpiryReport:
        """Work on all due tasks that are ours. Raises Unavailable when the queue can't be listed."""
        report, began_s = ExpiryReport(), time.monotonic()
        nodes = self._nodes()
        # A container that is not there costs a question to each device that could have it.
        there = await self._queue.containers() if self._rounds % ALL_EVERY else CONTAINERS
        self._rounds += 1
        ranks = {container: rank_of(container, nodes, self._mine) for container in sorted(there)}
        ours = {container: rank for container, rank in ranks.items() if rank is not None}
        put_off = 0
        for container, rank in ours.items():
            try:
                await self._work_on(container, rank, report)
            except SwiftletError as error:
                put_off += 1
                if put_off == len(ours):
                    raise
                report.failed += 1
                _log.warning("an expirer queue is skipped until the next round", container=container, error=str(error))
        report.seconds = time.monotonic() - began_s
        LAST_ROUND.set_to_current_time()
        LAG.set(report.lag_s)
        return report

    async def _work_on(self, container: str, rank: int, report: ExpiryReport) -> None:
        due_s = self._now_s() - self._settings.delay_s - rank * self._settings.takeover_s
        after = ""
        while True:
            tasks, after = await self._queue.due(container, due_s, after)
            if tasks:
                report.lag_s = max(report.lag_s, self._now_s() - tasks[0].delete_at)
                await self._work_off(container, tasks, report)
            if not after:
                break

    async def _work_off(self, container: str, tasks: list[Task], report: ExpiryReport) -> None:
        """Work on a page of tasks, some at a time; finished tasks leave the queue even if the rest is interrupted."""
        done: list[Task] = []
        gate = asyncio.Semaphore(self._settings.concurrency)

        async def one(task: Task) -> None:
            async with gate:
                await self._pace.wait()
                outcome = await self._judge(task)
            report.count(outcome)
            if outcome is not TaskOutcome.FAILED:
                done.append(task)

        try:
            async with asyncio.TaskGroup() as group:
                for task in tasks:
                    group.create_task(one(task))
        finally:
            if done:
                await self._queue.remove(container, done)

    async def _judge(self, task: Task) -> TaskOutcome:
        try:
            info = await self._objects.head(task.path, task.policy, newest=True)
            if delete_at_of(info.metadata) != task.delete_at:
                return TaskOutcome.MOOT
            await self._objects.delete(task.path, task.policy, self._tombstone_of(info))
        except NotFound:
            return TaskOutcome.MOOT
        except Superseded as error:
            _log.info(
                "an object that was due has been written again and is not deleted",
                object=task.path.quoted,
                error=str(error),
            )
            return TaskOutcome.FAILED
        except SwiftletError as error:
            _log.warning("an object that is due could not be deleted yet", object=task.path.quoted, error=str(error))
            return TaskOutcome.FAILED
        return TaskOutcome.EXPIRED

    def _tombstone_of(self, info: ObjectInfo) -> Timestamp:
        return max(info.modified, Timestamp.at(max(0.0, self._now_s() - self._tombstone_age_s)))
