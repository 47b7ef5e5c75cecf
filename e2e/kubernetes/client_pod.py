"""A pod with python-swiftclient in it, beside the store that it uses."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import files
from importlib.util import find_spec
from pathlib import Path
from string import Template
from typing import Any

from e2e.kubernetes.kube import Namespace, eventually

PACKAGES = ("swiftclient", "requests", "urllib3", "certifi", "idna", "charset_normalizer")
"""The client and what it imports; tests and image run the same Python."""
_READY_WITHIN_S = 120
_VERIFIED_WITHIN_S = 420

_POD = """
apiVersion: v1
kind: Pod
metadata: {name: $name, labels: {app: client}}
spec:
  restartPolicy: Never
  automountServiceAccountToken: false
  enableServiceLinks: false
  terminationGracePeriodSeconds: 1
  securityContext: {runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
  containers:
    - name: client
      image: $image
      imagePullPolicy: IfNotPresent
      command: [sleep, infinity]
      securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
      env:
        - {name: PYTHONPATH, value: /tmp/client}
        - {name: AUTH_URL, value: "$url"}
        - name: SWIFT_USER
          valueFrom: {secretKeyRef: {name: $secret, key: user}}
        - name: SWIFT_KEY
          valueFrom: {secretKeyRef: {name: $secret, key: key}}
  affinity:
    nodeAffinity:
      requiredDuringSchedulingIgnoredDuringExecution:
        nodeSelectorTerms:
          - matchExpressions: [{key: kubernetes.io/hostname, operator: In, values: [$node]}]
"""


def _archive() -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name in PACKAGES:
            spec = find_spec(name)
            assert spec is not None, f"{name} is not installed"
            assert spec.origin is not None
            archive.add(Path(spec.origin).parent, name, filter=_no_bytecode)
        # The client asks for its own version.
        for file in files("python-swiftclient") or ():
            if file.name == "METADATA":
                archive.add(file.locate(), str(file))
        archive.add(Path(__file__).with_name("load.py"), "load.py")
    return packed.getvalue()


def _no_bytecode(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    return None if "__pycache__" in member.name else member


@dataclass(frozen=True, slots=True)
class ClientPod:
    """A running pod that can speak to the store."""

    namespace: Namespace
    name: str

    def python(self, *arguments: str) -> str:
        """Return what a Python program in the pod writes; Failed with its errors if it fails."""
        return self.namespace.kubectl("exec", self.name, "--", "python3", *arguments)

    @contextmanager
    def load(self, writers: int = 2, readers: int = 2) -> Iterator[Load]:
        """The store in use for the length of the block."""
        self.python("-c", "import os; [os.path.exists(p) and os.remove(p) for p in ('/tmp/stop', '/tmp/stats.json')]")
        script = (
            f"nohup python3 /tmp/client/load.py run {writers} {readers} >/tmp/load.log 2>&1 & echo $! >/tmp/load.pid"
        )
        self.namespace.kubectl("exec", self.name, "--", "sh", "-c", script)
        load = Load(self)
        try:
            eventually("the load", _READY_WITHIN_S, lambda: None if load.seen().get("reads", 0) > 10 else load.log())
            yield load
        finally:
            self.namespace.kubectl("exec", self.name, "--", "sh", "-c", "kill $(cat /tmp/load.pid) || true")


@dataclass(frozen=True, slots=True)
class Load:
    """Requests that go on beside a test."""

    pod: ClientPod

    def seen(self) -> dict[str, Any]:
        """The statistics so far; empty at the very beginning."""
        text = self.pod.python(
            "-c", "import os; p='/tmp/stats.json'; print(open(p).read() if os.path.exists(p) else '{}')"
        )
        found = json.loads(text)
        assert isinstance(found, dict)
        return found

    def log(self) -> str:
        """What the program has written."""
        return self.pod.namespace.kubectl("exec", self.pod.name, "--", "tail", "-n", "30", "/tmp/load.log")

    def finish(self) -> dict[str, Any]:
        """Stop, have everything that was acknowledged read and compared; the statistics."""
        self.pod.python("-c", "open('/tmp/stop', 'w').close()")

        def verified() -> str | None:
            seen = self.seen()
            return None if seen["verified"] >= 0 else f"{seen} {self.log()}"

        eventually("everything that was acknowledged has been read", _VERIFIED_WITHIN_S, verified)
        seen = self.seen()
        print("load:", json.dumps(seen), self.log())
        assert seen["wrong"] == []
        assert seen["unhealed"] == []
        assert seen["verified"] == seen["acknowledged"]
        return seen


@contextmanager
def client_pod(
    namespace: Namespace, credentials_secret: str, auth_url: str, node: str, name: str = "client"
) -> Iterator[ClientPod]:
    """Such a pod on a node, for the length of the block."""
    image = os.environ.get("SWIFTLET_E2E_IMAGE", "swiftlet:dev")
    image = image if "/" in image else f"docker.io/library/{image}"
    text = Template(_POD).substitute(name=name, image=image, url=auth_url, secret=credentials_secret, node=node)
    namespace.apply(text)
    try:
        namespace.kubectl("wait", "--for=condition=Ready", f"pod/{name}", f"--timeout={_READY_WITHIN_S}s")
        unpack = "import sys, tarfile; tarfile.open(fileobj=sys.stdin.buffer, mode='r|gz').extractall('/tmp/client')"
        command = namespace.command("exec", "-i", name, "--", "python3", "-c", unpack)
        subprocess.run(command, input=_archive(), check=True, timeout=_READY_WITHIN_S)
        yield ClientPod(namespace, name)
    finally:
        namespace.kubectl("delete", "pod", name, "--grace-period=0", "--force", "--ignore-not-found")
