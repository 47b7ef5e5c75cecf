"""Each alert fires for what it is about, and for its own cluster alone: Prometheus' own `promtool` evaluates the rules.

The rules of the clusters `lab` and `lab-2` are loaded together, and numbers are bad for one of them. Where promtool is
not installed (it comes with Prometheus) the tests are left out, with a word; test_alerts.py parses the same rules.
"""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.tests.test_alerts import manifest, operator_rules
from swiftlet.crd import parse_storage_cluster
from swiftlet_operator.build.alerts import ALERTS
from swiftlet_operator.tests.clusters import manifest as spec_of
from swiftlet_operator.tests.clusters import site

LONG_AGO = "-34560000x240"
"""A moment 400 days before the test begins, which begins at 0."""
BAD = {
    "SwiftletNotReady": {'swiftlet_operator_condition{TOLD,type="Ready"}': "0x240"},
    "SwiftletPodsUnhealthy": {'swiftlet_operator_condition{TOLD,type="PodsHealthy"}': "0x240"},
    "SwiftletServerErrors": {
        'swiftlet_http_requests_total{MINE,pod="p",service="proxy",method="PUT",status="503"}': "0+2x240",
        'swiftlet_http_requests_total{MINE,pod="p",service="proxy",method="PUT",status="201"}': "0+98x240",
    },
    "SwiftletSlowEventLoop": {
        'swiftlet_event_loop_lag_seconds_bucket{MINE,pod="p",service="proxy",le="0.1"}': "0+90x240",
        'swiftlet_event_loop_lag_seconds_bucket{MINE,pod="p",service="proxy",le="1.0"}': "0+100x240",
        'swiftlet_event_loop_lag_seconds_bucket{MINE,pod="p",service="proxy",le="+Inf"}': "0+100x240",
    },
    "SwiftletTargetDown": {'up{MINE,pod="p"}': "0x240"},
    "SwiftletRedundancyLost": {'swiftlet_operator_condition{TOLD,type="Degraded"}': "1x240"},
    "SwiftletReplicasTogether": {'swiftlet_operator_condition{TOLD,type="ReplicasSpread"}': "0x240"},
    "SwiftletNodesCordoned": {'swiftlet_operator_condition{TOLD,type="NodesCordoned"}': "1x240"},
    "SwiftletUpgradeTimedOut": {"swiftlet_operator_upgrade_timed_out{TOLD}": "1x240"},
    "SwiftletDeviceDown": {'swiftlet_listing_device_failed{MINE,pod="p",device="db"}': "1x240"},
    "SwiftletNodeLeftOut": {'swiftlet_replicator_neighbours_out{MINE,pod="p",verdict="failed"}': "1x240"},
    "SwiftletDataQuarantined": {'swiftlet_listing_quarantined_total{MINE,pod="p",device="db"}': "0x150 1x90"},
    "SwiftletFragmentsShort": {
        'swiftlet_replicator_coded_partitions{MINE,pod="p",policy="cold",redundant="0"}': "0x60 3x180",
        'swiftlet_replicator_coded_partitions{MINE,pod="p",policy="cold",redundant="2"}': "16x240",
    },
    "SwiftletRepairStands": {
        'swiftlet_replicator_coded_left{MINE,pod="p"}': "0x60 7x180",
        'swiftlet_replicator_coded_repaired_total{MINE,pod="p",how="rebuilt"}': "0+3x100 300x140",
    },
    "SwiftletReplicationStands": {
        'swiftlet_replicator_last_round_timestamp_seconds{MINE,pod="p",endpoint="replicator"}': "0x240",
        'process_start_time_seconds{MINE,pod="p",endpoint="replicator"}': "60x240",
    },
    "SwiftletReplicationFails": {
        'swiftlet_replicator_compared_total{MINE,pod="p",result="failed"}': "0+2x240",
        'swiftlet_replicator_compared_total{MINE,pod="p",result="equal"}': "0+8x240",
    },
    "SwiftletRegionsBehind": {
        'swiftlet_replicator_region_equal_timestamp_seconds{MINE,pod="p",ring="object-0",region="west"}': "60x240",
        'swiftlet_replicator_region_equal_timestamp_seconds{MINE,pod="q",ring="object-0",region="west"}': "0+60x240",
    },
    "SwiftletPendingUpdatesOld": {'swiftlet_object_pending_oldest_seconds{MINE,pod="p",device="d0"}': "0+60x240"},
    "SwiftletListingsWrong": {'swiftlet_listing_audit_wrong_total{MINE,pod="p",kind="ghost"}': "0x150 1x90"},
    "SwiftletSplitStands": {'swiftlet_shard_oldest_split_seconds{MINE,pod="p",device="db"}': "0+60x240"},
    "SwiftletExpiryLags": {'swiftlet_expirer_lag_seconds{MINE,pod="p"}': "30000x240"},
    "SwiftletDeviceFilling": {
        'swiftlet_object_device_free_bytes{MINE,pod="p",device="d0"}': "14x240",
        'swiftlet_object_device_total_bytes{MINE,pod="p",device="d0"}': "100x240",
    },
    "SwiftletDeviceFull": {
        'swiftlet_object_device_free_bytes{MINE,pod="p",device="d0"}': "4x240",
        'swiftlet_object_device_total_bytes{MINE,pod="p",device="d0"}': "100x240",
    },
    "SwiftletRingNotUsable": {'swiftlet_ring_stale{MINE,pod="p",ring="object-0"}': "1x240"},
    "SwiftletFileNotUsable": {'swiftlet_tls_load_failures_total{MINE,pod="p"}': "0x170 1x70"},
    "SwiftletCertificateExpires": {'swiftlet_tls_certificate_expiry_timestamp_seconds{MINE,pod="p"}': "1000000x240"},
    "SwiftletClusterKeyOld": {"swiftlet_operator_cluster_key_timestamp_seconds{TOLD}": LONG_AGO},
    "SwiftletKeysNotSealed": {'swiftlet_operator_condition{TOLD,type="KeysSealed"}': "0x240"},
    "SwiftletTransportNotEncrypted": {'swiftlet_operator_condition{TOLD,type="TransportEncrypted"}': "0x240"},
    "SwiftletFederationNotReady": {'swiftlet_operator_condition{TOLD,type="FederationReady"}': "0x240"},
    "SwiftletRedisAway": {'swiftlet_replicator_redis_up{MINE,pod="p"}': "0x240"},
}
"""For each alert, series and their values minute by minute with which it fires after three hours."""
GOOD = {
    'swiftlet_operator_condition{TOLD,type="Ready"}': "1x240",
    'swiftlet_operator_condition{TOLD,type="Degraded"}': "0x240",
    'swiftlet_operator_condition{TOLD,type="PodsHealthy"}': "1x240",
    'swiftlet_operator_condition{TOLD,type="NodesCordoned"}': "0x240",
    'swiftlet_operator_condition{TOLD,type="KeysSealed"}': "1x240",
    'swiftlet_operator_condition{TOLD,type="TransportEncrypted"}': "1x240",
    'swiftlet_operator_condition{TOLD,type="FederationReady"}': "1x240",
    "swiftlet_operator_upgrade_timed_out{TOLD}": "0x240",
    'swiftlet_http_requests_total{MINE,pod="p",service="proxy",method="PUT",status="503"}': "0x240",
    'swiftlet_http_requests_total{MINE,pod="p",service="proxy",method="PUT",status="201"}': "0+100x240",
    'swiftlet_replicator_last_round_timestamp_seconds{MINE,pod="p",endpoint="replicator"}': "0+60x240",
    'swiftlet_replicator_neighbours_out{MINE,pod="p",verdict="failed"}': "0x240",
    'swiftlet_listing_quarantined_total{MINE,pod="p",device="db"}': "0x240",
    'swiftlet_listing_audit_wrong_total{MINE,pod="p",kind="ghost"}': "3x240",
    'swiftlet_object_device_free_bytes{MINE,pod="p",device="d0"}': "50x240",
    'swiftlet_object_device_total_bytes{MINE,pod="p",device="d0"}': "100x240",
    'swiftlet_object_pending_oldest_seconds{MINE,pod="p",device="d0"}': "2x240",
    'swiftlet_tls_certificate_expiry_timestamp_seconds{MINE,pod="p"}': "0x240",
    'swiftlet_tls_load_failures_total{MINE,pod="p"}': "5x240",
    'swiftlet_replicator_redis_up{MINE,pod="p"}': "1x240",
    'up{MINE,pod="p"}': "1x240",
    'swiftlet_replicator_coded_partitions{MINE,pod="p",policy="cold",redundant="0"}': "0x240",
    'swiftlet_replicator_coded_partitions{MINE,pod="p",policy="cold",redundant="1"}': "5x240",
    'swiftlet_replicator_region_equal_timestamp_seconds{MINE,pod="p",ring="object-0",region="west"}': "0+60x240",
    'swiftlet_replicator_coded_left{MINE,pod="p"}': "7x240",
    'swiftlet_replicator_coded_repaired_total{MINE,pod="p",how="rebuilt"}': "0+3x240",
    'swiftlet_replicator_coded_last_round_timestamp_seconds{MINE,pod="p"}': "0+60x240",
}
"""Series of a cluster that is well: no alert fires."""
OPERATOR = 'namespace="ops",job="operator"'
OPERATOR_BAD = {
    "SwiftletOperatorSilent": {f'swiftlet_operator_leads{{{OPERATOR},pod="p"}}': "0x240"},
    "SwiftletOperatorStands": {
        f'swiftlet_operator_reconcile_seconds_count{{{OPERATOR},pod="p",outcome="done"}}': "0+1x100 100x140",
        f'swiftlet_operator_clusters{{{OPERATOR},pod="p"}}': "3x240",
        f'swiftlet_operator_leads{{{OPERATOR},pod="p"}}': "1x240",
    },
    "SwiftletReconcileFails": {
        f'swiftlet_operator_reconcile_seconds_count{{{OPERATOR},pod="p",outcome="failed"}}': "0+1x240",
        f'swiftlet_operator_leads{{{OPERATOR},pod="p"}}': "1x240",
    },
}


def rules_of(name: str) -> list[dict[str, Any]]:
    """The groups of rules of a cluster of this name."""
    cluster = parse_storage_cluster(spec_of("tls", name=name))
    federation = site("federated").spec.federation
    spec = cluster.spec.model_copy(update={"encryption": "transport", "federation": federation})
    named = replace(site("tls"), cluster=replace(cluster, spec=spec))
    found: list[dict[str, Any]] = manifest(named, "PrometheusRule")["spec"]["groups"]
    return found


def operators_group(namespace: str, job: str) -> dict[str, Any]:
    """The group of rules about the operator itself, as the chart installs it there."""
    text = yaml.safe_dump({"name": "operator", "rules": operator_rules()})
    for short, long in (("$NAMESPACE", namespace), ("$JOB", job), ("$RUNBOOKS", "docs/runbooks.md")):
        text = text.replace(short, long)
    found: dict[str, Any] = yaml.safe_load(text)
    return found


def of(name: str, series: dict[str, str]) -> list[dict[str, str]]:
    """Series as a cluster of this name has them."""
    labels = {
        "MINE": f'namespace="data",swiftlet_cluster="{name}"',
        "TOLD": f'swiftlet_namespace="data",swiftlet_cluster="{name}"',
    }
    made = []
    for one, values in series.items():
        for short, long in labels.items():
            one = one.replace(short, long)
        made.append({"series": one, "values": values})
    return made


def firing(expected: dict[str, int], **labels: str) -> list[dict[str, Any]]:
    """What promtool is to find after three hours: how many of which alerts fire, with these labels."""
    chosen = "".join(f',{name}="{value}"' for name, value in labels.items())
    expression = f'count by (alertname) (ALERTS{{alertstate="firing"{chosen}}})'
    samples = [{"labels": f'{{alertname="{name}"}}', "value": count} for name, count in expected.items()]
    return [{"expr": expression, "eval_time": "3h", "exp_samples": samples}]


@pytest.fixture(scope="session")
def promtool() -> str:
    """The program."""
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed; it comes with Prometheus")
    return found


def check(
    promtool: str, directory: Path, groups: list[dict[str, Any]], tests: list[dict[str, Any]], every: str = "4m"
) -> None:
    """Let promtool check the rules and evaluate them.

    Numbers are told each minute, as by a server. Rules are evaluated less often where nothing but the end counts, which
    takes a quarter of the time.
    """
    (directory / "rules.yaml").write_text(yaml.safe_dump({"groups": groups}))
    content = {"rule_files": ["rules.yaml"], "evaluation_interval": every, "tests": tests}
    (directory / "tests.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    for command in (["check", "rules", "rules.yaml"], ["test", "rules", "tests.yaml"]):
        done = subprocess.run([promtool, *command], cwd=directory, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_is_tried() -> None:
    assert BAD.keys() == {one.name for one in ALERTS}
    assert OPERATOR_BAD.keys() == {one["alert"] for one in operator_rules()}


@pytest.mark.parametrize(("bad", "well"), [("lab", "lab-2"), ("lab-2", "lab")])
def test_an_alert_fires_for_its_own_cluster_alone(promtool: str, tmp_path: Path, bad: str, well: str) -> None:
    tests = []
    for name, series in BAD.items():
        # A device that is full is one that fills up, too.
        also = {"SwiftletDeviceFilling": 1} if name == "SwiftletDeviceFull" else {}
        checks = [*firing({name: 1, **also}, swiftlet_cluster=bad), *firing({}, swiftlet_cluster=well)]
        tests.append(
            {
                "name": name,
                "interval": "1m",
                "input_series": [*of(bad, series), *of(well, GOOD)],
                "promql_expr_test": checks,
            }
        )
    check(promtool, tmp_path, [*rules_of("lab"), *rules_of("lab-2")], tests)


QUIET_AT_START = [one.name for one in ALERTS if one.after_start]


@pytest.mark.parametrize("name", QUIET_AT_START)
def test_an_alert_is_silent_during_the_first_start_unless_a_cause_is_known(
    promtool: str, tmp_path: Path, name: str
) -> None:
    """The first hours of `lab` are a start; `lab-2` has a pod in trouble meanwhile, and is told of."""
    starts = {'swiftlet_operator_condition{TOLD,type="PodsHealthy"}': "-1x240"}
    stuck = {'swiftlet_operator_condition{TOLD,type="PodsHealthy"}': "0x240"}
    series = [*of("lab", {**BAD[name], **starts}), *of("lab-2", {**BAD[name], **stuck})]
    checks = [
        *firing({}, swiftlet_cluster="lab"),
        *firing({name: 1, "SwiftletPodsUnhealthy": 1}, swiftlet_cluster="lab-2"),
    ]
    test = {"name": name, "interval": "1m", "input_series": series, "promql_expr_test": checks}
    check(promtool, tmp_path, [*rules_of("lab"), *rules_of("lab-2")], [test])


def test_a_start_ends_with_the_alert_when_the_cluster_is_not_ready_then(promtool: str, tmp_path: Path) -> None:
    series = of(
        "lab",
        {
            'swiftlet_operator_condition{TOLD,type="PodsHealthy"}': "-1x30 1x210",
            'swiftlet_operator_condition{TOLD,type="Ready"}': "0x240",
        },
    )
    expression = 'count by (alertname) (ALERTS{alertstate="firing"})'
    later = [{"labels": '{alertname="SwiftletNotReady"}', "value": 1}]
    checks = [
        {"expr": expression, "eval_time": "35m", "exp_samples": []},
        {"expr": expression, "eval_time": "45m", "exp_samples": later},
    ]
    check(promtool, tmp_path, rules_of("lab"), [{"interval": "1m", "input_series": series, "promql_expr_test": checks}])


def test_the_operators_alerts_fire(promtool: str, tmp_path: Path) -> None:
    well = {
        f'swiftlet_operator_reconcile_seconds_count{{{OPERATOR},pod="p",outcome="done"}}': "0+1x240",
        f'swiftlet_operator_reconcile_seconds_count{{{OPERATOR},pod="p",outcome="failed"}}': "2x240",
        f'swiftlet_operator_clusters{{{OPERATOR},pod="p"}}': "3x240",
        f'swiftlet_operator_leads{{{OPERATOR},pod="p"}}': "1x240",
        f'swiftlet_operator_leads{{{OPERATOR},pod="q"}}': "0x240",
    }
    cases = [(well, {}), *((series, {name: 1}) for name, series in OPERATOR_BAD.items())]
    tests = [
        {"interval": "1m", "input_series": of("none", series), "promql_expr_test": firing(expected)}
        for series, expected in cases
    ]
    check(promtool, tmp_path, [operators_group("ops", "operator")], tests)
