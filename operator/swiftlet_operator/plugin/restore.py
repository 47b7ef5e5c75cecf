"""`kubectl swiftlet restore`: what a backup has and the cluster lacks, and in which order it is made again.

First all live objects are read and a step is decided for each object of the backup; nothing is written while one of
them differs from the live one, unless the user says what to do. The StorageCluster comes last: until it is there the
operator makes nothing. Owner references name uids, so they are set when the owners have new ones.

Fault model: the restore ends at any moment, and is begun again; an object that is already as it should be is left
alone, so the second run does what the first one did not. Somebody else writes meanwhile: their objects are not
overwritten, because objects are created, or replaced with the version that was read.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from swiftlet_operator.plugin.archive import Backup, BackupError, Saved
from swiftlet_operator.plugin.backup import BUILDER_LABEL, RECOVERY, RECOVERY_LABEL, cleaned
from swiftlet_operator.plugin.kubectl import Kubectl
from swiftlet_operator.plugin.picture import RING_LABEL, Object, name_of
from swiftlet_operator.problems import SealError
from swiftlet_operator.sealing import parse_identities

RESOURCES = {
    "Secret": "secrets",
    "ConfigMap": "configmaps",
    "PersistentVolumeClaim": "persistentvolumeclaims",
    "StorageCluster": "storageclusters.swiftlet.io",
    "StoragePolicy": "storagepolicies.swiftlet.io",
    "StorageQuota": "storagequotas.swiftlet.io",
    "StorageUser": "storageusers.swiftlet.io",
    "Ring": "rings.swiftlet.io",
}
RING_VERSION = "swiftlet.io/ring-version"
IDENTITIES = "identities"

What = Literal["create", "unchanged", "differs", "overwrite", "keep", "add key", "leave out"]
WRITES = frozenset({"create", "overwrite", "add key"})


@dataclass(frozen=True, slots=True)
class Step:
    """What is done about one object, and why where that is not obvious; `live` is the object that is there now."""

    what: What
    saved: Saved
    why: str = ""
    live: Object | None = None
    volume: Object | None = None
    """The volume that a claim gets back."""

    def __str__(self) -> str:
        one = self.saved
        return f"{self.what:<10} {one.kind} {one.namespace}/{one.name}{f': {self.why}' if self.why else ''}"


def plan(kubectl: Kubectl, backup: Backup, operator_namespace: str | None, mode: str) -> list[Step]:
    """Return a step for each object; `mode` says what becomes of objects that differ: `refuse`, `keep` or
    `overwrite`.
    """
    home = operator_namespace or _operator_namespace(kubectl) or backup.operator_namespace
    live: dict[tuple[str, str], Object | None] = {
        (one.kind, one.name): kubectl.find(RESOURCES[one.kind], one.namespace, one.name)
        for one in backup.objects
        if one.name != RECOVERY
    }
    newer = _newer_rings(backup, live.values())
    steps = []
    for one in backup.objects:
        if one.name == RECOVERY:
            steps.append(_recovery_step(kubectl, one, home))
        elif (ring := _ring_of(one)) in newer:
            steps.append(Step("keep", one, f"ring {ring} is there in a newer version"))
        elif (there := live[one.kind, one.name]) is not None:
            steps.append(_compared(one, there, mode))
        elif one.kind == "PersistentVolumeClaim":
            steps.append(_claim_step(kubectl, one))
        else:
            steps.append(Step("create", one))
    return steps


def conflicts(steps: Iterable[Step]) -> list[Step]:
    """Return the steps that a person has to decide about first."""
    return [one for one in steps if one.what == "differs"]


def carry_out(kubectl: Kubectl, steps: Sequence[Step]) -> int:
    """Carry out the steps, then set the owners; return how many objects were written. Raises KubectlError."""
    namespaces = {one.saved.namespace for one in steps if one.what in WRITES}
    for namespace in sorted(namespaces):
        if kubectl.find("namespaces", None, namespace) is None:
            kubectl.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    written = [one for one in steps if one.what in WRITES]
    for step in written:
        _write(kubectl, step)
    _own(kubectl, [one.saved for one in steps if one.what in WRITES or one.what == "unchanged"])
    return len(written)


def _write(kubectl: Kubectl, step: Step) -> None:
    manifest, live = step.saved.manifest, step.live
    if step.volume is not None:
        # The volume is still reserved for the claim that is gone.
        change: Object = {"spec": {"claimRef": {"uid": None, "resourceVersion": None}}}
        kubectl.merge("persistentvolumes", None, name_of(step.volume), change)
    if live is None:
        kubectl.create(manifest)
    elif step.what == "add key":
        change = {"metadata": {"resourceVersion": live["metadata"].get("resourceVersion")}, "data": manifest["data"]}
        kubectl.merge("secrets", step.saved.namespace, step.saved.name, change)
    else:
        finalizers = [*_finalizers(live), *(one for one in _finalizers(manifest) if one not in _finalizers(live))]
        metadata = {**live["metadata"], **manifest["metadata"], "finalizers": finalizers}
        kubectl.replace({**manifest, "metadata": metadata})


def _finalizers(manifest: Object) -> list[str]:
    return manifest["metadata"].get("finalizers") or []


def _own(kubectl: Kubectl, objects: Iterable[Saved]) -> None:
    """Set the owners of objects, by the uids that the owners have now."""
    uids: dict[tuple[str, str, str], str | None] = {}
    for one in objects:
        if not one.owners:
            continue
        owners = []
        for owner in one.owners:
            place = (str(owner.get("kind")), one.namespace, str(owner.get("name")))
            if place not in uids:
                found = kubectl.find(RESOURCES[place[0]], *place[1:]) if place[0] in RESOURCES else None
                uids[place] = found["metadata"]["uid"] if found is not None else None
            if uids[place] is not None:
                owners.append({**owner, "uid": uids[place]})
        live = kubectl.find(RESOURCES[one.kind], one.namespace, one.name)
        if owners and live is not None and not live["metadata"].get("ownerReferences"):
            kubectl.merge(RESOURCES[one.kind], one.namespace, one.name, {"metadata": {"ownerReferences": owners}})


def _compared(one: Saved, live: Object, mode: str) -> Step:
    if live["metadata"].get("deletionTimestamp"):
        return Step("differs", one, "it is being deleted; wait until it is gone, or take its finalizers away", live)
    if _content(cleaned(live).manifest) == _content(one.manifest):
        return Step("unchanged", one, live=live)
    if one.kind == "PersistentVolumeClaim":
        return Step("keep", one, "a claim that is there is never changed", live)
    why = "what is there differs"
    if mode == "overwrite":
        return Step("overwrite", one, why, live)
    return Step("keep" if mode == "keep" else "differs", one, why, live)


def _content(manifest: Object) -> Object:
    """Return the part of a manifest that is compared."""
    return {key: value for key, value in manifest.items() if key not in ("apiVersion", "kind", "metadata")}


def _claim_step(kubectl: Kubectl, one: Saved) -> Step:
    """Return the step of a claim: it gets its volume back when that exists and is free; without it the pod would begin
    on an empty one.
    """
    name = (one.manifest.get("spec") or {}).get("volumeName")
    volume = kubectl.find("persistentvolumes", None, name) if name else None
    if volume is None:
        why = (
            f"its volume {name} is not here; make a volume and a claim of this name, or the pod begins on an empty one"
        )
        return Step("leave out", one, why)
    reference = (volume.get("spec") or {}).get("claimRef")
    if reference is None:
        return Step("create", one, f"on volume {name}")
    if (reference.get("namespace"), reference.get("name")) != (one.namespace, one.name):
        why = f"its volume {name} belongs to the claim {reference.get('namespace')}/{reference.get('name')} now"
        return Step("leave out", one, why)
    return Step("create", one, f"on volume {name}", volume=volume)


def _recovery_step(kubectl: Kubectl, one: Saved, namespace: str) -> Step:
    """Return the step of the recovery key: the backup's key is added for opening, and the live one goes on to seal."""
    placed = Saved({**one.manifest, "metadata": {**one.manifest["metadata"], "namespace": namespace}})
    live = kubectl.find("secrets", namespace, one.name)
    if live is None:
        return Step("create", placed)
    there, kept = _identities(live, "the live one"), _identities(one.manifest, "the backup's")
    added = [identity for identity in kept if identity not in there]
    if not added:
        return Step("unchanged", placed, live=live)
    text = "".join(f"{identity}\n" for identity in (*there, *added))
    data = {IDENTITIES: base64.b64encode(text.encode()).decode()}
    merged = Saved({**placed.manifest, "data": data})
    return Step("add key", merged, "the operator then opens what was sealed to it, too", live)


def _identities(secret: Object, whose: str) -> tuple[str, ...]:
    try:
        text = base64.b64decode((secret.get("data") or {}).get(IDENTITIES, ""), validate=True).decode()
        return parse_identities(text)
    except (binascii.Error, UnicodeDecodeError, SealError) as error:
        raise BackupError(f"Secret {RECOVERY}: {whose} can't be read: {error}") from error


def _operator_namespace(kubectl: Kubectl) -> str | None:
    """Return the namespace with the running operator's recovery key; None when there is none or more than one."""
    found = {
        str(one["metadata"]["namespace"])
        for one in kubectl.list("secrets", None, RECOVERY_LABEL)
        if name_of(one) == RECOVERY
    }
    return found.pop() if len(found) == 1 else None


def _ring_of(one: Saved) -> str | None:
    """Return the ring that an object keeps, or whose builder it keeps; None for another object."""
    labels: Mapping[str, str] = one.manifest["metadata"].get("labels") or {}
    return labels.get(RING_LABEL) or labels.get(BUILDER_LABEL)


def _newer_rings(backup: Backup, live: Iterable[Object | None]) -> set[str]:
    """Return rings that are newer in the cluster than in the backup: nothing of an older one is put beside them."""
    there = _versions(one for one in live if one is not None)
    kept = _versions(one.manifest for one in backup.objects)
    return {ring for ring, version in there.items() if version > kept.get(ring, 0)}


def _versions(objects: Iterable[Object]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in objects:
        labels = one["metadata"].get("labels") or {}
        text = labels.get(RING_VERSION, "")
        if RING_LABEL in labels and text.isdecimal():
            ring = labels[RING_LABEL]
            found[ring] = max(found.get(ring, 0), int(text))
    return found
