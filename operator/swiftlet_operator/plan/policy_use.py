"""What is left of a StoragePolicy that is deprecated or being deleted, by the pods' reports, and how that is told.

Container servers count the copies of its containers, including deleted ones, and replicators tell whether devices hold
any of its objects or tombstones. When each of them has found nothing twice in a row, the second time after all had
found nothing for the first time, nothing can have moved unseen from a device that was yet to be looked at to one that
had been.

Fault model: pods that are away, or have just started, prove nothing. Rings that can't be read hide whom to ask: then
nothing is proved either.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from swiftlet.crd import Fact, Resource, StoragePolicySpec
from swiftlet_operator.checks import counts, policies_of
from swiftlet_operator.plan.actions import StatusOf
from swiftlet_operator.plan.kept_rings import has_been, published_ring
from swiftlet_operator.plan.sync import in_order, pod_of, ring_report
from swiftlet_operator.reports import PoliciesReport
from swiftlet_operator.rings import named
from swiftlet_operator.world import World

SKEW_S = 60.0
"""How far the clocks of nodes may differ, in seconds."""
NAMED_ACCOUNTS = 3
RETIRING = "Retiring"

Policy = Resource[StoragePolicySpec]


@dataclass(frozen=True, slots=True)
class Left:
    """What may be left of a policy.

    `silent`: pods and rings that don't say. `copies`: databases of its containers on all devices. `holding`: devices
    with objects, or with tombstones. `unproved`: nothing was found, but not every pod has looked twice.
    """

    containers: int = 0
    objects: int = 0
    accounts: int = 0
    largest: tuple[str, ...] = ()
    copies: int = 0
    holding: tuple[str, ...] = ()
    silent: tuple[str, ...] = ()
    unproved: bool = False
    is_default: bool = False

    @property
    def empty(self) -> bool:
        """Return whether it is proved that nothing is left."""
        return not (self.copies or self.holding or self.silent or self.unproved or self.is_default)


@dataclass(slots=True)
class _Seen:
    """Summary of the looks of all pods concerned."""

    first_ended_s: list[float] = field(default_factory=list)
    """When each had completed its first look that found nothing."""
    last_began_s: list[float] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)
    complete: bool = True
    """Whether each of them has reported that it found nothing."""

    @property
    def proved_s(self) -> float:
        """Return when the last of them had completed its first look."""
        return max(self.first_ended_s, default=0.0)

    def look(self, ended_s: float | None, began_s: float | None) -> None:
        """Add a pod that has found nothing since `ended_s`, and began its last look at `began_s`."""
        if ended_s is None or began_s is None:
            self.complete = False
            return
        self.first_ended_s.append(ended_s)
        self.last_began_s.append(began_s)

    def is_proved(self, since_s: float = 0.0) -> bool:
        """Return whether each has looked once more after `since_s` and after all had looked for the first time."""
        after_s = max(self.proved_s, since_s) + SKEW_S
        return self.complete and not self.silent and all(began_s >= after_s for began_s in self.last_began_s)


def left(world: World, policy: Policy) -> Left:
    """Return what the pods' reports say of a policy that is deprecated or being deleted."""
    known = next((one for one in policies_of(world) if one.index == policy.spec.index), None)
    if known is not None and known.default:
        return Left(is_default=True)
    servers, told = _containers(world, policy.spec.index)
    devices, holding = _objects(world, f"object-{policy.spec.index}")
    uses = [one.used[policy.spec.index] for one in told]
    proved = servers.is_proved() and devices.is_proved(servers.proved_s)
    copies = sum(use.copies for use in uses)
    silent = (*servers.silent, *devices.silent)
    return Left(
        containers=sum(use.containers for use in uses),
        objects=sum(use.objects for use in uses),
        accounts=sum(use.accounts for use in uses),
        largest=_largest(use.largest for use in uses),
        copies=copies,
        holding=tuple(sorted(holding)),
        silent=tuple(dict.fromkeys(silent)),
        unproved=not proved,
    )


def _containers(world: World, index: int) -> tuple[_Seen, list[PoliciesReport]]:
    seen, told = _Seen(), []
    ring = published_ring(world, "container")
    if ring is None:
        seen.silent.append("ring container")
        return seen, []
    for pod in sorted({pod_of(device.name) for device in ring.devices if device is not None}):
        report = world.report(pod, "container")
        said = report.policies if report is not None else None
        use = said.used.get(index) if said is not None else None
        if said is None or use is None:
            seen.silent.append(pod)
            continue
        told.append(said)
        seen.look(use.empty_since_s, said.counted_at_s)
    return seen, told


def _objects(world: World, name: str) -> tuple[_Seen, set[str]]:
    """Return which pods have looked for objects, and the devices that hold some, including devices that
    left the ring.
    """
    seen, holding = _Seen(), _holding(world, name)
    ring = published_ring(world, name)
    if ring is None:
        if has_been(world, name):
            seen.silent.append(f"ring {name}")
        return seen, holding
    for device in sorted(one.name for one in ring.devices if one is not None):
        report = ring_report(world, device, name)
        if report is None:
            seen.silent.append(device)
        elif report.held != 0 or not in_order(report, ring.version, 0.0):
            seen.complete = False
        else:
            seen.look(report.empty_since_s, report.synced_at_s)
    return seen, holding


def _holding(world: World, ring: str) -> set[str]:
    return {
        name
        for reports in world.reports.values()
        for report in reports.values()
        for name, device in report.devices.items()
        if ring in device.rings and device.rings[ring].held
    }


def _largest(lists: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Merge lists of accounts, taking each server's first ones first."""
    ranked = [(rank, account) for names in lists for rank, account in enumerate(names)]
    return tuple(dict.fromkeys(account for _, account in sorted(ranked)))[:NAMED_ACCOUNTS]


def in_use(world: World, policy: Policy) -> Fact:
    """Return whether anything is left of a policy that is deprecated or being deleted."""
    if policy.meta.deleting and not counts(world, policy):
        return Fact("InUse", "False", "Empty", "no data of it is left; its ring and its settings are being removed")
    found = left(world, policy)
    way_out = f"kubectl swiftlet policy {policy.meta.name} lists the containers; the guide says how to copy them"
    if found.is_default:
        message = f"{policy.spec.name} is the default policy: set default: true on another StoragePolicy first"
        return Fact("InUse", "True", "IsDefault", message)
    if found.containers or found.accounts:
        message = (
            f"{_count(found.containers, 'container')} with {_count(found.objects, 'object')} use it, in "
            f"{_accounts(found)}: copy them to containers of another policy, and delete them. {way_out}"
        )
        return Fact("InUse", "True", "ContainersUseIt", message)
    if found.silent:
        message = f"nobody can prove that nothing is left of it: {named(found.silent)} does not say what it has"
        return Fact("InUse", "Unknown", "NotProved", message)
    if found.copies:
        message = (
            f"no container uses the policy, but {found.copies} copies of databases of deleted containers "
            "remain; they are removed a week after the deletion (cluster.reclaim_age_s)"
        )
        return Fact("InUse", "True", "DeletionsRemembered", message)
    if found.holding:
        message = (
            f"no container uses the policy, but {named(found.holding)} holds objects or tombstones of deleted "
            "objects; tombstones are removed a week after the deletion (cluster.reclaim_age_s)"
        )
        return Fact("InUse", "True", "ObjectsLeft", message)
    if found.unproved:
        message = "nothing of it has been found; that is proved when all pods have looked once more"
        return Fact("InUse", "Unknown", "NotProved", message)
    return Fact("InUse", "False", "Empty", "no data of it is left, and it can be deleted")


def with_use(world: World, policy: Policy, told: StatusOf) -> StatusOf:
    """Return the status of a policy, with what is left of it when it is deprecated or being deleted."""
    fact = in_use(world, policy) if policy.meta.deleting or policy.spec.deprecated else None
    if fact is None:
        stale = any(one.type == "InUse" for one in policy.conditions)
        message = "what uses it is counted while it is deprecated or being deleted"
        return replace(told, facts=(*told.facts, Fact("InUse", "Unknown", "NotCounted", message))) if stale else told
    ready, *others = told.facts
    if policy.meta.deleting:
        ready = Fact("Ready", "False", RETIRING, f"no new containers get it. {fact.message}")
    elif ready.is_true:
        ready = Fact("Ready", "True", "Deprecated", "new containers cannot use it, and existing ones keep it")
    return replace(told, facts=(ready, fact, *others))


def policies_retired(world: World) -> Fact:
    """Return whether nothing is left of the policies that are deprecated or being deleted."""
    leaving = [one for one in world.policies if one.meta.deleting or one.spec.deprecated]
    if not leaving:
        message = "no StoragePolicy is deprecated or being deleted"
        return Fact("PoliciesRetired", "False", "NotWanted", message)
    facts = {one.meta.name: in_use(world, one) for one in leaving}
    using = {name: fact for name, fact in facts.items() if fact.status != "False"}
    if not using:
        return Fact("PoliciesRetired", "True", "Empty", f"nothing is left of {named(sorted(facts))}")
    name, fact = min(using.items(), key=lambda one: (one[1].status != "True", one[0]))
    more = f"; and {len(using) - 1} more are in use" if len(using) > 1 else ""
    return Fact("PoliciesRetired", "False", fact.reason, f"StoragePolicy {name}: {fact.message}{more}")


def _accounts(found: Left) -> str:
    if not found.largest:
        return "accounts that are not known yet"
    more = found.accounts - len(found.largest)
    names = ", ".join(found.largest)
    noun = "account" if found.accounts == 1 else "accounts"
    return f"{noun} {names}" + (f" and {more} more" if more > 0 else "")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
