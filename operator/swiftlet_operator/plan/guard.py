"""Keeps objects without which data can't be found: keys, builders and rings have a finalizer, and a copy.

Kubernetes can't take a deletion back. A deleted object stays, and can be read, until its finalizer is removed. It is
removed when another object is seen to have the same content, and the next look makes the object again. An object is let
go before its copy, and the copy only when the object is back, so one of the two exists at any moment.

Fault model: people delete these objects, one by one or all with one command; the operator dies between any two of its
writes. While the cluster itself is being deleted, as when its namespace is, nothing could be made again and nothing is
let go. A person who removes the finalizer by hand removes this guard.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from swiftlet_operator.build.names import builder_map, ring_map
from swiftlet_operator.build.ring_maps import BUILDER_KINDS, BUILDER_LABEL
from swiftlet_operator.build.secrets import keys_copy_name, keys_name
from swiftlet_operator.manifests import (
    CONFIG_MAP,
    DATA_FINALIZER,
    RING_LABEL,
    SECRET,
    Kind,
    Manifest,
    finalizers_of,
    is_going,
    kind_of,
    labels_of,
    name_of,
)
from swiftlet_operator.plan.actions import Patch
from swiftlet_operator.plan.kept_rings import kept_builder
from swiftlet_operator.plan.ring_tasks import RingState
from swiftlet_operator.world import World


def looked_for(cluster: str, rings: Iterable[str]) -> Iterator[tuple[Kind, Iterable[str]]]:
    """Yield kinds and names of all guarded objects of a cluster; the names of a ring's objects are an
    endless sequence.
    """
    yield SECRET, (keys_name(cluster),)
    yield SECRET, (keys_copy_name(cluster),)
    for ring in rings:
        for kind, _ in BUILDER_KINDS:
            yield kind, (builder_map(cluster, ring, index) for index in count())
        yield CONFIG_MAP, (ring_map(cluster, ring, index) for index in count())


def let_go(world: World, states: Sequence[RingState]) -> list[Patch]:
    """Return patches that take the finalizer from deleted objects that can be made again."""
    if world.cluster.meta.deleting:
        return []
    known = {state.task.ring for state in states if state.before is not None and not state.problem}
    found = []
    for one in _guarded(world):
        ring = labels_of(one).get(RING_LABEL) or labels_of(one).get(BUILDER_LABEL)
        if not is_going(one):
            continue
        if ring is None:
            replaceable = _keys_are_elsewhere(world, one)
        elif RING_LABEL in labels_of(one):
            replaceable = ring in known
        else:
            replaceable = _builder_is_elsewhere(world, ring, kind_of(one))
        if replaceable:
            found.append(unguarded(one))
    return found


def unguard_all(world: World) -> list[Patch]:
    """Return patches that take the finalizer from all objects of a cluster that is deleted."""
    return [unguarded(one) for one in _guarded(world)]


def unguarded(one: Manifest) -> Patch:
    """Return the patch that removes our finalizer; the API server refuses it when the object has changed since it was
    read.
    """
    rest = [name for name in finalizers_of(one) if name != DATA_FINALIZER]
    metadata = {"resourceVersion": one["metadata"].get("resourceVersion"), "finalizers": rest}
    return Patch(kind_of(one), name_of(one), {"metadata": metadata})


def is_guarded(one: Manifest) -> bool:
    """Return whether an object has our finalizer."""
    return DATA_FINALIZER in finalizers_of(one)


def _guarded(world: World) -> list[Manifest]:
    return [one for _, one in sorted(world.children.items()) if is_guarded(one)]


def _builder_is_elsewhere(world: World, ring: str, kind: Kind) -> bool:
    """Return whether objects of the other kind have the same builder; for the copy, only when those are to stay."""
    (first, _), (second, _) = BUILDER_KINDS
    other = second if kind == first else first
    same = kept_builder(world, ring, other)
    if same is None or same != kept_builder(world, ring, kind):
        return False
    originals = (world.child(first, builder_map(world.cluster.meta.name, ring, index)) for index in count())
    if kind == first:
        return True
    for one in originals:
        if one is None:
            return True
        if is_going(one):
            return False
    return True


def _keys_are_elsewhere(world: World, one: Manifest) -> bool:
    cluster = world.cluster.meta.name
    is_copy = name_of(one) == keys_copy_name(cluster)
    other = world.child(SECRET, keys_name(cluster) if is_copy else keys_copy_name(cluster))
    if other is None or other.get("data") != one.get("data"):
        return False
    return not (is_copy and is_going(other))
