"""An API server in memory, for unit tests of what talks to one: merges applied fields, counts writes, fails on demand.

It knows nothing of schemas, defaults or ownership of fields; what a real API server makes of our manifests is tested
against a real one.
"""

from __future__ import annotations

import marshal
from collections.abc import Mapping
from typing import Any

from swiftlet_operator.manifests import Kind, Manifest, kind_of, labels_of, name_of
from swiftlet_operator.problems import KubeConflict, KubeInvalid, KubeUnavailable


class FakeKube:
    """Implements `swiftlet_operator.kube.Kube`."""

    def __init__(self) -> None:
        """Empty."""
        self.objects: dict[tuple[str, str, str], Manifest] = {}
        self.writes: list[str] = []
        self.failing: set[str] = set()
        """Names of objects that can't be written."""
        self.asked: list[str] = []
        """Objects whose events were asked for."""
        self.unknown = {"monitoring.coreos.com", "gateway.networking.k8s.io", "cert-manager.io"}
        """Groups of kinds that nobody has installed."""
        self._number = 0

    def put(self, manifest: Manifest) -> Manifest:
        """Have an object, whatever was there."""
        made: Manifest = _copy(manifest)
        metadata = made["metadata"]
        metadata.setdefault("uid", f"uid-{self._next()}")
        metadata["resourceVersion"] = str(self._next())
        self.objects[self._key(kind_of(made), metadata.get("namespace", ""), name_of(made))] = made
        return made

    def take_over(self, other: FakeKube) -> None:
        """Have the other one's objects, and its past."""
        self.objects = _copy(other.objects)
        self.writes, self.asked = [*other.writes], [*other.asked]
        self._number = other._number

    def _next(self) -> int:
        self._number += 1
        return self._number

    def find(self, kind: str, name: str) -> Manifest:
        """The very object, to look at or to vandalise."""
        return next(one for (k, _, n), one in self.objects.items() if (k, n) == (kind, name))

    def names(self, kind: str) -> set[str]:
        """Names of all objects of a kind."""
        return {name for (k, _, name) in self.objects if k == kind}

    def _key(self, kind: Kind, namespace: str, name: str) -> tuple[str, str, str]:
        return kind.kind, namespace if kind.namespaced else "", name

    def _note(self, verb: str, kind: str, name: str) -> None:
        if name in self.failing:
            raise KubeUnavailable(f"{verb} {kind} {name}: 503 out of order")
        self.writes.append(f"{verb} {kind}/{name}")

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        found: Manifest | None = _copy(self.objects.get(self._key(kind, namespace, name)))
        return found

    async def events(self, namespace: str, kind: str, name: str) -> list[Manifest]:
        self.asked.append(f"{kind}/{name}")
        found = [one for one in self.objects.values() if one["kind"] == "Event"]
        about = [one["involvedObject"] for one in found]
        return [
            _copy(one)
            for one, what in zip(found, about, strict=True)
            if one["metadata"]["namespace"] == namespace and (what["kind"], what["name"]) == (kind, name)
        ]

    async def named(self, kind: Kind, name: str) -> list[Manifest]:
        return [one for one in await self.list(kind, None) if name_of(one) == name]

    async def list(self, kind: Kind, namespace: str | None, labels: Mapping[str, str] | None = None) -> list[Manifest]:
        return [
            _copy(one)
            for (k, ns, _), one in sorted(self.objects.items())
            if k == kind.kind
            and (namespace is None or not kind.namespaced or ns == namespace)
            and (labels or {}).items() <= labels_of(one).items()
        ]

    async def serves(self, kind: Kind) -> bool:
        return kind.api_version.partition("/")[0] not in self.unknown

    async def apply(self, manifest: Manifest) -> Manifest:
        self._note("apply", manifest["kind"], name_of(manifest))
        key = self._key(kind_of(manifest), manifest["metadata"]["namespace"], name_of(manifest))
        live = self.objects.get(key)
        merged = _merged(live, manifest) if live is not None else _copy(manifest)
        _refuse_mixed_strategy(merged)
        generation = int((live or manifest)["metadata"].get("generation") or 0)
        merged["metadata"]["generation"] = generation + (live is None or live.get("spec") != merged.get("spec"))
        return self.put(merged)

    async def create(self, manifest: Manifest) -> Manifest:
        self._note("create", manifest["kind"], name_of(manifest))
        if self._key(kind_of(manifest), manifest["metadata"].get("namespace", ""), name_of(manifest)) in self.objects:
            raise KubeConflict(f"{name_of(manifest)} exists")
        return self.put(manifest)

    async def replace(self, manifest: Manifest) -> Manifest:
        live = await self.get(kind_of(manifest), manifest["metadata"].get("namespace", ""), name_of(manifest))
        if live is None:
            raise KubeInvalid(f"{name_of(manifest)} is not there")
        if live["metadata"]["resourceVersion"] != manifest["metadata"].get("resourceVersion"):
            raise KubeConflict(f"{name_of(manifest)} has changed")
        self._note("replace", manifest["kind"], name_of(manifest))
        return self.put(manifest)

    async def patch(
        self, kind: Kind, namespace: str, name: str, change: Manifest, subresource: str | None = None
    ) -> Manifest | None:
        self._note(f"patch{'-' + subresource if subresource else ''}", kind.kind, name)
        live = await self.get(kind, namespace, name)
        if live is None:
            return None
        expected = (change.get("metadata") or {}).get("resourceVersion")
        if expected is not None and expected != live["metadata"]["resourceVersion"]:
            raise KubeConflict(f"{name} has changed")
        changed = _without_nulls(_merged(live, change))
        _refuse_mixed_strategy(changed)
        if "generation" in changed["metadata"]:
            changed["metadata"]["generation"] += live.get("spec") != changed.get("spec")
        made = self.put(changed)
        metadata = made["metadata"]
        if metadata.get("deletionTimestamp") and not metadata.get("finalizers"):
            del self.objects[self._key(kind, namespace, name)]
        return made

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str, grace_s: int | None = None) -> None:
        self._note("delete" if grace_s is None else "force", kind.kind, name)
        live = self.objects.get(self._key(kind, namespace, name))
        if live is None or live["metadata"]["uid"] != uid:
            return
        if live["metadata"].get("finalizers"):
            live["metadata"].setdefault("deletionTimestamp", "2027-01-15T10:00:00Z")
            return
        del self.objects[self._key(kind, namespace, name)]


def _copy(value: Any) -> Any:
    """A copy of plain data, the way that takes least time: tests of the operator do little else."""
    return marshal.loads(marshal.dumps(value))


def _refuse_mixed_strategy(manifest: Manifest) -> None:
    """The rule of Kubernetes that who applies one strategy over the other breaks, because the old one's fields stay."""
    strategy = (manifest.get("spec") or {}).get("updateStrategy") or {}
    if manifest["kind"] == "StatefulSet" and strategy.get("type") == "OnDelete" and "rollingUpdate" in strategy:
        raise KubeInvalid("spec.updateStrategy.rollingUpdate: only allowed for updateStrategy 'RollingUpdate'")


def _without_nulls(value: Any) -> Any:
    """What a merge patch leaves: an entry that became null is gone."""
    if not isinstance(value, dict):
        return value
    return {key: _without_nulls(one) for key, one in value.items() if one is not None}


def _merged(live: Any, change: Any) -> Any:
    if not isinstance(live, dict) or not isinstance(change, dict):
        return _copy(change)
    kept = {key: _copy(value) for key, value in live.items() if key not in change}
    return {**kept, **{key: _merged(live.get(key), value) for key, value in change.items()}}
