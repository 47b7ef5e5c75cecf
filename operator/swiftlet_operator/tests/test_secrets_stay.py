"""What is in Secrets is nowhere else: not in an environment, an argument, an annotation or a ConfigMap."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from swiftlet_operator.build import build
from swiftlet_operator.tests.clusters import SPECS, site
from swiftlet_operator.tests.worlds import Scene, own

SHORTEST = 8
"""Shorter values would be found by chance."""


def containers(value: Any) -> Iterator[dict[str, Any]]:
    """Every container of every pod in a manifest."""
    for one in _dicts(value):
        for kind in ("containers", "initContainers", "ephemeralContainers"):
            yield from one.get(kind) or []


def _dicts(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        yield value
    for one in value.values() if isinstance(value, dict) else value if isinstance(value, list) else []:
        yield from _dicts(one)


@pytest.mark.parametrize("name", SPECS)
def test_no_environment_refers_to_a_secret(name: str) -> None:
    found = [one for manifest in build(site(name)) for one in containers(manifest)]
    assert found
    for container in found:
        assert "envFrom" not in container, container["name"]
        for variable in container.get("env", []):
            source = variable.get("valueFrom", {})
            assert set(source) <= {"fieldRef", "resourceFieldRef"}, variable
            # What is secret comes from a file, and the variable says which; sealed copies of it lie in a folder.
            secret = any(word in variable["name"] for word in ("KEY", "SUFFIX", "PASSWORD", "TOKEN", "SECRET"))
            assert not secret or variable["name"].endswith(("_FILE", "_DIRECTORY")), variable
            assert not secret or variable["value"].startswith("/etc/swiftlet/"), variable


@pytest.mark.parametrize("name", ["minimal", "external-redis", "three-zones"])
async def test_no_value_of_a_secret_is_outside_of_secrets(name: str) -> None:
    scene = Scene(yaml.safe_load(SPECS[name]))
    scene.kube.put(own("StorageUser", "anna", {"account": "test", "user": "anna"}))
    for secret in ("their-redis", "their-authority"):
        data = {key: base64.b64encode(f"{key} of {secret}".encode()).decode() for key in ("password", "ca.crt")}
        metadata = {"name": secret, "namespace": "data"}
        scene.kube.put({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
    await scene.step()
    await scene.settle()

    values = {
        form: f"{key[2]} {entry}"
        for key, one in scene.kube.objects.items()
        if key[0] == "Secret" and "builder" not in key[2]
        for entry, encoded in one["data"].items()
        if entry not in ("user", "authUrl", "users.yaml")
        for form in (encoded, base64.b64decode(encoded).decode())
        if len(form) >= SHORTEST
    }
    assert any("hash-path-suffix" in one for one in values.values())
    assert any("cluster-key" in one for one in values.values())
    assert any("anna-credentials key" in one for one in values.values())
    for (kind, _, name), one in scene.kube.objects.items():
        text = json.dumps(one)
        assert kind == "Secret" or not [said for value, said in values.items() if value in text], f"{kind} {name}"
