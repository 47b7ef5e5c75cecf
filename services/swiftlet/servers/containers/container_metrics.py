"""Prometheus metrics of the account and container server: requests over HTTP and in streams of rows, and updates that
native code takes.
"""

from __future__ import annotations

from prometheus_client import Counter, Gauge, Histogram

REQUESTS = Counter(
    "swiftlet_listing_requests_total", "Requests to account and container databases.", ["operation", "status"]
)
DURATION = Histogram(
    "swiftlet_listing_request_duration_seconds",
    "Time from a request's head to its answer, by operation.",
    ["operation"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
UPDATE_ROWS = Counter(
    "swiftlet_updates_rows_total", "Rows of container updates that native code has taken.", ["device"]
)
UPDATES_REFUSED = Counter(
    "swiftlet_updates_refused_total",
    "Messages with container updates that native code did not take: it had no room (busy), or Python has to merge "
    "them (not-taken).",
    ["device", "reason"],
)
UPDATES_WAITING = Gauge(
    "swiftlet_updates_waiting_rows", "Rows that native code has taken and no database has yet.", ["device"]
)
UPDATES_OPEN = Gauge("swiftlet_updates_open_databases", "Databases whose rows native code may take.", ["device"])
UPDATES_JOURNAL = Gauge(
    "swiftlet_updates_journal_bytes", "Size of the journal of rows that native code has taken.", ["device"]
)
