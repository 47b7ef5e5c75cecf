"""Alerts and panels about a cluster's conditions, driven by the operator's reconciler on a cluster that meets trouble.

The API server and the clock are simulated (`swiftlet_operator.tests.worlds`); what the reconciler tells of each minute
is recorded and evaluated as that of the services is.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from charts.dashboards import OPERATOR, OVERVIEW, Panel
from charts.tests.test_alerts_fire import rules_of
from e2e.monitoring.evaluating import evaluate, expect, fires, has_data
from e2e.monitoring.recording import Recording, Target
from swiftlet_operator.tests.test_cordons import cordon
from swiftlet_operator.tests.test_lifecycle import ZONES, break_pod
from swiftlet_operator.tests.worlds import Scene, settled

METRICS = (
    "swiftlet_operator_condition",
    "swiftlet_operator_clusters",
    "swiftlet_operator_upgrade_timed_out",
)
VARIABLES = {"$namespace": "data", "$cluster": "store", "$__rate_interval": "5m"}
FIRING = 'ALERTS{alertname!="SwiftletKeysNotSealed",alertstate="firing"}'
"""Apart from what is true all the time: the operator of these tests has no recovery key."""
Act = Callable[[Scene], None]


class Told:
    """Gathers what the operator exports about a cluster, minute by minute."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        registry = CollectorRegistry()
        registry.register(scene.clusters)
        labels = {"namespace": "data", "pod": "operator", "container": "operator", "job": "operator"}
        target = Target(labels, lambda: generate_latest(registry).decode())
        self.recording = Recording(METRICS, [target], lambda: float(scene.now_s))

    async def wait(self, minutes: int) -> int:
        """Reconcile in each of so many minutes; the last of them."""
        for _ in range(minutes):
            self.scene.now_s += 60
            await self.scene.step()
            self.recording.tick()
        return self.recording.minute


@pytest.fixture
async def told() -> Told:
    """A cluster that has been at rest for some minutes."""
    found = Told(await settled("three-zones"))
    await found.wait(5)
    return found


def _no_pod_is_ready(scene: Scene) -> None:
    for zone in ZONES:
        break_pod(scene, f"store-fast-{zone}-0")


def _one_pod_is_not_ready(scene: Scene) -> None:
    break_pod(scene, f"store-fast-{ZONES[0]}-0")


def _all_is_ready(scene: Scene) -> None:
    scene.told.silent.clear()
    scene.live()


MODES: dict[str, tuple[tuple[str, ...], Act, Act, int]] = {
    "pods of all zones": (("SwiftletNotReady", "SwiftletRedundancyLost"), _no_pod_is_ready, _all_is_ready, 20),
    "a pod": (("SwiftletRedundancyLost",), _one_pod_is_not_ready, _all_is_ready, 20),
    "a cordon": (
        ("SwiftletNodesCordoned",),
        lambda scene: cordon(scene, "n1"),
        lambda scene: cordon(scene, "n1", on=False),
        130,
    ),
}
"""Trouble: the alerts that are for it, how it comes and goes, and the minutes until they fire."""


@pytest.mark.parametrize("mode", MODES)
async def test_alerts_fire_in_the_mode_that_they_are_for_and_end_after_it(
    told: Told, tmp_path: Path, mode: str
) -> None:
    alerts, comes, goes, lasts = MODES[mode]
    at_rest = told.recording.minute
    comes(told.scene)
    broken = await told.wait(lasts)
    goes(told.scene)
    mended = await told.wait(10)
    checks = [expect(f"count({FIRING})", minute, None) for minute in (at_rest, mended)]
    checks += [fires(alert, broken) for alert in alerts]
    checks += [expect(f"count(count by (alertname) ({FIRING}))", broken, len(alerts))]
    evaluate(told.recording, tmp_path, rules_of("store"), checks)


PANELS = [
    panel
    for dashboard in (OVERVIEW, OPERATOR)
    for panel in dashboard.panels
    if any(f"{metric}{{" in panel.queries[0][0] for metric in METRICS)
]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
async def test_panels_about_clusters_have_data(told: Told, tmp_path: Path, panel: Panel) -> None:
    evaluate(told.recording, tmp_path, [], has_data(panel, VARIABLES, told.recording.minute))
