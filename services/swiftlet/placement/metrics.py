"""Prometheus metrics of rows on their way to containers, and of acknowledgements."""

from __future__ import annotations

from prometheus_client import Counter

UPDATE_REQUESTS = Counter(
    "swiftlet_container_update_requests_total", "Requests with container updates to container servers."
)
UPDATES_SENT = Counter("swiftlet_container_updates_sent_total", "Container updates in requests to container servers.")
UPDATE_OUTCOMES = Counter(
    "swiftlet_container_updates_total",
    "Container updates that object servers keep pending, by outcome: listed, queued (they stay pending), no-container.",
    ["outcome"],
)
ACKNOWLEDGED = Counter(
    "swiftlet_acknowledged_updates_total",
    "Pending updates that were to be acknowledged to object servers: acknowledged, lost (they did not hear of it) or "
    "dropped (too many at once). What is lost or dropped is delivered a second time.",
    ["outcome"],
)
MOVED_READS = Counter(
    "swiftlet_unproved_reads_total",
    "Reads and POSTs that a device left to others because it may have missed writes.",
)
NEWEST_READS = Counter(
    "swiftlet_newest_reads_total",
    "Reads that compared what all replicas have, because none that may not have missed a write had the object.",
)
HEDGED_READS = Counter(
    "swiftlet_hedged_reads_total",
    "Times that a read asked another device as well, because one took longer than 95 of 100 of its answers.",
)
MISSED = Counter(
    "swiftlet_missed_writes_total",
    "Replicas of acknowledged writes that their devices did not confirm; each device is told of the partition.",
)
MISSED_TOLD = Counter("swiftlet_missed_told_total", "Partitions that devices were told to have missed writes of.")
