"""Workloads that can't create their pods or claims: what quotas, limits, policies and webhooks refuse."""

from __future__ import annotations

import re
from collections.abc import Iterable

from swiftlet_operator.manifests import Manifest, name_of
from swiftlet_operator.trouble.seen import Part, Seen, condition, event_s, part_of
from swiftlet_operator.trouble.words import Trouble, sentence

_PREFIX = re.compile(r"^(?:create (?:Pod|Claim) .*? failed error: |Error creating: )")
_LIMIT = re.compile(r"(?:maximum|minimum) \S+ usage per|is forbidden: \[?(?:maximum|minimum)|limit to request ratio")


def trouble_of_set(workload: Manifest, missing: Iterable[str], seen: Seen) -> Trouble | None:
    """Return what keeps a StatefulSet from creating the missing pods; None when no refusal is reported."""
    if not any(True for _ in missing):
        return None
    events = seen.events_of(workload["kind"], name_of(workload), workload["metadata"].get("uid"))
    failed = [one for one in events if one["reason"] == "FailedCreate"]
    if not failed or any(one["reason"] == "SuccessfulCreate" and event_s(one) > event_s(failed[-1]) for one in events):
        return None
    return _refused(workload, str(failed[-1].get("message") or ""))


def trouble_of_deployment(workload: Manifest) -> Trouble | None:
    """Return what prevents a Deployment from creating pods."""
    failure = condition(workload, "ReplicaFailure")
    return _refused(workload, str(failure.get("message") or "")) if failure.get("status") == "True" else None


def _refused(workload: Manifest, message: str) -> Trouble:
    text = _PREFIX.sub("", message)
    part = part_of(workload)
    cause, advice = _classified(text, part)
    return Trouble(cause, part, workload["kind"], name_of(workload), sentence(text), advice)


def _classified(text: str, part: Part) -> tuple[str, str]:
    what = "storage.size" if "persistentvolumeclaims" in text else "resources"
    if "exceeded quota" in text:
        return "QuotaExceeded", f"raise the namespace's ResourceQuota, or lower {part.field}.{what} or replicas"
    if "failed quota" in text:
        return "QuotaExceeded", f"say in {part.field}.resources what the namespace's ResourceQuota asks for"
    if _LIMIT.search(text):
        return "LimitRange", f"change {part.field}.{what} to fit the namespace's LimitRange, or change that"
    if "violates PodSecurity" in text:
        return "PodSecurity", "label the namespace with a pod-security level that allows what the sentence names"
    if "denied the request" in text:
        return "AdmissionDenied", f"change {part.field} to what the webhook allows, or the webhook's rules"
    return "CreateFailed", f"see the events of the workload, and change {part.field}"
