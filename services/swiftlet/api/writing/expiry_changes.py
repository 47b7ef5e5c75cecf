"""Keeps the expirer's queue up to date as objects change: a task for the current version, none for replaced ones.

A write queues its own task first, and removes the task of the version that it has replaced last, so that a write that
stops in between leaves a superfluous task: it costs a look when it is due, and a row until then. The object's devices
are asked which version is replaced, while the new task is being queued. Writes without a time ask as well, but only in
containers that have had an object with one, which is recorded in a metadata item of the container that no client sees;
writes by other processes before they know of it leave superfluous tasks, too.

A task names its object's version. So of two concurrent writers neither removes the other's task, and a write that
certainly changed nothing removes its own.
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
"""The metadata item of a container that has had expiring objects."""

_log = structlog.get_logger("expiry")


def has_expiring(container: ContainerInfo) -> bool:
    """Return whether objects that a write into the container replaces may have tasks."""
    return EXPIRING in container.metadata


class Change:
    """The changes of the queue by one write."""

    def __init__(self, api: SwiftApi, path: Path, policy: int, metadata: Mapping[str, str], at: Timestamp) -> None:
        """Prepare a write of version `at`; `metadata` is what the object has after it, none for a DELETE."""
        self._api, self._path, self._policy, self._metadata = api, path, policy, metadata
        self.at = at
        """The version that is written; the caller sets it when the timestamp changes."""
        self.is_lost = False
        """Whether the version turned out not to be the newest."""
        self._new: Task | None = None
        self._old: Task | None = None

    async def begin(self, seen: ObjectInfo | None) -> None:
        """Queue the new version's task, and find the version that it replaces: `seen`, where that is known."""
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
        """Remove the task: the write has certainly changed nothing."""
        await self._withdraw([self._new] if self._new is not None else [])

    async def finish(self) -> None:
        """After the write, remove the task of the version that it replaced, or its own when it was replaced."""
        if self._old is not None and self._old.queued <= self.at and self._old != self._new:
            await self._withdraw([self._old])
        new = self._new
        if new is None:
            return
        if self.is_lost:
            await self._withdraw([new])
        elif is_expired(self._metadata, now_s(self._api) + LATE_S):
            # The expirer may have looked before the object existed, and found nothing.
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
    """Wrap a write of version `at` of an object. Raises Unavailable when its task can't be queued."""
    change = Change(api, path, policy, metadata, at)
    await change.begin(seen)
    try:
        yield change
    except (ApiError, Superseded):
        await change.undo()
        raise
    await change.finish()


async def delete_expiring(api: SwiftApi, path: Path, policy: int, timestamp: Timestamp) -> Written:
    """Delete an object, and remove its task if it has one; otherwise like `ClusterObjects.delete`."""
    async with expiry_changed(api, path, policy, {}, timestamp):
        return await api.objects.delete(path, policy, timestamp)
