"""Claims on what an account or container may still take: the memory of one device's container server.

A limit holds exactly only if somebody knows all writes that are under way. Each replica of a database does so for
itself: a claim is granted if the rows that the replica holds and the claims that it granted leave room for it, in one
step. A claim ends when its write has failed (`cancel`), when its row is here (`settle`), or when its time is up.
A settled claim whose row is still on its way counts until the row has come. Claims never touch the disk: the replicas
are each other's copies, and a proxy repeats the claims of long uploads.

Fault model: callers may go away without a word, so every claim has a time to live, and there are limits on how
many are held. A server that was started anew knows no claims; the other replicas do. `docs/design` says what that
means for limits.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeVar

from swiftlet.errors import NodeBusy, NotFound
from swiftlet.listing.account_db import AccountDb
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.pool import ListingStore
from swiftlet.model import (
    Amounts,
    Bounds,
    Claim,
    ContainerRow,
    DatabaseId,
    DatabaseKind,
    DatabaseName,
    Excess,
    ObjectRow,
    Settled,
)
from swiftlet.quota.weigh import excess_of, total
from swiftlet.timestamp import Timestamp

T = TypeVar("T")
AnyDb = ContainerDb | AccountDb
Report = Callable[[DatabaseId], Awaitable[bool]]
"""Brings a container's totals, as they are now, to its account within a bounded time; whether that worked."""


class Finder(Protocol):
    """Who knows the rows of containers that are split."""

    async def find(self, id: DatabaseId, row_name: str) -> ObjectRow | None:
        """The row or marker of that name; NotFound without its container."""
        ...


MAX_CLAIMS = 10_000
"""Claims on one database."""


@dataclass(frozen=True, slots=True)
class _Held:
    asked: Amounts
    ends: float
    row: tuple[str, Timestamp] | None = None
    """The row that ends it, once the write is done."""


@dataclass(slots=True)
class _Book:
    held: dict[str, _Held] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0


class Claims:
    """The claims on the databases of one device. Lives in one event loop; `clock` in monotonic seconds."""

    def __init__(
        self,
        store: ListingStore,
        report: Report | None = None,
        clock: Callable[[], float] = time.monotonic,
        finder: Finder | None = None,
    ) -> None:
        """`report` None: nobody is to be told of totals. `finder` None: no container is split."""
        self._store = store
        self._finder = finder
        self._report = report
        self._clock = clock
        self._books: dict[DatabaseId, _Book] = {}
        self._reporting: dict[DatabaseId, asyncio.Task[bool]] = {}
        self._next_report: dict[DatabaseId, asyncio.Task[bool]] = {}

    async def take(
        self, partition: int, name: DatabaseName, claim: Claim, bounds: Bounds, life_s: float
    ) -> Excess | None:
        """Hold a claim, or change one that is held; why not when it does not fit. NotFound, NodeBusy."""
        id = self._store.id_of(partition, name)
        async with _at_work(self._books, id) as book:
            self._expire(book)
            if len(book.held) >= MAX_CLAIMS and claim.id not in book.held:
                raise NodeBusy(f"{len(book.held)} writes to {name} are under way already")
            others = {key: held for key, held in book.held.items() if key != claim.id}
            used, arrived = await self._look(id, others)
            for key in arrived:
                del book.held[key]
            used = total([used, *(held.asked for key, held in others.items() if key not in arrived)])
            excess = excess_of(used, claim.asked, bounds)
            if excess is None:
                book.held[claim.id] = _Held(claim.asked, self._clock() + life_s)
            return excess

    async def settle(
        self, partition: int, name: DatabaseName, claim_id: str, row: str, timestamp: Timestamp, report: bool
    ) -> Settled:
        """A write is done: its claim ends as soon as the row with this timestamp or a newer one is here.

        With `report` the account is told of the container's totals first, as far as that works in time.
        """
        id = self._store.id_of(partition, name)
        async with _at_work(self._books, id) as book:
            # One look for all that is asked in most cases: each costs a turn of a thread while others wait.
            listed, told = await self._read(id, lambda database: _stands(database, row, timestamp), (False, True))
            listed = listed or await self._elsewhere(id, row, timestamp)
            if listed:
                book.held.pop(claim_id, None)
            elif claim_id in book.held:
                book.held[claim_id] = replace(book.held[claim_id], row=(row, timestamp))
        if not report or not listed:
            return Settled(listed, False)
        if told or self._report is None:
            return Settled(listed, told)
        # What was listed since may be unreported again; that is for those whose rows they are.
        return Settled(listed, await self._report_once(id, self._report))

    async def cancel(self, partition: int, name: DatabaseName, claim_id: str) -> None:
        """A write came to nothing, or is counted elsewhere."""
        async with _at_work(self._books, self._store.id_of(partition, name)) as book:
            book.held.pop(claim_id, None)

    async def _report_once(self, id: DatabaseId, report: Report) -> bool:
        """Report what is listed now; those who ask while a report is under way share the next one."""
        task = self._next_report.get(id)
        if task is None:
            task = self._next_report[id] = asyncio.create_task(self._report_next(id, report))
        return await asyncio.shield(task)

    async def _report_next(self, id: DatabaseId, report: Report) -> bool:
        before = self._reporting.get(id)
        if before is not None:
            await asyncio.wait([before])
        mine = self._reporting[id] = self._next_report.pop(id)
        try:
            return await report(id)
        finally:
            if self._reporting.get(id) is mine:
                del self._reporting[id]

    def held(self) -> int:
        """Claims on all databases."""
        return sum(len(book.held) for book in self._books.values())

    def _expire(self, book: _Book) -> None:
        now = self._clock()
        for key in [key for key, held in book.held.items() if held.ends <= now]:
            del book.held[key]

    async def _look(self, id: DatabaseId, held: dict[str, _Held]) -> tuple[Amounts, set[str]]:
        """What the rows take, and the claims whose rows are among them, of one moment."""
        done = {key: one.row for key, one in held.items() if one.row is not None}

        def look(database: AnyDb) -> tuple[Amounts, set[str]]:
            totals = database.head.whole
            if id.kind is DatabaseKind.CONTAINER:
                database.require()
                used = Amounts(0, totals.objects, totals.bytes)
            else:
                used = Amounts(totals.rows, totals.objects, totals.bytes)
            return used, {key for key, row in done.items() if _has(database, *row)}

        if id.kind is DatabaseKind.CONTAINER:
            arrived = {key for key, row in done.items() if await self._elsewhere(id, *row)}
            used, here = await self._store.read(id, look)
            return used, arrived | here
        # An account begins with its first container.
        return await self._read(id, look, (Amounts(), set()))

    async def _elsewhere(self, id: DatabaseId, row: str, timestamp: Timestamp) -> bool:
        """Whether a shard has the row."""
        if self._finder is None or not await self._read(id, _is_split, False):
            return False
        found = await self._finder.find(id, row)
        return found is not None and found.timestamp >= timestamp

    async def _read(self, id: DatabaseId, look: Callable[[AnyDb], T], otherwise: T) -> T:
        try:
            return await self._store.read(id, look)
        except NotFound:
            return otherwise


@asynccontextmanager
async def _at_work(books: dict[DatabaseId, _Book], id: DatabaseId) -> AsyncIterator[_Book]:
    """The book of one database, for one user at a time; forgotten once nothing stands in it and nobody waits."""
    book = books.setdefault(id, _Book())
    book.users += 1
    try:
        async with book.lock:
            yield book
    finally:
        book.users -= 1
        if not book.users and not book.held:
            del books[id]


def _has(database: AnyDb, name: str, timestamp: Timestamp) -> bool:
    """Whether the row is here, as written then or later; a container's row by its creation."""
    row = database.find(name)
    if isinstance(row, ContainerRow):
        return row.put_timestamp >= timestamp
    return isinstance(row, ObjectRow) and row.timestamp >= timestamp


def _stands(database: AnyDb, name: str, timestamp: Timestamp) -> tuple[bool, bool]:
    """Whether the row is here, and whether the account has been told of the totals."""
    return _has(database, name, timestamp), not database.head.unreported


def _is_split(database: AnyDb) -> bool:
    return isinstance(database, ContainerDb) and database.has_shards
