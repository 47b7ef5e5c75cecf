"""One store over two clusters of `hack/cluster`, side by side: a leader in the first, a follower in the second."""

from __future__ import annotations

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from string import Template
from typing import Any

import pytest

from e2e.kubernetes.client_pod import ClientPod
from e2e.kubernetes.conftest import READY_WITHIN_S, install_operator, new_namespace
from e2e.kubernetes.kube import Namespace, eventually
from e2e.kubernetes.lab import administrator, conditions
from swiftlet.crd.ring import RingSpec

SECOND = "2"
"""The number of the second cluster, as CLUSTER for `hack/cluster`."""
NODES = "2"
"""How many nodes the second cluster has."""
RINGS = ("account", "container", "object-0")

_CLUSTER = Template("""
apiVersion: swiftlet.io/v1alpha1
kind: StorageCluster
metadata: {name: $cluster}
spec:
  encryption: transport
  pools:
    - {name: main, replicas: 2, region: $member, storage: {className: fast, size: 1Gi}}
  rings: {partPower: 6, minPartHours: 0}
  container: {replicas: 2, storage: {className: fast, size: 1Gi}}
  proxy: {replicas: 1}
  metadata: {replicas: 0}
  federation:
    name: lab
    member: $member
    leader: east
    hostTemplate: "{pod}.{service}.{namespace}.svc.$domain"
    peers: [{ipBlock: {cidr: 10.0.0.0/8}}]
    members:
      - {name: $other, namespace: $namespace, cluster: lab-$other, kubeconfigSecretRef: {name: to-$other}}
""")
_READER = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: federation}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: federation}
rules:
- {apiGroups: [""], resources: [configmaps], verbs: [get]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: federation}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: federation}
subjects:
- {kind: ServiceAccount, name: federation}
---
apiVersion: v1
kind: Secret
type: kubernetes.io/service-account-token
metadata:
  name: federation
  annotations: {kubernetes.io/service-account.name: federation}
"""


def hack_cluster(*command: str, number: str = SECOND) -> str:
    """Return what `hack/cluster` writes for the cluster of that number."""
    environ = os.environ | {"CLUSTER": number, "NODES": NODES}
    done = subprocess.run(
        ["hack/cluster", *command], env=environ, capture_output=True, text=True, check=False, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@contextmanager
def second_cluster() -> Iterator[str]:
    """Have the second cluster beside the first, with the image; its kubeconfig."""
    kind = subprocess.run(["hack/cluster", "kind"], capture_output=True, text=True, check=True).stdout.strip()
    if kind != "namespaces":
        pytest.skip(f"hack/cluster of {kind} has no second cluster beside the first whose pods it reaches")
    try:
        hack_cluster("up")
        # A cluster that was up has an older image of this name.
        hack_cluster("load-image", os.environ.get("SWIFTLET_E2E_IMAGE", "swiftlet:dev"))
        yield hack_cluster("shell", "printenv", "KUBECONFIG")
    finally:
        if not os.environ.get("KEEP"):
            hack_cluster("down")


@dataclass(frozen=True, slots=True)
class Member:
    """A member of the federation `lab`: its StorageCluster, and the operator of its Kubernetes."""

    name: str
    number: str
    namespace: Namespace
    operator: Namespace

    @property
    def cluster(self) -> str:
        """The name of its StorageCluster."""
        return f"lab-{self.name}"

    def host(self, pod: str, component: str = "storage") -> str:
        """Return the name of a pod with data, as it is in the rings."""
        return f"{pod}.{self.cluster}-{component}.{self.namespace.name}.svc.cluster{self.number}.test"

    def condition(self, type_: str) -> str:
        """Return a condition in one line: status, reason and message."""
        return conditions(self.namespace, self.cluster).get(type_, "there is none")

    def rings(self) -> dict[str, str]:
        """Return each ring that is published here, as its only chunk in base64."""
        maps = (self.namespace.get("configmap", f"{self.cluster}-ring-{ring}-0") for ring in RINGS)
        return {ring: one["binaryData"]["chunk"] for ring, one in zip(RINGS, maps, strict=True)}

    def versions(self) -> dict[str, int]:
        """Return the version of each ring by its Ring object."""
        return {ring: one["version"] for ring, one in self._ring_statuses()}

    def devices(self) -> dict[str, int]:
        """Return how many devices each ring has."""
        return {ring: one["devices"] for ring, one in self._ring_statuses()}

    def _ring_statuses(self) -> Iterator[tuple[str, dict[str, Any]]]:
        for one in self.namespace.list("rings.swiftlet.io"):
            yield RingSpec.model_validate(one["spec"]).ring_name, one["status"]

    def change(self, patch: dict[str, Any]) -> None:
        """Apply a merge patch to the StorageCluster."""
        self.namespace.kubectl("patch", "storagecluster", self.cluster, "--type=merge", f"--patch={json.dumps(patch)}")

    def pool(self, **fields: Any) -> None:
        """Give its pool other fields."""
        pools = self.namespace.get("storagecluster", self.cluster)["spec"]["pools"]
        self.change({"spec": {"pools": [{**pools[0], **fields}]}})

    def kubeconfig_for_others(self) -> str:
        """Return a kubeconfig that lets the other member's operator get ConfigMaps here, made as the guide says."""
        self.namespace.apply(_READER)

        def missing() -> str | None:
            return None if "data" in self.namespace.get("secret", "federation") else "no token yet"

        eventually("the token", 60, missing)
        secret = self.namespace.secret("federation")
        address = "jsonpath={.clusters[0].cluster.server}"
        server = self.namespace.kubectl("config", "view", "--minify", "--output", address)
        authorities = base64.b64encode(secret["ca.crt"].encode()).decode()
        content = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": self.name,
            "contexts": [{"name": self.name, "context": {"cluster": self.name, "user": "federation"}}],
            "clusters": [{"name": self.name, "cluster": {"server": server, "certificate-authority-data": authorities}}],
            "users": [{"name": "federation", "user": {"token": secret["token"]}}],
        }
        return json.dumps(content)

    def know(self, other: Member) -> None:
        """Take the other member's kubeconfig into a Secret."""
        entry = f"--from-literal=kubeconfig={other.kubeconfig_for_others()}"
        self.namespace.kubectl("create", "secret", "generic", f"to-{other.name}", entry)

    def join(self, other: Member) -> None:
        """Make the StorageCluster, and a user."""
        text = _CLUSTER.substitute(
            cluster=self.cluster,
            member=self.name,
            other=other.name,
            namespace=other.namespace.name,
            domain=f"cluster{self.number}.test",
        )
        self.namespace.apply(f"{text}---{administrator(self.cluster, 'ann')}")

    def bring_keys_to(self, other: Member) -> None:
        """Copy the Secret with the store's keys, as a person does once."""
        name = f"{self.cluster}-keys"

        def missing() -> str | None:
            return None if self.namespace.kubectl("get", "secret", name, "--ignore-not-found") else "it is not there"

        eventually(f"the Secret {name}", READY_WITHIN_S, missing)
        entries = [f"--from-literal={key}={text}" for key, text in self.namespace.secret(name).items()]
        other.namespace.kubectl("create", "secret", "generic", f"{other.cluster}-keys", *entries)

    def is_well(self) -> str | None:
        """Return what is not as it should be at rest, by its conditions."""
        cluster = self.namespace.get("storagecluster", self.cluster)
        found = {one["type"]: one for one in cluster.get("status", {}).get("conditions", [])}
        wanted = {"Ready": "True", "FederationReady": "True", "TransportEncrypted": "True", "Degraded": "False"}
        wrong = [
            type_
            for type_, status in (wanted | {"Progressing": "False", "PodsHealthy": "True"}).items()
            if found.get(type_, {}).get("status") != status
            or found[type_].get("observedGeneration") != cluster["metadata"]["generation"]
        ]
        said = conditions(self.namespace, self.cluster)
        return f"{self.name}: {wrong} {json.dumps(said, indent=1)}" if wrong else None


@contextmanager
def new_federation(operator: Namespace) -> Iterator[tuple[Member, Member]]:
    """Have the leader `east` and the follower `west`, both Ready."""
    with second_cluster() as kubeconfig:
        elsewhere = install_operator(kubeconfig)
        with new_namespace() as here, new_namespace(kubeconfig) as there:
            east, west = Member("east", "1", here, operator), Member("west", SECOND, there, elsewhere)
            east.know(west)
            west.know(east)
            east.join(west)
            east.bring_keys_to(west)
            west.join(east)
            for one in (east, west):
                eventually(f"{one.name} is well", READY_WITHIN_S, one.is_well)
                one.namespace.wait_until_true("storageuser", "ann", "Ready", READY_WITHIN_S)
            yield east, west


@contextmanager
def wire_cut() -> Iterator[None]:
    """Nothing passes between the two clusters for the length of the block; nobody is told."""
    hack_cluster("part", SECOND, number="1")
    try:
        yield
    finally:
        hack_cluster("join", SECOND, number="1")


def swift(pod: ClientPod, script: str, *arguments: str) -> Any:
    """Return what a script in a client's pod prints as JSON; `swift` in it is a client that has the user's key."""
    text = pod.python("-c", f"{_LOGIN}\n{script}", *arguments)
    return json.loads(text.splitlines()[-1])


_LOGIN = """
import hashlib, json, os, random, sys
from swiftclient.client import Connection
swift = Connection(os.environ["AUTH_URL"], os.environ["SWIFT_USER"], os.environ["SWIFT_KEY"], retries=3)

def content(name):
    return random.Random(name).randbytes(int(name.rpartition("-")[2]))
"""
