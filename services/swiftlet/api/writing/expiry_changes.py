"""The queue's tasks as objects change: one for the version that is there, none for those that it replaced.

A write queues its own task first, and takes the task of the version that it has replaced off at last, so that whatever
stops in between leaves a task too many: it costs a look when it is due, or until then a row. Which version is replaced
is asked of the object's devices while the new task is being queued. Writes without a time ask as well, but only in
containers that have had an object with one, which is a metadata item of the container that no client sees; what other
processes do in the moment until they know of it leaves tasks too many, too.

A task names its object's version. So of two writers at the same time neither takes off the other's task, and a write
that certainly changed nothing takes off its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager

import structlog

from swiftlet.api.context.core import SwiftApi
from swiftlet.api.context.expiring import LATE_S, now_s
from swiftlet.api.context.policy_lookup import container_of
from swiftlet.api.http.problems import ApiError
from swiftlet.api.http.reserved import is_reserved
from swiftlet.errors import Superseded, SwiftletError
from swiftlet.expiry.tasks import Task, delete_at_of, is_expired
from swiftlet.model import ContainerInfo, ObjectInfo
from swiftlet.names import Path
from swiftlet.placement.outcomes import Written
from swiftlet.timestamp import Timestamp

EXPIRING = "X-Container-Sysmeta-Expiring"
"""The metadata item of a container that has had objects that go by themselves."""

_log = structlog.get_logger("expiry")


def has_expiring(container: ContainerInfo) -> bool:
    """Whether objects that a write into the container replaces may have tasks."""
    return EXPIRING in container.metadata


class Change:
    """What one write does to the queue."""

    def __init__(self, api: SwiftApi, path: Path, policy: int, metadata: Mapping[str, str], at: Timestamp) -> None:
        """`metadata` is what the object has after the write, none for a DELETE."""
        self._api, self._path, self._policy, self._metadata = api, path, policy, metadata
        self.at = at
        """The version that is written; to be set when it becomes another one."""
        self.is_lost = False
        """Whether the version turned out not to be the newest."""
        self._new: Task | None = None
        self._old: Task | None = None

    async def begin(self, seen: ObjectInfo | None) -> None:
        """Queue the new version's task, and learn of the one that it replaces: of `seen`, where that is known."""
        if is_reserved(self._path):
            return
        delete_at, container = delete_at_of(self._metadata), await container_of(self._api, self._path)
        if delete_at is None and not has_expiring(container):
            return
        looking = asyncio.ensure_future(self._look(seen))
        try:
            if delete_at is not None:
                await self._add(Task(delete_at, self._path, self._policy, self.at), container)
            self._old = await looking
        finally:
            looking.cancel()

    async def _add(self, task: Task, container: ContainerInfo) -> None:
        if not has_expiring(container):
            place = container.account, container.container
            await self._api.listings.post_container(*place, self._api.clock.next(), {EXPIRING: "True"})
            self._api.containers.forget(*place)
        await self._api.expiry.add(task)
        self._new = task

    async def _look(self, seen: ObjectInfo | None) -> Task | None:
        try:
            info = seen or await self._api.objects.head(self._path, self._policy)
        except SwiftletError:
            return None
        delete_at = delete_at_of(info.metadata)
        return None if delete_at is None else Task(delete_at, self._path, self._policy, info.modified)

    async def undo(self) -> None:
        """The write has certainly changed nothing."""
        await self._withdraw([self._new] if self._new is not None else [])

    async def finish(self) -> None:
        """The write is through: what it replaced, or what replaced it, has no task any more."""
        if self._old is not None and self._old.queued <= self.at and self._old != self._new:
            await self._withdraw([self._old])
        new = self._new
        if new is None:
            return
        if self.is_lost:
            await self._withdraw([new])
        elif is_expired(self._metadata, now_s(self._api) + LATE_S):
            # The expirer may have come by before the object was there, and found nothing.
            await self._api.expiry.replace(new, Task(new.delete_at, new.path, new.policy, self._api.clock.next()))
        elif self.at != new.queued:
            await self._api.expiry.replace(new, Task(new.delete_at, new.path, new.policy, self.at))

    async def _withdraw(self, tasks: Sequence[Task]) -> None:
        try:
            for task in tasks:
                await self._api.expiry.remove(task.container, [task])
        except SwiftletError as error:
            _log.info(
                "an expiry task could not be removed; it stays until it is due",
                object=self._path.quoted,
                error=str(error),
            )


@asynccontextmanager
async def expiry_changed(
    api: SwiftApi,
    path: Path,
    policy: int,
    metadata: Mapping[str, str],
    at: Timestamp,
    seen: ObjectInfo | None = None,
) -> AsyncIterator[Change]:
    """Around a write of version `at` of an object; Unavailable when its task can't be queued."""
    change = Change(api, path, policy, metadata, at)
    await change.begin(seen)
    try:
        yield change
    except (ApiError, Superseded):
        await change.undo()
        raise
    await change.finish()


async def delete_expiring(api: SwiftApi, path: Path, policy: int, timestamp: Timestamp) -> Written:
    """Delete an object, and take its task off if it has one; as `ClusterObjects.delete`."""
    async with expiry_changed(api, path, policy, {}, timestamp):
        return await api.objects.delete(path, policy, timestamp)
