"""What the front has answered, in the access log and the metrics: the same lines and numbers as of other requests."""

from __future__ import annotations

import time

from swiftlet_native import Front

from swiftlet.web.access import AccessBatch
from swiftlet.web.metrics import HttpMetrics

TAKE_S = 0.1
"""Seconds between looks."""


class AccessRecords:
    """Takes them from the front."""

    def __init__(self, front: Front, metrics: HttpMetrics) -> None:
        """Counts in `metrics`."""
        self._front = front
        self._batch = AccessBatch(metrics)
        self.total = 0
        """Answers so far."""

    def take(self) -> int:
        """Write down what was answered since the last time; how many that were."""
        served = self._front.served()
        now = time.time()
        for method, path, status, received, sent, took_s, remote, request_id in served:
            self._batch.add(method, path.decode("ascii"), status, (received, sent), took_s, remote, request_id)
        self._batch.write(now)
        self.total += len(served)
        return len(served)
