"""Prometheus metrics of the native transport's clients, taken from its own counters every few seconds."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import cast

from prometheus_client import Counter, Gauge

TAKE_S = 5.0
"""Seconds between two readings of the native counters."""

_COUNTERS = {
    "requests": Counter("swiftlet_transport_requests_total", "Requests to a peer, native transport.", ["peer"]),
    "errors": Counter("swiftlet_transport_errors_total", "Those of them without a whole answer.", ["peer"]),
    "sent_bytes": Counter("swiftlet_transport_sent_bytes_total", "Bytes written to a peer.", ["peer"]),
    "received_bytes": Counter("swiftlet_transport_received_bytes_total", "Bytes read from a peer.", ["peer"]),
    "lent_bytes": Counter("swiftlet_transport_lent_bytes_total", "Bytes that a peer took from our memory.", ["peer"]),
    "fetched_bytes": Counter(
        "swiftlet_transport_fetched_bytes_total", "Bytes fetched from a peer's memory by RDMA.", ["peer"]
    ),
    "fallbacks": Counter(
        "swiftlet_transport_rdma_fallbacks_total",
        "Connections to a peer that could not be fetched from by RDMA: TCP was used.",
        ["peer"],
    ),
    "connects": Counter("swiftlet_transport_connects_total", "Connections made to a peer.", ["peer"]),
    "connect_failures": Counter(
        "swiftlet_transport_connect_failures_total", "Connections to a peer that could not be made, or broke.", ["peer"]
    ),
}
_LATENCY = Counter(
    "swiftlet_transport_request_seconds_total", "Time of all requests to a peer together, native transport.", ["peer"]
)
_CONNECTED = Gauge(
    "swiftlet_transport_connected",
    "Processes that are connected to a peer over this transport.",
    ["peer", "transport"],
    multiprocess_mode="livesum",
)

Report = Sequence[Mapping[str, object]]
"""Counters and state of each peer by transport, as `TransportNode.report` returns them."""


def by_transport(report: Report) -> dict[str, int]:
    """Return how many peers are connected over which transport, for transports with peers."""
    counts: dict[str, int] = {}
    for row in report:
        transport = row["transport"]
        if isinstance(transport, str):
            counts[transport] = counts.get(transport, 0) + 1
    return counts


class Growth:
    """By how much counters that only grow have grown since they were last looked at."""

    def __init__(self) -> None:
        """Count from zero, so that what a counter has at its first call is growth, too."""
        self._last: dict[Hashable, int] = {}

    def of(self, counter: Hashable, total: int) -> int:
        """Return by how much a counter, which stands at `total`, has grown since the last call about it."""
        more = total - self._last.get(counter, 0)
        self._last[counter] = total
        return more


class NativeMetrics:
    """Adds the growth of native counters to those of Prometheus."""

    def __init__(self, report: Callable[[], Report]) -> None:
        """Begin without counted values."""
        self._report = report
        self._taken: dict[tuple[str, str], int] = {}
        self._connected: set[tuple[str, str]] = set()

    def take(self) -> None:
        """Add what was counted since the last call."""
        totals: dict[tuple[str, str], int] = {}
        connected: set[tuple[str, str]] = set()
        for row in self._report():
            peer = str(row["peer"])
            # A peer has a row per address that it has had.
            for name in (*_COUNTERS, "latency_us"):
                totals[peer, name] = totals.get((peer, name), 0) + cast("int", row[name])
            if row["transport"] is not None:
                connected.add((peer, str(row["transport"])))
        for (peer, name), total in totals.items():
            more = total - self._taken.get((peer, name), 0)
            if name in _COUNTERS:
                _COUNTERS[name].labels(peer).inc(more)
            else:
                _LATENCY.labels(peer).inc(more / 1e6)
        for labels in self._connected | connected:
            _CONNECTED.labels(*labels).set(labels in connected)
        self._taken, self._connected = totals, connected
