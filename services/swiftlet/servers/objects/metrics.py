"""Prometheus metrics of the object server."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

_BUCKETS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

REQUESTS = Counter(
    "swiftlet_object_requests_total",
    "Requests to object devices by what became of them: ok, or the error's name.",
    ["device", "operation", "outcome"],
)
DURATION = Histogram(
    "swiftlet_object_request_duration_seconds",
    "Time from a request's head to its answer's last byte.",
    ["operation"],
    buckets=_BUCKETS_S,
)
IN_FLIGHT = Gauge("swiftlet_object_requests_in_flight", "Requests at work on a device.", ["device"])
NATIVE_IN_FLIGHT = Gauge(
    "swiftlet_object_native_requests_in_flight", "Requests at work on a device, native transport.", ["device"]
)
NATIVE_REFUSED = Counter(
    "swiftlet_object_native_refused_total",
    "Requests refused because a device had too many, native transport.",
    ["device"],
)
NATIVE_CLIENTS = Gauge(
    "swiftlet_object_native_clients", "Clients that are connected over this native transport.", ["transport"]
)
GUESTS = Gauge("swiftlet_object_guests", "Connections of clients with direct access.")
NATIVE_FETCHED = Counter("swiftlet_object_rdma_fetched_bytes_total", "Bytes fetched from clients' memory by RDMA.")
NATIVE_RDMA_FALLBACKS = Counter(
    "swiftlet_object_rdma_fallbacks_total", "Connections whose client could not be fetched from by RDMA: TCP was used."
)
RECEIVED = Counter("swiftlet_object_received_bytes_total", "Bytes of object data taken in.", ["device"])
SENT = Counter("swiftlet_object_sent_bytes_total", "Bytes of object data given out.", ["device"])
DEVICE_TOTAL = Gauge("swiftlet_object_device_total_bytes", "Size of a device.", ["device"])
DEVICE_FREE = Gauge("swiftlet_object_device_free_bytes", "Room left on a device.", ["device"])
DEVICE_UP = Gauge("swiftlet_object_device_up", "1 while a device answers, 0 after it failed.", ["device"])
DEVICE_UNPROVED = Gauge(
    "swiftlet_object_device_unproved",
    "1 while a device may have missed writes and is asked last, 0 when its replicator has proved that it has all.",
    ["device"],
)
PENDING_UPDATES = Gauge(
    "swiftlet_object_pending_updates", "Listing rows that a device keeps until containers have them.", ["device"]
)
PENDING_OLDEST = Gauge(
    "swiftlet_object_pending_oldest_seconds",
    "For how long the oldest of them is pending; more than some seconds when containers can't be reached.",
    ["device"],
)
ROWS = Counter(
    "swiftlet_object_container_updates_total",
    "Container updates that devices delivered by themselves, by outcome: listed, dropped.",
    ["outcome"],
)
STORE_COUNTERS = {
    "batches": Counter("swiftlet_object_batches_total", "Groups of writes made durable by one sync.", ["device"]),
    "quarantined": Counter(
        "swiftlet_object_quarantined_total", "Records found damaged and taken out of service.", ["device"]
    ),
    "checkpoints": Counter("swiftlet_object_checkpoints_total", "Checkpoints of the index written.", ["device"]),
    "compacted": Counter("swiftlet_object_volumes_compacted_total", "Volumes rewritten to get room back.", ["device"]),
    "copied_bytes": Counter("swiftlet_object_compaction_bytes_total", "Bytes copied by compaction.", ["device"]),
    "punched_bytes": Counter(
        "swiftlet_object_punched_bytes_total", "Bytes given back in the middle of volumes.", ["device"]
    ),
    "audited_bytes": Counter(
        "swiftlet_object_audited_bytes_total", "Bytes read and checked beside requests.", ["device"]
    ),
    "audits": Counter("swiftlet_object_audits_total", "Times that all of a device was read and checked.", ["device"]),
}
"""The counters of stores, by the names of `swiftlet.store.protocol`."""
RECLAIMED = Counter(
    "swiftlet_object_tombstones_reclaimed_total", "Tombstones forgotten after the reclaim age.", ["device"]
)
