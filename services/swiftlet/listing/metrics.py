"""Metrics of the databases of this process, for Prometheus."""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

from swiftlet.model import DatabaseKind

BATCH_ROWS = Histogram(
    "swiftlet_listing_batch_rows",
    "Rows and other writes in one transaction of a database.",
    buckets=(1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000),
)
ROWS_MERGED = Counter("swiftlet_listing_rows_merged_total", "Rows that updates brought, new to us or not.", ["kind"])
OBJECT_ROWS_MERGED = ROWS_MERGED.labels(DatabaseKind.CONTAINER.value)
CONTAINER_ROWS_MERGED = ROWS_MERGED.labels(DatabaseKind.ACCOUNT.value)
FOLDED_ROWS = Counter(
    "swiftlet_listing_folded_rows_total",
    "Rows that native code had taken and a transaction began with: merged, or put back because it failed.",
    ["outcome"],
)
OPEN_DATABASES = Gauge(
    "swiftlet_listing_open_databases", "Databases held open.", ["device"], multiprocess_mode="livesum"
)
QUARANTINED = Counter("swiftlet_listing_quarantined_total", "Damaged databases moved to quarantine.", ["device"])
DEVICES_FAILED = Gauge(
    "swiftlet_listing_device_failed",
    "1 when the device was taken out of service.",
    ["device"],
    multiprocess_mode="livemax",
)
