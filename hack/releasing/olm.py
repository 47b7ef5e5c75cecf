"""A bundle for the Operator Lifecycle Manager, made of what the chart renders and of crds/.

OLM makes accounts and roles itself from the ClusterServiceVersion, brings the definitions of the bundle, and says in an
annotation which namespaces the operator watches (https://olm.operatorframework.io/docs/tasks/creating-operator-bundle).
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from hack.releasing.version import ROOT, Release, ReleaseError

Manifest = dict[str, Any]
NAMESPACE = "swiftlet-system"
PACKAGE = "swiftlet"
KUBERNETES = "1.29.0"
"""The oldest version that the chart takes (`kubeVersion` in Chart.yaml)."""
KEPT = ("Service", "ConfigMap", "PodDisruptionBudget")
"""Kinds that the chart renders for the operator and that OLM takes as they are."""
_WATCHED = {
    "name": "WATCH_NAMESPACES",
    "valueFrom": {"fieldRef": {"fieldPath": "metadata.annotations['olm.targetNamespaces']"}},
}
_LABELS = {
    "operators.operatorframework.io.bundle.mediatype.v1": "registry+v1",
    "operators.operatorframework.io.bundle.manifests.v1": "manifests/",
    "operators.operatorframework.io.bundle.metadata.v1": "metadata/",
    "operators.operatorframework.io.bundle.package.v1": PACKAGE,
    "operators.operatorframework.io.bundle.channels.v1": "alpha",
    "operators.operatorframework.io.bundle.channel.default.v1": "alpha",
}


def write_bundle(helm: str, chart: Path, release: Release, image: str, target: Path) -> None:
    """Write `manifests/`, `metadata/` and `bundle.Dockerfile` into `target` for a packaged chart."""
    rendered = list(render(helm, chart))
    manifests = target / "manifests"
    manifests.mkdir(parents=True)
    definitions = [yaml.safe_load(path.read_text("utf-8")) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    for one in definitions:
        _write(manifests / f"{one['metadata']['name']}.crd.yaml", one)
    for one in rendered:
        if one["kind"] in KEPT:
            one["metadata"].pop("namespace", None)
            _write(manifests / f"{one['metadata']['name']}.{one['kind'].lower()}.yaml", one)
    version = service_version(rendered, definitions, release, image)
    _write(manifests / f"{PACKAGE}.clusterserviceversion.yaml", version)
    (target / "metadata").mkdir()
    _write(target / "metadata" / "annotations.yaml", {"annotations": _LABELS})
    lines = ["FROM scratch", *(f"LABEL {name}={value}" for name, value in _LABELS.items())]
    lines += ["COPY manifests /manifests/", "COPY metadata /metadata/"]
    (target / "bundle.Dockerfile").write_text("\n".join(lines) + "\n", "utf-8")


def render(helm: str, chart: Path) -> Iterator[Manifest]:
    """Yield the objects that the chart renders, without its hooks and without Prometheus' kinds."""
    command = [helm, "template", "swiftlet", str(chart), "--namespace", NAMESPACE, "--no-hooks"]
    command += ["--kube-version", KUBERNETES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ReleaseError(f"helm template: {done.stderr.strip()}")
    yield from (one for one in yaml.safe_load_all(done.stdout) if one)


def service_version(
    rendered: Iterable[Manifest], definitions: Iterable[Manifest], release: Release, image: str
) -> Manifest:
    """Return the ClusterServiceVersion that OLM installs the operator by."""
    by_kind: dict[str, list[Manifest]] = {}
    for one in rendered:
        by_kind.setdefault(one["kind"], []).append(one)
    (deployment,) = by_kind["Deployment"]
    account = deployment["spec"]["template"]["spec"]["serviceAccountName"]
    made = datetime.fromtimestamp(release.time_s, UTC)
    return {
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": f"{PACKAGE}.v{release.version}",
            "annotations": {
                "alm-examples": json.dumps(examples(), indent=1),
                "capabilities": "Deep Insights",
                "categories": "Storage",
                "containerImage": image,
                "createdAt": made.isoformat().replace("+00:00", "Z"),
                "description": "An object store that speaks the OpenStack Swift API",
            },
        },
        "spec": {
            "displayName": "Swiftlet",
            "description": (ROOT / "README.md").read_text("utf-8").split("\n## ")[0].partition("\n")[2].strip(),
            "version": release.version,
            "maturity": "alpha",
            "minKubeVersion": KUBERNETES,
            "keywords": ["storage", "object-store", "swift", "openstack"],
            "provider": {"name": "Swiftlet"},
            "icon": [{"base64data": base64.b64encode(_icon()).decode(), "mediatype": "image/svg+xml"}],
            "installModes": [
                {"type": kind, "supported": True}
                for kind in ("OwnNamespace", "SingleNamespace", "MultiNamespace", "AllNamespaces")
            ],
            "customresourcedefinitions": {"owned": [_owned(one) for one in definitions]},
            "install": {
                "strategy": "deployment",
                "spec": {
                    "clusterPermissions": [_rules(account, by_kind["ClusterRole"])],
                    "permissions": [_rules(account, by_kind["Role"])],
                    "deployments": [_deployment(deployment)],
                },
            },
        },
    }


def examples() -> list[Manifest]:
    """One object of each kind, from examples/, for those who fill in a form."""
    found: dict[str, Manifest] = {}
    for name in ("minimal.yaml", "storagecluster.yaml", "full.yaml"):
        for one in yaml.safe_load_all((ROOT / "examples" / name).read_text("utf-8")):
            found.setdefault(one["kind"], one)
    return list(found.values())


def _owned(definition: Manifest) -> Manifest:
    version = definition["spec"]["versions"][0]
    names = definition["spec"]["names"]
    text = version["schema"]["openAPIV3Schema"]["description"]
    return {
        "name": definition["metadata"]["name"],
        "kind": names["kind"],
        "version": version["name"],
        "displayName": re.sub(r"(?<!^)([A-Z])", r" \1", names["kind"]),
        "description": text.split("\n")[0],
    }


def _rules(account: str, roles: Iterable[Manifest]) -> Manifest:
    return {"serviceAccountName": account, "rules": [rule for role in roles for rule in role["rules"]]}


def _deployment(deployment: Manifest) -> Manifest:
    """The Deployment as an install strategy has it; it watches the namespaces that OLM names."""
    for container in deployment["spec"]["template"]["spec"]["containers"]:
        container["env"] = [_WATCHED if one["name"] == "WATCH_NAMESPACES" else one for one in container["env"]]
    metadata = deployment["metadata"]
    return {"name": metadata["name"], "label": metadata["labels"], "spec": deployment["spec"]}


def _icon() -> bytes:
    return (ROOT / "docs" / "icon.svg").read_bytes()


def _write(path: Path, document: Manifest) -> None:
    path.write_text(yaml.safe_dump(document, sort_keys=False, width=100), "utf-8")
