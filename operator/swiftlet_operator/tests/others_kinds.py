"""Kinds of other projects on a test's API server, with as much of their schemas and defaults as our objects touch.

Prometheus' kinds take anything. Those of cert-manager and the Gateway API know the fields that their documentation
names, so that a field that is not theirs is refused here as it would be there.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from swiftlet_operator.manifests import CERTIFICATE, HTTP_ROUTE, Kind
from swiftlet_operator.tests.apiserver import ApiServer

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_ANYTHING = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TEXT = {"type": "string"}
_TEXTS = {"type": "array", "items": _TEXT}
_LABELS = {"type": "object", "additionalProperties": _TEXT}


def _object(required: Iterable[str] = (), **properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, **({"required": list(required)} if required else {})}


def _with_default(value: Any, type_: str = "string") -> dict[str, Any]:
    return {"type": type_, "default": value}


_CERTIFICATE = _object(
    ("issuerRef", "secretName"),
    secretName=_TEXT,
    secretTemplate=_object(labels=_LABELS, annotations=_LABELS),
    issuerRef=_object(("name",), name=_TEXT, kind=_TEXT, group=_TEXT),
    dnsNames=_TEXTS,
    usages=_TEXTS,
    duration=_TEXT,
    renewBefore=_TEXT,
    privateKey=_object(rotationPolicy={"type": "string", "enum": ["Never", "Always"]}, algorithm=_TEXT),
)
_PARENT = _object(
    ("name",),
    group=_with_default("gateway.networking.k8s.io"),
    kind=_with_default("Gateway"),
    name=_TEXT,
    namespace=_TEXT,
    sectionName=_TEXT,
    port={"type": "integer"},
)
_BACKEND = _object(
    ("name",),
    group=_with_default(""),
    kind=_with_default("Service"),
    name=_TEXT,
    port={"type": "integer"},
    weight=_with_default(1, "integer"),
)
_EVERYWHERE = [{"path": {"type": "PathPrefix", "value": "/"}}]
_RULE = _object(
    backendRefs={"type": "array", "items": _BACKEND},
    timeouts=_object(request=_TEXT, backendRequest=_TEXT),
    matches={"type": "array", "items": _ANYTHING, "default": _EVERYWHERE},
)
_HTTP_ROUTE = _object(
    parentRefs={"type": "array", "items": _PARENT},
    hostnames=_TEXTS,
    rules={"type": "array", "items": _RULE},
)
_SPECS = {CERTIFICATE: _CERTIFICATE, HTTP_ROUTE: _HTTP_ROUTE}


class OthersKinds:
    """Kinds that a test installs and removes; other tests' clusters do not know them."""

    def __init__(self, apiserver: ApiServer, folder: Path, kinds: Iterable[Kind]) -> None:
        self._apiserver = apiserver
        self._folder = folder
        self._kinds = tuple(kinds)

    def install(self) -> None:
        """Make the API server know them."""
        for kind in self._kinds:
            (self._folder / f"{kind.plural}.yaml").write_text(yaml.safe_dump(_definition(kind)))
        self._apiserver.install_crds(self._folder)

    def remove(self) -> None:
        """Make it forget them."""
        for kind in self._kinds:
            self._apiserver.delete(f"{DEFINITIONS}/{kind.plural}.{kind.api_version.partition('/')[0]}")


def _definition(kind: Kind) -> dict[str, Any]:
    schema = _ANYTHING
    if kind in _SPECS:
        schema = {"type": "object", "properties": {"spec": _SPECS[kind], "status": _ANYTHING}}
    version = {
        "name": kind.api_version.partition("/")[2],
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": schema},
    }
    group = kind.api_version.partition("/")[0]
    names = {"kind": kind.kind, "plural": kind.plural, "singular": kind.kind.lower()}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        # Groups below k8s.io are protected, unless somebody says that their kinds are known.
        "metadata": {
            "name": f"{kind.plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a test's"},
        },
        "spec": {"group": group, "scope": "Namespaced", "names": names, "versions": [version]},
    }
