"""The invariants of listings, checked at every change and at the end.

Checked at every change: a row never gets older, except by a power loss or an audit's correction. Checked when a
handoff's database is dropped: every primary knows its rows. Checked at the end: nothing is pending any more, the
replicas of each container are equal within their mode's number of rounds, totals and set hashes match the rows, and the
rows match the objects.

Without an audit the last one cannot hold for a name of which data that only one device had were lost, or whose row was
given up. Those names are counted (`unproved`); after an audit the rows of all names match the objects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from functools import reduce

from swiftlet.model import DatabaseId, ObjectRow
from swiftlet.sync.session.effects import Drop
from swiftlet.testing.sim.checker import Checker, Counts
from swiftlet.testing.sim.client import Verb
from swiftlet.testing.sim.listings.node import ListingNode, database_at
from swiftlet.testing.sim.listings.rows import Places
from swiftlet.testing.sim.listings.store import RowWatch, recount
from swiftlet.testing.sim.node import Node, Witness
from swiftlet.timestamp import ZERO, Timestamp


class ListingChecker(Witness):
    """Checks the containers of one world."""

    def __init__(self, checker: Checker) -> None:
        """Start with an empty history; violations are reported to `checker`."""
        self.places: Places
        self.wiped_s: dict[int, float] = {}
        self.unproved: set[bytes] = set()
        """Objects whose rows only an audit corrects."""
        self._checker = checker
        self._reclaimed: dict[tuple[int, DatabaseId, str], Timestamp] = {}
        """The newest marker of a name that a device has forgotten."""

    @property
    def counts(self) -> Counts:
        """Return the counts of the whole world."""
        return self._checker.counts

    def say(self, text: str) -> None:
        """Add a line to the trace."""
        self._checker.say(f"listing {text}")

    # -- at every change -------------------------------------------------------------------------------------

    def watch(self, node: int) -> RowWatch:
        """Return the watch that a device tells of its changes."""

        def changed(id: DatabaseId, old: ObjectRow | None, new: ObjectRow | None, why: str) -> None:
            if self._checker.trace is not None:
                self.say(f"{node}: {id.digest.hex()[:4]}: {_brief(old)} -> {_brief(new)} ({why})")
            self.counts.rows += 1
            if why == "reclaim":
                assert old is not None
                self._forgets(node, id, old)
            elif why not in ("power", "replace"):
                assert new is not None
                if old is not None and old.merged(new) != new:
                    self._checker.must(False, f"{why}: container device {node} went back from {old} to {new}")

        return changed

    def _forgets(self, node: int, id: DatabaseId, marker: ObjectRow) -> None:
        """A marker is forgotten; a replica that still has an older row may restore that."""
        key = node, id, marker.name
        self._reclaimed[key] = max(marker.timestamp, self._reclaimed.get(key, ZERO))
        for other in self.places.containers.values():
            database = other.databases.peek(id)
            row = database.rows.get(marker.name) if database is not None else None
            if row is not None and not row.deleted and row.timestamp < marker.timestamp:
                self.give_up(self._digest(id, marker.name))

    def dropping(self, node: Node, effect: Drop, began_s: float) -> None:
        """Check that all primaries know the rows, except those that lost their device or got a newer ring since the
        proof.
        """
        for entry in effect.entries:
            id = database_at(effect.partition, entry)
            here = self.places.containers[node.id].databases
            going = here.peek(id)
            if going is None or here.entry(id) != entry:
                continue
            for device in node.ring.primaries(effect.partition):
                there = self.places.containers[device.id]
                if self.wiped_s.get(device.id, -1.0) >= began_s or there.ring.version > node.ring.version:
                    continue
                for row in going.rows.values():
                    self._knows(node.id, there, id, row)

    def _knows(self, source: int, there: ListingNode, id: DatabaseId, row: ObjectRow) -> None:
        database = there.databases.peek(id)
        known = database.rows.get(row.name) if database is not None else None
        forgotten = self._reclaimed.get((there.id, id, row.name), ZERO)
        if row.deleted:
            forgotten = max(forgotten, there.databases.forgotten)
        holds = known.merged(row) == known if known is not None else row.timestamp <= forgotten
        if not holds:
            self._checker.must(False, f"container device {source} drops {row}, device {there.id} has {known}")

    def give_up(self, digest: bytes) -> None:
        """Record that only an audit will correct this object's row."""
        if digest not in self.unproved:
            self.unproved.add(digest)
            self.counts.unproved += 1
            self.say(f"{self.places.paths[digest]} needs an audit")

    # -- what is lost ----------------------------------------------------------------------------------------

    def losing_objects(self, node: Node, gone: Collection[int] = ()) -> None:
        """An object device is about to lose all its data, or to stay away, as the devices `gone` already do."""
        for _, held in node.store.all():
            if held.entry is None:
                continue
            digest = held.entry.digest
            row = self.places.row_of(digest, held)
            others = [other for other in self.places.objects.values() if other is not node and other.id not in gone]
            if row is not None and (digest in node.store.pending or not _covers(self.truth(digest, others), row)):
                self.give_up(digest)

    def losing_rows(self, node: ListingNode) -> None:
        """A container device is about to lose all its data."""
        others = [other for other in self.places.containers.values() if other is not node]
        for id, database in node.databases.all().items():
            for row in database.rows.values():
                found = [other.databases.peek(id) for other in others]
                known = [one.rows[row.name] for one in found if one is not None and row.name in one.rows]
                if not _covers(reduce(ObjectRow.merged, known) if known else None, row):
                    self.give_up(self._digest(id, row.name))

    def _digest(self, id: DatabaseId, name: str) -> bytes:
        return next(
            digest
            for digest, path in self.places.paths.items()
            if path.obj == name and self.places.databases[path.container or ""] == id.digest
        )

    # -- at the end ------------------------------------------------------------------------------------------

    def truth(self, digest: bytes, nodes: Iterable[Node]) -> ObjectRow | None:
        """Return the row of an object, from what these devices together hold of it."""
        partition = next(iter(self.places.objects.values())).ring.partition_of(digest)
        rows = [self.places.row_of(digest, node.store.held(partition, digest)) for node in nodes]
        known = [row for row in rows if row is not None]
        return reduce(ObjectRow.merged, known) if known else None

    def rows_of(self, digest: bytes) -> Iterator[tuple[ListingNode, ObjectRow | None]]:
        """Yield each primary of an object's container with its row; every one must have the database."""
        for node, id in self.primaries(digest):
            database = node.databases.peek(id)
            self._checker.must(database is not None, f"container device {node.id} lacks {id}")
            assert database is not None
            yield node, database.rows.get(self.places.paths[digest].obj or "")

    def primaries(self, digest: bytes) -> Iterator[tuple[ListingNode, DatabaseId]]:
        """Yield the primaries of an object's container under the newest ring."""
        ring = max((node.ring for node in self.places.containers.values()), key=lambda ring: ring.version)
        id = self.places.database(ring, digest)
        for device in ring.primaries(id.partition):
            yield self.places.containers[device.id], id

    def nothing_pending(self, live: Iterable[Node]) -> None:
        """Check that no live device has a pending update."""
        for node in live:
            self._checker.must(
                not len(node.store.pending), f"device {node.id} still has {len(node.store.pending)} pending updates"
            )

    def equal(self, rounds: int) -> None:
        """Check that the primaries of each container have the same rows, ignoring markers that may be forgotten."""
        forgotten = max(node.databases.forgotten for node in self.places.containers.values())
        for digest in self.places.paths:
            found = [
                None if row is not None and row.deleted and row.timestamp < forgotten else row
                for _, row in self.rows_of(digest)
            ]
            text = f"rows of {self.places.paths[digest]} are not equal after {rounds} rounds: {found}"
            self._checker.must(all(row == found[0] for row in found), text)

    def counted(self) -> None:
        """Check that totals and set hashes match the rows."""
        for node in self.places.containers.values():
            for id, database in node.databases.all().items():
                kept = database.objects, database.size, database.digest
                right = recount(list(database.rows.values()))
                self._checker.must(kept == right, f"container device {node.id}: {id} counts {kept}, its rows {right}")

    def as_objects(self, live: list[Node]) -> None:
        """Check that the rows match the objects, except for names that need an audit."""
        for digest in self.places.paths:
            if digest in self.unproved or digest in self._checker.exempt:
                continue
            truth = self.truth(digest, live)
            self.counts.proved += 1
            for node, row in self.rows_of(digest):
                self._matches(digest, node, row, truth, self._hidden(digest))

    def needs_audit(self, digest: bytes) -> bool:
        """Return whether something has happened to an object after which only an audit can correct its rows."""
        return digest in self.unproved or digest in self._checker.exempt or self._hidden(digest)

    def audited(self, digest: bytes, live: list[Node]) -> None:
        """Check that the rows of one name match the object in every field."""
        for node, row in self.rows_of(digest):
            self._matches(digest, node, row, self.truth(digest, live), False)

    def _hidden(self, digest: bytes) -> bool:
        """Return whether a POST may count for some devices and not for others, because it met a deletion."""
        verbs = {write.verb for write in self._checker.writes.get(digest, ())}
        return {Verb.POST, Verb.DELETE} <= verbs

    def _matches(
        self, digest: bytes, node: ListingNode, row: ObjectRow | None, truth: ObjectRow | None, hidden: bool
    ) -> None:
        if truth is None or truth.deleted:
            right = row is None or row.deleted
        elif hidden:
            right = row is not None and _data(row) == _data(truth)
        else:
            right = row == truth
        text = f"{self.places.paths[digest]} is listed as {row} by container device {node.id}, objects say {truth}"
        self._checker.must(right, text)


def _covers(known: ObjectRow | None, row: ObjectRow) -> bool:
    return known is not None and known.merged(row) == known


def _data(row: ObjectRow) -> tuple[Timestamp, int, str, bool]:
    return row.timestamp, row.size, row.etag, row.deleted


def _brief(row: ObjectRow | None) -> str:
    if row is None:
        return "nothing"
    posted = f" +{row.meta_timestamp.normal}" if row.meta_timestamp.value else ""
    return f"{row.name} {'deleted' if row.deleted else 'live'} {row.timestamp.internal}{posted}"
