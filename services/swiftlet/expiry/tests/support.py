"""A cluster's queue as tests look at it."""

from __future__ import annotations

from swiftlet.expiry.queue import ExpiryQueue
from swiftlet.expiry.tasks import ACCOUNT, CONTAINERS, LATEST, Task
from swiftlet.placement.tests.cluster import HASH_PATH, MemoryCluster
from swiftlet.timestamp import TimestampClock


def queue_of(cluster: MemoryCluster) -> ExpiryQueue:
    """The queue, with this machine's time."""
    return ExpiryQueue(cluster.listings, TimestampClock().next)


async def all_tasks(cluster: MemoryCluster) -> list[Task]:
    """All that is queued, the next one first."""
    queue, found = queue_of(cluster), []
    there = {path.name for store in cluster.databases.values() for path in store.root.glob("containers/*/*/*")}
    for container in CONTAINERS:
        # Most are not there, and it takes long to ask all devices for each.
        if HASH_PATH(ACCOUNT, container).hex() in there:
            found += (await queue.due(container, LATEST))[0]
    return sorted(found, key=lambda task: task.delete_at)
