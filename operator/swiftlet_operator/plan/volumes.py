"""Volumes that differ from what their pool says now. Pure.

Smaller ones are grown. Kubernetes can change neither the class of a claim nor the templates of a StatefulSet: where a
class was corrected before there was any volume, the StatefulSet is made anew. As long as no claim has a volume and no
pod a node there is nothing to lose; `swiftlet_operator.checks` refuses another class afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from swiftlet.crd import Fact, StorageClusterSpec, quantity_bytes
from swiftlet_operator.build.site import CONTAINER, STORAGE
from swiftlet_operator.checks import claims_of_set, class_in, has_volumes
from swiftlet_operator.manifests import (
    COMPONENT_LABEL,
    POOL_LABEL,
    PVC,
    STATEFUL_SET,
    Manifest,
    is_going,
    kind_of,
    labels_of,
    name_of,
)
from swiftlet_operator.plan.actions import Patch
from swiftlet_operator.rings import named
from swiftlet_operator.world import World


def growing(spec: StorageClusterSpec, claims: Iterable[Manifest]) -> Iterator[tuple[Manifest, str]]:
    """Yield claims that ask for less than they should, with the size that they should ask for."""
    sizes: dict[tuple[str | None, str | None], str] = {
        (STORAGE, pool.name): pool.storage.size for pool in spec.pools
    } | {(CONTAINER, None): spec.container.storage.size}
    for claim in claims:
        labels = labels_of(claim)
        size = sizes.get((labels.get(COMPONENT_LABEL), labels.get(POOL_LABEL)))
        asked = claim["spec"]["resources"]["requests"]["storage"]
        if size is not None and quantity_bytes(asked) < quantity_bytes(size):
            yield claim, size


def classes_of(spec: StorageClusterSpec, claims: Iterable[Manifest]) -> set[str]:
    """Return the storage classes of which it has to be known whether their volumes may grow."""
    return {str(claim["spec"]["storageClassName"]) for claim, _ in growing(spec, claims) if _class(claim)}


def growth(world: World) -> list[Patch]:
    """Return the actions that grow volumes: bound ones whose class allows expansion."""
    return [
        Patch(PVC, name_of(claim), {"spec": {"resources": {"requests": {"storage": size}}}})
        for claim, size in growing(world.cluster.spec, world.claims)
        if _bound(claim) and _may_grow(world, claim)
    ]


def volumes_resized(world: World) -> Fact:
    """Return whether all volumes have the size that their pools specify."""
    stuck = [claim for claim, _ in growing(world.cluster.spec, world.claims) if not _may_grow(world, claim)]
    if stuck:
        classes = sorted({_class(claim) or "(none)" for claim in stuck})
        message = (
            f"volumes of storage class {named(classes)} can't grow, among them {named(sorted(map(name_of, stuck)))}: "
            "set allowVolumeExpansion: true on the class if its driver can, or set storage.size back and add pods, or "
            "a pool of larger volumes"
        )
        return Fact("VolumesResized", "False", "ExpansionNotAllowed", message)
    waiting = [name_of(claim) for claim, _ in growing(world.cluster.spec, world.claims)]
    waiting += [name_of(claim) for claim in world.claims if _smaller(claim)]
    if waiting:
        message = f"{named(sorted(set(waiting)))} are being made larger; see the claims' events when it takes long"
        return Fact("VolumesResized", "False", "Resizing", message)
    return Fact("VolumesResized", "True", "AsAsked", "all volumes have the size that their pools specify")


def _smaller(claim: Manifest) -> bool:
    """Return whether the volume is not yet as large as its claim says."""
    has = ((claim.get("status") or {}).get("capacity") or {}).get("storage")
    asked = claim["spec"]["resources"]["requests"]["storage"]
    return _bound(claim) and has is not None and quantity_bytes(str(has)) < quantity_bytes(asked)


def _bound(claim: Manifest) -> bool:
    return (claim.get("status") or {}).get("phase") == "Bound"


def _class(claim: Manifest) -> str | None:
    return claim["spec"].get("storageClassName") or None


def _may_grow(world: World, claim: Manifest) -> bool:
    found = world.storage_classes.get(_class(claim) or "")
    # A claim that is not bound yet may still get its class.
    return bool(found is not None and found.get("allowVolumeExpansion")) or not _bound(claim)


def made_anew(world: World, wanted: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    """Return the StatefulSets that have to be deleted first, by name, each with what is deleted: the set, and its
    claims.
    """
    return {name_of(one): list(_with_claims(world, one)) for one in wanted if _class_differs(world, one)}


def _class_differs(world: World, wanted: Manifest) -> bool:
    live = world.child(STATEFUL_SET, name_of(wanted)) if kind_of(wanted) == STATEFUL_SET else None
    return live is not None and class_in(live) != class_in(wanted) and not has_volumes(world, name_of(wanted))


def _with_claims(world: World, wanted: Manifest) -> Iterator[Manifest]:
    live = world.child(STATEFUL_SET, name_of(wanted))
    assert live is not None
    yield from (one for one in (live, *claims_of_set(world, name_of(wanted))) if not is_going(one))
