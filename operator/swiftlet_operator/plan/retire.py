"""How a StoragePolicy is retired: new containers are refused first, and it goes when nothing of it is proved to be
left.

A policy has a finalizer from when it is accepted. Deleting it retires it: the services are told that it is deprecated,
and the object waits for the proof (`swiftlet_operator.plan.policy_use`). Then follow these steps, each after the one
before is seen to be done: the settings and the accepted specs forget the policy; its ring, builders and Ring object are
deleted; the finalizer is removed. Until the last step its index can't be used by another policy.

Fault model: people edit and delete policies and rings meanwhile, and the operator dies between any two writes. Of two
StoragePolicies with one index the one that the services don't know is let go at once, as nothing is stored with it. A
policy whose object is gone without all this, because somebody removed the finalizer, stays in force
(`swiftlet_operator.plan.accepted`).
"""

from __future__ import annotations

from swiftlet_operator.build.ring_maps import BUILDER_LABEL
from swiftlet_operator.checks import counts, live_policies
from swiftlet_operator.manifests import POLICY, POLICY_FINALIZER, RING, RING_LABEL, Manifest, finalizers_of, labels_of
from swiftlet_operator.plan.accepted import Basis, is_accepted
from swiftlet_operator.plan.actions import Patch
from swiftlet_operator.plan.policy_use import Policy, left
from swiftlet_operator.world import World


def retired(world: World) -> frozenset[int]:
    """Return the indexes of deleted policies of which nothing is left."""
    known = live_policies(world)
    return frozenset(
        one.spec.index
        for one in world.policies
        if _waits(one) and known.get(one.spec.index) == one.spec.name and left(world, one).empty
    )


def _waits(one: Policy) -> bool:
    return one.meta.deleting and POLICY_FINALIZER in one.meta.finalizers


def guards(asked: World, base: Basis) -> list[Patch]:
    """Return patches that add the finalizer to accepted policies, before they can be used."""
    accepted = {(one.meta.name, one.spec.index) for one in base.world.policies}
    return [
        _finalizers(asked, one.meta.name, [*one.meta.finalizers, POLICY_FINALIZER])
        for one in asked.policies
        if (one.meta.name, one.spec.index) in accepted
        and not one.meta.deleting
        and POLICY_FINALIZER not in one.meta.finalizers
    ]


def doomed(world: World) -> list[Manifest]:
    """Return rings, builders and Ring objects of policies that settings and accepted specs have forgotten."""
    rings = {_ring_of(one) for one in world.policies if _is_forgotten(world, one)}
    children = [one for _, one in sorted(world.children.items()) if _ring_label(one) in rings]
    objects = [(one.spec.ring_name, world.own.get((RING.kind, one.meta.name))) for one in world.ring_objects]
    return children + [one for ring, one in objects if one is not None and ring in rings and _is_ours(world, one)]


def released(world: World) -> list[Patch]:
    """Return patches that release deleted policies that no longer matter, or never did."""
    waiting = [one for one in world.policies if _waits(one) and not counts(world, one)]
    busy = bool(doomed(world))
    return [
        unguarded(world.own[POLICY.kind, one.meta.name])
        for one in waiting
        if _is_somebody_elses(world, one) or (_is_forgotten(world, one) and not busy)
    ]


def released_all(world: World) -> list[Patch]:
    """Return the actions that remove the finalizers of all policies of a cluster that is being deleted."""
    return [
        unguarded(one)
        for (kind, _), one in sorted(world.own.items())
        if kind == POLICY.kind and POLICY_FINALIZER in finalizers_of(one)
    ]


def unguarded(one: Manifest) -> Patch:
    """Return the patch that removes our finalizer; the API server refuses it when the object has changed since it was
    read.
    """
    rest = [name for name in finalizers_of(one) if name != POLICY_FINALIZER]
    metadata = {"resourceVersion": one["metadata"].get("resourceVersion"), "finalizers": rest}
    return Patch(POLICY, one["metadata"]["name"], {"metadata": metadata})


def _finalizers(world: World, name: str, finalizers: list[str]) -> Patch:
    live = world.own[POLICY.kind, name]
    change = {"resourceVersion": live["metadata"].get("resourceVersion"), "finalizers": finalizers}
    return Patch(POLICY, name, {"metadata": change})


def _is_somebody_elses(world: World, one: Policy) -> bool:
    """Return whether the policy that the services know by this index belongs to another StoragePolicy."""
    return _has_twin(world, one) or live_policies(world).get(one.spec.index, one.spec.name) != one.spec.name


def _has_twin(world: World, one: Policy) -> bool:
    return any(
        (other.spec.index, other.spec.name) == (one.spec.index, one.spec.name) and not other.meta.deleting
        for other in world.policies
    )


def _is_forgotten(world: World, one: Policy) -> bool:
    """Return whether the services' settings and the accepted specs no longer have such a policy."""
    known = live_policies(world)
    return (
        _waits(one)
        and bool(known)
        and one.spec.index not in known
        and not is_accepted(world, one.meta.name)
        and not _has_twin(world, one)
    )


def _ring_of(one: Policy) -> str:
    return f"object-{one.spec.index}"


def _ring_label(one: Manifest) -> str:
    labels = labels_of(one)
    return labels.get(RING_LABEL) or labels.get(BUILDER_LABEL) or ""


def _is_ours(world: World, one: Manifest) -> bool:
    return any(owner.get("uid") == world.cluster.meta.uid for owner in one["metadata"].get("ownerReferences") or [])
