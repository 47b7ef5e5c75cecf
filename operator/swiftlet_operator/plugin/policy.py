"""What uses a storage policy: the conditions of the StoragePolicy, and its containers as a proxy's pod lists them.

Container servers answer signed questions only, so the question is asked from a pod that has the cluster's key, by
running `swiftlet policy usage` in it. The user needs the right to `kubectl exec` there.

Fault model: no proxy is ready, or the pod prints something else than a list. Each raises KubectlError.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from swiftlet_operator.plugin.kubectl import Kubectl, KubectlError
from swiftlet_operator.plugin.picture import INSTANCE_LABEL, Object, conditions_of, is_ready, name_of, status_of

POLICIES = "storagepolicies.swiftlet.io"
SETTINGS = "/etc/swiftlet/settings/settings.yaml"
"""The settings file in pods."""
CONTAINER = "proxy"
TIMEOUT_S = 600.0
"""The time limit in seconds for one list: container servers with many databases take long."""


@dataclass(frozen=True, slots=True)
class Listed:
    """A policy with some of its containers, as `swiftlet policy usage --json` gives them."""

    policy: Object
    usage: dict[str, Any]

    @property
    def lines(self) -> list[str]:
        """Return the report as lines of text."""
        spec, name = self.policy["spec"], name_of(self.policy)
        lines = [f"StoragePolicy {name}: {spec['name']}, index {spec['index']}"]
        conditions = conditions_of(self.policy)
        for type_ in ("Ready", "InUse"):
            if fact := conditions.get(type_):
                lines.append(f"  {type_} {fact.get('status')} {fact.get('reason')}: {fact.get('message')}")
        about = status_of(self.policy)
        if lost := (about.get("mayBeLost") or {}).get("text"):
            lines.append(f"  kept as {about.get('keptAs')} ({about.get('bytesPerByte')}x); {lost} may be lost")
        containers = self.usage["containers"]
        rows = [["ACCOUNT", "CONTAINER", "OBJECTS", "BYTES"]]
        rows += [[str(one[key]) for key in ("account", "container", "objects", "bytes")] for one in containers]
        if not containers:
            lines.append("no container uses the policy")
        else:
            widths = [max(len(row[column]) for row in rows) for column in range(3)]
            lines += ["  ".join([*(row[c].ljust(widths[c]) for c in range(3)), row[3]]) for row in rows]
        lines += [f"device {device} could not be asked: {why}" for device, why in self.usage["unheard"].items()]
        if not self.usage["whole"]:
            lines.append("the list may be incomplete: too many container servers could not be asked")
        if self.usage["more"]:
            lines.append(f"there are more containers; --after {self.usage['more']} lists them")
        return lines


def find(kubectl: Kubectl, namespace: str, name: str, limit: int, after: str | None) -> Listed:
    """Return the StoragePolicy called `name`, and `limit` of its containers after `after`. Raises KubectlError."""
    policy = kubectl.get(POLICIES, namespace, name)
    pod = _proxy(kubectl, namespace, policy["spec"]["clusterRef"]["name"])
    command = ["swiftlet", "policy", "usage", policy["spec"]["name"], "--config", SETTINGS]
    command += ["--json", "--limit", str(limit), *(["--after", after] if after else [])]
    where = ["exec", pod, "--namespace", namespace, "--container", CONTAINER, "--"]
    text = kubectl.text(*where, *command, timeout_s=TIMEOUT_S)
    try:
        usage = json.loads(text)
        return Listed(policy, {key: usage[key] for key in ("containers", "more", "unheard", "whole")})
    except (ValueError, KeyError, TypeError) as error:
        raise KubectlError(f"pod {pod} gave no list of containers: {text[:200]!r}") from error


def _proxy(kubectl: Kubectl, namespace: str, cluster: str) -> str:
    for pod in kubectl.list("pods", namespace, f"{INSTANCE_LABEL}={cluster}"):
        names = {container.get("name") for container in pod["spec"].get("containers") or []}
        if CONTAINER in names and is_ready(pod):
            return name_of(pod)
    raise KubectlError(f"no proxy of StorageCluster {cluster} is ready; containers are listed from its pod")
