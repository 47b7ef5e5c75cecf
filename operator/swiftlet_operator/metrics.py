"""The operator's metrics: what it counts about itself, the last conditions of each cluster, and the port that serves
both.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, Histogram, generate_latest
from prometheus_client.metrics_core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

RECONCILE_SECONDS = Histogram(
    "swiftlet_operator_reconcile_seconds",
    "Time of one reconcile of one cluster, without the time that it waited for a worker.",
    ["outcome"],
    buckets=(0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0),
)
"""`outcome`: done, failed (tried again later) or refused (somebody else leads)."""
for _outcome in ("done", "failed", "refused"):
    # All labels exist from the start: a query for increases misses the event that a counter begins with.
    RECONCILE_SECONDS.labels(_outcome)
REQUESTS = Counter(
    "swiftlet_operator_api_requests_total",
    "Requests to the API server, watches not counted.",
    ["method", "resource", "code"],
)
"""`resource` is the plural of a kind, empty for a list of kinds; `code` is the answer's, 0 without one."""
LEADS = Gauge("swiftlet_operator_leads", "1 while this process may write, 0 otherwise.")
_CONDITION_VALUES = {"True": 1.0, "False": 0.0}
_UNKNOWN = -1.0


@dataclass(frozen=True, slots=True)
class ClusterNumbers:
    """The numbers of one cluster.

    They are the status of its conditions by type, when its newest key was made, and whether a restarted pod did not
    come back in time.
    """

    conditions: Mapping[str, str]
    key_made_s: float | None = None
    upgrade_timed_out: bool = False


class Clusters(Collector):
    """The last numbers of each cluster. Only the leader shows them, as those of others may be old."""

    def __init__(self, leads: Callable[[], bool]) -> None:
        """Begin without clusters; `leads` returns whether this process is the leader."""
        self._leads = leads
        self._shown: dict[tuple[str, str], ClusterNumbers] = {}

    def show(self, namespace: str, name: str, numbers: ClusterNumbers) -> None:
        """Show these numbers of a cluster from now on."""
        self._shown[namespace, name] = numbers

    def forget(self, namespace: str, name: str) -> None:
        """Show nothing more of a cluster."""
        self._shown.pop((namespace, name), None)

    def keep(self, known: Iterable[tuple[str, str]]) -> None:
        """Forget all clusters but these."""
        known = set(known)
        for cluster in self._shown.keys() - known:
            del self._shown[cluster]

    def collect(self) -> Iterable[Metric]:
        """Return the metrics in their current state."""
        labels = ["swiftlet_namespace", "swiftlet_cluster"]
        conditions = GaugeMetricFamily(
            "swiftlet_operator_condition",
            "The status of a condition of a StorageCluster: 1 True, 0 False, -1 Unknown.",
            labels=[*labels, "type"],
        )
        keys = GaugeMetricFamily(
            "swiftlet_operator_cluster_key_timestamp_seconds",
            "When the newest key of a cluster was made.",
            labels=labels,
        )
        late = GaugeMetricFamily(
            "swiftlet_operator_upgrade_timed_out",
            "1 while a pod of a StorageCluster has not come back from its restart in time, 0 otherwise.",
            labels=labels,
        )
        count = GaugeMetricFamily("swiftlet_operator_clusters", "Clusters that this process looks after.")
        shown = dict(self._shown) if self._leads() else {}
        for (namespace, name), numbers in shown.items():
            for type_, status in numbers.conditions.items():
                conditions.add_metric([namespace, name, type_], _CONDITION_VALUES.get(status, _UNKNOWN))
            late.add_metric([namespace, name], float(numbers.upgrade_timed_out))
            if numbers.key_made_s is not None:
                keys.add_metric([namespace, name], numbers.key_made_s)
        count.add_metric([], len(shown))
        return [conditions, keys, late, count]


@contextmanager
def exported(clusters: Clusters) -> Iterator[None]:
    """Register the clusters' numbers with Prometheus."""
    REGISTRY.register(clusters)
    try:
        yield
    finally:
        REGISTRY.unregister(clusters)


@asynccontextmanager
async def served(port: int | None) -> AsyncIterator[None]:
    """Serve `GET /metrics` on `port` of all addresses, nothing when it is None. Raises OSError when the
    port is taken.
    """
    if port is None:
        yield
        return
    app = web.Application()
    app.router.add_get("/metrics", _metrics)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, port=port).start()
        yield
    finally:
        await runner.cleanup()


async def _metrics(_: web.Request) -> web.Response:
    return web.Response(body=generate_latest(), headers={"Content-Type": CONTENT_TYPE_LATEST})
