"""The chart `swiftlet`, rendered: what comes out for which values, and what is refused."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from charts.make import CHART, crd_files
from swiftlet_operator.build import build
from swiftlet_operator.main import options_of
from swiftlet_operator.manifests import cluster_labels, told_at
from swiftlet_operator.reports import SERVICES
from swiftlet_operator.tests.clusters import SPECS, site

KUBERNETES = "1.33.0"
DIGEST = "sha256:" + "0123456789abcdef" * 4
WIDE = "there:try-swiftlet-operator"
"""Name of what is the operator's own and has no namespace."""
Manifest = dict[str, Any]

VALUE_SETS: dict[str, Manifest] = {
    "defaults": {},
    "highly available": {"operator": {"highAvailability": True}},
    "one namespace": {"watchNamespaces": ["blue"]},
    "two namespaces": {"watchNamespaces": ["blue", "green"]},
    "by digest": {"image": {"repository": "objects/swiftlet", "digest": DIGEST}},
    "by tag": {"image": {"tag": "1.2.3", "pullPolicy": "Always"}, "imagePullSecrets": [{"name": "pull"}]},
    "without definitions": {"crds": {"install": False}},
    "without a guard": {"uninstallGuard": {"enabled": False}},
    "an account of another's": {"serviceAccount": {"create": False, "name": "theirs"}},
    "rights of another's": {"rbac": {"create": False}, "crds": {"install": False}},
    "account with annotations": {"serviceAccount": {"name": "ours", "annotations": {"a/b": "c"}}},
    "placed": {
        "operator": {
            "nodeSelector": {"role": "control"},
            "tolerations": [{"key": "control", "operator": "Exists"}],
            "affinity": {"podAntiAffinity": {}},
            "priorityClassName": "high",
            "podLabels": {"team": "storage"},
            "podAnnotations": {"note": "1"},
            "env": [{"name": "TZ", "value": "UTC"}],
            "resources": {},
        }
    },
    "renamed": {"fullnameOverride": "objects", "nameOverride": "store"},
    "with RDMA": {
        "rdmaDevicePlugin": {
            "enabled": True,
            "nodeSelector": {"feature.node.kubernetes.io/custom-rdma.available": "true"},
            "tolerations": [{"operator": "Exists"}],
            "resources": [{"name": "fast", "shares": 64, "selectors": {"vendors": ["15b3"], "drivers": ["mlx5_core"]}}],
        }
    },
    "watched": {"monitoring": {"labels": {"release": "prom", "team": "a"}, "runbookURL": "https://wiki/swiftlet"}},
    "unwatched": {"monitoring": {"enabled": False, "dashboards": {"enabled": False}}},
    "shut in": {
        "networkPolicy": {
            "apiServer": {"cidrs": ["10.96.0.1/32", "fd00::1/128"], "ports": [6443]},
            "dns": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}],
            "extraEgress": [{"to": [{"ipBlock": {"cidr": "192.0.2.0/24"}}], "ports": [{"port": 4317}]}],
        },
        "watchNamespaces": ["blue"],
        "monitoring": {"enabled": False},
    },
    "strict": {"admission": {"risks": "Deny", "logins": "Audit", "owned": "Ignore"}, "watchNamespaces": ["blue"]},
    "not asked": {"admission": {"enabled": False}},
    "without a policy": {"networkPolicy": {"enabled": False}},
    "with a test": {"test": {"credentialsSecret": "alice-credentials"}},
    "everything": {
        "operator": {"highAvailability": True},
        "watchNamespaces": ["blue"],
        "rdmaDevicePlugin": {"enabled": True, "image": {"digest": DIGEST}},
        "test": {"credentialsSecret": "alice-credentials"},
        "image": {"digest": DIGEST},
    },
}


@cache
def template(helm: str, values: str, *served: str, namespace: str = "there") -> subprocess.CompletedProcess[str]:
    """What Helm makes of the values, as YAML; it is asked once for the same."""
    where = ["--namespace", namespace, "--kube-version", KUBERNETES, *(f"--api-versions={one}" for one in served)]
    return subprocess.run(
        [helm, "template", "try", str(CHART), *where, "--values", "-"],
        input=values,
        capture_output=True,
        text=True,
        check=False,
    )


def render(helm: str, values: Manifest, *served: str) -> subprocess.CompletedProcess[str]:
    """`served` are groups of kinds that the API server has besides Kubernetes' own."""
    return template(helm, yaml.safe_dump(values), *served)


@cache
def parsed(text: str) -> tuple[Manifest, ...]:
    """The objects of a rendered chart. Several tests have them, and none changes them."""
    return tuple(one for one in yaml.load_all(text, Loader=yaml.CSafeLoader) if one)


def manifests(helm: str, values: Manifest, *served: str) -> list[Manifest]:
    done = render(helm, values, *served)
    assert done.returncode == 0, done.stderr
    return list(parsed(done.stdout))


def only(found: list[Manifest], kind: str, name: str | None = None, namespace: str | None = None) -> Manifest:
    (one,) = (
        one
        for one in found
        if one["kind"] == kind
        and name in (None, one["metadata"]["name"])
        and namespace in (None, one["metadata"].get("namespace"))
    )
    return one


def kinds(found: list[Manifest]) -> set[str]:
    return {one["kind"] for one in found}


def pods(found: list[Manifest]) -> Iterator[Manifest]:
    for one in found:
        if one["kind"] == "Pod":
            yield one["spec"]
        elif one["kind"] in ("Deployment", "DaemonSet", "Job"):
            yield one["spec"]["template"]["spec"]


def operator_pod(found: list[Manifest]) -> Manifest:
    spec: Manifest = only(found, "Deployment")["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())
def test_lint(helm: str, values: Manifest) -> None:
    done = subprocess.run(
        [helm, "lint", str(CHART), "--strict", "--quiet", "--kube-version", KUBERNETES, "--values", "-"],
        input=yaml.safe_dump(values),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())
def test_what_holds_for_all_values(helm: str, values: Manifest) -> None:
    found = manifests(helm, values)
    names = [(one["kind"], one["metadata"]["name"], one["metadata"].get("namespace")) for one in found]
    assert len(names) == len(set(names))
    for one in found:
        if one["kind"] != "CustomResourceDefinition":
            assert one["metadata"]["labels"]["app.kubernetes.io/instance"] == "try"
        if one["kind"] in ("Deployment", "DaemonSet"):
            wanted = one["spec"]["selector"]["matchLabels"]
            assert wanted.items() <= one["spec"]["template"]["metadata"]["labels"].items()
            assert "app.kubernetes.io/version" not in wanted
    for pod in pods(found):
        if pod.get("hostNetwork"):
            continue
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }


def test_one_pod_or_two_that_stay_apart(helm: str) -> None:
    alone = manifests(helm, {})
    assert only(alone, "Deployment")["spec"]["replicas"] == 1
    assert "PodDisruptionBudget" not in kinds(alone)
    two = manifests(helm, VALUE_SETS["highly available"])
    assert only(two, "Deployment")["spec"]["replicas"] == 2
    budget = only(two, "PodDisruptionBudget")["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"] == only(two, "Deployment")["spec"]["selector"]
    assert operator_pod(two)["topologySpreadConstraints"][0]["topologyKey"] == "kubernetes.io/hostname"


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())
def test_no_pod_is_taken_for_one_of_a_cluster(helm: str, values: Manifest) -> None:
    for one in manifests(helm, values):
        if one["kind"] != "CustomResourceDefinition":
            labels = one["spec"]["template"]["metadata"] if "template" in one.get("spec", {}) else one["metadata"]
            assert labels["labels"]["app.kubernetes.io/name"] != "swiftlet"


def test_a_digest_stands_in_for_the_tag(helm: str) -> None:
    assert operator_pod(manifests(helm, {}))["containers"][0]["image"] == "swiftlet:0.1.0"
    found = manifests(helm, VALUE_SETS["everything"])
    assert operator_pod(found)["containers"][0]["image"] == f"swiftlet@{DIGEST}"
    assert only(found, "Pod")["spec"]["containers"][0]["image"] == f"swiftlet@{DIGEST}"
    plugin = only(found, "DaemonSet")["spec"]["template"]["spec"]["containers"][0]
    assert plugin["image"] == f"mellanox/k8s-rdma-shared-dev-plugin@{DIGEST}"


def test_definitions_are_the_sources_and_belong_to_no_release(helm: str) -> None:
    found = manifests(helm, {})
    job = only(found, "Job", "try-swiftlet-install-crds")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-install,pre-upgrade"
    container = job["spec"]["template"]["spec"]["containers"][0]
    assert container["args"][-1] == "0.1.0"
    (mounted,) = (one for one in container["volumeMounts"] if one["mountPath"] == container["args"][1])
    (volume,) = (one for one in job["spec"]["template"]["spec"]["volumes"] if one["name"] == mounted["name"])
    sources = only(found, "ConfigMap", volume["configMap"]["name"])["data"]
    assert {name: text.strip() for name, text in sources.items()} == {
        name: text.strip() for name, text in crd_files().items()
    }
    for values in VALUE_SETS.values():
        assert "CustomResourceDefinition" not in kinds(manifests(helm, values))
    left = manifests(helm, VALUE_SETS["without definitions"])
    assert not any("install-crds" in one["metadata"]["name"] for one in left)


def test_what_installs_definitions_goes_before_the_release_and_is_removed(helm: str) -> None:
    mine = [one for one in manifests(helm, {}) if "install-crds" in one["metadata"]["name"]]
    assert {one["kind"] for one in mine} == {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "ConfigMap", "Job"}
    for one in mine:
        marks = one["metadata"]["annotations"]
        assert marks["helm.sh/hook"] == "pre-install,pre-upgrade"
        assert marks["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
        assert (int(marks["helm.sh/hook-weight"]) < 0) is (one["kind"] != "Job")
    rules = only(mine, "ClusterRole")["rules"]
    on: dict[str, set[str]] = {}
    for rule in rules:
        for resource in rule["resources"]:
            on.setdefault(resource, set()).update(rule["verbs"])
    assert on.pop("customresourcedefinitions") == {"create", "get", "update"}
    assert on.pop("customresourcedefinitions/status") == {"patch"}
    assert {frozenset(verbs) for verbs in on.values()} == {frozenset({"get", "list", "patch"})}, "no object goes"
    names = {one["metadata"]["name"] for one in map(yaml.safe_load, crd_files().values())}
    assert [set(rule["resourceNames"]) for rule in rules if "resourceNames" in rule] == [names, names]


def test_the_guard_acts_as_the_operator_on_its_namespaces(helm: str) -> None:
    job = only(manifests(helm, VALUE_SETS["two namespaces"]), "Job", "try-swiftlet-uninstall-guard")
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    pod = job["spec"]["template"]["spec"]
    assert pod["serviceAccountName"] == operator_pod(manifests(helm, {}))["serviceAccountName"]
    assert pod["containers"][0]["args"][-4:] == ["--watched", "blue", "--watched", "green"]
    assert pod["containers"][0]["terminationMessagePolicy"] == "FallbackToLogsOnError"
    left = manifests(helm, VALUE_SETS["without a guard"])
    assert not any("guard" in one["metadata"]["name"] for one in left)


def test_releases_of_one_name_in_two_namespaces_share_no_object(helm: str) -> None:
    def wide(namespace: str) -> set[tuple[str, str]]:
        found = parsed(template(helm, "{}", namespace=namespace).stdout)
        return {(one["kind"], one["metadata"]["name"]) for one in found if "namespace" not in one["metadata"]}

    assert wide("here")
    assert not wide("here") & wide("there")


def test_rights_are_in_the_watched_namespace_only(helm: str) -> None:
    everywhere = {
        group for rule in only(manifests(helm, {}), "ClusterRole", WIDE)["rules"] for group in rule["apiGroups"]
    }
    assert {"apps", "swiftlet.io"} <= everywhere
    found = manifests(helm, VALUE_SETS["one namespace"])
    wide = only(found, "ClusterRole", WIDE)
    assert all(set(rule["verbs"]) <= {"get", "list", "watch"} for rule in wide["rules"])
    assert not any("secrets" in rule["resources"] for rule in wide["rules"])
    both = manifests(helm, VALUE_SETS["two namespaces"])
    for namespace in ("blue", "green"):
        assert only(both, "Role", "try-swiftlet-operator", namespace)["rules"]
        assert only(both, "RoleBinding", "try-swiftlet-operator", namespace)["subjects"]
    role = only(found, "Role", "try-swiftlet-operator", "blue")
    assert any("secrets" in rule["resources"] for rule in role["rules"])
    binding = only(found, "RoleBinding", "try-swiftlet-operator", "blue")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "try-swiftlet-operator", "namespace": "there"}]


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())
def test_the_operator_understands_its_environment(helm: str, values: Manifest) -> None:
    container = operator_pod(manifests(helm, values))["containers"][0]
    options = options_of({one["name"]: one.get("value", "by-the-field") for one in container["env"]})
    assert options.defaults.image == container["image"]
    assert list(options.watched) == values.get("watchNamespaces", [])
    (port,) = (one for one in container["ports"] if one["name"] == "health")
    assert urlsplit(options.liveness_url).port == port["containerPort"]
    assert container["livenessProbe"]["httpGet"] == {"path": urlsplit(options.liveness_url).path, "port": port["name"]}


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())
def test_no_right_is_a_wildcard_or_reaches_for_more_rights(helm: str, values: Manifest) -> None:
    for one in manifests(helm, values):
        for rule in one.get("rules", []) if one["kind"] in ("Role", "ClusterRole") else []:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]]
            assert not {"escalate", "bind", "impersonate", "deletecollection"} & set(rule["verbs"])
            assert not {"roles", "clusterroles", "rolebindings", "pods/exec"} & set(rule["resources"])


def test_rights_and_account_may_be_another_s(helm: str) -> None:
    found = manifests(helm, VALUE_SETS["an account of another's"])
    assert "ServiceAccount" not in kinds(found)
    assert operator_pod(found)["serviceAccountName"] == "theirs"
    bindings = [one for one in found if one["kind"] == "ClusterRoleBinding"]
    assert [one["subjects"][0]["name"] for one in bindings] == ["theirs"] * 2
    assert not {"Role", "ClusterRole"} & kinds(manifests(helm, VALUE_SETS["rights of another's"]))
    refused = render(helm, {"serviceAccount": {"create": False}})
    assert refused.returncode != 0
    assert "say which one" in refused.stderr


def test_what_is_said_of_the_pod_gets_there(helm: str) -> None:
    given = VALUE_SETS["placed"]["operator"]
    template = only(manifests(helm, VALUE_SETS["placed"]), "Deployment")["spec"]["template"]
    for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert template["spec"][name] == given[name]
    assert template["metadata"]["labels"]["team"] == "storage"
    assert template["metadata"]["annotations"] == {"note": "1"}
    assert {"name": "TZ", "value": "UTC"} in template["spec"]["containers"][0]["env"]


def test_the_rdma_plugin_is_told_what_to_offer(helm: str) -> None:
    assert "DaemonSet" not in kinds(manifests(helm, {}))
    found = manifests(helm, VALUE_SETS["with RDMA"])
    config = json.loads(only(found, "ConfigMap", "try-swiftlet-rdma-plugin")["data"]["config.json"])
    assert config["configList"] == [
        {"resourceName": "fast", "rdmaHcaMax": 64, "selectors": {"vendors": ["15b3"], "drivers": ["mlx5_core"]}}
    ]
    plugin = only(found, "DaemonSet")["spec"]["template"]["spec"]
    assert plugin["nodeSelector"] == VALUE_SETS["with RDMA"]["rdmaDevicePlugin"]["nodeSelector"]
    assert plugin["automountServiceAccountToken"] is False


def test_the_test_runs_as_the_user_that_is_named(helm: str) -> None:
    assert "Pod" not in kinds(manifests(helm, {}))
    found = manifests(helm, VALUE_SETS["with a test"])
    assert {"secretName": "alice-credentials"}.items() <= only(found, "Pod")["spec"]["volumes"][1]["secret"].items()
    script = next(one for one in found if "store_and_fetch.py" in one.get("data", {}))["data"]["store_and_fetch.py"]
    assert script == (CHART / "files" / "store_and_fetch.py").read_text()


@pytest.mark.parametrize("values", VALUE_SETS.values(), ids=VALUE_SETS.keys())
def test_metrics_are_where_the_service_looks_for_them(helm: str, values: Manifest) -> None:
    found = manifests(helm, values)
    container = operator_pod(found)["containers"][0]
    options = options_of({one["name"]: one.get("value", "by-the-field") for one in container["env"]})
    services = [one for one in found if one["kind"] == "Service"]
    if not values.get("monitoring", {}).get("enabled", True):
        assert options.metrics_port is None
        assert not services
        return
    (service,) = services
    (port,) = service["spec"]["ports"]
    assert {"name": port["targetPort"], "containerPort": options.metrics_port} in container["ports"]
    labels = only(found, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()


def test_prometheus_gets_its_kinds_where_it_knows_them(helm: str) -> None:
    assert not {"ServiceMonitor", "PrometheusRule"} & kinds(manifests(helm, {}))
    found = manifests(helm, VALUE_SETS["watched"], "monitoring.coreos.com/v1")
    monitor, service = only(found, "ServiceMonitor"), only(found, "Service")
    assert monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["spec"]["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    (group,) = only(found, "PrometheusRule")["spec"]["groups"]
    job = service["metadata"]["name"]
    for rule in group["rules"]:
        assert f'namespace="there",job="{job}"' in rule["expr"]
        assert rule["annotations"]["runbook_url"] == f"https://wiki/swiftlet#{rule['alert'].lower()}"
    assert "$NAMESPACE" not in json.dumps(group)
    for kind in ("ServiceMonitor", "PrometheusRule"):
        assert {"release": "prom", "team": "a"}.items() <= only(found, kind)["metadata"]["labels"].items()


def test_the_operator_labels_what_it_makes_for_prometheus_in_the_same_way(helm: str) -> None:
    container = operator_pod(manifests(helm, VALUE_SETS["watched"]))["containers"][0]
    defaults = options_of({one["name"]: one.get("value", "by-the-field") for one in container["env"]}).defaults
    assert defaults.monitoring_labels == {"release": "prom", "team": "a"}
    assert defaults.runbook_url == "https://wiki/swiftlet"


def test_dashboards_are_where_grafana_looks_for_them(helm: str) -> None:
    found = [one for one in manifests(helm, {}) if "-dashboard-" in one["metadata"]["name"]]
    pages = {name: json.loads(text) for one in found for name, text in one["data"].items()}
    wanted = {path.name: json.loads(path.read_text()) for path in (CHART / "dashboards").glob("*.json")}
    assert pages == {f"swiftlet-{name}": page for name, page in wanted.items()}
    assert len(pages) == 4
    assert all(one["metadata"]["labels"]["grafana_dashboard"] == "1" for one in found)
    assert not any("-dashboard-" in one["metadata"]["name"] for one in manifests(helm, VALUE_SETS["unwatched"]))


def test_the_operator_reaches_what_it_asks_and_nothing_else(helm: str) -> None:
    found = manifests(helm, {})
    policy = only(found, "NetworkPolicy")["spec"]
    assert policy["podSelector"] == only(found, "Deployment")["spec"]["selector"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    names, server, services = policy["egress"]
    assert {(one["port"], one["protocol"]) for one in names["ports"]} == {(53, "UDP"), (53, "TCP")} | {
        (5353, "UDP"),
        (5353, "TCP"),
    }
    assert "to" not in names
    assert "to" not in server
    assert {443, 6443} <= {one["port"] for one in server["ports"]}
    # Where a service tells how it is: what the operator would ask of the pods that it makes itself.
    asked = {
        told_at(container)[1]
        for spec in SPECS
        for one in build(site(spec))
        for container in one.get("spec", {}).get("template", {}).get("spec", {}).get("containers", [])
        if container["name"] in SERVICES
    }
    assert {one["port"] for one in services["ports"]} == asked
    (pods,) = services["to"]
    assert pods["namespaceSelector"] == {}
    assert pods["podSelector"]["matchLabels"].items() <= cluster_labels("any").items()
    (metrics,) = policy["ingress"]
    assert metrics["ports"] == [{"port": "metrics", "protocol": "TCP"}]
    assert metrics["from"][0]["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "prometheus"}


def test_the_operator_may_be_shut_in_further_or_not_at_all(helm: str) -> None:
    policy = only(manifests(helm, VALUE_SETS["shut in"]), "NetworkPolicy")["spec"]
    names, server, services, more = policy["egress"]
    assert names["to"] == VALUE_SETS["shut in"]["networkPolicy"]["dns"]
    assert [one["ipBlock"]["cidr"] for one in server["to"]] == ["10.96.0.1/32", "fd00::1/128"]
    assert server["ports"] == [{"port": 6443, "protocol": "TCP"}]
    place = services["to"][0]["namespaceSelector"]["matchExpressions"]
    assert place == [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": ["blue"]}]
    assert more == VALUE_SETS["shut in"]["networkPolicy"]["extraEgress"][0]
    assert policy["ingress"] == []
    assert "NetworkPolicy" not in kinds(manifests(helm, VALUE_SETS["without a policy"]))


def test_risky_changes_are_told_unless_somebody_says_otherwise(helm: str) -> None:
    found = manifests(helm, {})
    names = {f"there.try-swiftlet-{one}" for one in ("risks", "deletions", "replicas", "logins", "owned")}
    bindings = [one for one in found if one["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert {one["metadata"]["name"] for one in found if one["kind"] == "ValidatingAdmissionPolicy"} == names
    assert {one["spec"]["policyName"] for one in bindings} == names
    assert all(one["spec"]["validationActions"] == ["Warn"] for one in bindings)
    strict = manifests(helm, VALUE_SETS["strict"])
    bindings = [one for one in strict if one["kind"] == "ValidatingAdmissionPolicyBinding"]
    assert {one["metadata"]["name"].rpartition("-")[2]: one["spec"]["validationActions"] for one in bindings} == {
        "risks": ["Deny"],
        "deletions": ["Deny"],
        "replicas": ["Deny"],
        "logins": ["Audit"],
    }
    assert all(one["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"] for one in bindings)
    account = operator_pod(found)["serviceAccountName"]
    for one in found:
        if one["kind"] == "ValidatingAdmissionPolicy":
            assert one["spec"]["failurePolicy"] == "Ignore"
            first = one["spec"]["matchConditions"][0]["expression"]
            assert first == f"request.userInfo.username != 'system:serviceaccount:there:{account}'"
    assert "ValidatingAdmissionPolicy" not in kinds(manifests(helm, VALUE_SETS["not asked"]))


def test_a_kubernetes_that_has_no_such_policies_gets_none(helm: str) -> None:
    command = [helm, "template", "try", str(CHART), "--kube-version", "1.29.4"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "ValidatingAdmissionPolicy" not in done.stdout


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"admission": {"risks": "Perhaps"}}, "risks"),
        ({"networkPolicy": {"apiServer": {"ports": []}}}, "ports"),
        ({"networkPolicy": {"apiServer": {"cidrs": ["kubernetes.default"]}}}, "cidrs"),
        ({"monitoring": {"labels": {"release": "a,b=c"}}}, "release"),
        ({"monitoring": {"runbookURL": ""}}, "runbookURL"),
        ({"operator": {"replicas": 3}}, "replicas"),
        ({"imag": {}}, "imag"),
        ({"image": {"digest": "sha256:short"}}, "digest"),
        ({"image": {"pullPolicy": "Sometimes"}}, "pullPolicy"),
        ({"watchNamespaces": ["Not A Name"]}, "watchNamespaces"),
        ({"watchNamespaces": "blue"}, "watchNamespaces"),
        ({"crds": {"keep": False}}, "keep"),
        ({"rbac": {"create": False}}, "set crds.install=false"),
        ({"redisImage": {"tag": ""}}, "tag"),
        ({"rdmaDevicePlugin": {"resources": [{"name": "x", "shares": 0, "selectors": {"vendors": ["1"]}}]}}, "shares"),
        ({"rdmaDevicePlugin": {"resources": [{"name": "x", "shares": 1, "selectors": {}}]}}, "selectors"),
    ],
)
def test_values_that_mean_nothing_are_refused(helm: str, values: Manifest, says: str) -> None:
    done = render(helm, values)
    assert done.returncode != 0
    assert says in done.stderr
