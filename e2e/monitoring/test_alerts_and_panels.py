"""Alerts and dashboards of the chart, driven by `swiftlet bench` on a store that is broken in one way after another.

A real store of all services is loaded, scraped as Prometheus would (`recording`), broken and mended (`modes`), and
Prometheus' own `promtool` evaluates the rules and the panels' queries over what was recorded: each alert fires in the
mode that it is for and ends when that is mended, and every panel has data. `make monitoring` runs it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from bench.degrade.modes import MODES, Scene
from charts.dashboards import OVERVIEW, POOL, SYNC, Dashboard, Panel
from charts.tests.promql import parsed
from charts.tests.test_alerts import expressions
from charts.tests.test_alerts_fire import rules_of
from e2e.monitoring.driving import VARIABLES, asked_for, drive, labels_of, services_of
from e2e.monitoring.evaluating import evaluate, expect, fires, has_data
from e2e.monitoring.modes import ALERT_MODES, SPLIT_ABOVE_ROWS, AlertMode, Store
from e2e.monitoring.recording import Recording, Target, over_http
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.test_tls import TlsProxy
from e2e.standalone.wire import Client
from swiftlet.bench import target as bench_target
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario

pytestmark = pytest.mark.timeout(1800)
SETTINGS = {
    # A minute takes a second here, and so does what services do once in a minute.
    "SWIFTLET_REPLICATOR__INTERVAL_S": "1",
    "SWIFTLET_REPLICATOR__DATABASE_INTERVAL_S": "2",
    "SWIFTLET_REPLICATOR__PROBE_INTERVAL_S": "0.5",
    "SWIFTLET_REPLICATOR__HEARTBEAT_INTERVAL_S": "0.5",
    "SWIFTLET_EXPIRER__INTERVAL_S": "2",
    "SWIFTLET_EXPIRER__DELAY_S": "0",
    "SWIFTLET_EXPIRER__TAKEOVER_S": "1",
    "SWIFTLET_REPLICATOR__LISTING_AUDIT_INTERVAL_S": "5",
    "SWIFTLET_REPLICATOR__LISTING_AUDIT_MIN_AGE_S": "3600",
    "SWIFTLET_CONTAINER__SHARD_ABOVE_ROWS": str(SPLIT_ABOVE_ROWS),
    "SWIFTLET_CONTAINER__SHARD_TAKEOVER_S": "1",
}
WARM_MINUTES = 18
BEGINS_WITHIN_S = 300.0
"""Seconds within which the load has written its first objects, also on a machine that is busy."""
LOAD = Scenario.model_validate(
    {
        "title": "monitoring",
        "containers": 4,
        "objects": 300,
        "sizes": {"uniform": {"least": "1 KB", "most": "50 KB"}},
        "operations": {"create": 25, "read": 50, "update": 5, "delete": 10, "head": 5, "list": 5},
        "open": {"per_second": [20], "connections": 8},
        "warm_up_s": 0,
        "duration_s": 3600,
        "timeout_s": 5,
    }
)


def targets(cluster: Cluster, https: TlsProxy) -> Iterator[Target]:
    """The metrics of all services, and of the proxy that speaks HTTPS."""
    yield from services_of(cluster)
    labels = {**labels_of("proxy"), "pod": "lab-https", "instance": "https"}
    yield Target(labels, over_http(f"http://127.0.0.1:{https.management_port}/metrics"))


class Load:
    """`swiftlet bench` beside what is done to the store, until it is ended."""

    def __init__(self, cluster: Cluster) -> None:
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        self._target = bench_target.Target(f"{cluster.endpoint}{client.base}", client.token)
        self._over = threading.Event()
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._begun.wait(BEGINS_WITHIN_S), "the load did not begin"

    def _run(self) -> None:
        options = Options("monitoring", keeps=True, report=self._report, stops=self._over.is_set)
        self.result = run(LOAD, self._target, options)

    def _report(self, progress: Any) -> None:
        if progress.what.startswith("run "):
            self._begun.set()

    def end(self) -> None:
        """Stop the load, and return when its thread has ended."""
        self._over.set()
        self._thread.join()


@dataclass
class Lived:
    """What was recorded, and the minutes in which it was looked at."""

    recording: Recording
    at_rest: int
    """The store was whole and loaded."""
    broken: dict[str, int]
    """The last minute before each mode was mended."""
    mended: int
    """The last minute, long after everything was mended."""


@pytest.fixture(scope="module")
def lived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    """One store and all that was done to it."""
    with ExitStack() as undo:
        scene = Store(tmp_path_factory.mktemp("monitoring") / "store", undo, settings=dict(SETTINGS))
        MODES["redis"].prepares(scene)
        _mount_a_small_disk(scene)
        scene.running = start_cluster(scene.data, settings=scene.settings)
        undo.callback(scene.running.stop)
        scene.running.wait_until_proved()
        scene.https = _https(scene, tmp_path_factory.mktemp("https"))
        metrics = {one.metric for expression in expressions().values() for one in parsed(expression).selectors}
        recording = Recording(metrics, targets(scene.running, scene.https))
        load = Load(scene.running)
        undo.callback(load.end)
        at_rest = recording.wait(WARM_MINUTES)
        broken = drive(scene, recording, asked_for(ALERT_MODES, request.session.items))
        yield Lived(recording, at_rest, broken, recording.minute)


def _https(scene: Scene, directory: Path) -> TlsProxy:
    """A proxy that speaks HTTPS, with a certificate of two days, which are half a year here."""
    proxy = TlsProxy(scene.cluster, directory)
    scene.undo.callback(proxy.process.wait)
    scene.undo.callback(proxy.process.terminate)
    return proxy


def _mount_a_small_disk(scene: Scene) -> None:
    """As `bench.degrade` does it for its full disk; in a mount namespace of its own, which `make monitoring` makes."""
    MODES["full-disk"].prepares(scene)


def test_no_alert_fires_while_the_store_is_whole(lived: Lived, tmp_path: Path) -> None:
    checks = [expect('count(ALERTS{alertstate="firing"})', lived.at_rest, None)]
    evaluate(lived.recording, tmp_path, rules_of("lab"), checks)


@pytest.mark.parametrize("mode", ALERT_MODES, ids=lambda mode: mode.name)
def test_alerts_fire_in_the_mode_that_they_are_for(lived: Lived, tmp_path: Path, mode: AlertMode) -> None:
    checks = [fires(alert, lived.broken[mode.name]) for alert in mode.alerts]
    evaluate(lived.recording, tmp_path, rules_of("lab"), checks)


def test_all_alerts_end_when_everything_is_mended(lived: Lived, tmp_path: Path) -> None:
    checks = [expect('count by (alertname) (ALERTS{alertstate="firing"})', lived.mended, None)]
    evaluate(lived.recording, tmp_path, rules_of("lab"), checks)


PANELS = [
    (dashboard, panel)
    for dashboard in (OVERVIEW, POOL, SYNC)
    for panel in dashboard.panels
    # The store is in one region, and has nothing to say about others.
    if not any(metric in panel.queries[0][0] for metric in ("swiftlet_operator_", "swiftlet_replicator_region_"))
]
IN_MODE = {"Firing alerts": "node", "Requests that failed": "quorum"}
"""Panels that are empty while all is well, and a mode in which they are not."""


@pytest.mark.parametrize(("dashboard", "panel"), PANELS, ids=[f"{one.name}: {panel.title}" for one, panel in PANELS])
def test_panels_have_data(lived: Lived, tmp_path: Path, dashboard: Dashboard, panel: Panel) -> None:
    minute = lived.broken[IN_MODE[panel.title]] if panel.title in IN_MODE else lived.at_rest
    rules = rules_of("lab") if "ALERTS" in panel.queries[0][0] else []
    evaluate(lived.recording, tmp_path, rules, has_data(panel, VARIABLES, minute))
