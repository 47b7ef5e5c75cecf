"""The list of containers that have a copy elsewhere: rows of a container in a hidden account.

A proxy adds a container before it stores the header that names the copy, so that a stop in between leaves a name too
many, never one too few. Workers remove names whose containers have no copy any more.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from swiftlet.errors import InvalidName, NotFound, Superseded
from swiftlet.model import ListingQuery, ObjectRow, Subdir
from swiftlet.names import Path, parse_path
from swiftlet.placement.listings import ClusterListings
from swiftlet.timestamp import Timestamp

ACCOUNT, CONTAINER = ".container_sync", "containers"
"""The hidden account and its container. No user's account begins with a point."""
PAGE = 1000


@dataclass(frozen=True, slots=True)
class Entry:
    """A container that has, or had, a copy; `added` tells when a proxy wrote it down last."""

    path: Path
    added: Timestamp

    @property
    def name(self) -> str:
        """Return the name of its row."""
        return self.path.quoted


class SyncRegistry:
    """The list of the whole cluster."""

    def __init__(self, listings: ClusterListings, stamp: Callable[[], Timestamp]) -> None:
        """`stamp` returns a new timestamp at each call."""
        self._listings = listings
        self._stamp = stamp

    async def add(self, account: str, container: str) -> None:
        """Add a container; this is durable on return. Raises Unavailable when too few databases can be reached."""
        row = ObjectRow(Path(account, container).quoted, self._stamp())
        try:
            await self._listings.update_rows(ACCOUNT, CONTAINER, [row])
        except NotFound:
            await self._make()
            await self._listings.update_rows(ACCOUNT, CONTAINER, [row])

    async def _make(self) -> None:
        try:
            await self._listings.put_container(ACCOUNT, CONTAINER, self._stamp(), {}, None, 0)
        except Superseded:
            return

    async def remove(self, entry: Entry) -> None:
        """Remove a container unless it was added again since."""
        await self._listings.update_rows(ACCOUNT, CONTAINER, [ObjectRow(entry.name, entry.added, deleted=True)])

    async def page(self, after: str) -> tuple[list[Entry], str]:
        """Return the next containers after a name, and the name after which to go on, "" at the end."""
        try:
            _, rows = await self._listings.list_objects(ACCOUNT, CONTAINER, ListingQuery(limit=PAGE, marker=after))
        except NotFound:
            return [], ""
        found = [_entry(row) for row in rows if not isinstance(row, Subdir)]
        return [entry for entry in found if entry is not None], rows[-1].name if len(rows) == PAGE else ""


def _entry(row: ObjectRow) -> Entry | None:
    try:
        path = parse_path(row.name)
    except InvalidName:
        return None
    return Entry(path, row.timestamp) if path.container is not None and path.obj is None else None
