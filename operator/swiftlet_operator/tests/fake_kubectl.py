"""A `kubectl` for tests: a cluster in a JSON file, written back when something is patched.

The file has `objects` (a list), `raw` (path -> text), `logs` (pod/container -> text), `denied` (resources that are
forbidden), `conflicts` (how many patches are refused because somebody else was quicker). What was called is appended to
the file of that name with `.calls` behind it. As a program, FAKE_KUBECTL names the file.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

KINDS = {
    "storageclusters": "StorageCluster",
    "rings": "Ring",
    "storagepolicies": "StoragePolicy",
    "storagequotas": "StorageQuota",
    "storageusers": "StorageUser",
    "statefulsets": "StatefulSet",
    "deployments": "Deployment",
    "services": "Service",
    "configmaps": "ConfigMap",
    "secrets": "Secret",
    "pods": "Pod",
    "nodes": "Node",
    "events": "Event",
    "poddisruptionbudgets": "PodDisruptionBudget",
    "networkpolicies": "NetworkPolicy",
    "ingresses": "Ingress",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "storageclasses": "StorageClass",
    "persistentvolumes": "PersistentVolume",
}


def option(arguments: list[str], name: str) -> str | None:
    """The value of `--name value` or `--name=value`."""
    for index, one in enumerate(arguments):
        if one == name:
            return arguments[index + 1]
        if one.startswith(f"{name}="):
            return one.partition("=")[2]
    return None


class RefusedError(Exception):
    """What the API server says when it refuses."""


def fail(text: str) -> NoReturn:
    """Refuse, and say why."""
    raise RefusedError(f"Error from server: {text}\n")


def answer(arguments: list[str], path: Path) -> str:
    """Do one command to the cluster in a file; what kubectl prints. RefusedError."""
    with path.with_name(path.name + ".calls").open("a") as calls:
        calls.write(json.dumps(arguments) + "\n")
    state = json.loads(path.read_text())
    words = [one for one in arguments if not one.startswith("-")]
    if words[0] == "config":
        return "data"
    if words[0] == "version":
        return '{"serverVersion": {"gitVersion": "v1.33.13"}}'
    if words[0] == "logs":
        pod = next(
            one for one in words[1:] if one not in (option(arguments, "--namespace"), option(arguments, "--container"))
        )
        return str(state["logs"].get(f"{pod}/{option(arguments, '--container')}", ""))
    if raw := option(arguments, "--raw"):
        if raw not in state["raw"]:
            fail(f"the server could not find {raw}")
        return str(state["raw"][raw])
    if words[0] == "get":
        return get(state, arguments, words[1:])
    if words[0] == "exec":
        command = arguments[arguments.index("--") + 1 :]
        answer = state.get("exec", {}).get(words[1])
        if answer is None:
            fail(f"the fake runs nothing in {words[1]}: {command}")
        return str(answer)
    if words[0] == "patch":
        patch(state, path, arguments, words[1], words[2])
        return ""
    fail(f"the fake does not know {words[0]}")


def matching(state: dict[str, Any], arguments: list[str], resource: str) -> list[dict[str, Any]]:
    """Objects of a resource, in the namespace and with the labels that were asked for."""
    if resource in state["denied"]:
        fail(f'{resource} is forbidden: User "me" cannot list resource "{resource}"')
    kind, namespace = KINDS[resource.split(".")[0]], option(arguments, "--namespace")
    found = [one for one in state["objects"] if one["kind"] == kind]
    if namespace is not None:
        found = [one for one in found if one["metadata"].get("namespace") == namespace]
    for want in filter(None, (option(arguments, "--selector") or "").split(",")):
        key, _, value = want.partition("=")
        found = [
            one
            for one in found
            if key in (labels := one["metadata"].get("labels") or {}) and value in ("", labels[key])
        ]
    for want in filter(None, (option(arguments, "--field-selector") or "").split(",")):
        way, _, value = want.partition("=")
        found = [one for one in found if field_of(one, way) == value]
    return found


def field_of(one: Any, way: str) -> Any:
    """A field, such as `involvedObject.name`."""
    for step in way.split("."):
        one = (one or {}).get(step)
    return one


def get(state: dict[str, Any], arguments: list[str], words: list[str]) -> str:
    """`get RESOURCE [NAME]`."""
    resource = words[0]
    found = matching(state, arguments, resource)
    name = (
        words[1]
        if len(words) > 1 and words[1] not in (option(arguments, "--namespace"), option(arguments, "--selector"))
        else None
    )
    if name is None:
        return json.dumps({"kind": "List", "items": found})
    named = [one for one in found if one["metadata"]["name"] == name]
    if not named:
        fail(f'{resource} "{name}" not found')
    return json.dumps(named[0])


def patch(state: dict[str, Any], path: Path, arguments: list[str], resource: str, name: str) -> None:
    """`patch RESOURCE NAME`, of `spec` only."""
    live = next(one for one in matching(state, arguments, resource) if one["metadata"]["name"] == name)
    change = json.loads(option(arguments, "--patch") or "{}")
    version = int(live["metadata"]["resourceVersion"])
    if state["conflicts"]:
        # Somebody else has added something meanwhile.
        state["conflicts"] -= 1
        live["spec"]["drain"] = [*live["spec"].get("drain", []), "store-other-9"]
        live["metadata"]["resourceVersion"] = str(version + 1)
        path.write_text(json.dumps(state))
        version += 1
    if change["metadata"]["resourceVersion"] != str(version):
        fail("Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest")
    live["spec"].update(change["spec"])
    live["metadata"]["resourceVersion"] = str(version + 1)
    path.write_text(json.dumps(state))


if __name__ == "__main__":
    try:
        sys.stdout.write(answer(sys.argv[1:], Path(os.environ["FAKE_KUBECTL"])))
    except RefusedError as refused:
        sys.stderr.write(str(refused))
        sys.exit(1)
