"""Claims on what an account or container may still take: the memory of one device's container server.

A limit holds exactly only if somebody knows all writes in progress. Each replica of a database does so for itself: a
claim is granted if the rows that the replica holds and the claims that it granted leave room for it, in one step. A
claim ends when its write has failed (`cancel`), when its row is here (`confirm`), or when it expires. A confirmed claim
whose row has not come yet counts until then. Requests that come while a database is read are served by the next read,
all together and in the order in which they came. Claims are never stored on disk: the replicas are each other's copies,
and a proxy repeats the claims of long uploads.

Fault model: callers may go away without a word, so every claim has a time to live, and there are limits on how many are
held. A server after a restart knows no claims; the other replicas do. `docs/design/2026-11-21-quotas.md` says what that
means for limits.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import Protocol

from swiftlet.errors import NodeBusy, NotFound
from swiftlet.listing.account_db import AccountDb
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.pool import ListingStore
from swiftlet.model import (
    Amounts,
    Bounds,
    Claim,
    Confirmation,
    ContainerRow,
    DatabaseId,
    DatabaseKind,
    DatabaseName,
    Excess,
    ObjectRow,
)
from swiftlet.quota.excess import excess_of, total
from swiftlet.timestamp import Timestamp

AnyDb = ContainerDb | AccountDb
Row = tuple[str, Timestamp]
"""The name of a row, and the time of its write."""
Report = Callable[[DatabaseId], Awaitable[bool]]
"""Reports the current totals of a container to its account within a bounded time; returns whether that worked."""


class Finder(Protocol):
    """Knows the rows of containers that are split."""

    async def find(self, id: DatabaseId, row_name: str) -> ObjectRow | None:
        """Return the row or marker of that name; NotFound without its container."""
        ...


MAX_CLAIMS = 10_000
"""Claims on one database."""


@dataclass(frozen=True, slots=True)
class _Held:
    asked: Amounts
    ends: float
    row: Row | None = None
    """The row whose arrival ends the claim, once the write is done."""


MAX_AT_ONCE = 500
"""The requests about one database that one read of it serves."""


@dataclass(slots=True)
class _Take:
    """A request to hold a claim."""

    name: DatabaseName
    claim: Claim
    bounds: Bounds
    life_s: float
    answer: asyncio.Future[Excess | None]


@dataclass(slots=True)
class _Confirm:
    """A question after a write: whether its row is here, and whether the account knows the totals."""

    id: str
    row: Row
    answer: asyncio.Future[tuple[bool, bool]]


@dataclass(slots=True)
class _Cancel:
    """A request to release a claim."""

    id: str
    answer: asyncio.Future[None]


_Wish = _Take | _Confirm | _Cancel


@dataclass(slots=True)
class _Book:
    held: dict[str, _Held] = field(default_factory=dict)
    waiting: deque[_Wish] = field(default_factory=deque)
    turns: asyncio.Task[None] | None = None
    """The task that serves requests for as long as any wait."""
    taken: Amounts = field(default_factory=Amounts)
    """The sum of all claims that are held."""

    def put(self, key: str, held: _Held) -> None:
        """Hold the claim in place of the one with this key."""
        self.taken = total([self.taken_beside(key), held.asked])
        self.held[key] = held

    def drop(self, key: str) -> None:
        """Remove the claim, if it is held."""
        self.taken = self.taken_beside(key)
        self.held.pop(key, None)

    def taken_beside(self, key: str) -> Amounts:
        """Return the amounts of the other claims."""
        held, all = self.held.get(key), self.taken
        if held is None:
            return all
        own = held.asked
        return Amounts(all.containers - own.containers, all.objects - own.objects, all.bytes - own.bytes)

    def rows(self) -> set[Row]:
        """Return the rows whose arrival ends one of the claims."""
        return {held.row for held in self.held.values() if held.row is not None}


@dataclass(frozen=True, slots=True)
class _Seen:
    """The state of a database at one moment."""

    used: Amounts | NotFound
    """The totals of its rows; NotFound where nothing can be stored."""
    here: frozenset[Row] = frozenset()
    """Those of the requested rows that it has in this or a newer version."""
    told: bool = True
    """Whether the account has the totals."""
    split: bool = False


class Claims:
    """The claims on the databases of one device; runs in one event loop, `clock` returns monotonic seconds."""

    def __init__(
        self,
        store: ListingStore,
        report: Report | None = None,
        clock: Callable[[], float] = time.monotonic,
        finder: Finder | None = None,
    ) -> None:
        """With `report` None totals are reported to nobody; with `finder` None no container is split."""
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
        """Hold or change a claim; return the reason when it does not fit. Raises NotFound and NodeBusy."""
        answer: asyncio.Future[Excess | None] = asyncio.get_running_loop().create_future()
        self._queue(self._store.id_of(partition, name), _Take(name, claim, bounds, life_s, answer))
        return await answer

    async def confirm(
        self, partition: int, name: DatabaseName, claim_id: str, row: str, timestamp: Timestamp, report: bool
    ) -> Confirmation:
        """End the claim of a write that is done, as soon as the row with this timestamp or a newer one is here.

        With `report` the container's totals are reported to the account first, as far as that works in time.
        """
        id = self._store.id_of(partition, name)
        answer: asyncio.Future[tuple[bool, bool]] = asyncio.get_running_loop().create_future()
        self._queue(id, _Confirm(claim_id, (row, timestamp), answer))
        listed, told = await answer
        if not report or not listed:
            return Confirmation(listed, False)
        if told or self._report is None:
            return Confirmation(listed, told)
        # Rows that were listed since may be unreported again, which their own writers take care of.
        return Confirmation(listed, await self._report_once(id, self._report))

    async def cancel(self, partition: int, name: DatabaseName, claim_id: str) -> None:
        """Release the claim of a write that failed, or is counted elsewhere."""
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue(self._store.id_of(partition, name), _Cancel(claim_id, answer))
        await answer

    async def _report_once(self, id: DatabaseId, report: Report) -> bool:
        """Report the current totals; callers during a report share the next one."""
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
        """The number of claims on all databases."""
        return sum(len(book.held) for book in self._books.values())

    def _queue(self, id: DatabaseId, wish: _Wish) -> None:
        """Queue a request to be answered in its turn."""
        book = self._books.setdefault(id, _Book())
        book.waiting.append(wish)
        if book.turns is None:
            book.turns = asyncio.create_task(self._turns(id, book))

    async def _turns(self, id: DatabaseId, book: _Book) -> None:
        """Serve the waiting requests, each time all of them with one read of the database; drop the book when it is
        empty.
        """
        while book.waiting:
            batch = [book.waiting.popleft() for _ in range(min(MAX_AT_ONCE, len(book.waiting)))]
            # Callers that have gone away meanwhile want nothing any more.
            batch = [wish for wish in batch if not wish.answer.done()]
            try:
                await self._turn(id, book, batch)
            except Exception as error:
                # The error is raised where the answers are awaited.
                for wish in batch:
                    if not wish.answer.done():
                        wish.answer.set_exception(error)
        book.turns = None
        if not book.held:
            del self._books[id]

    async def _turn(self, id: DatabaseId, book: _Book, batch: Sequence[_Wish]) -> None:
        """Read the database once, then serve the requests in their order; nothing else changes the claims meanwhile."""
        now = self._clock()
        for key in [key for key, held in book.held.items() if held.ends <= now]:
            book.drop(key)
        seen = _Seen(Amounts())
        if any(not isinstance(wish, _Cancel) for wish in batch):
            seen = await self._look(id, book.rows() | {wish.row for wish in batch if isinstance(wish, _Confirm)})
        for key in [key for key, held in book.held.items() if held.row in seen.here]:
            book.drop(key)
        for wish in batch:
            if wish.answer.done():
                continue
            if isinstance(wish, _Take):
                self._decide(book, wish, seen.used)
            elif isinstance(wish, _Cancel):
                book.drop(wish.id)
                wish.answer.set_result(None)
            else:
                listed = wish.row in seen.here
                if listed:
                    book.drop(wish.id)
                elif wish.id in book.held:
                    book.put(wish.id, replace(book.held[wish.id], row=wish.row))
                wish.answer.set_result((listed, seen.told))

    def _decide(self, book: _Book, wish: _Take, rows: Amounts | NotFound) -> None:
        """Hold the claim if it fits beside the rows and the other claims."""
        key, asked = wish.claim.id, wish.claim.asked
        if isinstance(rows, NotFound):
            wish.answer.set_exception(rows)
        elif len(book.held) >= MAX_CLAIMS and key not in book.held:
            wish.answer.set_exception(NodeBusy(f"{len(book.held)} writes to {wish.name} are under way already"))
        else:
            excess = excess_of(total([rows, book.taken_beside(key)]), asked, wish.bounds)
            if excess is None:
                book.put(key, _Held(asked, self._clock() + wish.life_s))
            wish.answer.set_result(excess)

    async def _look(self, id: DatabaseId, rows: AbstractSet[Row]) -> _Seen:
        """Return the totals of the rows, and which of the given rows are among them, at one moment."""
        seen = await self._see(id, rows)
        missing = rows - seen.here
        if self._finder is None or not seen.split or not missing:
            return seen
        away = frozenset([row for row in missing if await self._is_away(self._finder, id, row)])
        # The totals were read after the shards: a row that is there now counts in them, or else its claim still counts.
        seen = await self._see(id, rows)
        return replace(seen, here=seen.here | away)

    async def _see(self, id: DatabaseId, rows: AbstractSet[Row]) -> _Seen:
        try:
            return await self._store.read(id, lambda database: _seen(database, rows))
        except NotFound as error:
            # An account is created with its first container.
            return _Seen(Amounts() if id.kind is DatabaseKind.ACCOUNT else error)

    async def _is_away(self, finder: Finder, id: DatabaseId, row: Row) -> bool:
        """Return whether a shard has the row."""
        found = await finder.find(id, row[0])
        return found is not None and found.timestamp >= row[1]


def _seen(database: AnyDb, rows: AbstractSet[Row]) -> _Seen:
    totals, here = database.head.whole, frozenset(row for row in rows if _has(database, *row))
    told = not database.head.unreported
    if isinstance(database, AccountDb):
        return _Seen(Amounts(totals.rows, totals.objects, totals.bytes), here, told)
    try:
        database.require()
    except NotFound as error:
        return _Seen(error, here, told, database.has_shards)
    return _Seen(Amounts(0, totals.objects, totals.bytes), here, told, database.has_shards)


def _has(database: AnyDb, name: str, timestamp: Timestamp) -> bool:
    """Return whether the database has the row in this or a newer version; a container's row counts by its creation."""
    row = database.find(name)
    if isinstance(row, ContainerRow):
        return row.put_timestamp >= timestamp
    return isinstance(row, ObjectRow) and row.timestamp >= timestamp
