"""kubectl and helm for tests: objects as data, waiting with a deadline and the reason when it passes."""

from __future__ import annotations

import json
import re
import subprocess
import time
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

_POLL_S = 0.5
_COMMAND_WITHIN_S = 300
_FORWARDED = re.compile(r"Forwarding from 127\.0\.0\.1:(\d+)")


class Failed(Exception):
    """A command failed; the text is what it wrote."""


def run(*command: str, stdin: str | None = None) -> str:
    """Return what a command writes; Failed with its errors if it fails."""
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, check=False, timeout=_COMMAND_WITHIN_S)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def eventually(what: str, within_s: float, probe: Callable[[], str | None]) -> None:
    """Wait until `probe` finds nothing wrong; what it said last when it always did."""
    deadline = time.monotonic() + within_s
    while (problem := probe()) is not None:
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {within_s:.0f} s: {problem}")
        time.sleep(_POLL_S)


def access(kubeconfig: str) -> list[str]:
    """Return what tells kubectl and helm of another kubeconfig than KUBECONFIG; nothing for none."""
    return ["--kubeconfig", kubeconfig] if kubeconfig else []


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace of the cluster that KUBECONFIG names, or of that of another kubeconfig."""

    name: str
    kubeconfig: str = ""

    def command(self, *arguments: str) -> list[str]:
        """Return a kubectl command in the namespace, to be run otherwise than `kubectl` does."""
        return ["kubectl", *access(self.kubeconfig), "--namespace", self.name, *arguments]

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """One kubectl command in the namespace."""
        return run(*self.command(*arguments), stdin=stdin)

    def apply(self, text: str) -> None:
        """Apply manifests, given as YAML."""
        self.kubectl("apply", "--filename", "-", stdin=text)

    def get(self, what: str, name: str) -> dict[str, Any]:
        """One object; Failed when there is none."""
        found = json.loads(self.kubectl("get", what, name, "--output", "json"))
        assert isinstance(found, dict)
        return found

    def list(self, what: str, labels: str = "") -> list[dict[str, Any]]:
        """All objects of a kind with these labels."""
        found = json.loads(self.kubectl("get", what, "--selector", labels, "--output", "json"))["items"]
        assert isinstance(found, list)
        return found

    def secret(self, name: str) -> dict[str, str]:
        """A Secret's entries as text."""
        return {key: b64decode(value).decode() for key, value in self.get("secret", name)["data"].items()}

    def wait_until_true(self, what: str, name: str, condition: str, within_s: float) -> None:
        """Until an object's condition is True and of its newest generation."""

        def probe() -> str | None:
            found = self.get(what, name)
            conditions = {one["type"]: one for one in found.get("status", {}).get("conditions", [])}
            one = conditions.get(condition)
            if one is None:
                return "there is no such condition"
            current = one.get("observedGeneration") in (None, found["metadata"]["generation"])
            return None if one["status"] == "True" and current else json.dumps(conditions)

        eventually(f"{what} {name} {condition}", within_s, probe)

    @contextmanager
    def forwarded(self, target: str, port: int) -> Iterator[int]:
        """A port on this machine that leads to `target`, such as service/name, for the length of the block."""
        command = self.command("port-forward", target, f":{port}")
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                assert process.stdout is not None
                line = process.stdout.readline()
                found = _FORWARDED.match(line)
                assert found, f"{' '.join(command)} wrote {line!r}"
                yield int(found[1])
            finally:
                process.terminate()
