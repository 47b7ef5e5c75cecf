"""Federations of clusters in fake API servers, each with an operator of its own, which read each other."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

from swiftlet_operator.manifests import CONFIG_MAP, Manifest
from swiftlet_operator.members import Access, MemberAway
from swiftlet_operator.statements import STATEMENT, Statement, opened
from swiftlet_operator.tests.worlds import SMALL_RINGS, Scene

KEY = b"a cluster key of enough length"


def kubeconfig(server: str, token: str = "letmein", authorities: str = "none") -> str:
    """A kubeconfig for an API server, as text."""
    cluster = {"server": server, "certificate-authority-data": base64.b64encode(authorities.encode()).decode()}
    return json.dumps(
        {
            "current-context": "it",
            "contexts": [{"name": "it", "context": {"cluster": "there", "user": "us"}}],
            "clusters": [{"name": "there", "cluster": cluster}],
            "users": [{"name": "us", "user": {"token": token}}],
        }
    )


def spec_of(member: str, leader: str, others: tuple[str, ...], **more: Any) -> dict[str, Any]:
    """The spec of a member with three pods in a region of its own."""
    federation = {
        "name": "one",
        "member": member,
        "leader": leader,
        "hostTemplate": "{pod}." + member + ".example.org",
        "peers": [{"ipBlock": {"cidr": "10.0.0.0/8"}}],
        "members": [
            {"name": one, "namespace": "data", "cluster": one, "kubeconfigSecretRef": {"name": f"to-{one}"}}
            for one in others
        ],
    }
    pools = [{"name": "disks", "replicas": 3, "region": member, "storage": {"size": "10Gi"}}]
    return {"pools": pools, "encryption": "transport", "federation": federation, "rings": SMALL_RINGS, **more}


def secret(name: str, entry: str, text: str) -> Manifest:
    """A Secret of one entry."""
    data = {entry: base64.b64encode(text.encode()).decode()}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "data"}, "data": data}


class Federation:
    """Clusters by the names of their members; the first one leads."""

    def __init__(self, *members: str, keys: bool = True) -> None:
        """Members with the leader's keys, or without any."""
        self.leader = members[0]
        self.away: set[str] = set()
        """Members whose API servers can't be reached."""
        self.scenes: dict[str, Scene] = {}
        for one in members:
            others = tuple(name for name in members if name != one and self.leader in (one, name))
            self.add(one, spec_of(one, self.leader, others))
        for one in members if keys else members[:1]:
            self.give_keys(one)

    def add(self, member: str, spec: dict[str, Any]) -> Scene:
        """Have a cluster."""
        scene = self.scenes[member] = Scene(spec, member)
        scene.reconciler = replace(scene.reconciler, read=self.read)
        for one in spec["federation"]["members"]:
            text = kubeconfig(f"https://{one['name']}")
            scene.kube.put(secret(f"to-{one['name']}", "kubeconfig", text))
        return scene

    def give_keys(self, member: str) -> None:
        """Do what a person does: bring a member the keys of the leader."""
        made = secret(f"{member}-keys", "cluster-key", KEY.decode())
        made["data"]["hash-path-suffix"] = base64.b64encode(b"a suffix of names").decode()
        self.scenes[member].kube.put(made)

    def __getitem__(self, member: str) -> Scene:
        """A member's cluster."""
        return self.scenes[member]

    async def read(self, access: Access, namespace: str, name: str) -> Manifest | None:
        """Implements `swiftlet_operator.members.Read`."""
        member = access.server.removeprefix("https://")
        if member in self.away or member not in self.scenes:
            raise MemberAway("Unreachable", "its API server can't be reached: no route")
        return await self.scenes[member].kube.get(CONFIG_MAP, namespace, name)

    def said(self, member: str) -> Statement:
        """The statement of a member."""
        live = self.scenes[member].kube.find("ConfigMap", f"{member}-federation")
        return opened(base64.b64decode(live["binaryData"][STATEMENT]), [KEY])

    def version(self, member: str, ring: str = "object-0") -> int:
        """The version of a ring that a member has published, 0 for none."""
        return self.scenes[member].rings_laid_out().get(ring, 0)

    async def step(self, *members: str) -> list[str]:
        """Reconcile these members, or all, once each; what was written."""
        written = []
        for one in members or tuple(self.scenes):
            self.scenes[one].live()
            written += [f"{one}: {line}" for line in await self.scenes[one].step()]
        return written

    async def settle(self, *members: str, steps: int = 12) -> None:
        """Reconcile until nothing is written any more."""
        for _ in range(steps):
            if not await self.step(*members):
                return
        raise AssertionError("the federation never comes to rest")

    def pass_time(self, seconds: int) -> None:
        """Set all clocks on."""
        for scene in self.scenes.values():
            scene.now_s += seconds
