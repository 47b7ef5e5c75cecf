"""Prometheus' own `promtool` evaluates rules and queries over what was recorded."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from charts.dashboards import Panel
from charts.tests.promql import parsed
from charts.tests.test_alerts_fire import check
from e2e.monitoring.recording import Recording

Check = dict[str, Any]
Group = dict[str, Any]


def expect(expression: str, minute: int, value: int | None) -> Check:
    """What promtool is to find: a number, or nothing."""
    samples = [] if value is None else [{"labels": "{}", "value": value}]
    return {"expr": expression, "eval_time": f"{minute}m", "exp_samples": samples}


def fires(alert: str, minute: int) -> Check:
    """An alert fires, for whatever."""
    return expect(f'count(ALERTS{{alertname="{alert}",alertstate="firing"}}) > bool 0', minute, 1)


def has_data(panel: Panel, variables: Mapping[str, str], minute: int) -> list[Check]:
    """All queries of a panel find something that can be drawn, which what is no number can't."""
    found = []
    for query, _ in panel.queries:
        for variable, value in variables.items():
            query = query.replace(variable, value)
        found.append(expect(f"count(({query}) >= -Inf) > bool 0", minute, 1))
    return found


def evaluate(recording: Recording, directory: Path, groups: Sequence[Group], checks: Sequence[Check]) -> None:
    """Have all of it evaluated, with the rules of alerts that are named in the checks, or all if one names none.

    Rules are evaluated each minute, as by a server: the minutes that modes last have no room for less.
    """
    promtool = shutil.which("promtool")
    assert promtool is not None, "promtool is not installed; `make monitoring` does so"
    chosen = [{**group, "rules": _of(group["rules"], checks)} for group in groups]
    expressions = [one["expr"] for one in (*checks, *(rule for group in chosen for rule in group["rules"]))]
    metrics = {selector.metric for one in expressions for selector in parsed(one).selectors}
    test = {"interval": "1m", "input_series": recording.input_series(metrics), "promql_expr_test": list(checks)}
    check(promtool, directory, [group for group in chosen if group["rules"]], [test], every="1m")


def _of(rules: Sequence[dict[str, Any]], checks: Sequence[Check]) -> list[dict[str, Any]]:
    asked = [one["expr"] for one in checks if "ALERTS" in one["expr"]]
    named = {name for one in asked for name in re.findall(r'alertname="(\w+)"', one)}
    if any("alertname=" not in one for one in asked):
        return list(rules)
    return [rule for rule in rules if rule["alert"] in named]
