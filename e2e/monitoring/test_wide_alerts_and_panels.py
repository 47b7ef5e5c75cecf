"""Alerts and panels about regions and erasure coding, driven as in `test_alerts_and_panels` by a store that has both.

Two of seven devices are in another region, and a second policy has erasure coding over all of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from charts.dashboards import SYNC, Panel
from charts.tests.promql import parsed
from charts.tests.test_alerts import expressions
from charts.tests.test_alerts_fire import rules_of
from e2e.monitoring.driving import OF_REGIONS, VARIABLES, asked_for, drive, labels_of, services_of
from e2e.monitoring.evaluating import evaluate, expect, fires, has_data
from e2e.monitoring.modes import AlertMode, Store
from e2e.monitoring.recording import Recording, Target, over_http
from e2e.monitoring.wide_modes import (
    POLICIES,
    WIDE_MODES,
    divide_replicators,
    equal_since,
    fill,
    is_whole,
    write_regions,
)
from e2e.standalone.cluster import start_cluster
from e2e.standalone.model_checks import wait_until
from swiftlet_operator.build.alerts import ALERTS

pytestmark = pytest.mark.timeout(1200)
SETTINGS = {
    "SWIFTLET_REPLICATOR__INTERVAL_S": "1",
    "SWIFTLET_REPLICATOR__PROBE_INTERVAL_S": "0.5",
    "SWIFTLET_REPLICATOR__CODED_RECOVERY_AFTER_S": "10",
}
MINUTE_S = 2.5
"""What is younger than 10 s is not compared between regions, which is to be less than ten minutes."""
REST_MINUTES = 12
OF_REDIS = {one.name for one in ALERTS if one.only_with == "redis"}
"""The store has none, so that its rules do not have them."""
RULES = [
    {**group, "rules": [rule for rule in group["rules"] if rule.get("alert") not in OF_REDIS]}
    for group in rules_of("lab")
]


@dataclass
class Lived:
    """What was recorded, and the minutes in which it was looked at."""

    recording: Recording
    at_rest: int
    broken: dict[str, int]
    mended: int


@pytest.fixture(scope="module")
def lived(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lived]:
    """One store and all that was done to it."""
    with ExitStack() as undo:
        scene = Store(tmp_path_factory.mktemp("wide") / "store", undo, settings=dict(SETTINGS))
        write_regions(scene.data)
        scene.running = start_cluster(scene.data, "--policies", POLICIES, settings=scene.settings)
        undo.callback(scene.running.stop)
        there = divide_replicators(scene, scene.data.parent)
        scene.running.wait_until_proved()
        fill(scene)
        wait_until(lambda: is_whole(scene) and equal_since(scene) > 0, "both regions to be whole", 120.0)
        metrics = {one.metric for expression in expressions().values() for one in parsed(expression).selectors}
        recording = Recording(metrics, [*services_of(scene.running), _target_of(there)])
        at_rest = recording.wait(REST_MINUTES, MINUTE_S)
        broken = drive(scene, recording, asked_for(WIDE_MODES, request.session.items))
        yield Lived(recording, at_rest, broken, recording.wait(REST_MINUTES, MINUTE_S))


def _target_of(url: str) -> Target:
    labels = {**labels_of("replicator"), "pod": "lab-there", "instance": "there"}
    return Target(labels, over_http(url + "/metrics"))


def test_no_alert_fires_while_the_store_is_whole(lived: Lived, tmp_path: Path) -> None:
    checks = [expect('count(ALERTS{alertstate="firing"})', lived.at_rest, None)]
    evaluate(lived.recording, tmp_path, RULES, checks)


@pytest.mark.parametrize("mode", WIDE_MODES, ids=lambda mode: mode.name)
def test_alerts_fire_in_the_mode_that_they_are_for(lived: Lived, tmp_path: Path, mode: AlertMode) -> None:
    checks = [fires(alert, lived.broken[mode.name]) for alert in mode.alerts]
    evaluate(lived.recording, tmp_path, RULES, checks)


def test_all_alerts_end_when_everything_is_mended(lived: Lived, tmp_path: Path) -> None:
    checks = [expect('count by (alertname) (ALERTS{alertstate="firing"})', lived.mended, None)]
    evaluate(lived.recording, tmp_path, RULES, checks)


WIDE_PANELS = [panel for panel in SYNC.panels if OF_REGIONS in panel.queries[0][0]]


@pytest.mark.parametrize("panel", WIDE_PANELS, ids=lambda panel: panel.title)
def test_panels_of_regions_have_data(lived: Lived, tmp_path: Path, panel: Panel) -> None:
    # Bytes are moved once a region is back that was away.
    evaluate(lived.recording, tmp_path, [], has_data(panel, VARIABLES, lived.mended))
