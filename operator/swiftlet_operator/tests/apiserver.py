"""A real Kubernetes API server with its etcd, alone on loopback ports, for tests and for looking around.

Nothing runs in it: no controllers, no nodes. Objects are stored, defaulted and validated as in any cluster, and that
is all: children are not collected with their owners, and a namespace that is deleted stays in `Terminating`. So each
test takes a namespace of its own.

The programs come from one binary, `hyperkube-VERSION`, in the folder that SWIFTLET_KUBE_BIN names, else where
`hack/cluster setup` puts it: `bin` in SWIFTLET_KUBE_CACHE, by default `swiftlet/kube` in the user's cache. KUBE=1.34
chooses the version of Kubernetes, as it does for `hack/cluster`. Certificates and data lie in a temporary folder and go
with the process; the etcd doesn't sync its files.

    hack/apiserver                  in the foreground; prints where its kubeconfig is
    hack/apiserver kubectl get crd  with KUBECONFIG set, for as long as the command runs
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import itertools
import json
import os
import secrets
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import yaml

from swiftlet.testing.ports import free_ports

READY_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 10.0
REQUEST_TIMEOUT_S = 30.0
POLL_S = 0.1
SHOWN_LOG_LINES = 15

FIX = "hack/cluster setup builds it, for KUBE=1.34 that version; or name its folder in SWIFTLET_KUBE_BIN"
VERSIONS = Path(__file__).resolve().parents[3] / "hack" / "cluster.d" / "kubernetes" / "versions"
"""A line for each version that there is, the one that is taken by default first."""

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


def kube_bin(environ: Mapping[str, str] = os.environ) -> Path:
    """The folder in which the binary should be."""
    if named := environ.get("SWIFTLET_KUBE_BIN"):
        return Path(named)
    if cache := environ.get("SWIFTLET_KUBE_CACHE"):
        return Path(cache) / "bin"
    caches = environ.get("XDG_CACHE_HOME") or Path(environ.get("HOME", "/")) / ".cache"
    return Path(caches) / "swiftlet" / "kube" / "bin"


def kubernetes_version(environ: Mapping[str, str] = os.environ) -> str:
    """The version that KUBE means, such as 1.34.4 for 1.34; without KUBE the default one. ValueError for others."""
    versions = [line for line in VERSIONS.read_text("utf-8").splitlines() if line and not line.startswith("#")]
    if not (minor := environ.get("KUBE")):
        return versions[0]
    for version in versions:
        if version.startswith(f"{minor}."):
            return version
    raise ValueError(f"KUBE={minor} is not among the versions that there are: {' '.join(versions)}")


def hyperkube(environ: Mapping[str, str] = os.environ) -> Path | None:
    """The binary of that version, None when it isn't there. Without KUBE one without a version in its name will do."""
    names = [f"hyperkube-{kubernetes_version(environ)}", *([] if environ.get("KUBE") else ["hyperkube"])]
    paths = (kube_bin(environ) / name for name in names)
    return next((path for path in paths if os.access(path, os.X_OK)), None)


class ApiServerError(Exception):
    """The API server could not be started; the message has the end of its log."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said."""

    status: int
    body: dict[str, Any]
    warnings: tuple[str, ...] = ()
    """What it said besides, to be read by a person."""

    @property
    def message(self) -> str:
        """The sentence of a refusal, empty otherwise."""
        return str(self.body.get("message", "")) if self.status >= 400 else ""

    @property
    def causes(self) -> list[tuple[str, str]]:
        """What was wrong, each with its field, as a person reads it."""
        causes = (self.body.get("details") or {}).get("causes") or []
        return [(cause.get("field", ""), cause.get("message", "")) for cause in causes]


@dataclass
class ApiServer:
    """A running API server, and the plainest client for it."""

    url: str
    token: str
    ca_file: Path
    kubeconfig: Path
    restart: Callable[[], None] = field(default=lambda: None)
    """Kill it and start it again on the same port, with the same objects. To be called in the main thread: the new
    process dies with the thread that started it."""
    wait_until_ready: Callable[[], None] = field(default=lambda: None)
    audit_log: Path | None = None
    """A JSON document on each line for each request, where that was asked for."""
    _names: Iterator[int] = field(default_factory=lambda: itertools.count(1))

    def request(
        self,
        method: str,
        path: str,
        body: object = None,
        content_type: str = "application/json",
        accept: str = "application/json",
    ) -> Answer:
        """One request as the cluster's administrator; a refusal is an answer like any other."""
        host, port = self.url.removeprefix("https://").split(":")
        context = ssl.create_default_context(cafile=str(self.ca_file))
        connection = http.client.HTTPSConnection(host, int(port), timeout=REQUEST_TIMEOUT_S, context=context)
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept, "Content-Type": content_type}
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body), headers)
            response = connection.getresponse()
            text = response.read()
        # Such as: 299 - "what to read"
        warnings = tuple(one.partition(' - "')[2][:-1] for one in response.headers.get_all("Warning", []))
        if response.headers.get_content_type() == "application/json":
            return Answer(response.status, json.loads(text), warnings)
        return Answer(response.status, {"message": text.decode("utf-8", "replace")}, warnings)

    def get(self, path: str, accept: str = "application/json") -> Answer:
        """Read one object, or a list."""
        return self.request("GET", path, accept=accept)

    def create(self, path: str, manifest: Mapping[str, Any]) -> Answer:
        """POST a manifest to its collection. Unknown fields are refused, not dropped."""
        return self.request("POST", f"{path}?fieldValidation=Strict", manifest)

    def patch(self, path: str, change: Mapping[str, Any]) -> Answer:
        """Change some fields of an object; null removes one."""
        return self.request("PATCH", path, change, MERGE_PATCH)

    def delete(self, path: str) -> Answer:
        """Delete an object."""
        return self.request("DELETE", path)

    def namespace(self, prefix: str = "test") -> str:
        """A namespace that nobody else uses."""
        name = f"{prefix}-{next(self._names)}-{secrets.token_hex(3)}"
        answer = self.create("/api/v1/namespaces", {"metadata": {"name": name}})
        if answer.status != 201:
            raise ApiServerError(f"no namespace: {answer.message}")
        return name

    def install_crds(self, folder: Path, timeout_s: float = 30.0) -> list[str]:
        """Create the CRDs of a folder and wait until they are established; their names."""
        collection = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
        names = []
        for path in sorted(folder.glob("*.yaml")):
            manifest = yaml.safe_load(path.read_text("utf-8"))
            answer = self.create(collection, manifest)
            if answer.status not in (201, 409):
                raise ApiServerError(f"{path.name}: {answer.message}")
            names.append(manifest["metadata"]["name"])
        deadline = time.monotonic() + timeout_s
        for name in names:
            while not _established(self.get(f"{collection}/{name}").body):
                if time.monotonic() > deadline:
                    raise ApiServerError(f"{name} is not established after {timeout_s} s")
                time.sleep(POLL_S)
        return names


def _established(crd: Mapping[str, Any]) -> bool:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def _spawn(command: Sequence[str], log: IO[bytes]) -> subprocess.Popen[bytes]:
    """Start a program that does not outlive us, even if we are killed."""
    guard = ["setpriv", "--pdeathsig", "KILL", "--"] if shutil.which("setpriv") else []
    return subprocess.Popen(
        [*guard, *command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True
    )


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _stop_all(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in reversed(processes):
        _stop(process)


def _etcd(binary: Path, folder: Path, client_port: int, peer_port: int) -> list[str]:
    client, peer = (f"http://127.0.0.1:{port}" for port in (client_port, peer_port))
    return [
        f"{binary}",
        "etcd",
        "--name=one",
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=one={peer}",
    ]


AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["ResponseStarted"],
    "rules": [{"level": "Metadata"}],
}


def _auditing(folder: Path) -> list[str]:
    """Every request is written down, and whoever names an owner that blocks its deletion needs the right to do so."""
    (folder / "audit.yaml").write_text(yaml.safe_dump(AUDIT), "utf-8")
    return [
        f"--audit-policy-file={folder / 'audit.yaml'}",
        f"--audit-log-path={folder / 'audit.log'}",
        "--audit-log-mode=blocking",
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
    ]


def _api_server(binary: Path, folder: Path, etcd_port: int, port: int) -> list[str]:
    key = folder / "service-accounts.key"
    return [
        f"{binary}",
        "kube-apiserver",
        f"--etcd-servers=http://127.0.0.1:{etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={port}",
        f"--cert-dir={folder / 'certificates'}",
        f"--token-auth-file={folder / 'tokens.csv'}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        "--service-cluster-ip-range=10.96.0.0/16",
        "--authorization-mode=RBAC",
        # Pods need no service account: nobody makes them here.
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
        "--profiling=false",
        "--allow-privileged",
    ]


def _kubeconfig(url: str, ca_file: Path, token: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(ca_file)}}],
        "users": [{"name": "admin", "user": {"token": token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin", "namespace": "default"}}],
        "current-context": "test",
    }


def _wait_until_ready(server: ApiServer, processes: Sequence[subprocess.Popen[bytes]], log: Path) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while True:
        with contextlib.suppress(OSError, http.client.HTTPException):
            if server.ca_file.exists() and server.get("/readyz").status == 200:
                return
        ended = any(process.poll() is not None for process in processes)
        if ended or time.monotonic() > deadline:
            why = "ended" if ended else f"is not ready after {READY_TIMEOUT_S} s"
            lines = log.read_text("utf-8", "replace").splitlines()[-SHOWN_LOG_LINES:]
            raise ApiServerError("\n".join([f"the API server {why}; the end of its log:", *lines]))
        time.sleep(POLL_S)


@contextlib.contextmanager
def running(binary: Path, *, audited: bool = False) -> Iterator[ApiServer]:
    """An API server for as long as the context lasts; `audited`: it keeps a log of all requests."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="swiftlet-apiserver-")))
        port, etcd_port, peer_port = free_ports(3)
        token = secrets.token_hex(16)
        (folder / "tokens.csv").write_text(f"{token},admin,admin,system:masters\n", "utf-8")
        key_file = str(folder / "service-accounts.key")
        subprocess.run(["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", key_file], check=True)
        ca_file = folder / "certificates" / "apiserver.crt"
        server = ApiServer(f"https://127.0.0.1:{port}", token, ca_file, folder / "kubeconfig")
        server.kubeconfig.write_text(yaml.safe_dump(_kubeconfig(server.url, ca_file, token)), "utf-8")
        server.kubeconfig.chmod(0o600)
        log_path = folder / "log"
        log = stack.enter_context(log_path.open("wb"))
        processes: list[subprocess.Popen[bytes]] = []
        stack.callback(_stop_all, processes)
        command = _api_server(binary, folder, etcd_port, port)
        if audited:
            command += _auditing(folder)
            server.audit_log = folder / "audit.log"

        def restart() -> None:
            processes[1].kill()
            processes[1].wait()
            processes[1] = _spawn(command, log)

        processes.append(_spawn(_etcd(binary, folder, etcd_port, peer_port), log))
        processes.append(_spawn(command, log))
        server.restart = restart
        server.wait_until_ready = lambda: _wait_until_ready(server, processes, log_path)
        server.wait_until_ready()
        yield server


def main(arguments: Sequence[str] | None = None) -> int:
    """What `hack/apiserver` runs; the exit status."""
    parser = argparse.ArgumentParser(prog="hack/apiserver", description="A Kubernetes API server alone, on loopback.")
    parser.add_argument("--crds", type=Path, metavar="FOLDER", help="create the CRDs of this folder in it")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="run this with KUBECONFIG set, then stop")
    options = parser.parse_args(arguments)
    binary = hyperkube()
    if binary is None:
        print(f"error: no hyperkube in {kube_bin()}\n  fix: {FIX}", file=sys.stderr)
        return 1
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        with running(binary) as server:
            if options.crds is not None:
                server.install_crds(options.crds)
            if options.command:
                return subprocess.run(
                    options.command, env=os.environ | {"KUBECONFIG": str(server.kubeconfig)}
                ).returncode
            print(f"export KUBECONFIG={server.kubeconfig}", flush=True)
            signal.pause()
    except ApiServerError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    return 0


if __name__ == "__main__":
    sys.exit(main())
