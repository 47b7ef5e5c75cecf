"""Rounds over all containers that have a copy.

There are no sync points that could be wrong: a round compares (`swiftlet.container_sync.comparing`), which is a proof,
and what a stop, a failure or a lost write leaves behind is found by the next round. A container that has not changed
since it was found equal to its copy costs two questions.

For each container all nodes are put into one order. The first one compares it every round. The second one compares it
every `takeover_s`, the third half as often: they find it equal, and do the first one's work while it is away. So a row
is sent by one node, and verified by others, without an election.

Fault model: databases, devices and other clusters may be away or slow; then the container is tried again after a pause
that grows. The process may be killed at any point: it keeps nothing, and its successor compares everything once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog
from prometheus_client import Counter, Gauge

from swiftlet.container_sync.comparing import Comparison, Copied, Here, Progress
from swiftlet.container_sync.copying import Copying
from swiftlet.container_sync.peer import Peer
from swiftlet.container_sync.realms import RealmsFile, Target
from swiftlet.container_sync.registry import Entry
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.settings.container_sync import ContainerSyncSection

SYNC_TO, SYNC_KEY = "X-Container-Sync-To", "X-Container-Sync-Key"
"""The metadata items of a container that has a copy."""
_FORGET_S = 3600.0
"""How long a container stays in the registry without a copy: one that is about to get it is added first."""
_SHOWN = 100
"""The number of containers in a report."""

COMPARED = Counter(
    "swiftlet_container_sync_containers_total",
    "Containers looked at: equal (to their copy), behind (something could not be brought yet) or failed (the other "
    "cluster, or a service of this one, could not be used).",
    ["outcome"],
)
LAG = Gauge(
    "swiftlet_container_sync_lag_seconds",
    "How long ago the container that is furthest behind was last found equal to its copy; 0 when there is none.",
)
LAST_ROUND = Gauge("swiftlet_container_sync_last_round_timestamp_seconds", "When the last round ended.")
_log = structlog.get_logger("container-sync")


@dataclass(slots=True)
class SyncReport:
    """The numbers of one round."""

    equal: int = 0
    behind: int = 0
    failed: int = 0
    lag_s: float = 0.0
    seconds: float = 0.0

    @property
    def clean(self) -> bool:
        """Whether all containers that were looked at are equal to their copies."""
        return not (self.behind or self.failed)

    def count(self, outcome: str) -> None:
        """Count a container with this outcome."""
        COMPARED.labels(outcome).inc()
        setattr(self, outcome, getattr(self, outcome) + 1)


class ContainerSync:
    """The rounds of one process."""

    def __init__(
        self,
        here: Here,
        realms: RealmsFile,
        connect: Callable[[Target, str], Peer],
        rank: Callable[[str], int | None],
        settings: ContainerSyncSection,
        clock: Callable[[], float] = time.monotonic,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`connect` returns the copy for a target and user key; `rank` tells by a container's path how many nodes come
        before this one, None when it never works on it. `clock` is in monotonic seconds.
        """
        self._here = here
        self._realms = realms
        self._connect = connect
        self._rank = rank
        self._settings = settings
        self._clock = clock
        self._now_s = now_s
        self._gate = asyncio.Semaphore(settings.concurrency)
        self._progress: dict[str, Progress] = {}

    async def run_round(self) -> SyncReport:
        """Compare all containers that are ours and due. Raises Unavailable when the registry can't be listed."""
        report, began = SyncReport(), self._clock()
        ours = await self._ours()
        for gone in self._progress.keys() - ours.keys():
            del self._progress[gone]
        gate = asyncio.Semaphore(self._settings.containers)

        async def one(entry: Entry, rank: int) -> None:
            async with gate:
                await self._look(entry, rank, report)

        async with asyncio.TaskGroup() as group:
            for entry, rank in ours.values():
                group.create_task(one(entry, rank))
        first = [known for name, known in self._progress.items() if ours[name][1] == 0]
        now = self._clock()
        report.lag_s = max((now - known.equal_at for known in first if known.problem), default=0.0)
        report.seconds = now - began
        LAG.set(report.lag_s)
        LAST_ROUND.set_to_current_time()
        return report

    async def _ours(self) -> dict[str, tuple[Entry, int]]:
        """Return the containers that this node works on, with the number of nodes before it."""
        ours: dict[str, tuple[Entry, int]] = {}
        after, more = "", True
        while more:
            entries, after = await self._here.registry.page(after)
            ranked = ((entry, self._rank(entry.name)) for entry in entries)
            ours |= {entry.name: (entry, rank) for entry, rank in ranked if rank is not None}
            more = bool(after)
        return ours

    def report(self) -> list[dict[str, object]]:
        """Return containers that are not equal to their copies, the furthest behind first."""
        now = self._clock()
        late = [(now - known.equal_at, name, known.problem) for name, known in self._progress.items() if known.problem]
        late.sort(reverse=True)
        return [{"container": name, "behindSeconds": round(age), "problem": text} for age, name, text in late[:_SHOWN]]

    async def _look(self, entry: Entry, rank: int, report: SyncReport) -> None:
        now, takeover_s = self._clock(), rank * self._settings.takeover_s
        known = self._progress.setdefault(entry.name, Progress(now, now + takeover_s))
        if now < known.not_before:
            return
        try:
            is_equal = await self._compared(entry, rank, known)
        except SwiftletError as error:
            self._failed(entry, known, str(error))
            report.count("failed")
            return
        known.failures, known.not_before = 0, self._clock() + takeover_s
        if is_equal is None:
            return
        if is_equal:
            known.equal_at = now
        known.problem = "" if is_equal else "not everything has been copied yet"
        report.count("equal" if is_equal else "behind")

    def _failed(self, entry: Entry, known: Progress, problem: str) -> None:
        known.failures += 1
        pause_s = min(self._settings.max_pause_s, self._settings.interval_s * 2 ** min(known.failures, 20))
        known.not_before = self._clock() + pause_s * random.uniform(0.75, 1)  # noqa: S311 - no secret
        if problem != known.problem:
            _log.warning("a container can't be copied now", container=entry.name, error=problem, pause_s=pause_s)
        known.problem = problem

    async def _compared(self, entry: Entry, rank: int, known: Progress) -> bool | None:
        """Bring a container to its copy; return whether they are equal now, None if it has no copy."""
        path, settings = entry.path, self._settings
        assert path.container is not None
        try:
            info = await self._here.listings.container_info(path.account, path.container)
        except NotFound:
            await self._forget(entry, rank, known)
            return None
        copied = self._copied(info.metadata)
        if copied is None:
            await self._forget(entry, rank, known)
            return None
        known.aim_at(copied)
        peer = self._connect(copied.target, copied.key)
        here, deadline = self._here, self._clock() + settings.container_time_s
        copying = Copying(
            path,
            info.policy,
            peer,
            here.objects,
            here.describe,
            self._gate,
            known.settled,
            lambda: self._clock() >= deadline,
        )
        comparison = Comparison(
            here=here,
            path=path,
            known=known,
            copying=copying,
            peer=peer,
            clock=self._clock,
            deadline=deadline,
            verify_s=settings.verify_s,
        )
        return await comparison.run()

    def _copied(self, metadata: Mapping[str, str]) -> Copied | None:
        """Return what a container says of its copy. Raises InvalidTarget when the realms have no such cluster."""
        text, key = metadata.get(SYNC_TO), metadata.get(SYNC_KEY)
        if not text or not key:
            return None
        return Copied(self._realms.realms.target(text), key)

    async def _forget(self, entry: Entry, rank: int, known: Progress) -> None:
        """Remove a container from the registry, if it has had the time to get its copy."""
        known.equal_at, known.problem = self._clock(), ""
        if rank == 0 and self._now_s() - entry.added.seconds > _FORGET_S:
            await self._here.registry.remove(entry)
