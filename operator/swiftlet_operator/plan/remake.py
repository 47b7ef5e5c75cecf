"""StatefulSets whose storage class was corrected before there was any volume: they are made anew. Pure.

Kubernetes changes neither the class of a claim nor the templates of a StatefulSet. As long as no claim has a volume and
no pod a node there is nothing to lose; `swiftlet_operator.checks` refuses another class afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from swiftlet_operator.checks import claims_of_set, class_in, has_volumes
from swiftlet_operator.manifests import STATEFUL_SET, Manifest, is_going, kind_of, name_of
from swiftlet_operator.world import World


def made_anew(world: World, wanted: Iterable[Manifest]) -> dict[str, list[Manifest]]:
    """The StatefulSets that have to go first, by name, each with what is deleted: the set, and its claims."""
    return {name_of(one): list(_going(world, one)) for one in wanted if _differs(world, one)}


def _differs(world: World, wanted: Manifest) -> bool:
    live = world.child(STATEFUL_SET, name_of(wanted)) if kind_of(wanted) == STATEFUL_SET else None
    return live is not None and class_in(live) != class_in(wanted) and not has_volumes(world, name_of(wanted))


def _going(world: World, wanted: Manifest) -> Iterator[Manifest]:
    live = world.child(STATEFUL_SET, name_of(wanted))
    assert live is not None
    yield from (one for one in (live, *claims_of_set(world, name_of(wanted))) if not is_going(one))
