"""A cluster's queue as tests look at it."""

from __future__ import annotations

from swiftlet.expiry.queue import ExpiryQueue
from swiftlet.expiry.tasks import CONTAINERS, LATEST, Task
from swiftlet.placement.tests.cluster import MemoryCluster
from swiftlet.timestamp import TimestampClock


def queue_of(cluster: MemoryCluster) -> ExpiryQueue:
    """The queue, with this machine's time."""
    return ExpiryQueue(cluster.listings, TimestampClock().next)


async def all_tasks(cluster: MemoryCluster) -> list[Task]:
    """All that is queued, the next one first."""
    queue, found = queue_of(cluster), []
    for container in CONTAINERS:
        found += (await queue.due(container, LATEST))[0]
    return sorted(found, key=lambda task: task.delete_at)
