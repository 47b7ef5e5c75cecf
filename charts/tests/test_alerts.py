"""Alerts and dashboards name only what is exported, pick only their own cluster, and are explained."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
import yaml

from charts.dashboards import DASHBOARDS, WIDTH, dashboard_files
from charts.make import CHART, ROOT
from charts.tests.exported import OF_PROMETHEUS, TARGET_LABELS, exported
from charts.tests.promql import parsed
from swiftlet.settings import SERVICES
from swiftlet.sync.failures.opinions import Verdict
from swiftlet_operator.build import Site, build
from swiftlet_operator.build.alerts import ALERTS, CLUSTER, TOLD, expression_of
from swiftlet_operator.tests.clusters import site
from swiftlet_operator.tests.worlds import Scene

OPERATOR_RULES = CHART / "files" / "operator-alerts.yaml"
RUNBOOKS = ROOT / "docs" / "runbooks.md"
DROPPED_BY_MONITOR = {"service"}
"""The target label that the ServiceMonitors drop, as metrics have one of that name."""
_FIELD = re.compile(r"\{\{ \$labels\.(\w+) \}\}")


def operator_rules() -> list[dict[str, Any]]:
    """The alerts about the operator itself, as they are in the chart."""
    found: list[dict[str, Any]] = yaml.safe_load(OPERATOR_RULES.read_text())
    return found


def manifest(made: Site, kind: str) -> dict[str, Any]:
    (found,) = (one for one in build(made) if one["kind"] == kind)
    return found


def rules(spec: str = "tls") -> list[dict[str, Any]]:
    """The alerts of a cluster, as the operator makes them."""
    return rules_for(site(spec))


def rules_for(made: Site) -> list[dict[str, Any]]:
    """The same of any site."""
    (group,) = manifest(made, "PrometheusRule")["spec"]["groups"]
    found: list[dict[str, Any]] = group["rules"]
    return found


def expressions() -> dict[str, str]:
    """Every expression of alerts and dashboards by where it stands."""
    found = {one["alert"]: one["expr"] for one in [*rules(), *operator_rules()]}
    for dashboard in DASHBOARDS:
        for panel in dashboard.panels:
            found |= {f"{dashboard.title}: {panel.title} {index}": one for index, (one, _) in enumerate(panel.queries)}
        for name, query in dashboard.variables:
            series = re.fullmatch(r"label_values\((.*), (\w+)\)", query)
            assert series is not None, query
            found[f"{dashboard.title}: ${name}"] = f"sum by ({series[2]}) ({series[1]})"
    return found


@pytest.mark.parametrize("where", expressions())
def test_expressions_name_only_what_is_exported(where: str) -> None:
    found = parsed(expressions()[where])
    known = exported() | OF_PROMETHEUS
    assert found.selectors
    labels: set[str] = set()
    for one in found.selectors:
        assert one.metric in known, f"{one.metric} is exported by nobody"
        assert one.labels <= known[one.metric] | TARGET_LABELS, one
        labels |= known[one.metric]
    assert found.grouped_by <= labels | TARGET_LABELS


@pytest.mark.parametrize("rule", [*rules(), *operator_rules()], ids=lambda rule: rule["alert"])
def test_annotations_use_labels_that_are_there(rule: dict[str, Any]) -> None:
    found = parsed(rule["expr"])
    labels = {"namespace", "swiftlet_cluster"}
    if found.grouped_by:
        labels |= found.grouped_by
    else:
        labels |= TARGET_LABELS | {name for one in found.selectors for name in (exported() | OF_PROMETHEUS)[one.metric]}
    used = set(_FIELD.findall(json.dumps(rule["annotations"])))
    assert used <= labels


def test_names_of_metrics_are_not_known_by_chance() -> None:
    known = exported()
    assert known["swiftlet_http_requests_total"] == {"service", "method", "status"}
    assert known["swiftlet_object_pending_oldest_seconds"] == {"device"}
    assert known["swiftlet_operator_condition"] == {"swiftlet_namespace", "swiftlet_cluster", "type"}
    assert "swiftlet_object_pending_oldest" not in known
    with pytest.raises(ValueError, match="unclosed left parenthesis"):
        parsed("rate(swiftlet_http_requests_total[5m]")


async def test_expressions_compare_labels_with_values_that_they_have() -> None:
    scene = Scene()
    await scene.step()
    values = {
        "service": set(SERVICES),
        "verdict": {one.value for one in Verdict},
        "result": {"equal", "differs", "failed", "skipped"},
        "state": {"total", "done"},
        "outcome": {"done", "failed", "refused"},
        "type": {one["type"] for one in scene.cluster["status"]["conditions"]},
        "alertstate": {"firing"},
        "container": {"operator"},
        "endpoint": {"replicator"},
    }
    for where, expression in expressions().items():
        for one in parsed(expression).selectors:
            for label, value in one.equal.items():
                by_name = label in ("namespace", "job") or label.startswith("swiftlet_")
                assert by_name or value in values[label], (where, label, value)


def test_no_metric_has_a_label_that_its_target_has() -> None:
    """Prometheus would rename it to `exported_...`, and no expression would find it."""
    clashes = {name: labels & TARGET_LABELS for name, labels in exported().items() if labels & TARGET_LABELS}
    told_by_operator = {name for name in clashes if name.startswith("swiftlet_operator_")}
    assert all(clashes[name] == {"swiftlet_cluster"} for name in told_by_operator)
    assert not clashes.keys() - told_by_operator
    assert any("service" in labels for labels in exported().values())
    for endpoint in manifest(site("tls"), "ServiceMonitor")["spec"]["endpoints"]:
        dropped = {one["regex"] for one in endpoint["relabelings"] if one["action"] == "labeldrop"}
        assert dropped == DROPPED_BY_MONITOR


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_an_alert_picks_its_own_cluster_and_not_one_whose_name_begins_alike(alert: Any) -> None:
    """Every series is picked by equality with a label of the cluster's name: a pod's name is never asked for."""
    assert CLUSTER in alert.expression or TOLD in alert.expression
    for one in parsed(expression_of(alert, "data", "lab")).selectors:
        assert one.equal["swiftlet_cluster"] == "lab", one
        told = one.metric.startswith("swiftlet_operator_")
        assert one.equal["swiftlet_namespace" if told else "namespace"] == "data", one
        assert "pod" not in one.labels


def test_the_label_that_alerts_pick_by_is_the_clusters_name() -> None:
    monitor = manifest(site("tls"), "ServiceMonitor")["spec"]
    instance = monitor["selector"]["matchLabels"]["app.kubernetes.io/instance"]
    assert instance == "store"
    copied = {
        "swiftlet_cluster": "service_label_app_kubernetes_io_instance",
        "swiftlet_pool": "pod_label_swiftlet_io_pool",
    }
    for endpoint in monitor["endpoints"]:
        made = {one["targetLabel"]: one["sourceLabels"] for one in endpoint["relabelings"] if "targetLabel" in one}
        assert {name: [f"__meta_kubernetes_{one}"] for name, one in copied.items()}.items() <= made.items()
        assert made.keys() <= TARGET_LABELS
    ports = {port["name"] for one in build(site("tls")) if one["kind"] == "Service" for port in one["spec"]["ports"]}
    assert {endpoint["port"] for endpoint in monitor["endpoints"]} <= ports


GUIDE = sorted(f"guide/{page.name}" for page in (ROOT / "docs" / "guide").glob("*.md"))


@pytest.mark.parametrize("page", [*GUIDE, "runbooks.md"])
def test_metrics_in_the_documents_are_exported(page: str) -> None:
    known = {name.removesuffix("_count") for name in exported()} | exported().keys()
    families = [name for name in known if name.startswith("swiftlet_")]
    for name, star in re.findall(r"`(swiftlet_[a-z_]+)(\*?)", (ROOT / "docs" / page).read_text()):
        if name in TARGET_LABELS:
            continue
        assert any(one.startswith(name) for one in families) if star else name in families, name


def headings() -> list[str]:
    return re.findall(r"^## (\w+)$", RUNBOOKS.read_text(), re.MULTILINE)


def test_every_alert_has_a_page_and_every_page_an_alert() -> None:
    names = [*(one.name for one in ALERTS), *(one["alert"] for one in operator_rules())]
    assert len(names) == len(set(names))
    assert sorted(headings()) == sorted(names)


def test_every_page_says_what_it_means_where_to_look_what_to_do_and_when_it_ends() -> None:
    text = RUNBOOKS.read_text()
    for page in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        for part in ("**What it means**", "**Look at**", "**Do**", "**It ends**"):
            assert part in page, (page.splitlines()[0], part)


@pytest.mark.parametrize("rule", [*rules(), *operator_rules()], ids=lambda rule: rule["alert"])
def test_an_alert_says_how_bad_it_is_and_where_it_is_explained(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert re.fullmatch(r"[0-9]+[mh]", rule["for"])
    assert rule["annotations"]["summary"].endswith(".")
    assert rule["annotations"]["description"].endswith(".")
    page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
    assert anchor == rule["alert"].lower()
    assert page in ("docs/runbooks.md", "$RUNBOOKS")


def test_a_cluster_has_no_alert_about_what_it_does_not_have() -> None:
    made = site("tls")
    everything = {"encryption": "transport", "federation": site("federated").spec.federation}
    having = replace(made, cluster=replace(made.cluster, spec=made.spec.model_copy(update=everything)))
    whole = {one.name for one in ALERTS}
    assert {one["alert"] for one in rules_for(having)} == whole
    plain = replace(having.cluster, spec=having.spec.model_copy(update={"encryption": "none"}))
    alone = replace(having.cluster, spec=having.spec.model_copy(update={"federation": None}))
    for what, lacking in (
        ("encryption", replace(having, cluster=plain)),
        ("federation", replace(having, cluster=alone)),
        ("redis", replace(having, redis_image=None)),
    ):
        named = {one.name for one in ALERTS if one.only_with == what}
        assert named
        assert {one["alert"] for one in rules_for(lacking)} == whole - named


def test_dashboards_are_current() -> None:
    files = {path.name: path.read_text() for path in (CHART / "dashboards").glob("*")}
    assert files == dashboard_files(), "run `make chart`"


@pytest.mark.parametrize("name", dashboard_files())
def test_panels_of_a_dashboard_lie_beside_each_other(name: str) -> None:
    page = json.loads(dashboard_files()[name])
    cells: set[tuple[int, int]] = set()
    for panel in page["panels"]:
        place = panel["gridPos"]
        covered = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert max(x for x, _ in covered) < WIDTH
        assert not covered & cells
        cells |= covered
    assert len({panel["id"] for panel in page["panels"]}) == len(page["panels"])
    variables = {one["name"] for one in page["templating"]["list"]}
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(page))) <= variables | {"__rate_interval"}
