"""Compares one container with its copy: which of its databases have changed, and what the copy lacks of their rows.

A container's database, and each of its shards, has a set hash of its rows. One whose hash is the same as when it was
found equal to the copy is left alone. Of the others all rows, removed ones included, are compared with the copy's
listing. Rows that are on their way from one database to another are compared where they are; timestamps make the order
of no importance.

Fault model: databases may be away; a database is read on the first of its devices that answers, and what this one
lacks is compared when a replicator has brought it. A comparison may be broken off at any point, and goes on from there
with rows that may have changed: then the set hash is another one than at its beginning, and nothing counts as equal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from swiftlet.boundaries.listing_sync import ListingSyncTransport
from swiftlet.container_sync.copying import Copying, Describe, RemoteListing, is_due
from swiftlet.container_sync.peer import Peer
from swiftlet.container_sync.realms import Target
from swiftlet.container_sync.registry import SyncRegistry
from swiftlet.errors import NotFound, SwiftletError, Unavailable
from swiftlet.listing.database import POINT
from swiftlet.listing.sethash import NOT_A_DIGEST
from swiftlet.listing.shards import shard_name
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, DatabaseState, ObjectRow
from swiftlet.names import HashPath, Path
from swiftlet.placement.listings import ClusterListings
from swiftlet.placement.routing import AnyObjects
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device


@dataclass(frozen=True, slots=True, kw_only=True)
class Here:
    """This cluster, as container sync reads it."""

    registry: SyncRegistry
    listings: ClusterListings
    databases: ListingSyncTransport
    objects: AnyObjects
    ring: Callable[[], Ring]
    """A function that returns the containers' ring, or raises Unavailable."""
    hash_path: HashPath
    describe: Describe


@dataclass(frozen=True, slots=True)
class Copied:
    """What a container says of its copy: the container that it is, and the key of both containers."""

    target: Target
    key: str = field(repr=False)


@dataclass(slots=True)
class Progress:
    """What is known of one container between rounds; times are by the monotonic clock."""

    equal_at: float
    """When it was last found equal to its copy, or first seen."""
    not_before: float
    """When it is looked at next."""
    failures: int = 0
    """The number of rounds in a row that failed."""
    copied: Copied | None = None
    proved: dict[DatabaseId, tuple[bytes, float]] = field(default_factory=dict)
    """The set hashes of databases when they were found equal, and when that was."""
    broken_off: tuple[DatabaseId, str, bytes] | None = None
    """The database whose comparison ran out of time, the last name compared, and the set hash at its beginning."""
    settled: OrderedDict[str, int] = field(default_factory=OrderedDict)
    """Objects that the copy's listing lacks for good, with their times in ticks."""
    problem: str = ""
    """Why it is not equal to its copy, "" where it is."""

    def aim_at(self, copied: Copied) -> None:
        """Begin anew when the container has another copy."""
        if copied != self.copied:
            self.copied, self.broken_off = copied, None
            self.proved.clear()
            self.settled.clear()


@dataclass(slots=True)
class _Database:
    id: DatabaseId
    device: Device
    state: DatabaseState


@dataclass(slots=True, kw_only=True)
class Comparison:
    """One round's comparison of a container with its copy, until `deadline` by `clock`."""

    here: Here
    path: Path
    known: Progress
    copying: Copying
    peer: Peer
    clock: Callable[[], float]
    deadline: float
    verify_s: float

    async def run(self) -> bool:
        """Bring the copy what it lacks; return whether both are equal now. Raises PeerFailed and errors of this
        cluster.
        """
        known = self.known
        databases = await self._databases()
        ids = [database.id for database in databases]
        for gone in known.proved.keys() - set(ids):
            del known.proved[gone]
        if known.broken_off is not None and known.broken_off[0] in ids:
            at = ids.index(known.broken_off[0])
            databases = databases[at:] + databases[:at]
        else:
            known.broken_off = None
        is_equal = True
        for database in databases:
            if self.clock() >= self.deadline:
                return False
            is_equal = await self._compare(database) and is_equal
        return is_equal

    async def _databases(self) -> list[_Database]:
        """Return the container's own database, and those of its shards that have rows."""
        name = DatabaseName(self.path.account, self.path.container)
        own = await self._found(name)
        points = sorted(item.name[len(POINT) :] for item in own.state.metadata if item.name.startswith(POINT))
        found = [own]
        for point in points:
            try:
                found.append(await self._found(shard_name(name, point)))
            except NotFound:
                continue
        return found

    async def _found(self, name: DatabaseName) -> _Database:
        """Return a database as the first of its devices that answers has it. Raises NotFound where none has it, and
        Unavailable.
        """
        digest = self.here.hash_path(name.account, name.container)
        ring = self.here.ring()
        id = DatabaseId(DatabaseKind.CONTAINER, ring.partition_of(digest), digest)
        error: SwiftletError | None = None
        for device in ring.primaries(id.partition):
            try:
                return _Database(id, device, await self.here.databases.database_state(device, id))
            except NotFound as absence:
                error = error or absence
            except SwiftletError as failure:
                error = Unavailable(f"no device of database {id} answers: {failure}")
        assert error is not None
        raise error

    async def _compare(self, database: _Database) -> bool:
        """Compare one database with the copy, and bring the copy what it lacks; return whether that was all."""
        known, id, began = self.known, database.id, database.state.rows_digest
        begun, known.broken_off = known.broken_off, None
        digest, at = known.proved.get(id, (b"", 0.0))
        if digest == began and self.clock() - at < self.verify_s:
            return True
        after = ""
        if begun is not None and begun[0] == id:
            _, after, began = begun
        listing, failed = RemoteListing(self.peer), self.copying.failed
        while True:
            page = await self.here.databases.compare_rows(database.device, id, after, "", NOT_A_DIGEST)
            if page is None:
                break
            rows = [row for row in page.rows if isinstance(row, ObjectRow)]
            there = await listing.beside(rows)
            await self.copying.bring([row for row in rows if is_due(row, there.get(row.name))])
            if self.copying.postponed:
                known.broken_off = id, after, began
                return False
            if page.upto in ("", after):
                break
            after = page.upto
            if self.clock() >= self.deadline:
                known.broken_off = id, after, began
                return False
        if self.copying.failed > failed:
            return False
        known.proved[id] = began, self.clock()
        return True
