"""Counts what became of the TLS handshakes of clients with the front.

Fault model: clients fail in handshakes for any reason. That is logged for debugging only, for anybody can cause it.
"""

from __future__ import annotations

from prometheus_client import Counter
from swiftlet_native import Front

from swiftlet.transport.native_metrics import Growth
from swiftlet.web.logs import get_logger

HANDSHAKES = Counter(
    "swiftlet_tls_handshakes_total", "TLS handshakes of clients that were completed by the native front.", ["kind"]
)
FAILURES = Counter(
    "swiftlet_tls_handshake_failures_total",
    "Connections that ended before a TLS handshake with the native front was completed.",
    ["reason"],
)
_KINDS = ("full", "resumed")

_log = get_logger("front")


class HandshakeRecords:
    """Takes from the front what became of handshakes, and enters it into the metrics."""

    def __init__(self, front: Front) -> None:
        """Begin with nothing counted."""
        self._front = front
        self._growth = Growth()

    def take(self) -> None:
        """Count what happened since the last call."""
        failed = {}
        for name, total in self._front.handshakes():
            more = self._growth.of(name, total)
            if not more:
                continue
            if name in _KINDS:
                HANDSHAKES.labels(name).inc(more)
            else:
                FAILURES.labels(name).inc(more)
                failed[name] = more
        if failed:
            _log.debug("connections failed before their first request", **failed)
