"""The metric of the log."""

from __future__ import annotations

from prometheus_client import Counter

LOST = Counter(
    "swiftlet_log_lines_lost_total", "Lines of the log that could not be written when they were due, as on a full disk."
)
