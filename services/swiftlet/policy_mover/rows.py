"""The rows and markers of a container, from all primary replicas of its databases and of its shards'.

Each database is read from all of its replicas at the same time, a page of each in memory, and of rows with one name the
merged one counts. So a row that one replica alone has is not missed. Rows of a container that is being split move to
shards with higher points only; therefore the databases are read in the order of their points, and the points are looked
up again before the next database.

Fault model: replicas may be away, or fail at any time: they are named, and the walk then does not count as whole. A
database that no replica has is one that was never founded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from swiftlet.boundaries.listing_sync import ListingSyncTransport
from swiftlet.errors import NodeError, NotFound, SwiftletError, Unavailable
from swiftlet.listing.sethash import NOT_A_DIGEST
from swiftlet.listing.shards import shard_name
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, ObjectRow, RowPage
from swiftlet.names import HashPath
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.databases.exchange import split_points

T = TypeVar("T")


class RowWalk:
    """One walk over a container's rows."""

    def __init__(
        self, databases: ListingSyncTransport, ring: Callable[[], Ring], hash_path: HashPath, container: DatabaseName
    ) -> None:
        """`ring` returns the containers' ring, or raises Unavailable."""
        self._databases, self._ring, self._hash_path = databases, ring, hash_path
        self._container = container
        self.unheard: dict[str, str] = {}
        """The reasons why replicas could not be read, by device; when there is one, rows may have been missed."""

    async def pages(self) -> AsyncIterator[Sequence[ObjectRow]]:
        """Yield the rows, removed ones included, a page at a time. Raises NotFound without the container, and
        Unavailable when no replica of a database can be read.
        """
        point = ""
        while True:
            name = shard_name(self._container, point) if point else self._container
            async for rows in self._of_database(name):
                yield rows
            higher = [one for one in await self._points() if one > point]
            if not higher:
                return
            point = min(higher)

    def _place(self, name: DatabaseName) -> tuple[DatabaseId, Sequence[Device]]:
        ring, digest = self._ring(), self._hash_path(name.account, name.container)
        id = DatabaseId(DatabaseKind.CONTAINER, ring.partition_of(digest), digest)
        return id, ring.primaries(id.partition)

    async def _points(self) -> set[str]:
        """Return the split points that any replica knows. Raises NotFound and Unavailable."""
        id, holders = self._place(self._container)
        asked = [self._databases.database_state(device, id) for device in holders]
        points: set[str] = set()
        answers = await asyncio.gather(*asked, return_exceptions=True)
        for _, state in self._heard(self._container, holders, answers):
            points.update(split_points(state))
        return points

    async def _of_database(self, name: DatabaseName) -> AsyncIterator[Sequence[ObjectRow]]:
        """Yield the rows of one database; none of a shard that no replica has."""
        id, holders = self._place(name)
        after = ""
        while holders:
            asked = [self._databases.compare_rows(device, id, after, "", NOT_A_DIGEST) for device in holders]
            answers = await asyncio.gather(*asked, return_exceptions=True)
            try:
                heard = self._heard(name, holders, answers)
            except NotFound:
                if name == self._container:
                    raise
                return
            holders = [device for device, _ in heard]
            pages = [page for _, page in heard if page is not None]
            upto = min((page.upto for page in pages if page.upto), default="")
            yield _merged(pages, upto)
            if not upto:
                return
            if upto <= after:
                raise NodeError(f"a replica of {name} sent its rows out of order")
            after = upto

    def _heard(
        self, name: DatabaseName, holders: Sequence[Device], answers: Sequence[T | BaseException]
    ) -> list[tuple[Device, T]]:
        """Return the answers that are there, and note the replicas without one. Raises NotFound when no replica has the
        database, and Unavailable when none answers.
        """
        heard: list[tuple[Device, T]] = []
        absent: dict[str, NotFound] = {}
        for device, answer in zip(holders, answers, strict=True):
            if isinstance(answer, NotFound):
                absent[device.name] = answer
            elif isinstance(answer, SwiftletError):
                self.unheard[device.name] = str(answer)
            elif isinstance(answer, BaseException):
                raise answer
            else:
                heard.append((device, answer))
        if not heard and len(absent) == len(holders):
            raise next(iter(absent.values()))
        # Others have it, and this one may have had rows.
        self.unheard |= dict.fromkeys(absent, f"it has no replica of {name}")
        if not heard:
            raise Unavailable(f"no replica of {name} can be read: {self.unheard}")
        return heard


def _merged(pages: Sequence[RowPage], upto: str) -> list[ObjectRow]:
    """Return the rows of pages up to a name ("" for all), each name once, in order."""
    found: dict[str, ObjectRow] = {}
    for page in pages:
        for row in page.rows:
            if isinstance(row, ObjectRow) and not (upto and row.name > upto):
                found[row.name] = row.merged(found[row.name]) if row.name in found else row.plain
    return [found[name] for name in sorted(found)]
