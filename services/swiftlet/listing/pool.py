"""All listing databases of one device: opening and closing them, group commit, quarantine.

Layout below the device's root: `containers|accounts/<partition>/<suffix>/<hash>/<hash>.db`, beside them
`quarantine/` and `trash/`, and `listing.lock`, which makes one process the owner.

Fault model. Power: see `swiftlet.listing.schema`. A damaged database is moved to `quarantine/` as a whole, the
request that met it fails, and the replica then is as one that never had the database, until its peers bring it
back. An I/O error takes the whole device out of service until the process restarts (DeviceFailed for
everything): after a failed sync nobody knows which pages the kernel dropped, and to go on appending to such a log
would lose acknowledged rows at the next recovery. A full device refuses what grows and goes on with deletions.

With an update table native code takes rows for containers (`swiftlet.listing.updates`); the table belongs to this store
and ends with it.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Protocol, TypeVar

from swiftlet.boundaries.listings import PageForm
from swiftlet.errors import DeviceFailed, DiskFull, NotFound, SwiftletError
from swiftlet.folds import FOLD_AFTER_S
from swiftlet.listing import folding, metrics
from swiftlet.listing.account_db import AccountDb
from swiftlet.listing.at_rest import fingerprints_at_rest
from swiftlet.listing.background_tasks import report, resolve
from swiftlet.listing.commits import Commits
from swiftlet.listing.container_db import ContainerDb, packed
from swiftlet.listing.descriptions import Description, Descriptions
from swiftlet.listing.faults import DamagedDatabase, translate
from swiftlet.listing.fingerprints import Fingerprints
from swiftlet.listing.folding import Folding
from swiftlet.listing.handle import Handle, Limits, Workers
from swiftlet.listing.head import Head
from swiftlet.listing.late_sync import LateSyncs
from swiftlet.listing.layout import database_path, databases_in, entries, own
from swiftlet.listing.page_text import page_text
from swiftlet.listing.row_tables import Packed
from swiftlet.listing.schema import sync_directories
from swiftlet.listing.thread_pool import Done, ThreadPool
from swiftlet.listing.updates import Place, Taken, UpdateTable
from swiftlet.listing.writer import Summary, Write
from swiftlet.model import (
    AccountInfo,
    ContainerInfo,
    ContainerRow,
    DatabaseId,
    DatabaseKind,
    DatabaseName,
    ListingQuery,
    MetadataBounds,
    ObjectRow,
    Subdir,
    Usage,
)
from swiftlet.names import HashPath
from swiftlet.timestamp import ZERO, Timestamp

T = TypeVar("T")
_ROOM_KNOWN_S = 0.05
"""Seconds for which the device's free space counts as known; what is written meanwhile is little beside the reserve."""
Committed = Callable[[DatabaseId, Summary], None]
"""A callback that gets a container's database, and what it holds, after each commit."""
TAKEN_FOR = 16
"""How many times more databases than are held open may have their rows taken natively: that needs no connection."""
LOOKED_AT = 64
"""The number of databases, least recently used first, among which idle ones are looked for when too many are open."""
_TRIES = 8
"""How often a database is read for its fingerprint while others are being removed."""


class RowsTaker(Protocol):
    """Merges object rows into containers."""

    def id_of(self, partition: int, name: DatabaseName) -> DatabaseId:
        """Return the location of the container's database."""
        ...

    def submit_rows(
        self, id: DatabaseId, name: DatabaseName, rows: Sequence[Packed], grows: bool, later: bool, done: Done
    ) -> None:
        """Merge packed rows. Raises NodeBusy and DeviceFailed.

        `grows` tells that not all of them are removals. `done` is called when they are durable, or with `later`
        committed; it gets no value, and must not raise.
        """
        ...


async def brought(taker: RowsTaker, partition: int, name: DatabaseName, rows: Sequence[ObjectRow], later: bool) -> None:
    """Merge rows, wait for the result, and raise its error."""
    answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    found = [packed(row.plain) for row in rows]
    grows = not all(row.deleted for row in rows)
    taker.submit_rows(taker.id_of(partition, name), name, found, grows, later, partial(resolve, answer))
    await answer


class ListingStore:
    """The listing databases of one device. Used from one event loop; the work is done in its own threads."""

    def __init__(
        self,
        root: Path,
        hash_path: HashPath,
        limits: Limits | None = None,
        device: str = "",
        make_table: Callable[[Path], UpdateTable] | None = None,
        fold_after_s: float = FOLD_AFTER_S,
    ) -> None:
        """Take ownership of the directory, which is created if it does not exist.

        Raises DeviceLocked when another process has it. `device` is its name in metrics, by default the directory's
        name. `make_table` returns the table of rows that native code takes, with its journal in that directory; None
        where Python takes them all. `fold_after_s` is as in `swiftlet.listing.folding`.
        """
        self.root = root
        self.device = device or root.name
        self.limits = limits or Limits()
        self.hash_path = hash_path
        self._followers: list[Committed] = []
        self._watchers: list[Callable[[DatabaseId], None]] = []
        self._forgotten_before = ZERO
        self._refused_policies: frozenset[int] = frozenset()
        self._known_policies: frozenset[int] | None = None
        self._has_room = True
        self._room_known_until_s = 0.0
        self._removals = 0
        self._handles: OrderedDict[DatabaseId, Handle] = OrderedDict()
        self._unused: list[set[DatabaseId]] = []
        """The databases of each `learn` that is going on; one that somebody begins to use is removed."""
        self.fingerprints = Fingerprints()
        """Fingerprints of the databases that were read since the start."""
        self.descriptions = Descriptions()
        """Descriptions of the containers that were asked for or changed lately."""
        self._failed: DeviceFailed | None = None
        self._broken = False
        """Whether it has failed, also after it was closed."""
        self._closing: set[asyncio.Task[None]] = set()
        self._lock = own(root)
        names = f"listing-{self.device}"
        self._writers = ThreadPool(self.limits.threads, f"{names}-write")
        self._syncers = ThreadPool(self.limits.threads, f"{names}-sync")
        self._readers: Executor = ThreadPoolExecutor(self.limits.threads, f"{names}-read")
        syncs = LateSyncs(self._syncers, self.limits.threads)
        self._workers = Workers(Commits(self._writers), syncs, self._readers)
        shutil.rmtree(root / "trash", ignore_errors=True)
        self.table = None if make_table is None else self._make_table(make_table)
        self._places = {self._id_at(place): place for place in (self.table.databases() if self.table else ())}
        self._unmerged: set[Place] = set()
        """Databases whose rows could not be merged when this was tried last."""
        self._folding = (
            None if self.table is None else Folding(self.table, self._fold_soon, self._journal_failed, fold_after_s)
        )
        # All labels exist from the start: a query for increases misses the event that a counter begins with.
        metrics.QUARANTINED.labels(self.device)
        metrics.DEVICES_FAILED.labels(self.device).set(0)

    def _make_table(self, make_table: Callable[[Path], UpdateTable]) -> UpdateTable:
        directory = self.root / "updates"
        try:
            directory.mkdir(exist_ok=True)
            sync_directories(directory, self.root)
            return make_table(directory)
        except OSError as error:
            os.close(self._lock)
            # Without its rows listings would lack them, so the databases are not served.
            raise DeviceFailed(f"the journal of container updates can't be read: {error}") from error

    # Containers.

    async def put_container(
        self,
        partition: int,
        account: str,
        container: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        policy: int | None,
        default_policy: int,
        bounds: MetadataBounds | None = None,
    ) -> bool:
        """Create or update a container; see `ListingTransport.put_container`."""
        refused = frozenset() if account.startswith(".") else self._refused_policies

        def put(database: ContainerDb) -> bool:
            return database.put(timestamp, metadata, policy, default_policy, bounds, refused)

        name = DatabaseName(account, container)
        return await self.write(self.id_of(partition, name), put, create=name)

    async def post_container(
        self,
        partition: int,
        account: str,
        container: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> None:
        """Merge metadata items. Raises NotFound and TooMuchMetadata."""

        def is_retired(policy: int) -> bool:
            return self._known_policies is not None and policy not in self._known_policies

        def post(database: ContainerDb) -> None:
            database.post(timestamp, metadata, bounds, is_retired)

        await self.write(self._container(partition, account, container), post)

    async def delete_container(self, partition: int, account: str, container: str, timestamp: Timestamp) -> None:
        """Delete the container. Raises NotEmpty and NotFound."""

        def delete(database: ContainerDb) -> None:
            database.delete(timestamp)

        await self.write(self._container(partition, account, container), delete, grows=False)

    async def container_info(self, partition: int, account: str, container: str, merged: bool = True) -> ContainerInfo:
        """Return the totals and metadata of the container. Raises NotFound.

        Without `merged` the totals may lack rows that native code has taken.
        """
        self.require()
        id = self._container(partition, account, container)
        if merged:
            await self._merged(id)
        known = self.descriptions.get(id)
        if known is not None and known.info is not None:
            return known.info
        return await self._described(id, ContainerDb.info)

    async def container_head(self, id: DatabaseId) -> Head:
        """Return the head of a container's database, as of the last commit. Raises NotFound without a database."""
        self.require()
        known = self.descriptions.get(id)
        return known.head if known is not None else await self._described(id, lambda database: database.head_now)

    async def note_reported(self, id: DatabaseId, row: ContainerRow) -> None:
        """Note what a container's account was told. It need not be durable: what is lost is reported once more."""
        handle, known = self._handles.get(id), self.descriptions.get(id)
        if known is not None and known.head.exists and handle is not None and handle.note_reported(row):
            self.descriptions.put(id, known.after_report(row))
        else:
            await self.write(id, lambda database: database.mark_reported(row), grows=False, later=True, aside=True)

    async def _described(self, id: DatabaseId, part: Callable[[ContainerDb], T]) -> T:
        """Read part of a container's database, and remember its description."""
        handle = self._handle(id)
        commits = handle.commits
        found, description = await self.read(id, lambda database: (part(database), database.described()))
        if self._handles.get(id) is handle and handle.commits == commits:
            self.descriptions.put(id, description)
        return found

    async def list_objects(
        self, partition: int, account: str, container: str, query: ListingQuery
    ) -> tuple[ContainerInfo, Sequence[ObjectRow | Subdir]]:
        """Return one page with the totals of the same moment. Raises NotFound."""

        def page(database: ContainerDb) -> tuple[ContainerInfo, Sequence[ObjectRow | Subdir]]:
            return database.info(), database.list_page(query)

        return await self.read(self._container(partition, account, container), page)

    async def list_text(
        self, partition: int, account: str, container: str, query: ListingQuery, form: PageForm
    ) -> tuple[ContainerInfo, bytes] | None:
        """Return a page as `list_objects` does, as text; None when the page's rows are needed to make it."""

        def page(database: ContainerDb) -> tuple[ContainerInfo, bytes] | None:
            info, text = database.info(), page_text(database, query, form)
            return None if text is None else (info, text)

        return await self.read(self._container(partition, account, container), page)

    async def update_rows(
        self, partition: int, account: str, container: str, rows: Sequence[ObjectRow], later: bool = False
    ) -> None:
        """Merge object rows, which are durable on return; with `later`, when `durable` says so. Raises NotFound."""
        await brought(self, partition, DatabaseName(account, container), rows, later)

    def submit_rows(
        self, id: DatabaseId, _name: DatabaseName, rows: Sequence[Packed], grows: bool, later: bool, done: Done
    ) -> None:
        """Merge packed rows as `update_rows` does; see `RowsTaker`."""

        def update(database: ContainerDb) -> None:
            database.update(rows)

        def merged(_value: None, error: BaseException | None) -> None:
            if error is None:
                metrics.OBJECT_ROWS_MERGED.inc(len(rows))
            done(None, error)

        self.submit(id, Write(update, merged, max(1, len(rows)), grows=grows, later=later, rows=rows))

    # Accounts.

    async def put_account(
        self,
        partition: int,
        account: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> bool:
        """Create or update an account; True when created."""

        def put(database: AccountDb) -> bool:
            return database.put(timestamp, metadata, bounds)

        name = DatabaseName(account)
        return await self.write(self.id_of(partition, name), put, create=name)

    async def post_account(
        self,
        partition: int,
        account: str,
        timestamp: Timestamp,
        metadata: Mapping[str, str],
        bounds: MetadataBounds | None = None,
    ) -> None:
        """Merge metadata items. Raises NotFound and TooMuchMetadata."""

        def post(database: AccountDb) -> None:
            database.post(timestamp, metadata, bounds)

        await self.write(self.id_of(partition, DatabaseName(account)), post)

    async def delete_account(self, partition: int, account: str, timestamp: Timestamp) -> None:
        """Delete the account. Raises NotEmpty while it has containers, and NotFound."""

        def delete(database: AccountDb) -> None:
            database.delete(timestamp)

        await self.write(self.id_of(partition, DatabaseName(account)), delete, grows=False)

    async def account_info(self, partition: int, account: str) -> AccountInfo:
        """Return the totals and metadata of the account. Raises NotFound."""
        return await self.read(self.id_of(partition, DatabaseName(account)), AccountDb.info)

    async def list_containers(
        self, partition: int, account: str, query: ListingQuery
    ) -> tuple[AccountInfo, Sequence[ContainerRow | Subdir]]:
        """Return one page with the totals of the same moment. Raises NotFound."""

        def page(database: AccountDb) -> tuple[AccountInfo, Sequence[ContainerRow | Subdir]]:
            return database.info(), database.list_page(query)

        return await self.read(self.id_of(partition, DatabaseName(account)), page)

    async def update_containers(self, partition: int, account: str, rows: Sequence[ContainerRow]) -> None:
        """Merge container rows, which are durable on return; the account's database is created if it does not exist."""

        def update(database: AccountDb) -> int:
            return database.update(rows)

        name = DatabaseName(account)
        await self.write(self.id_of(partition, name), update, max(1, len(rows)), create=name)
        metrics.CONTAINER_ROWS_MERGED.inc(len(rows))

    # Databases.

    def id_of(self, partition: int, name: DatabaseName) -> DatabaseId:
        """Return the location of the database of that name."""
        kind = DatabaseKind.ACCOUNT if name.container is None else DatabaseKind.CONTAINER
        return DatabaseId(kind, partition, self.hash_path(name.account, name.container))

    def _container(self, partition: int, account: str, container: str) -> DatabaseId:
        return self.id_of(partition, DatabaseName(account, container))

    async def read(self, id: DatabaseId, operation: Callable[..., T]) -> T:
        """Run `operation(database)` in one read transaction and return its result. Raises NotFound without
        a database.
        """
        handle = self._handle(id)
        try:
            return await handle.read(operation)
        except NotFound:
            self._let_go(handle)
            if id not in self._handles and not handle.path.exists():
                self.fingerprints.drop(id)
            raise

    async def write(
        self,
        id: DatabaseId,
        operation: Callable[..., T],
        weight: int = 1,
        create: DatabaseName | None = None,
        grows: bool = True,
        removes: bool = False,
        later: bool = False,
        aside: bool = False,
    ) -> T:
        """Run `operation(database)` in the database's next transaction and return its result, as `handle.Handle.write`
        does.
        """
        return await self._handle(id).write(operation, weight, create, grows, removes, later, aside)

    def submit(self, id: DatabaseId, write: Write) -> None:
        """Write as `write` does, and report the outcome to `write.done`. Raises NodeBusy and DeviceFailed."""
        self._handle(id).submit(write)

    def durable(self, id: DatabaseId) -> asyncio.Future[None] | None:
        """Return a future for when all of a database that was committed so far is durable; None if it is durable
        already.
        """
        handle = self._handles.get(id)
        return None if handle is None else handle.durable()

    async def _merged(self, id: DatabaseId) -> None:
        """Wait until the rows are merged that native code has taken for a database so far."""
        if Taken(self.table, self._places, id).waiting:
            await self._handle(id).folded()

    async def fingerprint(self, id: DatabaseId) -> bytes:
        """Return 16 bytes that are equal when two replicas are; they are remembered. Raises NotFound."""
        await self._merged(id)
        known = self.fingerprints.get(id)
        if known is not None:
            return known
        for _ in range(_TRIES):
            removals = self._removals
            summary = await self.read(id, Summary.of)
            if removals == self._removals:
                break
        else:
            return summary.fingerprint
        known = self.fingerprints.get(id)
        if known is None:
            known = summary.fingerprint
            self.fingerprints.put(id, known)
        return known

    async def learn(self, ids: Iterable[DatabaseId]) -> None:
        """Remember the fingerprints of those databases that nobody uses, many times faster than `fingerprint`; the
        others stay unknown.
        """
        idle = {id for id in ids if id not in self._handles and not Taken(self.table, self._places, id).waiting}
        self._unused.append(idle)
        try:
            found = await self._look(partial(fingerprints_at_rest, self.root, tuple(idle)))
        finally:
            self._unused = [unused for unused in self._unused if unused is not idle]
        for id, fingerprint in found.items():
            if id in idle and self.fingerprints.get(id) is None:
                self.fingerprints.put(id, fingerprint)

    # What native code has taken.

    def start_folding(self) -> None:
        """Merge in the background what native code has taken, and what it takes from now on."""
        if self._folding is not None:
            self._folding.start()

    async def run_folding(self) -> None:
        """Merge in the background what native code takes, and remove what the journal need not keep, until
        cancelled.
        """
        if self._folding is None:
            return
        self._folding.start()
        try:
            while True:
                await asyncio.sleep(folding.SWEEP_S)
                self._folding.sweep()
                await self.shorten_journal()
        finally:
            self._folding.stop()

    async def shorten_journal(self) -> None:
        """Remove the files of the journal whose rows are durable in the databases, once those folded so far are."""
        if self.table is None:
            return
        mark = self.table.mark()
        syncs = [sync for handle in self._handles.values() if (sync := handle.durable()) is not None]
        if syncs:
            await asyncio.wait(syncs)
        self._shorten_to(mark, self._handles.values())

    def _shorten_to(self, mark: int, handles: Iterable[Handle]) -> None:
        if self.table is not None and not self._broken and not any(handle.unsure for handle in handles):
            self.table.durable_in_databases(mark)

    def _id_at(self, place: Place) -> DatabaseId:
        partition, account, container = place
        return self.id_of(partition, DatabaseName(account, container))

    def _fold_soon(self, place: Place) -> None:
        if self._failed is None:
            id = self._id_at(place)
            self._places.setdefault(id, place)
            self._handle(id).fold().add_done_callback(partial(self._fold_ended, place))

    def _fold_ended(self, place: Place, fold: asyncio.Future[None]) -> None:
        """Log that rows could not be merged, once until they are."""
        error = asyncio.CancelledError() if fold.cancelled() else fold.exception()
        if error is None:
            self._unmerged.discard(place)
        elif place not in self._unmerged:
            self._unmerged.add(place)
            what = f"{self.device}: rows of /{place[1]}/{place[2]} can't be merged, and stay in the journal"
            report(what, error)

    def _journal_failed(self, reason: str) -> None:
        self._out_of_service(DeviceFailed(f"the journal of container updates on device {self.device}: {reason}"))

    @property
    def takes_rows(self) -> bool:
        """Whether native code may take rows: not once the device has failed or is being closed."""
        return self._failed is None

    def folded(self, handle: Handle, rows: int, merged: bool) -> None:
        """Note that a database has the rows that were taken until then, or that they were put back."""
        metrics.FOLDED_ROWS.labels("merged" if merged else "put-back").inc(rows)
        if not merged:
            return
        metrics.OBJECT_ROWS_MERGED.inc(rows)
        place = self._places.get(handle.id)
        if place is not None and self._folding is not None:
            self._folding.folded(place)

    def full(self) -> None:
        """Have no more rows taken natively while the device is full; the next commit with room allows it again."""
        if self.table is not None:
            self.table.close_all("the device is full")

    def require(self) -> None:
        """Raise DeviceFailed when the device is out of service."""
        if self._failed is not None:
            raise DeviceFailed(str(self._failed))

    async def partitions(self, kind: DatabaseKind) -> list[int]:
        """Return the partitions with databases of a kind, ascending; directories with other names are ignored."""
        home = self.root / kind.value
        return await self._look(lambda: sorted(int(entry) for entry in entries(home) if entry.isdecimal()))

    async def databases(self, kind: DatabaseKind, partition: int) -> list[DatabaseId]:
        """Return the databases in a partition, by digest."""
        return await self._look(lambda: databases_in(self.root, kind, partition))

    async def verify(self, id: DatabaseId) -> None:
        """Read all of a database and check it. Raises DamagedDatabase after moving a damaged one to quarantine."""
        await self.read(id, lambda database: database.verify())

    async def reclaim(self, id: DatabaseId, before: Timestamp) -> int:
        """Remove the markers older than `before`, or a deleted database as a whole; return how many rows
        were removed.
        """
        total = 0
        while True:
            gone: int = await self.write(id, lambda database: database.reclaim(before), grows=False)
            total += gone
            if not gone:
                break
        await self.write(id, lambda database: _is_past(database, before), grows=False, removes=True)
        return total

    async def remove(self, id: DatabaseId, fingerprint: bytes) -> bool:
        """Remove a database unless it has changed since it had `fingerprint`; return whether it was removed."""
        return await self.write(
            id, lambda database: Summary.of(database).fingerprint == fingerprint, grows=False, removes=True
        )

    async def close(self) -> None:
        """Finish what was begun, close everything, and release the device."""
        self._end_folding()
        self._failed = DeviceFailed(f"device {self.device} is closed")
        handles = list(self._handles.values())
        self._handles.clear()
        for handle in handles:
            await handle.wait_idle()
        mark = self.table.mark() if self.table is not None else 0
        if self._closing:
            await asyncio.wait(self._closing)
        await asyncio.gather(*(self._writers.run(handle.close_now) for handle in handles))
        self._shorten_to(mark, handles)
        await self._release()

    def _end_folding(self) -> None:
        """Have no more rows taken natively, and begin to merge those that were; what can't be merged stays in the
        journal.
        """
        if self.table is None or self._folding is None:
            return
        self.table.close_all("the server ends")
        self._folding.stop()
        if self._failed is None:
            for place in self.table.databases():
                self._fold_soon(place)

    async def _release(self) -> None:
        """Release the device; the end of the threads is not waited for in the event loop."""
        await asyncio.get_running_loop().run_in_executor(None, self._shut_down)

    def _shut_down(self) -> None:
        if self.table is not None:
            self.table.stop()
        self._readers.shutdown()
        self._writers.close()
        self._syncers.close()
        os.close(self._lock)

    async def _look(self, look: Callable[[], T]) -> T:
        self.require()
        try:
            return await asyncio.get_running_loop().run_in_executor(self._readers, look)
        except OSError as error:
            raise translate(error, f"device {self.device}") or error from error

    # Handles.

    def _handle(self, id: DatabaseId) -> Handle:
        self.require()
        handle = self._handles.get(id)
        if handle is None:
            taken = Taken(self.table, self._places, id)
            handle = Handle(id, database_path(self.root, id), self.root, self.limits, self._workers, self, taken)
            self._handles[id] = handle
            for unused in self._unused:
                unused.discard(id)
            self._make_room()
        self._handles.move_to_end(id)
        return handle

    def _let_go(self, handle: Handle) -> None:
        """Forget the handle of a database that does not exist, so that it does not push out those of existing ones."""
        if handle.closed and not handle.busy and self._handles.get(handle.id) is handle and handle.shut():
            self._places.pop(handle.id, None)
            del self._handles[handle.id]

    def _make_room(self) -> None:
        """Close the least recently used databases while there are too many."""
        surplus = len(self._handles) - self.limits.open_databases
        if surplus > 0:
            # The last one was asked for just now.
            older = islice(self._handles.items(), min(len(self._handles) - 1, LOOKED_AT))
            idle = (id for id, handle in older if not handle.busy)
            for id in list(islice(idle, surplus)):
                self._close_soon(self._handles.pop(id))
        self._take_for_fewer()
        metrics.OPEN_DATABASES.labels(self.device).set(len(self._handles))

    def _take_for_fewer(self) -> None:
        """Have no more rows taken natively for the databases that have been open to that for longest, while there are
        too many.
        """
        surplus = len(self._places) - TAKEN_FOR * self.limits.open_databases
        for id in list(islice(self._places, max(0, surplus))):
            handle = self._handles.get(id)
            taken = Taken(self.table, self._places, id) if handle is None else handle.taken
            taken.shut()
            if taken.waiting:
                asyncio.get_running_loop().call_soon(self._fold_soon, self._places[id])
            else:
                del self._places[id]

    @property
    def forgotten_before(self) -> Timestamp:
        """The timestamp below which markers were reclaimed here; replicas don't bring them back."""
        return self._forgotten_before

    def forget_before(self, before: Timestamp) -> None:
        """Accept no marker older than this from now on."""
        self._forgotten_before = before

    def refuse_policies(self, indexes: frozenset[int]) -> None:
        """Create no container with these storage policies from now on, except those of hidden accounts."""
        self._refused_policies = indexes

    def know_policies(self, indexes: frozenset[int]) -> None:
        """Take storage policies that are not among these for retired from now on."""
        self._known_policies = indexes

    def watch(self, watcher: Callable[[DatabaseId], None]) -> None:
        """Call `watcher` after each commit that may have changed something else than rows, before it is answered."""
        self._watchers.append(watcher)

    def follow(self, follower: Committed) -> None:
        """Call `follower` after every commit to a container's database from now on, after the earlier followers."""
        self._followers.append(follower)

    def unfollow(self, follower: Committed) -> None:
        """End the calls that `follow` began, if it did."""
        self._followers = [known for known in self._followers if known != follower]

    def _close_soon(self, handle: Handle) -> None:
        closing = asyncio.get_running_loop().create_task(self._writers.run(handle.close_now))
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def committed(self, handle: Handle, summary: Summary, description: Description | None, batch: int) -> None:
        """Remember fingerprint and description after a transaction, and tell the followers."""
        metrics.BATCH_ROWS.observe(batch)
        is_current = self._handles.get(handle.id) is handle
        if is_current:
            self.fingerprints.put(handle.id, summary.fingerprint)
        if is_current and description is not None:
            self.descriptions.put(handle.id, description)
        else:
            self.descriptions.drop(handle.id)
        if handle.id.kind is DatabaseKind.CONTAINER:
            for follower in self._followers:
                follower(handle.id, summary)

    def altered(self, id: DatabaseId) -> None:
        """Tell who watches that something else than rows may have changed in a database."""
        for watcher in self._watchers:
            watcher(id)

    def gone(self, handle: Handle) -> None:
        """Forget the fingerprint of a database that was removed."""
        handle.taken.forget()
        self.descriptions.drop(handle.id)
        self._removals += 1
        self.fingerprints.drop(handle.id)

    def nothing(self, handle: Handle) -> None:
        """Forget the handle of a database that does not exist."""
        self._let_go(handle)

    async def fault(self, handle: Handle, error: SwiftletError) -> None:
        """Quarantine a damaged database, take a failed device out of service."""
        if isinstance(error, DeviceFailed):
            self._out_of_service(error)
        elif isinstance(error, DamagedDatabase) and self._handles.get(handle.id) is handle:
            del self._handles[handle.id]
            handle.taken.end()
            self.gone(handle)
            metrics.QUARANTINED.labels(self.device).inc()
            await self._writers.run(lambda: self._quarantine(handle))

    def _out_of_service(self, error: DeviceFailed) -> None:
        self._failed = self._failed or error
        self._broken = True
        if self.table is not None:
            self.table.close_all("the device has failed")
        metrics.DEVICES_FAILED.labels(self.device).set(1)

    def _quarantine(self, handle: Handle) -> None:
        home = handle.path.parent
        ward = self.root / "quarantine"
        ward.mkdir(exist_ok=True)
        if home.exists():
            home.rename(ward / f"{handle.id.kind.value}-{home.name}-{time.time_ns()}")
            sync_directories(home.parent, self.root)
            sync_directories(ward, self.root)
        handle.close_now()

    async def usage(self) -> Usage:
        """Return how full the device is. Raises DeviceFailed."""
        stat = await self._look(lambda: os.statvfs(self.root))
        return Usage(stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize)

    def check_room(self) -> None:
        """Raise DiskFull when less than the reserve was free a moment ago; called in a worker thread."""
        now_s = time.monotonic()
        if now_s >= self._room_known_until_s:
            stat = os.statvfs(self.root)
            self._has_room = stat.f_bavail * stat.f_frsize >= self.limits.reserve_bytes
            self._room_known_until_s = now_s + _ROOM_KNOWN_S
        if not self._has_room:
            raise DiskFull(
                f"device {self.device} is full: only its reserve of {self.limits.reserve_bytes} bytes is left"
            )


def _is_past(database: ContainerDb | AccountDb, before: Timestamp) -> bool:
    """Return whether a deleted database may be removed: it was deleted before, the account has that, and it
    is empty.
    """
    head = database.head
    if not head.deleted or head.delete_timestamp >= before or database.rows("", "", 1):
        return False
    return database.kind is DatabaseKind.ACCOUNT or not head.unreported
