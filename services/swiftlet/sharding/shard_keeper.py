"""Decides which containers are split, and when: the background work of sharding on one device.

The first holder of a container that finds too many rows in one of its databases splits it. The second one does so if
that is still so after `takeover_s`, the third after twice that. There is no election: two that split at the same time
make one shard too many. Each holder then moves its own replica's rows.

Fault model: as in `swiftlet.sharding.sharded`. What can't be done in a round is done in a later one; a round of one
container waits for the trouble of others no longer than the transport's deadlines.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from heapq import nlargest

from prometheus_client import Counter, Gauge

from swiftlet.errors import NotFound, StoreFormatError, SwiftletError
from swiftlet.listing import shards
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.shards import Layout, shard_name
from swiftlet.listing.writer import Summary
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, ShardLook
from swiftlet.sharding.shard_moves import ShardMover
from swiftlet.sharding.sharded import ShardedReplicas
from swiftlet.timestamp import ZERO, TimestampClock
from swiftlet.web.logs import get_logger

SPLITS = Counter("swiftlet_shard_splits_total", "Split points that this process has set.")
MOVED = Counter("swiftlet_shard_moves_total", "Steps in which rows were moved to shards.")
UNDER_WAY = Gauge(
    "swiftlet_shard_splits_under_way",
    "Containers with rows still to be moved to shards.",
    ["device"],
    multiprocess_mode="livesum",
)
OLDEST = Gauge(
    "swiftlet_shard_oldest_split_seconds",
    "How long the split takes that has been under way for longest.",
    ["device"],
    multiprocess_mode="livemax",
)
SHOWN = 10
"""The number of containers in the status report, those with the most shards."""
_SCAN_PAUSE_S = 0.001
_log = get_logger("sharding")


@dataclass(frozen=True, slots=True)
class ShardSettings:
    """When and how hard containers are split."""

    above_rows: int = 0
    """The number of rows above which a database is split; with 0 none is."""
    interval_s: float = 5.0
    """Seconds between two rounds."""
    idle_s: float = 60.0
    """Seconds between rounds of a container that needs nothing and whose own database does not change."""
    takeover_s: float = 60.0
    """Seconds after which the next holder splits a container that the previous one has not split."""
    moves_per_round: int = 50
    """The number of steps for one container in one round."""
    refound_s: float = 600.0
    """Seconds after which splits trust a shard's replica that was lost and that sync has brought back."""


@dataclass(frozen=True, slots=True)
class _View:
    name: DatabaseName
    exists: bool
    rows: int
    layout: Layout


class ShardKeeper:
    """Splits the containers of one device and moves their rows. Used from one event loop."""

    def __init__(
        self,
        replicas: ShardedReplicas,
        mover: ShardMover,
        clock: TimestampClock,
        settings: ShardSettings | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Prepare the keeper; nothing runs yet."""
        self._replicas = replicas
        self._mover = mover
        self._clock = clock
        self._settings = settings or ShardSettings()
        self._now_s = now_s
        self._candidates: set[DatabaseId] = set()
        self._large_since: dict[DatabaseId, float] = {}
        self._moving_since: dict[DatabaseId, float] = {}
        self._idle_until: dict[DatabaseId, float] = {}
        self._lost_since: dict[tuple[DatabaseId, str], float] = {}
        self._sizes: dict[DatabaseId, tuple[DatabaseName, int]] = {}

    def committed(self, id: DatabaseId, summary: Summary) -> None:
        """Note that a container's database has changed."""
        if summary.split or (0 < self._settings.above_rows < summary.rows):
            self._candidates.add(id)
            self._idle_until.pop(id, None)

    async def scan(self) -> None:
        """Find the containers that are split or large by reading every container."""
        store = self._replicas.store
        for partition in await store.partitions(DatabaseKind.CONTAINER):
            for id in await store.databases(DatabaseKind.CONTAINER, partition):
                try:
                    self.committed(id, await store.read(id, Summary.of))
                except (NotFound, StoreFormatError) as error:
                    _log.info("a database can't be checked for sharding", database=str(id), error=str(error))
                await asyncio.sleep(_SCAN_PAUSE_S)

    async def run(self) -> None:
        """Scan, then do rounds until cancelled."""
        try:
            await self.scan()
        except SwiftletError as error:
            _log.warning("the scan for sharded containers ended early", error=str(error))
        while True:
            await self.run_once()
            await asyncio.sleep(self._settings.interval_s)

    async def run_once(self) -> int:
        """Do one round; return how many containers still need work."""
        left = 0
        for id in sorted(self._candidates, key=str):
            if self._now_s() < self._idle_until.get(id, 0.0):
                continue
            try:
                busy = await self._keep(id)
                left += busy
                if not busy:
                    self._idle_until[id] = self._now_s() + self._settings.idle_s
            except SwiftletError as error:
                left += 1
                _log.info("the split of a container can't continue now", database=str(id), error=str(error))
        UNDER_WAY.labels(self._replicas.device).set(len(self._moving_since))
        OLDEST.labels(self._replicas.device).set(self._oldest_s())
        return left

    def report(self) -> dict[str, object]:
        """Return the fields of the status report."""
        largest = nlargest(SHOWN, self._sizes.values(), key=lambda found: found[1])
        return {
            "splitsUnderWay": len(self._moving_since),
            "oldestSplitSeconds": self._oldest_s(),
            "mostShards": {str(name): count for name, count in largest},
        }

    def _oldest_s(self) -> float:
        return max((self._now_s() - since for since in self._moving_since.values()), default=0.0)

    def _forget(self, id: DatabaseId) -> None:
        self._candidates.discard(id)
        for known in (self._large_since, self._moving_since, self._sizes, self._idle_until):
            known.pop(id, None)
        self._lost_since = {key: since for key, since in self._lost_since.items() if key[0] != id}

    async def _keep(self, id: DatabaseId) -> bool:
        """Do one container's round; return whether it still needs work."""
        try:
            view = await self._replicas.store.read(id, _view)
        except (NotFound, StoreFormatError):
            view = None
        if view is None:
            self._forget(id)
            return False
        if not view.layout.shards:
            return await self._decide(id, view)
        self._sizes[id] = view.name, len(view.layout.shards) - 1
        for _ in range(self._settings.moves_per_round):
            if not await self._mover.move(id, view.name):
                break
            MOVED.inc()
            self._moving_since.setdefault(id, self._now_s())
        else:
            return True
        self._moving_since.pop(id, None)
        looks, errors = await self._replicas.refresh(id, view.name)
        if await self._learn(id, view, looks):
            return True
        await self._mover.tell_ends(id, view.name, looks)
        swept = await self._mover.sweep(id, view.name, looks)
        if errors:
            raise errors[0]
        view = await self._replicas.store.read(id, _view) or view
        await self._complete(id, view)
        if await self._lost(id, view, looks):
            return swept > 0
        return await self._decide(id, view) or swept > 0

    async def _lost(self, id: DatabaseId, view: _View, looks: dict[str, ShardLook | None]) -> bool:
        """Return whether replicas of shards were lost and came back only lately, or not yet: then nothing is split.

        While all rows are where they belong listings trust them, as they do a container's replica that sync brings
        back.
        """
        lost = [shard for shard in view.layout.shards[1:] if not ((look := looks.get(shard.point)) and look.founded)]
        known = {(id, shard.point) for shard in lost}
        self._lost_since = {key: at for key, at in self._lost_since.items() if key[0] != id or key in known}
        for shard in lost:
            since = self._lost_since.setdefault((id, shard.point), self._now_s())
            back = looks.get(shard.point) is not None and shard.complete and view.layout.moved
            if back and self._now_s() - since >= self._settings.refound_s:
                await self._replicas.found(id, view.name, shard.point, True)
        return bool(lost)

    async def _learn(self, id: DatabaseId, view: _View, looks: dict[str, ShardLook | None]) -> bool:
        """Learn the points that other replicas told shards and this one has missed; return whether there are any."""
        known = {shard.point for shard in view.layout.shards}
        told = {point for look in looks.values() if look is not None for point in look.points}
        missed = sorted(told - known)
        if not missed or not view.exists:
            return False
        at = self._clock.next()
        added = await self._replicas.store.write(
            id, lambda database: shards.add_points(database, at, missed, True), grows=False
        )
        return added > 0

    async def _complete(self, id: DatabaseId, view: _View) -> None:
        """Note that all replicas have moved all rows, once they have."""
        if all(shard.complete for shard in view.layout.shards):
            return
        points = {shard.point for shard in view.layout.shards[1:]}
        for holder in self._replicas.holders(id):
            look = await self._replicas.transport.shard_look(holder, id.partition, view.name)
            if look.moving or look.beyond or not points <= set(look.points):
                return
        await self._replicas.store.write(id, shards.set_complete, grows=False)

    async def _decide(self, id: DatabaseId, view: _View) -> bool:
        """Split a database that is too large, if it is this holder's turn; return whether one is too large."""
        limit, points = self._settings.above_rows, len(view.layout.shards) - 1
        large = _largest(view)
        if not limit or large[1] <= limit or not view.exists or points >= shards.MAX_POINTS:
            self._large_since.pop(id, None)
            if not view.layout.shards:
                self._forget(id)
            return False
        since, index = self._large_since.setdefault(id, self._now_s()), self._replicas.index(id)
        if index is None or self._now_s() - since < index * self._settings.takeover_s:
            return True
        middle = await self._middle(id, view, large[0])
        if middle is not None:
            await self._understood(id, view.name, middle)
            await self._split(id, view.name, middle)
            self._large_since.pop(id, None)
        return True

    async def _middle(self, id: DatabaseId, view: _View, point: str) -> str | None:
        if point:
            look = await self._replicas.look(id, view.name, point, middle=True)
            return look.middle if look is not None else None
        upper = view.layout.shards[0].upper if view.layout.shards else None
        return await self._replicas.store.read(id, lambda database: shards.middle_of(database, upper))

    async def _understood(self, id: DatabaseId, name: DatabaseName, point: str) -> None:
        """Raise an error unless all holders of the container, and of the new shard, answer requests about shards.

        A holder of the new shard that has no such database yet answers NotFound, which counts as an answer.
        """
        transport = self._replicas.transport
        partition, holders = self._replicas.shard_holders(id, name, point)
        for holder in self._replicas.holders(id):
            await transport.shard_look(holder, id.partition, name)
        for holder in holders:
            with suppress(NotFound):
                await transport.shard_look(holder, partition, shard_name(name, point))

    async def _split(self, id: DatabaseId, name: DatabaseName, point: str) -> None:
        at = self._clock.next()
        told = await asyncio.gather(
            *(
                self._replicas.transport.shard_points(holder, id.partition, name, at, [point], True)
                for holder in self._replicas.holders(id)
            ),
            return_exceptions=True,
        )
        for error in told:
            if isinstance(error, BaseException) and not isinstance(error, SwiftletError):
                raise error
        SPLITS.inc()
        _log.info("a container has been split", container=str(name), shard=str(shard_name(name, point)))


def _view(database: ContainerDb) -> _View | None:
    """Return what the keeper needs to know about a database; None when it is not that of a container."""
    head = database.head
    if head.put_timestamp == ZERO:
        return None
    return _View(head.name, head.exists, head.totals.rows, shards.layout(database))


def _largest(view: _View) -> tuple[str, int]:
    """Return the database with most rows, by its point, and their number."""
    if not view.layout.moved:
        return "", 0
    sizes = {"": view.rows} | {shard.point: shard.totals.rows for shard in view.layout.shards[1:]}
    return max(sizes.items(), key=lambda size: size[1])
