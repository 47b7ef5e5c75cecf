"""The only module that calls the cluster: `kubectl` as a child process.

Fault model: kubectl may be missing, refuse (RBAC, no such object), hang, or answer with something that is no JSON. Each
becomes a `KubectlError` whose text is what kubectl said; a process that takes too long is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

TIMEOUT_S = 60.0
MAX_ERROR_CHARS = 500


class KubectlError(Exception):
    """kubectl could not do it; `str(error)` says what and why."""


class KubectlConflict(KubectlError):
    """Somebody else changed the object meanwhile."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """kubectl with the options that say which cluster and as whom, such as `--context=prod`."""

    options: tuple[str, ...] = ()
    program: str = os.environ.get("KUBECTL", "kubectl")

    def text(self, *arguments: str, timeout_s: float = TIMEOUT_S, content: str | None = None) -> str:
        """What kubectl prints; `content` is what it reads."""
        command, sent = [self.program, *self.options, *arguments], content.encode() if content is not None else None
        try:
            done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False, input=sent)  # noqa: S603 - no shell, and the program is kubectl
        except FileNotFoundError as error:
            raise KubectlError(f"{self.program} is not installed; it is what this talks to the cluster with") from error
        except (OSError, subprocess.TimeoutExpired) as error:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {error}") from error
        if done.returncode != 0:
            said = done.stderr.decode("utf-8", "replace").strip()[:MAX_ERROR_CHARS]
            kind = KubectlConflict if "the object has been modified" in said else KubectlError
            raise kind(f"kubectl {' '.join(arguments)}: {said or f'ended with {done.returncode}'}")
        return done.stdout.decode("utf-8", "replace")

    def json(self, *arguments: str) -> Any:
        """Return kubectl's output, decoded from JSON."""
        text = self.text(*arguments)
        try:
            return json.loads(text)
        except ValueError as error:
            raise KubectlError(f"kubectl {' '.join(arguments)}: the answer is no JSON: {error}") from error

    def list(self, resource: str, namespace: str | None, labels: str = "", fields: str = "") -> list[dict[str, Any]]:
        """All objects of a resource in a namespace, or of the whole cluster; those with these labels and fields."""
        where = ["--namespace", namespace] if namespace else ["--all-namespaces"]
        chosen = ["--selector", labels] if labels else []
        chosen += [f"--field-selector={fields}"] if fields else []
        answer = self.json("get", resource, *where, *chosen, "--output=json")
        items = answer.get("items") if isinstance(answer, dict) else None
        if not isinstance(items, list):
            raise KubectlError(f"kubectl get {resource}: the answer is no list")
        return items

    def get(self, resource: str, namespace: str, name: str) -> dict[str, Any]:
        """Return the object of this resource and name."""
        answer = self.json("get", resource, name, "--namespace", namespace, "--output=json")
        if not isinstance(answer, dict):
            raise KubectlError(f"kubectl get {resource} {name}: the answer is no object")
        return answer

    def find(self, resource: str, namespace: str | None, name: str) -> dict[str, Any] | None:
        """One object, None when it is not there; of the whole cluster without a namespace."""
        where = ["--namespace", namespace] if namespace else []
        text = self.text("get", resource, name, *where, "--ignore-not-found", "--output=json")
        if not text.strip():
            return None
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise KubectlError(f"kubectl get {resource} {name}: the answer is no object")
        return answer

    def create(self, manifest: dict[str, Any]) -> None:
        """Make an object; KubectlError when it is there."""
        self.text("create", "--filename=-", content=json.dumps(manifest))

    def raw(self, path: str, timeout_s: float = TIMEOUT_S) -> str:
        """Return the API server's answer to a GET."""
        return self.text("get", "--raw", path, timeout_s=timeout_s)

    def merge(self, resource: str, namespace: str | None, name: str, change: dict[str, Any]) -> None:
        """A merge patch; KubectlConflict when `metadata.resourceVersion` in it is not the live one."""
        body = json.dumps(change, separators=(",", ":"))
        where = ["--namespace", namespace] if namespace else []
        self.text("patch", resource, name, *where, "--type=merge", "--patch", body)

    def replace(self, manifest: dict[str, Any]) -> None:
        """Overwrite an object; KubectlConflict when its `metadata.resourceVersion` is not the live one."""
        self.text("replace", "--filename=-", content=json.dumps(manifest))

    def namespace(self) -> str:
        """The namespace of the current context, `default` when it names none."""
        shown = self.text("config", "view", "--minify", "--output=jsonpath={..namespace}").split()
        return shown[0] if shown else "default"


def without_none(items: Sequence[str | None]) -> tuple[str, ...]:
    """Options that are set."""
    return tuple(item for item in items if item is not None)
