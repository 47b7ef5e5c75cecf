"""A cluster's queue as tests look at it."""

from __future__ import annotations

from swiftlet.errors import NotFound
from swiftlet.expiry.queue import ExpiryQueue
from swiftlet.expiry.tasks import ACCOUNT, DAY_S, PARTS, Task
from swiftlet.model import ContainerRow
from swiftlet.placement.tests.cluster import HASH_PATH, MemoryCluster
from swiftlet.timestamp import TimestampClock


def queue_of(cluster: MemoryCluster) -> ExpiryQueue:
    """The queue, with this machine's time."""
    return ExpiryQueue(cluster.listings, TimestampClock().next)


async def all_tasks(cluster: MemoryCluster, days: int = 2) -> list[Task]:
    """All that is queued in the first days of 1970, the next one first."""
    queue, found = queue_of(cluster), []
    for day in range(days):
        for part in range(PARTS):
            found += (await queue.due(f"{day * DAY_S:010d}-{part:02x}", 1e9))[0]
    return sorted(found, key=lambda task: task.delete_at)


async def report_queues(cluster: MemoryCluster, days: int = 2) -> None:
    """Tell the hidden account of its containers, as container servers do in their background."""
    partition = cluster.ring.partition_of(HASH_PATH(ACCOUNT))
    for day in range(days):
        for part in range(PARTS):
            container = f"{day * DAY_S:010d}-{part:02x}"
            try:
                info = await cluster.listings.container_info(ACCOUNT, container)
            except NotFound:
                continue
            row = ContainerRow(container, info.put_timestamp, object_count=info.object_count, reported=info.created)
            for device in cluster.ring.primaries(partition):
                await cluster.listing_transport.update_containers(device, partition, ACCOUNT, [row])
