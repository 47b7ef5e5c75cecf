"""Prometheus metrics of the expirer."""

from __future__ import annotations

from prometheus_client import Counter, Gauge

TASKS = Counter(
    "swiftlet_expirer_tasks_total",
    "Tasks looked at: expired (the object was deleted), moot (it was gone, or goes at another time now) or failed "
    "(tried again in the next round).",
    ["outcome"],
)
LAST_ROUND = Gauge("swiftlet_expirer_last_round_timestamp_seconds", "When the last round ended.")
LAG = Gauge(
    "swiftlet_expirer_lag_seconds",
    "How long the oldest task that the last round found had been due; 0 when it found none.",
)
