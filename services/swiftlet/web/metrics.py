"""HTTP metrics of a service, and the page that Prometheus reads.

With several worker processes each writes its numbers to a shared directory and `/metrics` of any of them shows the
sum. prometheus-client decides this when it is imported, so `share_metrics` comes before (see `swiftlet.web.workers`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cache

from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from swiftlet.web.shared_metrics import DIRECTORY_VARIABLE

DURATION_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_METHODS = frozenset({"GET", "HEAD", "PUT", "POST", "DELETE", "COPY", "OPTIONS", "PATCH"})


class Durations(Histogram):
    """A histogram that counts many values at once: `observe` takes microseconds for each."""

    def observe_all(self, within: Sequence[int], seconds: float) -> None:
        """Count values of which so many are up to each bound and above the one before, the last of them beyond all
        bounds; together they are `seconds`.
        """
        self._sum.inc(seconds)
        for bucket, count in zip(self._buckets, within, strict=True):
            if count:
                bucket.inc(count)


REQUESTS = Counter("swiftlet_http_requests_total", "HTTP requests answered.", ["service", "method", "status"])
DURATION = Durations(
    "swiftlet_http_request_duration_seconds",
    "Time from a request's head to its answer's last byte.",
    ["service", "method"],
    buckets=DURATION_BUCKETS_S,
)
IN_FLIGHT = Gauge(
    "swiftlet_http_requests_in_flight", "HTTP requests being worked on.", ["service"], multiprocess_mode="livesum"
)
RECEIVED = Counter("swiftlet_http_received_bytes_total", "Bytes of request bodies read.", ["service"])
SENT = Counter("swiftlet_http_sent_bytes_total", "Bytes of response bodies written.", ["service"])


class HttpMetrics:
    """The metrics of one service, their labels resolved once."""

    def __init__(self, service: str) -> None:
        """Start counting for `service`."""
        self._service = service
        self.in_flight = IN_FLIGHT.labels(service)
        self._received = RECEIVED.labels(service)
        self._sent = SENT.labels(service)

    def answered(self, method: str, status: int, duration_s: float, received: int, sent: int) -> None:
        """Count a finished request."""
        self.answered_all(method, status, (duration_s,), received, sent)

    def answered_all(self, method: str, status: int, durations_s: Sequence[float], received: int, sent: int) -> None:
        """Count finished requests with one answer; bytes are of all together."""
        known = method if method in _METHODS else "other"
        _requests(self._service, known, status).inc(len(durations_s))
        observe = _durations(self._service, known).observe
        for duration_s in durations_s:
            observe(duration_s)
        self._moved(received, sent)

    def answered_within(
        self, method: str, status: int, within: Sequence[int], seconds: float, received: int, sent: int
    ) -> None:
        """Count finished requests with one answer, of which so many took up to each of `DURATION_BUCKETS_S`, as
        `Durations.observe_all` has them; `method` is one of HTTP's, and bytes and seconds are of all together.
        """
        _requests(self._service, method, status).inc(sum(within))
        _durations(self._service, method).observe_all(within, seconds)
        self._moved(received, sent)

    def _moved(self, received: int, sent: int) -> None:
        if received:
            self._received.inc(received)
        if sent:
            self._sent.inc(sent)


@cache
def _requests(service: str, method: str, status: int) -> Counter:
    return REQUESTS.labels(service, method, str(status))


@cache
def _durations(service: str, method: str) -> Durations:
    return DURATION.labels(service, method)


def metrics_page() -> tuple[bytes, str]:
    """Return the page and its content type: of this process, or of all workers together."""
    registry: CollectorRegistry = REGISTRY
    if os.environ.get(DIRECTORY_VARIABLE):
        registry = CollectorRegistry()
        MultiProcessCollector(registry)  # type: ignore[no-untyped-call]
    return generate_latest(registry), CONTENT_TYPE_LATEST
