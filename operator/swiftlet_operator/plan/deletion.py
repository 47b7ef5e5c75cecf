"""When a cluster may be deleted (not while it may hold data, unless somebody allowed it), and what is
deleted with it.
"""

from __future__ import annotations

from swiftlet.crd import Fact
from swiftlet_operator.manifests import ALLOW_DELETION, COMPONENT_LABEL, FINALIZER, Manifest, labels_of
from swiftlet_operator.plan.actions import Actions
from swiftlet_operator.plan.guard import unguard_all
from swiftlet_operator.plan.retire import released_all
from swiftlet_operator.world import World

_MOST_NAMED = 5
_KEPT = frozenset({"keys", "builder"})


def blocked(world: World) -> Fact:
    """Return whether the cluster has to stay although somebody has deleted it."""
    names = sorted(claim["metadata"]["name"] for claim in world.claims)
    if not world.cluster.meta.deleting or world.cluster.spec.deletion_policy == "Delete" or not names:
        return Fact("DeletionBlocked", "False", "NotBlocked", "nothing prevents deleting the cluster")
    if world.cluster.meta.annotations.get(ALLOW_DELETION) == "true":
        return Fact("DeletionBlocked", "False", "Allowed", "the volumes, keys and builders stay")
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    message = (
        f"volumes {', '.join(names[:_MOST_NAMED])}{more} may hold data: set spec.deletionPolicy to Delete to lose it, "
        f'or the annotation {ALLOW_DELETION}: "true" to keep volumes, keys and builders without the cluster'
    )
    return Fact("DeletionBlocked", "True", "DataExists", message)


def farewell(world: World) -> Actions:
    """Delete objects without an owner that are to go, then release the cluster; Kubernetes deletes its children."""
    if FINALIZER not in world.cluster.meta.finalizers:
        return Actions()
    doomed: list[Manifest] = []
    if world.cluster.spec.deletion_policy == "Delete":
        doomed = [one for one in world.children.values() if labels_of(one).get(COMPONENT_LABEL) in _KEPT]
        doomed += world.claims
    return Actions(patch=(*unguard_all(world), *released_all(world)), delete=tuple(doomed), release=True)
