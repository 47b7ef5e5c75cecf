"""Exchanges two replicas of one database: states first, then the rows of those pages that differ.

A page goes as its set hash, and only where that differs as rows, both ways. Servers merge everything by "newest wins",
so an exchange may overlap with others, be repeated and stop anywhere. A database that one side lacks is made there.
Rows above the first split point of a container are on their way to a shard, which each replica moves by itself, so an
exchange leaves them alone. Those of a shard's handoff nobody moves any more: they go to its primaries, and on from
there.

The own server is asked for states and hashes of pages as well.

Fault model: either server may go away at any point, with anything done or not done: the next round compares anew. A
server whose rows go backwards raises a NodeError. This process may be killed at any point: it keeps nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from prometheus_client import Counter

from swiftlet.boundaries.listing_sync import ListingSyncTransport
from swiftlet.errors import NodeError, NotFound
from swiftlet.listing import replica
from swiftlet.listing.database import POINT
from swiftlet.listing.sethash import NOT_A_DIGEST
from swiftlet.listing.shards import is_shard
from swiftlet.model import DatabaseId, DatabaseName, DatabaseState, ListingRow
from swiftlet.ring.model import Device

ROWS = Counter("swiftlet_replicator_rows_total", "Rows of databases that rounds brought.", ["direction"])
for _direction in ("received", "sent"):
    # Both exist from the start: without a difference there is no row, and the dashboard is to say 0.
    ROWS.labels(_direction)
_ROW_BYTES = 64
"""Bytes that a row is assumed to have in addition to its texts."""


class Outcome(Enum):
    """The outcome of an exchange."""

    AGREED = "agreed"
    """Both sides have all rows that either had (after the return of a handoff, the peer has them)."""
    LATER = "later"
    """A handoff has rows that belong in a shard; they are moved there before it is returned."""
    FORGOTTEN = "forgotten"
    """The database was deleted so long ago that the peer has forgotten it."""


@dataclass(slots=True)
class Exchange:
    """The exchange of one database between two devices.

    `one_way` tells that this side is a handoff, which gives its rows and takes none.
    """

    transport: ListingSyncTransport
    near: Device
    """The device on this side."""
    far: Device
    id: DatabaseId
    one_way: bool = False
    rows: int = 0
    moved_bytes: int = 0
    """Approximate number of bytes that were transferred."""

    async def run(self) -> Outcome:
        """Do the exchange and return its outcome. Raises NodeError and the errors of the servers."""
        try:
            ours = await self.transport.database_state(self.near, self.id)
        except NotFound:
            if self.one_way:
                raise
            theirs = await self.transport.database_state(self.far, self.id)
            ours = await self.transport.exchange_state(self.near, self.id, theirs)
        try:
            theirs = await self.transport.exchange_state(self.far, self.id, ours)
        except NotFound:
            if ours.deleted:
                return Outcome.FORGOTTEN
            raise
        if not self.one_way or _lacks_points(ours, theirs):
            ours = await self.transport.exchange_state(self.near, self.id, theirs)
        if ours.rows_digest == theirs.rows_digest:
            return Outcome.AGREED
        end = self._end(ours)
        if self.one_way and end:
            above = await self.transport.compare_rows(self.near, self.id, end, "", NOT_A_DIGEST)
            if above is not None and above.rows:
                return Outcome.LATER
        await self._pages(ours.name, end)
        return Outcome.AGREED

    def _end(self, ours: DatabaseState) -> str:
        if self.one_way and is_shard(ours.name):
            return ""
        return first_point(ours)

    async def _pages(self, name: DatabaseName, end: str) -> None:
        """Exchange all pages up to `end`; "" means all of them."""
        after = ""
        while True:
            pages = await self.transport.page_digests(self.near, self.id, after, end)
            if not pages:
                raise NodeError(f"{self.near.address} sent no page of {self.id}, not even an empty one")
            for upto, digest in pages:
                await self._page(name, after, upto, digest)
                if upto == end:
                    return
                if upto <= after:
                    raise NodeError(f"{self.near.address} sent rows of {self.id} out of order")
                after = upto

    async def _page(self, name: DatabaseName, after: str, upto: str, digest: bytes) -> None:
        """Exchange one page in both directions, in as many steps as the longer side needs."""
        while True:
            theirs = await self.transport.compare_rows(self.far, self.id, after, upto, digest)
            if theirs is None:
                return
            ours = await self.transport.compare_rows(self.near, self.id, after, theirs.upto, NOT_A_DIGEST)
            if ours is None:
                raise NodeError(f"{self.near.address} sent rows of {self.id} without a set hash")
            known = [row for row in theirs.rows if not ours.upto or row.name <= ours.upto]
            await self._merge(name, [] if self.one_way else replica.lacking(known, ours.rows), self.near)
            await self._merge(name, replica.lacking(ours.rows, known), self.far)
            if ours.upto == upto:
                return
            if ours.upto <= after:
                raise NodeError(f"{self.far.address} sent rows of {self.id} out of order")
            after, digest = ours.upto, NOT_A_DIGEST

    async def _merge(self, name: DatabaseName, rows: list[ListingRow], target: Device) -> None:
        if not rows:
            return
        await self.transport.merge_rows(target, self.id, name, rows)
        ROWS.labels("received" if target is self.near else "sent").inc(len(rows))
        self.rows += len(rows)
        self.moved_bytes += sum(_ROW_BYTES + len(row.name.encode("utf-8")) for row in rows)


def _lacks_points(ours: DatabaseState, theirs: DatabaseState) -> bool:
    """Return whether the peer has split points that this side does not know."""
    known = {item.name for item in ours.metadata}
    return any(item.name.startswith(POINT) and item.name not in known for item in theirs.metadata)


def first_point(state: DatabaseState) -> str:
    """Return the name up to which replicas have the same rows, the first split point; "" when there is none."""
    return min(split_points(state), default="")


def split_points(state: DatabaseState) -> list[str]:
    """Return all split points of a database in order."""
    return sorted(item.name[len(POINT) :] for item in state.metadata if item.name.startswith(POINT))
