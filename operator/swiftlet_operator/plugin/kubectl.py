"""The only module that calls the cluster: `kubectl` as a child process.

Fault model: kubectl may be missing, refuse (RBAC, no such object), hang, or answer with something that is no JSON. Each
becomes a `KubectlError` with kubectl's own text; a process that takes too long is killed.
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
    """kubectl failed; `str(error)` says what and why."""


class KubectlConflict(KubectlError):
    """Somebody else changed the object in the meantime."""


@dataclass(frozen=True, slots=True)
class Kubectl:
    """Runs kubectl with the options that say which cluster and as whom, such as `--context=prod`."""

    options: tuple[str, ...] = ()
    program: str = os.environ.get("KUBECTL", "kubectl")

    def text(self, *arguments: str, timeout_s: float = TIMEOUT_S, content: str | None = None) -> str:
        """Return what kubectl prints; `content` is its standard input."""
        command, sent = [self.program, *self.options, *arguments], content.encode() if content is not None else None
        try:
            done = run(command, sent, timeout_s)
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
        """Return all objects of a resource in a namespace, or of the whole cluster, that have these labels
        and fields.
        """
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
        """Return one object, None when it is missing; without a namespace, one of the whole cluster."""
        where = ["--namespace", namespace] if namespace else []
        text = self.text("get", resource, name, *where, "--ignore-not-found", "--output=json")
        if not text.strip():
            return None
        answer = json.loads(text)
        if not isinstance(answer, dict):
            raise KubectlError(f"kubectl get {resource} {name}: the answer is no object")
        return answer

    def create(self, manifest: dict[str, Any]) -> None:
        """Create an object. Raises KubectlError when it exists."""
        self.text("create", "--filename=-", content=json.dumps(manifest))

    def raw(self, path: str, timeout_s: float = TIMEOUT_S) -> str:
        """Return the API server's answer to a GET."""
        return self.text("get", "--raw", path, timeout_s=timeout_s)

    def merge(self, resource: str, namespace: str | None, name: str, change: dict[str, Any]) -> None:
        """Apply a merge patch. Raises KubectlConflict when `metadata.resourceVersion` in it is not the live one."""
        body = json.dumps(change, separators=(",", ":"))
        where = ["--namespace", namespace] if namespace else []
        self.text("patch", resource, name, *where, "--type=merge", "--patch", body)

    def replace(self, manifest: dict[str, Any]) -> None:
        """Overwrite an object. Raises KubectlConflict when its `metadata.resourceVersion` is not the live one."""
        self.text("replace", "--filename=-", content=json.dumps(manifest))

    def namespace(self) -> str:
        """Return the namespace of the current context, `default` when it names none."""
        shown = self.text("config", "view", "--minify", "--output=jsonpath={..namespace}").split()
        return shown[0] if shown else "default"


def run(command: Sequence[str], content: bytes | None, timeout_s: float) -> subprocess.CompletedProcess[bytes]:
    """Run a process that reads `content`; return its result. Raises OSError and TimeoutExpired."""
    return subprocess.run(command, capture_output=True, timeout=timeout_s, check=False, input=content)  # noqa: S603 - no shell, and the program is kubectl


def without_none(items: Sequence[str | None]) -> tuple[str, ...]:
    """Return options without those that are not set."""
    return tuple(item for item in items if item is not None)
