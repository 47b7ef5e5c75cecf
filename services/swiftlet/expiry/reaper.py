"""The account reaper: it removes what a deleted account holds, bit by bit, and then the account itself.

DELETE of an account that has containers first writes a row into a hidden account's container, and then marks the
account with a metadata item that has the time. From then on proxies answer as if it did not exist, and do not create it
again. After `delay_s` the reaper removes its objects and containers, and at last deletes the account's database with
the mark. The order of nodes that work on an account is that of the expirer's queue.

Fault model: a reaper may stop at any point and several may work on one account: deletions repeat without harm, and the
account's own listings show what is left. A row without a mark (of a proxy that stopped in between, or of an account
that was created again) has no effect and is removed. What can't be deleted now waits for the next round.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Collection
from dataclasses import dataclass

import structlog
from prometheus_client import Counter, Gauge

from swiftlet.errors import NotEmpty, NotFound, Superseded, SwiftletError
from swiftlet.expiry.expirer import Pace
from swiftlet.expiry.ranks import rank_of
from swiftlet.model import AccountInfo, ContainerRow, ListingQuery, ObjectRow, Subdir
from swiftlet.names import Path
from swiftlet.placement.listings import ClusterListings
from swiftlet.placement.routing import AnyObjects
from swiftlet.settings.reaper import ReaperSection
from swiftlet.timestamp import Timestamp

MARK = "X-Account-Sysmeta-Deleted-At"
"""The metadata item of a deleted account: the time of the deletion, as a timestamp's value."""
ACCOUNT, CONTAINER = ".reaping", "accounts"
"""The account and container with the names of deleted accounts. No user's account begins with a point."""
PAGE = 1000

REAPED = Counter("swiftlet_reaper_removed_total", "What reapers removed of deleted accounts.", ["what"])
FAILED = Counter("swiftlet_reaper_failures_total", "What reapers could not remove and tried again later.")
WAITING = Gauge("swiftlet_reaper_accounts", "Deleted accounts that are not removed yet, as the last round saw them.")

_log = structlog.get_logger("reaper")


def marked_at(info: AccountInfo) -> Timestamp | None:
    """Return when the account was deleted; None for one that was not."""
    text = info.metadata.get(MARK, "")
    return Timestamp(int(text)) if text.isascii() and text.isdigit() else None


class ReaperQueue:
    """The deleted accounts of the whole cluster."""

    def __init__(self, listings: ClusterListings, stamp: Callable[[], Timestamp]) -> None:
        """`stamp` returns a new timestamp at each call."""
        self._listings = listings
        self._stamp = stamp

    async def delete(self, account: str) -> None:
        """Queue an account for deletion; durable on return. Raises NotFound and Unavailable."""
        await self._listings.account_info(account)
        at = self._stamp()
        row = ObjectRow(account, at)
        try:
            await self._listings.update_rows(ACCOUNT, CONTAINER, [row])
        except NotFound:
            await self._listings.put_container(ACCOUNT, CONTAINER, self._stamp(), {}, None, 0)
            await self._listings.update_rows(ACCOUNT, CONTAINER, [row])
        await self._listings.post_account(account, at, {MARK: str(at.value)})

    async def waiting(self) -> AsyncIterator[ObjectRow]:
        """Yield the rows of queued accounts by name."""
        marker = ""
        while True:
            try:
                _, rows = await self._listings.list_objects(ACCOUNT, CONTAINER, ListingQuery(PAGE, marker))
            except NotFound:
                return
            for row in rows:
                if isinstance(row, ObjectRow):
                    yield row
            if len(rows) < PAGE:
                return
            marker = rows[-1].name

    async def done(self, row: ObjectRow) -> None:
        """Remove an account from the queue, if its row is still the one that was read."""
        await self._listings.update_rows(ACCOUNT, CONTAINER, [ObjectRow(row.name, row.timestamp, deleted=True)])


@dataclass(slots=True)
class ReaperReport:
    """The numbers of one round."""

    accounts: int = 0
    containers: int = 0
    objects: int = 0
    failed: int = 0
    waiting: int = 0

    @property
    def clean(self) -> bool:
        """Whether the round had nothing to do."""
        return not (self.accounts or self.containers or self.objects or self.failed)


class Reaper:
    """The rounds of one process."""

    def __init__(
        self,
        listings: ClusterListings,
        objects: AnyObjects,
        settings: ReaperSection,
        nodes: Callable[[], Collection[str]],
        mine: Collection[str],
        stamp: Callable[[], Timestamp],
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`nodes` (`host:port`) have reapers beside them, and this one runs beside those in `mine`."""
        self._queue = ReaperQueue(listings, stamp)
        self._listings = listings
        self._objects = objects
        self._settings = settings
        self._nodes = nodes
        self._mine = frozenset(mine)
        self._stamp = stamp
        self._now_s = now_s
        self._pace = Pace(settings.objects_per_second)
        self._gate = asyncio.Semaphore(settings.concurrency)

    async def run_round(self) -> ReaperReport:
        """Work on the due accounts that are ours. Raises Unavailable when the queue can't be listed."""
        report, nodes = ReaperReport(), self._nodes()
        async for row in self._queue.waiting():
            report.waiting += 1
            rank = rank_of(row.name, nodes, self._mine)
            if rank is None:
                continue
            due_s = row.timestamp.seconds + self._settings.delay_s + rank * self._settings.takeover_s
            if self._now_s() < due_s:
                continue
            try:
                await self._reap(row, report)
            except SwiftletError as error:
                self._failed(report, row.name, error)
        WAITING.set(report.waiting)
        return report

    async def _reap(self, row: ObjectRow, report: ReaperReport) -> None:
        account = row.name
        try:
            info = await self._listings.account_info(account)
        except NotFound:
            await self._queue.done(row)
            return
        if marked_at(info) != row.timestamp:
            if self._now_s() - row.timestamp.seconds > self._settings.takeover_s:
                await self._queue.done(row)
            return
        marker = ""
        while True:
            _, found = await self._listings.list_containers(account, ListingQuery(PAGE, marker))
            for container in found:
                if isinstance(container, ContainerRow):
                    await self._empty(account, container.name, report)
            if len(found) < PAGE:
                break
            marker = found[-1].name
        try:
            await self._listings.delete_account(account, self._stamp())
        except NotEmpty:
            return  # Some containers are not reported as gone yet, or could not be removed.
        await self._queue.done(row)
        report.accounts += 1
        report.waiting -= 1
        REAPED.labels("account").inc()
        _log.info("a deleted account has been removed", account=account)

    async def _empty(self, account: str, container: str, report: ReaperReport) -> None:
        marker = ""
        try:
            while True:
                info, rows = await self._listings.list_objects(account, container, ListingQuery(PAGE, marker))
                found = [row for row in rows if not isinstance(row, Subdir)]
                async with asyncio.TaskGroup() as group:
                    for row in found:
                        group.create_task(self._remove(Path(account, container, row.name), info.policy, report))
                if len(rows) < PAGE:
                    break
                marker = rows[-1].name
            await self._listings.delete_container(account, container, self._stamp())
        except NotFound:
            return
        except SwiftletError as error:
            self._failed(report, f"{account}/{container}", error)
            return
        report.containers += 1
        REAPED.labels("container").inc()

    async def _remove(self, path: Path, policy: int, report: ReaperReport) -> None:
        async with self._gate:
            await self._pace.wait()
            stamp = self._stamp()
            try:
                await self._objects.delete(path, policy, stamp)
            except NotFound:
                await self._unlist(path, stamp, report)
            except SwiftletError as error:
                self._failed(report, path.quoted, error)
                return
        report.objects += 1
        REAPED.labels("object").inc()

    async def _unlist(self, path: Path, stamp: Timestamp, report: ReaperReport) -> None:
        """Remove a row that has no object."""
        assert path.container is not None
        assert path.obj is not None
        try:
            await self._listings.update_rows(path.account, path.container, [ObjectRow(path.obj, stamp, deleted=True)])
        except (NotFound, Superseded):
            return
        except SwiftletError as error:
            self._failed(report, path.quoted, error)

    def _failed(self, report: ReaperReport, what: str, error: SwiftletError) -> None:
        report.failed += 1
        FAILED.inc()
        _log.info("a part of a deleted account could not be removed yet", what=what, error=str(error))
