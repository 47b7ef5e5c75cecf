"""Manifests as they should be, word by word; and what must hold for all of them.

`UPDATE_GOLDEN=1 pytest operator/swiftlet_operator/tests/test_build.py` writes the files anew; read the difference.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from swiftlet.crd import parse_storage_quota
from swiftlet.quota import Limits, Quotas, parse_quotas
from swiftlet.settings import SERVICES, ReplicatorSettings, load_settings
from swiftlet_operator.build import build
from swiftlet_operator.build.certificate import build_certificate
from swiftlet_operator.build.pods import API_LABEL
from swiftlet_operator.build.quotas import build_quotas
from swiftlet_operator.build.ring_maps import build_builder_maps, build_ring_maps, build_ring_object
from swiftlet_operator.build.secrets import Login, build_keys, build_users, endpoint
from swiftlet_operator.build.settings import restart_digest, settings_of
from swiftlet_operator.build.site import API_PORT, METADATA_PORT, Site, all_groups
from swiftlet_operator.manifests import Manifest
from swiftlet_operator.tests.clusters import SPECS, cluster, site

PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
API_PODS = (("StatefulSet", "store-all"), ("Deployment", "store-proxy"))
GOLDEN = Path(__file__).parent / "golden"


class _Plain(yaml.SafeDumper):
    def ignore_aliases(self, data: object) -> bool:
        return True


def everything(spec: str) -> list[Manifest]:
    """All children of a cluster."""
    found = site(spec)
    return [*build(found), *build_certificate(found, found.spec)]


def pods_of(manifests: list[Manifest]) -> list[tuple[Manifest, dict[str, Any]]]:
    """Workloads with their pods' specs."""
    return [(one, one["spec"]["template"]["spec"]) for one in manifests if "template" in one["spec"]]


def workloads(spec: str) -> list[tuple[Manifest, dict[str, Any]]]:
    """Workloads of a cluster with their pods' specs."""
    return pods_of([one for one in everything(spec) if "spec" in one])


@pytest.mark.parametrize("spec", SPECS)
def test_children_are_as_recorded(spec: str) -> None:
    components: dict[str, list[Manifest]] = {}
    for one in everything(spec):
        components.setdefault(one["metadata"]["labels"]["app.kubernetes.io/component"], []).append(one)
    # What is small stands on one line; equal parts are written out each time.
    made = {
        f"{name}.yaml": yaml.dump_all(
            manifests, Dumper=_Plain, sort_keys=False, width=120, default_flow_style=None, explicit_start=True
        )
        for name, manifests in components.items()
    }
    directory = GOLDEN / spec
    if os.environ.get("UPDATE_GOLDEN"):
        shutil.rmtree(directory, ignore_errors=True)
        directory.mkdir(parents=True)
        for name, text in made.items():
            (directory / name).write_text(text, encoding="utf-8")

    assert made == {path.name: path.read_text(encoding="utf-8") for path in directory.iterdir()}


@pytest.mark.parametrize("spec", SPECS)
def test_every_service_can_load_the_settings_that_its_pods_get(spec: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(everything(spec)[0]["data"]["settings.yaml"], encoding="utf-8")
    seen = set()
    for _, pod in workloads(spec):
        for container in pod["containers"]:
            if container["name"] not in SERVICES:
                continue
            environ = {one["name"]: one.get("value", "a-secret") for one in container["env"]}
            environ = {name: value.replace("$(POD_NAME)", "store-disks-0") for name, value in environ.items()}
            settings = load_settings(SERVICES[container["name"]], path, environ)
            assert settings.cluster.name == "store"
            mount = next(one for one in container["volumeMounts"] if one["name"] == "keys")
            secret = next(one for one in pod["volumes"] if one["name"] == "keys")["secret"]
            paths = {f"{mount['mountPath']}/{one['path']}" for one in secret["items"]}
            assert paths == {str(settings.cluster.key_file), str(settings.cluster.hash_path_suffix_file)}
            seen.add(container["name"])

    assert {"object", "container", "replicator", "proxy"} <= seen


@pytest.mark.parametrize("budget", [52_428_800, 0])
def test_every_replicator_is_given_the_budget_of_a_link(budget: int, tmp_path: Path) -> None:
    given = yaml.safe_load(SPECS["shaped"])
    given["replicator"]["linkBytesPerSecond"] = budget
    manifests = build(replace(site("shaped"), cluster=cluster(given)))
    path = tmp_path / "settings.yaml"
    path.write_text(manifests[0]["data"]["settings.yaml"], encoding="utf-8")
    seen = {}
    for workload, pod in pods_of([one for one in manifests if "spec" in one]):
        for container in (one for one in pod["containers"] if one["name"] == "replicator"):
            environ = {one["name"]: one.get("value", "a-secret") for one in container["env"]}
            settings = load_settings(SERVICES["replicator"], path, environ)
            assert isinstance(settings, ReplicatorSettings)
            seen[workload["metadata"]["name"], bool(settings.replicator.databases)] = settings
    assert {is_databases for _, is_databases in seen} == {False, True}
    assert {one.replicator.link_bytes_per_s for one in seen.values()} == {budget}


@pytest.mark.parametrize("spec", SPECS)
def test_no_secret_is_in_an_environment(spec: str) -> None:
    """Who may look at a pod, or at what a process hands on to its children, does not see secrets."""
    for _, pod in workloads(spec):
        for container in pod["containers"]:
            assert not [one["name"] for one in container.get("env", []) if "secretKeyRef" in one.get("valueFrom", {})]
            assert not container.get("envFrom")


@pytest.mark.parametrize("spec", SPECS)
def test_all_pods_are_restricted(spec: str) -> None:
    for _, pod in workloads(spec):
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"]["drop"] == ["ALL"]


@pytest.mark.parametrize("spec", SPECS)
def test_what_is_mounted_is_there(spec: str) -> None:
    for workload, pod in workloads(spec):
        volumes = {volume["name"] for volume in pod["volumes"]}
        volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
        for container in pod["containers"]:
            assert {mount["name"] for mount in container["volumeMounts"]} <= volumes


@pytest.mark.parametrize("spec", SPECS)
def test_selectors_find_their_pods_and_no_others(spec: str) -> None:
    manifests = everything(spec)
    pods = {one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"] for one, _ in workloads(spec)}
    for one in manifests:
        if one["kind"] in ("StatefulSet", "Deployment", "PodDisruptionBudget"):
            selector = one["spec"]["selector"]
            wanted = selector["matchLabels"].items()
            found = {name for name, labels in pods.items() if wanted <= labels.items() and _fits(selector, labels)}
            of_data = {group.name for group in all_groups("store", cluster(spec).spec)}
            assert found == (of_data if one["metadata"]["name"] == "store-data" else {one["metadata"]["name"]})


def _fits(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether labels fit the expressions of a selector, which are all of one kind here."""
    return all(labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions") or [])


@pytest.mark.parametrize("spec", SPECS)
def test_ports_have_names_that_kubernetes_accepts(spec: str) -> None:
    """At most 15 lower-case letters, digits and hyphens, as RFC 6335 has it for names of services."""
    ports = [one for _, pod in workloads(spec) for container in pod["containers"] for one in container.get("ports", [])]
    names = {one["name"] for one in ports}
    for service in everything(spec):
        if service["kind"] == "Service":
            for port in service["spec"]["ports"]:
                names.add(port["name"])
                assert port["targetPort"] in {one["name"] for one in ports}
    assert not [name for name in names if not re.fullmatch("(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*", name) or len(name) > 15]


@pytest.mark.parametrize("spec", SPECS)
def test_names_are_unique_and_everything_has_its_owner(spec: str) -> None:
    manifests = everything(spec)
    names = [(one["kind"], one["metadata"]["name"]) for one in manifests]

    assert len(set(names)) == len(names)
    assert all(one["metadata"]["ownerReferences"][0]["controller"] for one in manifests)


@pytest.mark.parametrize(
    ("pool", "places"),
    [
        ({}, [{}]),
        ({"zones": ["a", "b"]}, [{"REGION": "default", "ZONE": "a"}, {"REGION": "default", "ZONE": "b"}]),
        ({"region": "north"}, [{"REGION": "north"}]),
        ({"beside": "north"}, [{"REGION": "default"}]),
    ],
)
def test_a_proxy_knows_its_place_where_all_pods_of_its_group_are_there(
    pool: dict[str, Any], places: list[dict[str, str]]
) -> None:
    content = yaml.safe_load(SPECS["sumo"])
    if region := pool.pop("beside", None):
        content["pools"].append({**content["pools"][0], "name": "other", "region": region, "roles": ["object"]})
    content["pools"][0] |= pool
    found = replace(site("sumo"), cluster=cluster(content))
    told = []
    for manifest, pod in pods_of([one for one in build(found) if "spec" in one]):
        if manifest["kind"] == "StatefulSet" and manifest["metadata"]["name"].startswith("store-all"):
            proxy = next(one for one in pod["containers"] if one["name"] == "proxy")
            env = {one["name"].removeprefix("SWIFTLET_PROXY__"): one.get("value", "") for one in proxy["env"]}
            told.append({name: value for name, value in env.items() if name in {"REGION", "ZONE"}})
    assert told == places


def test_each_region_has_its_share_of_proxies_which_know_it() -> None:
    content = yaml.safe_load(SPECS["minimal"])
    pool = content["pools"][0]
    content["pools"] = [{**pool, "name": region, "region": region} for region in ("east", "north", "west")]
    content["proxy"] = {"replicas": 4, "regions": ["west", "east", "north"]}
    made = proxies_of(content)
    assert {name: manifest["spec"]["replicas"] for name, manifest in made.items()} == {
        "store-proxy-west": 2,
        "store-proxy-east": 1,
        "store-proxy-north": 1,
    }
    for name, manifest in made.items():
        region, spec = name.rpartition("-")[2], manifest["spec"]["template"]["spec"]
        assert regions_told(spec) == [region]
        selected = manifest["spec"]["selector"]["matchLabels"]
        assert selected["swiftlet.io/region"] == region
        assert selected.items() <= manifest["spec"]["template"]["metadata"]["labels"].items()
        required = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        asked = {"key": "topology.kubernetes.io/region", "operator": "In", "values": [region]}
        assert [term["matchExpressions"] for term in required["nodeSelectorTerms"]] == [[asked]]


@pytest.mark.parametrize(("regions", "told"), [(["default"], []), (["east"], ["east"]), (["east", "west"], [])])
def test_proxies_that_run_anywhere_know_the_only_region_there_is(regions: list[str], told: list[str]) -> None:
    content = yaml.safe_load(SPECS["minimal"])
    pool = content["pools"][0]
    content["pools"] = [{**pool, "name": region, "region": region} for region in regions]
    spec = proxies_of(content)["store-proxy"]["spec"]["template"]["spec"]
    assert (regions_told(spec), "affinity" in spec) == (told, False)


def proxies_of(content: dict[str, Any]) -> dict[str, Manifest]:
    """Deployments of proxies by name."""
    made = build(replace(site("minimal"), cluster=cluster(content)))
    found = {one["metadata"]["name"]: one for one in made if one["kind"] == "Deployment"}
    return {name: one for name, one in found.items() if name.startswith("store-proxy")}


def regions_told(pod: dict[str, Any]) -> list[str]:
    """The region that a pod's proxy is told, if any."""
    env = next(one for one in pod["containers"] if one["name"] == "proxy").get("env", [])
    return [one["value"] for one in env if one["name"] == "SWIFTLET_PROXY__REGION"]


def test_pods_are_shared_out_over_zones() -> None:
    groups = all_groups("store", site("three-zones").spec)

    assert [(group.name, group.replicas) for group in groups[:3]] == [
        ("store-fast-a", 3),
        ("store-fast-b", 2),
        ("store-fast-c", 2),
    ]


def test_only_rdma_pools_ask_for_devices_and_locked_memory() -> None:
    asked = {}
    for workload, pod in workloads("rdma"):
        for one in pod["containers"]:
            limits = one.get("resources", {}).get("limits", {})
            mode = {env["name"]: env.get("value") for env in one.get("env", [])}.get("SWIFTLET_CLUSTER__RDMA")
            locked = one.get("securityContext", {}).get("capabilities", {}).get("add", [])
            asked[workload["metadata"]["name"], one["name"]] = (limits, locked, mode)

    near = ({"rdma/hca_shared_a": "2"}, ["IPC_LOCK"], "required")
    assert asked["store-near", "object"] == asked["store-near", "replicator"] == near
    anywhere = ({"rdma/hca": "1"}, ["IPC_LOCK"], "auto")
    assert asked["store-far", "object"] == asked["store-far", "replicator"] == anywhere
    assert asked["store-proxy", "proxy"] == anywhere
    assert asked["store-slow", "object"] == asked["store-slow", "replicator"] == ({}, [], "off")
    assert asked["store-metadata", "metadata"] == asked["store-container", "container"] == ({}, [], None)


def test_a_sumo_pool_serves_the_api() -> None:
    manifests = {(one["kind"], one["metadata"]["name"]): one for one in everything("sumo")}

    template = manifests["StatefulSet", "store-all"]["spec"]["template"]
    assert template["metadata"]["labels"][API_LABEL] == "true"
    assert [one["name"] for one in template["spec"]["containers"]] == ["object", "replicator", "proxy"]
    assert ("Deployment", "store-proxy") not in manifests


def test_only_services_that_read_a_setting_restart_for_it() -> None:
    before, after = site("minimal"), site("three-zones")

    assert restart_digest(before, "proxy") != restart_digest(after, "proxy")
    assert restart_digest(before, "object") == restart_digest(after, "object")


def test_keys_and_builders_outlive_the_cluster_unless_it_takes_everything() -> None:
    keys = build_keys(site("minimal"), "key", "suffix")
    kept = build_builder_maps(site("minimal"), "object-0", [b"piece"], 5, 1, 2)[0]
    taken = build_builder_maps(site("three-zones"), "object-0", [b"piece"], 5, 1, 2)[0]

    assert "ownerReferences" not in keys["metadata"]
    assert "ownerReferences" not in kept["metadata"]
    assert "ownerReferences" in taken["metadata"]


def test_rings_and_users_are_written_as_the_services_read_them() -> None:
    chunk = build_ring_maps(site("minimal"), "object-0", 7, [b"one", b"two"])[1]
    users = build_users(site("minimal"), [Login("test", "tester", ("admin",), "$argon2id$x")])

    assert chunk["metadata"]["name"] == "store-ring-object-0-1"
    assert chunk["metadata"]["labels"]["swiftlet.io/ring-version"] == "7"
    assert base64.b64decode(chunk["binaryData"]["chunk"]) == b"two"
    assert yaml.safe_load(base64.b64decode(users["data"]["users.yaml"])) == [
        {"account": "test", "user": "tester", "roles": ["admin"], "secret_hash": "$argon2id$x"}
    ]


def test_ring_objects_have_the_clusters_defaults() -> None:
    assert build_ring_object(site("minimal"), "object-1", 14, 2.0)["spec"] == {
        "clusterRef": {"name": "store"},
        "type": "object",
        "policyIndex": 1,
        "partPower": 14,
        "replicas": 2.0,
        "minPartHours": 1,
        "overload": 0.1,
    }


def test_a_policy_is_added_without_a_restart() -> None:
    before = site("minimal")
    more = (*before.policies, replace(before.policies[0], index=5, name="wide", default=False))
    after = replace(before, policies=more, ring_chunks={**before.ring_chunks, "object-5": 1})

    def by_name(of: Site) -> dict[str, Manifest]:
        return {f"{one['kind']} {one['metadata']['name']}": one for one in build(of)}

    changed = {name for name, one in by_name(after).items() if by_name(before)[name] != one}
    assert changed == {"ConfigMap store-settings"}


def test_proxies_have_a_front_unless_the_cluster_says_no() -> None:
    before = site("minimal")
    proxy = before.spec.proxy.model_copy(update={"front": False})
    changed = replace(before.cluster, spec=before.spec.model_copy(update={"proxy": proxy}))
    after = replace(before, cluster=changed)
    assert "front" not in settings_of(before)["proxy"], "nothing that would restart proxies"
    assert settings_of(after)["proxy"]["front"] is False
    assert restart_digest(before, "proxy") != restart_digest(after, "proxy")
    assert restart_digest(before, "object") == restart_digest(after, "object")


def test_with_tls_the_api_speaks_https_everywhere() -> None:
    spec = site("tls")
    manifests = {(one["kind"], one["metadata"]["name"]): one for one in build(spec)}
    pods = [manifests[kind, name]["spec"]["template"]["spec"] for kind, name in API_PODS]
    for pod in pods:
        proxy = next(one for one in pod["containers"] if one["name"] == "proxy")
        assert {proxy[probe]["httpGet"]["scheme"] for probe in PROBES} == {"HTTPS"}
        others = [one for one in pod["containers"] if one["name"] != "proxy"]
        assert {one[probe]["httpGet"]["scheme"] for one in others for probe in PROBES} <= {"HTTP"}
        assert all("tls" not in {mount["name"] for mount in one["volumeMounts"]} for one in others)
        volume = next(one for one in pod["volumes"] if one["name"] == "tls")
        assert volume["secret"]["secretName"] == "objects-example-org"
        assert {item["key"] for item in volume["secret"]["items"]} == {"tls.crt", "tls.key"}

    assert manifests["Service", "store"]["spec"]["ports"][0]["port"] == 443
    assert endpoint(spec) == "https://store.data.svc"


def test_clients_do_not_reach_the_pages_that_tell_about_pods() -> None:
    """Metrics and reports of proxies and metadata servers are on a port for the operator and Prometheus."""
    for name in ("tls", "sumo", "three-zones"):
        manifests = {(one["kind"], one["metadata"]["name"]): one for one in build(site(name))}
        api = manifests["Service", "store"]["spec"]["ports"]
        assert [port["targetPort"] for port in api] == ["api"], "the API's Service may be open to the world"
        for (kind, _), one in manifests.items():
            if kind != "NetworkPolicy":
                continue
            for rule in one["spec"]["ingress"]:
                ports = {port["port"] for port in rule["ports"]}
                assert "from" in rule or ports <= {API_PORT, METADATA_PORT}, one["metadata"]["name"]


def test_prometheus_finds_all_services() -> None:
    spec = site("three-zones")
    manifests = {(one["kind"], one["metadata"]["name"]): one for one in build(spec)}
    wanted = {one["port"] for one in manifests["ServiceMonitor", "store"]["spec"]["endpoints"]}
    found = [
        {port["name"] for port in one["spec"]["ports"]} & wanted
        for (kind, _), one in manifests.items()
        if kind == "Service"
    ]
    assert set().union(*found) == wanted
    assert sum("management" in ports for ports in found) == 2


def test_a_port_that_was_asked_for_stays_with_tls() -> None:
    spec = {"pools": [{"name": "a", "replicas": 3, "storage": {"size": "1Gi"}}], "tls": {"secretRef": {"name": "t"}}}
    plain = replace(site("minimal"), cluster=cluster(spec | {"proxy": {"service": {"port": 80}}}))

    assert endpoint(plain) == "https://store.data.svc:80"
    assert endpoint(site("minimal")) == "http://store.data.svc"
    assert endpoint(site("three-zones")) == "https://objects.example.org"


@pytest.mark.parametrize("spec", SPECS)
def test_every_service_keeps_its_last_good_rings_where_it_can_write(spec: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(everything(spec)[0]["data"]["settings.yaml"], encoding="utf-8")
    for _, pod in workloads(spec):
        for container in pod["containers"]:
            if container["name"] not in SERVICES:
                continue
            environ = {one["name"]: one.get("value", "a-secret") for one in container["env"]}
            environ = {name: value.replace("$(POD_NAME)", "store-disks-0") for name, value in environ.items()}
            cache = load_settings(SERVICES[container["name"]], path, environ).cluster.ring_cache
            assert cache is not None
            mounts = [one for one in container["volumeMounts"] if cache.is_relative_to(one["mountPath"])]
            assert [one.get("readOnly", False) for one in mounts] == [False]
            on_a_device = container["name"] in {"object", "container"}
            assert cache.name == (".rings" if on_a_device else "swiftlet")


def test_the_operator_is_let_in_where_only_the_clusters_pods_are() -> None:
    sources = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "swiftlet-system"}}}
    sources["podSelector"] = {"matchLabels": chart_labels()}

    def ports(name: str, where: Site) -> list[int]:
        policy = next(one for one in build(where) if one["kind"] == "NetworkPolicy" and one["metadata"]["name"] == name)
        rules = [rule for rule in policy["spec"]["ingress"] if rule.get("from") == [sources]]
        return [port["port"] for rule in rules for port in rule["ports"]]

    assert ports("store-storage", site("minimal")) == [6200, 6400]
    assert ports("store-container", site("minimal")) == [6300, 6400]
    assert ports("store-storage", replace(site("minimal"), operator_namespace=None)) == []


def chart_labels() -> dict[str, str]:
    """What the chart selects the operator's pods by, without the release's name."""
    helpers = Path(__file__).parents[3] / "charts" / "swiftlet" / "templates" / "_helpers.tpl"
    text = helpers.read_text(encoding="utf-8").split('define "swiftlet.selectorLabels"')[1].split("{{- end }}")[0]
    lines = (line.split(": ") for line in text.replace("{{ .component }}", "operator").splitlines() if ": " in line)
    return {name: value for name, value in lines if name != "app.kubernetes.io/instance"}


def test_quotas_are_written_as_the_services_read_them() -> None:
    levels = [
        {"name": "default"},
        {"name": "L1", "containerCount": 0, "objectCount": 5, "containerUsage": "1.5Gi"},
    ]
    body = {"clusterRef": {"name": "store"}, "levels": levels, "precise": True, "cacheSeconds": 5}
    body["assignments"] = [{"account": "press", "level": "L1"}]
    quota = parse_storage_quota(
        {"apiVersion": "swiftlet.io/v1alpha1", "kind": "StorageQuota", "metadata": {"name": "q"}, "spec": body}
    )

    written = parse_quotas(build_quotas(site("minimal"), quota.spec)["data"]["quotas.yaml"], "f")
    assert written == Quotas(
        {"default": Limits("default"), "L1": Limits("L1", 0, 5, 3 << 29)}, {"press": "L1"}, precise=True, cache_s=5
    )
    assert parse_quotas(build_quotas(site("minimal"), None)["data"]["quotas.yaml"], "f") == Quotas()
