"""The queue: rows in container databases of a hidden account, written before the objects that they are about.

Fault model: databases may be down, and a writer may stop at any point. A task is durable on a quorum before its object
is written, so a stop in between leaves a task without an object, which costs one lookup when it is due. A task belongs
to one version of its object and is removed by that: tasks of other versions stay, whatever happens at the same time.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence

from swiftlet.errors import NotFound, Superseded
from swiftlet.expiry.tasks import ACCOUNT, Task, due_before, task_of
from swiftlet.model import ListingQuery, ObjectRow, Subdir
from swiftlet.placement.listings import ClusterListings
from swiftlet.timestamp import Timestamp

PAGE = 1000


class ExpiryQueue:
    """The queue of the whole cluster."""

    def __init__(self, listings: ClusterListings, stamp: Callable[[], Timestamp]) -> None:
        """`stamp` returns a new timestamp at each call."""
        self._listings = listings
        self._stamp = stamp

    async def add(self, task: Task) -> None:
        """Queue a task, which is durable on return. Raises Unavailable when too few databases can be reached."""
        row = ObjectRow(task.name, task.queued, size=task.policy)
        try:
            await self._listings.update_rows(ACCOUNT, task.container, [row])
        except NotFound:
            await self._make(task.container)
            await self._listings.update_rows(ACCOUNT, task.container, [row])

    async def _make(self, container: str) -> None:
        with contextlib.suppress(Superseded):
            await self._listings.put_account(ACCOUNT, self._stamp(), {})
        with contextlib.suppress(Superseded):
            await self._listings.put_container(ACCOUNT, container, self._stamp(), {}, None, 0)

    async def containers(self) -> frozenset[str]:
        """Return the containers that the account lists: one that was just made may be missing. Raises Unavailable."""
        try:
            _, rows = await self._listings.list_containers(ACCOUNT, ListingQuery(limit=PAGE))
        except NotFound:
            return frozenset()
        return frozenset(row.name for row in rows if not isinstance(row, Subdir))

    async def remove(self, container: str, tasks: Sequence[Task]) -> None:
        """Remove tasks of one container from the queue."""
        rows = [ObjectRow(task.name, task.queued, deleted=True) for task in tasks]
        await self._listings.update_rows(ACCOUNT, container, rows)

    async def replace(self, old: Task, new: Task) -> None:
        """Queue a task and remove another one of the same object, in one step."""
        rows = [ObjectRow(new.name, new.queued, size=new.policy), ObjectRow(old.name, old.queued, deleted=True)]
        await self._listings.update_rows(ACCOUNT, new.container, rows)

    async def due(self, container: str, now_s: float, after: str = "") -> tuple[list[Task], str]:
        """Return tasks of a container that are due at `now_s`, and the name after which to go on, "" at the end."""
        query = ListingQuery(limit=PAGE, marker=after, end_marker=due_before(now_s))
        try:
            _, rows = await self._listings.list_objects(ACCOUNT, container, query)
        except NotFound:
            return [], ""
        found = [task_of(row.name, row.size, row.timestamp) for row in rows if not isinstance(row, Subdir)]
        return [task for task in found if task is not None], rows[-1].name if len(rows) == PAGE else ""
