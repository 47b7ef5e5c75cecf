"""No alert and no panel is left out by `make monitoring`: each is driven by a mode of one of its tests."""

from __future__ import annotations

from charts.dashboards import DASHBOARDS
from charts.tests.test_alerts import operator_rules
from e2e.monitoring import test_alerts_and_panels as store
from e2e.monitoring import test_operator as operator
from e2e.monitoring import test_wide_alerts_and_panels as wide
from e2e.monitoring.modes import ALERT_MODES
from e2e.monitoring.wide_modes import WIDE_MODES
from swiftlet_operator.build.alerts import ALERTS


def test_every_alert_has_a_mode() -> None:
    driven = {alert for mode in (*ALERT_MODES, *WIDE_MODES) for alert in mode.alerts}
    driven |= {alert for alerts, *_ in operator.MODES.values() for alert in alerts} | set(operator.FEDERATED)
    assert driven == {one.name for one in ALERTS} | {one["alert"] for one in operator_rules()}


def test_every_panel_is_looked_at() -> None:
    seen = [panel for _, panel in store.PANELS] + [*wide.WIDE_PANELS, *operator.PANELS]
    assert {id(panel) for panel in seen} == {id(panel) for one in DASHBOARDS for panel in one.panels}
