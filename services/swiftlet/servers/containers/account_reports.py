"""Reports containers' totals to the databases of their accounts.

A container's database remembers what was last reported to its account; whatever differs from that is pending. So the
database is the outbox: nothing is lost by a restart, and a scan at the start finds what is pending. That a report was
delivered is noted with the container's next change, or when its file is closed. A PUT or DELETE of
a container is reported before it is answered, for a bounded time. Changed totals are reported once in an interval, many
changes in one report, at moments that are the same for all containers of a server: so those of one account go in one
request, which is one transaction there. Each server has moments of its own.

Replica i of a container reports to replica i of its account, so that a report costs one request. Where the counts of
replicas differ the pairs wrap round; a handoff, which has no number, reports to all. The account's replicas exchange
among themselves what they got.

Fault model: an account's node may be away for long. Its reports are repeated with growing pauses; a repeated report
changes nothing. Reports that overtake each other are told apart by the time of their counting.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from prometheus_client import Counter, Gauge

from swiftlet.boundaries.listings import ListingTransport
from swiftlet.errors import NotFound, StoreFormatError, SwiftletError
from swiftlet.listing.container_db import account_row
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.writer import Summary
from swiftlet.model import ContainerRow, DatabaseId, DatabaseKind
from swiftlet.names import HashPath
from swiftlet.ring.holders import CurrentRing, IsLocal, holders_of, own_index
from swiftlet.ring.model import Device
from swiftlet.timestamp import TimestampClock
from swiftlet.transport.bundles import Bundles
from swiftlet.web.logs import get_logger

REPORTS = Counter("swiftlet_account_reports_total", "Reports of containers to their accounts.", ["result"])
PENDING = Gauge(
    "swiftlet_account_reports_pending", "Containers with news for their accounts.", multiprocess_mode="livesum"
)
_log = get_logger("account_reports")
_Key = tuple[str, DatabaseId]
MAX_REPORTS = 256
"""Reports of containers to one replica of an account that go in one request."""


@dataclass(frozen=True, slots=True)
class ReportSettings:
    """The settings that determine when containers report their totals."""

    interval_s: float = 1.0
    """Seconds between the moments at which changed totals are reported."""
    wait_s: float = 2.0
    """Seconds for which a PUT or DELETE of a container waits for its report."""
    max_pause_s: float = 60.0
    """The longest pause between repetitions; pauses begin with `interval_s` and double."""
    concurrency: int = 256
    """The number of reports that are made at a time; those for one account on one device go together."""
    scan_pause_s: float = 0.001
    """Seconds of pause after each database in the scan at the start."""


@dataclass(frozen=True, slots=True)
class _Place:
    """A replica of an account."""

    target: Device
    partition: int
    account: str


class AccountReporter:
    """Reports the totals of this server's containers to their accounts; runs in one event loop."""

    def __init__(
        self,
        stores: Mapping[str, ListingStore],
        account_ring: CurrentRing,
        container_ring: CurrentRing,
        transport: ListingTransport,
        hash_path: HashPath,
        is_local: IsLocal,
        clock: TimestampClock,
        settings: ReportSettings | None = None,
    ) -> None:
        """`stores` by the devices' names on this server."""
        self._stores = stores
        self._account_ring = account_ring
        self._container_ring = container_ring
        self._transport = transport
        self._hash_path = hash_path
        self._is_local = is_local
        self._clock = clock
        self._settings = settings or ReportSettings()
        self._offset_s = random.uniform(0, self._settings.interval_s)  # noqa: S311
        self._timers: dict[_Key, asyncio.TimerHandle] = {}
        self._failures: dict[_Key, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(self._settings.concurrency)
        self._bundles = Bundles(self._send, MAX_REPORTS)
        self._following = {device: partial(self._committed, device) for device in stores}

    def start(self) -> None:
        """Subscribe to changes of the stores, and find what was pending before the start."""
        for device, store in self._stores.items():
            store.follow(self._following[device])
        self._spawn(self.scan())

    async def stop(self) -> None:
        """Stop; what is pending is found at the next start."""
        for device, store in self._stores.items():
            store.unfollow(self._following[device])
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._bundles.close()

    async def report_now(self, device: str, id: DatabaseId) -> bool:
        """Report within `wait_s`; what fails or takes longer (False) is retried in the background."""
        try:
            async with asyncio.timeout(self._settings.wait_s):
                delivered = await self._report(device, id)
        except TimeoutError:
            delivered = False
        if delivered:
            self._forget((device, id))
        else:
            self.schedule(device, id)
        return delivered

    def _committed(self, device: str, id: DatabaseId, summary: Summary) -> None:
        if summary.unreported:
            self.schedule(device, id)

    def schedule(self, device: str, id: DatabaseId) -> None:
        """Plan a report, if none is planned yet."""
        key = (device, id)
        if key in self._timers:
            return
        loop = asyncio.get_running_loop()
        self._timers[key] = loop.call_later(self._pause_s(self._failures.get(key, 0), loop.time()), self._fire, key)
        PENDING.set(len(self._timers))

    def _pause_s(self, failures: int, now_s: float) -> float:
        """Return the seconds until a report: up to the next moment of all, or longer and at random after failures."""
        interval_s = self._settings.interval_s
        if not failures:
            return interval_s - (now_s - self._offset_s) % interval_s
        pause_s = interval_s * float(1 << min(failures, 20))
        return min(pause_s, max(self._settings.max_pause_s, interval_s)) * random.uniform(0.75, 1.25)  # noqa: S311

    async def run_once(self) -> int:
        """Send all pending reports now; return how many failed."""
        failed = 0
        for device, store in self._stores.items():
            for partition in await store.partitions(DatabaseKind.CONTAINER):
                for id in await store.databases(DatabaseKind.CONTAINER, partition):
                    failed += not await self._report(device, id)
        return failed

    async def scan(self) -> None:
        """Schedule what is pending, found by looking at every container."""
        for device, store in self._stores.items():
            try:
                await self._scan_device(device, store)
            except SwiftletError as error:
                _log.warning("the scan for pending reports to accounts ended early", device=device, error=str(error))

    async def _scan_device(self, device: str, store: ListingStore) -> None:
        for partition in await store.partitions(DatabaseKind.CONTAINER):
            for id in await store.databases(DatabaseKind.CONTAINER, partition):
                if await _is_pending(store, id):
                    self.schedule(device, id)
                await asyncio.sleep(self._settings.scan_pause_s)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _fire(self, key: _Key) -> None:
        self._timers.pop(key, None)
        PENDING.set(len(self._timers))
        self._spawn(self._background(key))

    async def _background(self, key: _Key) -> None:
        async with self._slots:
            delivered = await self._report(*key)
        if delivered:
            self._failures.pop(key, None)
        else:
            self._failures[key] = self._failures.get(key, 0) + 1
            self.schedule(*key)

    def _forget(self, key: _Key) -> None:
        self._failures.pop(key, None)
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()

    async def _report(self, device: str, id: DatabaseId) -> bool:
        """Report new totals to the account and note that; return whether nothing is pending any more."""
        store = self._stores[device]
        try:
            # Rows that native code has taken are reported after the commit that merges them.
            head = await store.container_head(id)
            if not head.unreported:
                return True
            row = account_row(head, self._clock.next())
            await self._tell(device, id, head.name.account, row)
            await store.note_reported(id, row)
        except (NotFound, StoreFormatError):
            return True
        except SwiftletError as error:
            REPORTS.labels("failed").inc()
            _log.info(
                "a container could not report its totals to its account",
                device=device,
                database=str(id),
                error=str(error),
            )
            return False
        REPORTS.labels("delivered").inc()
        return True

    async def _tell(self, device: str, id: DatabaseId, account: str, row: ContainerRow) -> None:
        partition = self._account_ring().partition_of(self._hash_path(account))
        told = await asyncio.gather(
            *(
                self._bundles.ask(_Place(target, partition, account), row)
                for target in self._targets(device, id, partition)
            ),
            return_exceptions=True,
        )
        for result in told:
            if isinstance(result, BaseException):
                raise result

    async def _send(self, place: _Place, rows: Sequence[ContainerRow]) -> Sequence[None]:
        await self._transport.update_containers(place.target, place.partition, place.account, rows)
        return [None] * len(rows)

    def _targets(self, device: str, id: DatabaseId, partition: int) -> Sequence[Device]:
        containers = holders_of(self._container_ring(), id.partition)
        accounts = self._account_ring().primaries(partition)
        return paired(accounts, own_index(containers, device, self._is_local), len(containers))


def paired(accounts: Sequence[Device], index: int | None, containers: int) -> Sequence[Device]:
    """Return the account's devices to which replica `index` of `containers` reports.

    Together the replicas report to all devices of the account.
    """
    if index is None:
        return accounts
    if index >= len(accounts):
        return [accounts[index % len(accounts)]]
    return accounts[index::containers]


async def _is_pending(store: ListingStore, id: DatabaseId) -> bool:
    try:
        return (await store.container_head(id)).unreported
    except (NotFound, StoreFormatError):
        return False
