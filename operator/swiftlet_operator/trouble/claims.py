"""Claims without a volume: what the provisioner and the volume controller say."""

from __future__ import annotations

from swiftlet_operator.manifests import Manifest, annotations_of, labels_of, name_of, named
from swiftlet_operator.trouble.seen import Part, Seen, age_s, event_s, part_of, pod_of_claim, status_of
from swiftlet_operator.trouble.words import Trouble, sentence

SLOW_S = 600
"""Seconds that making a volume takes at most, unless its provisioner does not run."""
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
_FAILED = frozenset({"ProvisioningFailed", "FailedBinding", "VolumeMismatch", "VolumeFailedDelete", "ClaimMisbound"})


def is_bound(claim: Manifest) -> bool:
    """Return whether a claim has its volume."""
    return status_of(claim).get("phase") == "Bound"


def trouble_of_claim(claim: Manifest, seen: Seen) -> Trouble | None:
    """Return what keeps a claim from its volume; None when nothing does, or the volume is being made."""
    if is_bound(claim) or claim["metadata"].get("deletionTimestamp"):
        return None
    part = _part(claim)
    if status_of(claim).get("phase") == "Lost":
        advice = "restore its PersistentVolume, or delete the claim and its pod so that the replicas fill a new one"
        return _trouble("VolumeLost", part, claim, "Bound claim has lost its PersistentVolume", advice)
    return _of_class(claim, part, seen) or _of_events(claim, part, seen)


def _part(claim: Manifest) -> Part:
    part = part_of(claim)
    return part if part.component else Part("container" if name_of(claim).startswith("db-") else "storage")


def _trouble(cause: str, part: Part, claim: Manifest, text: object, advice: str) -> Trouble:
    return Trouble(cause, part, "PersistentVolumeClaim", name_of(claim), sentence(text), advice)


def class_of(claim: Manifest) -> str | None:
    """Return the name of the StorageClass that a claim asks for, None for the default one."""
    return claim["spec"].get("storageClassName") or None


def _of_class(claim: Manifest, part: Part, seen: Seen) -> Trouble | None:
    """Return the trouble of a claim whose class does not exist, or that asks for the default where there is none."""
    classes = seen.evidence.classes
    if classes is None:
        return None
    names = sorted(map(name_of, classes))
    known = f" ({named(names)})" if names else ""
    wanted = class_of(claim)
    field = f"{part.field}.storage.className"
    said = _said(claim, seen)
    if wanted is not None and wanted not in names:
        text = said or f'storageclass.storage.k8s.io "{wanted}" not found'
        advice = f"make the StorageClass {wanted}, or set {field} to one that exists{known}"
        return _trouble("NoSuchStorageClass", part, claim, text, advice)
    if wanted is None and not any(annotations_of(one).get(_DEFAULT) == "true" for one in classes):
        text = said or "no persistent volumes available for this claim and no storage class is set"
        advice = f'mark a StorageClass as the default ({_DEFAULT}: "true"), or set {field}{known}'
        return _trouble("NoDefaultStorageClass", part, claim, text, advice)
    return None


def _said(claim: Manifest, seen: Seen) -> str:
    """Return the last message about a claim's failure, empty when there is none."""
    uid = claim["metadata"].get("uid")
    failed = [one for one in seen.events_of("PersistentVolumeClaim", name_of(claim), uid) if one["reason"] in _FAILED]
    return str(failed[-1].get("message") or "") if failed else ""


def _of_events(claim: Manifest, part: Part, seen: Seen) -> Trouble | None:
    events = seen.events_of("PersistentVolumeClaim", name_of(claim), claim["metadata"].get("uid"))
    advice = f"see the provisioner of {part.field}.storage.className and its log"
    failed = [one for one in events if one["reason"] in _FAILED]
    if failed and not any(event_s(one) > event_s(failed[-1]) and one["reason"] == "Provisioning" for one in events):
        return _trouble("ProvisioningFailed", part, claim, failed[-1].get("message"), advice)
    waits = [one for one in events if one["reason"] == "ExternalProvisioning"]
    if waits and age_s(seen, claim) > SLOW_S:
        return _trouble("ProvisioningFailed", part, claim, waits[-1].get("message"), advice)
    return None


def waiting_claims(seen: Seen) -> list[Manifest]:
    """Return claims without a volume, of pods that StatefulSets should have now."""
    wanted = {pod for _, pods in seen.sets() for pod in pods}
    return [one for one in seen.claims if not is_bound(one) and pod_of_claim(one) in wanted and labels_of(one)]
