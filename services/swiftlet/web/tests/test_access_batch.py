"""Requests that were answered elsewhere: counted as each of them would have been."""

from __future__ import annotations

from prometheus_client import REGISTRY

from swiftlet.web.access import AccessBatch
from swiftlet.web.metrics import DURATION_BUCKETS_S, HttpMetrics


def sample(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(f"swiftlet_http_{name}", {"service": "batch", **labels}) or 0.0


def test_counts_are_those_of_single_requests() -> None:
    batch = AccessBatch(HttpMetrics("batch"))
    for status, received, took_s in ((201, 10, 0.002), (201, 20, 0.2), (404, 0, 0.002)):
        batch.add("PUT", "/v1/a/c/o", status, (received, 1), took_s, "here", "tx")
    batch.add("GET", "/v1/a/c/o", 200, (0, 7), 0.002, "here", "tx")
    assert not sample("received_bytes_total")
    for _ in range(2):
        batch.write(0.0)
        assert sample("requests_total", method="PUT", status="201") == 2
        assert sample("requests_total", method="PUT", status="404") == 1
        assert sample("requests_total", method="GET", status="200") == 1
        assert (sample("received_bytes_total"), sample("sent_bytes_total")) == (30, 10)
        assert sample("request_duration_seconds_count", method="PUT") == 3
        assert sample("request_duration_seconds_bucket", method="PUT", le="0.0025") == 2


def test_sums_are_counted_as_single_durations_are() -> None:
    metrics = HttpMetrics("batch")
    durations_s = (0.0005, 0.001, 0.0011, 59.0, 60.0, 61.0)
    metrics.answered_all("DELETE", 204, durations_s, 0, 0)
    bounds = [str(bound) for bound in DURATION_BUCKETS_S]
    names = [("request_duration_seconds_bucket", {"le": bound}) for bound in (*bounds, "+Inf")]
    names += [("request_duration_seconds_sum", {}), ("request_duration_seconds_count", {})]
    single = [sample(name, method="DELETE", **labels) for name, labels in names]
    metrics.answered_within("DELETE", 204, [2, 1, *[0] * 11, 0, 2, 1], sum(durations_s), 5, 7)
    assert [sample(name, method="DELETE", **labels) for name, labels in names] == [2 * value for value in single]
    assert sample("requests_total", method="DELETE", status="204") == 12
