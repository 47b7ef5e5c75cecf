"""Prometheus metrics of the requests of the account and container server, over HTTP and in streams of rows."""

from __future__ import annotations

from prometheus_client import Counter, Histogram

REQUESTS = Counter(
    "swiftlet_listing_requests_total", "Requests to account and container databases.", ["operation", "status"]
)
DURATION = Histogram(
    "swiftlet_listing_request_duration_seconds",
    "Time from a request's head to its answer, by operation.",
    ["operation"],
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
