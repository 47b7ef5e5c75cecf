"""The condition `FragmentsWhole`: whether all objects with erasure coding have all of their fragments. Pure.

It is True only by what rounds of repairs have proved, of all replicators of object servers. A replicator that does not
report, or whose last complete round is too old, makes it Unknown unless others know of something missing.
"""

from __future__ import annotations

from swiftlet.crd import Fact
from swiftlet_operator.build.site import STORAGE
from swiftlet_operator.checks import policies_of
from swiftlet_operator.manifests import COMPONENT_LABEL, labels_of, name_of
from swiftlet_operator.redundancy import Repairs, Standing, left_said, said, together
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

TYPE = "FragmentsWhole"
OLD_S = 3600.0
"""Seconds after which the last complete round of a replicator says nothing any more."""


def fragments_whole(world: World) -> Fact:
    """Return whether all objects with erasure coding have all fragments at their places."""
    told = {
        name_of(pod): report.repairs
        for pod in world.pods
        if labels_of(pod).get(COMPONENT_LABEL) == STORAGE and (report := world.report(name_of(pod), "replicator"))
    }
    found = together(one for one in told.values() if one is not None)
    unheard = [one.name for one in policies_of(world) if one.coding is not None and one.name not in found.policies]
    not_reported = Fact(TYPE, "Unknown", "NotReported", f"no replicator has looked at policy {', '.join(unheard)} yet")
    if not found.policies and unheard:
        return not_reported
    if not found.policies:
        return Fact(TYPE, "False", "NotWanted", "no policy has erasure coding")
    # The worst policy gives the reason, and all of them are told.
    worst = min(found.policies.values(), key=lambda one: one.least - one.data)
    message = "; ".join(f"policy {name}: {said(one)}" for name, one in sorted(found.policies.items()))
    if worst.least < worst.data + worst.parity or found.left:
        left = left_said(found, world.now_s)
        return Fact(TYPE, "False", _reason(worst), f"{message}; {left}" if left else message)
    if unheard:
        return not_reported
    silent = sorted(
        name_of(pod)
        for pod in world.pods
        if labels_of(pod).get(COMPONENT_LABEL) == STORAGE and _is_silent(told.get(name_of(pod)), found, world.now_s)
    )
    if silent:
        return Fact(TYPE, "Unknown", "NotReported", f"{named(silent)} has not reported a complete round of repairs")
    return Fact(TYPE, "True", "Whole", message)


def _reason(worst: Standing) -> str:
    if worst.least < worst.data:
        return "TooFewFragments"
    return "NoneToSpare" if worst.least == worst.data else "FragmentsMissing"


def _is_silent(repairs: Repairs | None, found: Repairs, now_s: float) -> bool:
    return repairs is None or any(
        name not in repairs.policies or now_s - repairs.policies[name].seen_at_s > OLD_S for name in found.policies
    )
