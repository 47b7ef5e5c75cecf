"""Which of the children that follow from the spec are applied now, and what has to be deleted or changed
before. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from swiftlet_operator.manifests import DEPLOYMENT, STATEFUL_SET, Manifest, kind_of, name_of
from swiftlet_operator.plan.actions import Patch
from swiftlet_operator.plan.rollout import cured, never_scheduled, paced, stamped, switched, turns, with_live_templates
from swiftlet_operator.plan.upgrades import Turn, Upgrade, past_timeout, upgrade
from swiftlet_operator.plan.volumes import made_anew
from swiftlet_operator.plan.workloads import Domain
from swiftlet_operator.world import World


@dataclass(frozen=True, slots=True)
class WorkloadChanges:
    """Changes of workloads. `wanted` are all children as they are to be in the end; `applied` those that are applied
    now.

    `patches` and `delete` (pods and StatefulSets that are made again) come before what is applied at the next look.
    """

    wanted: tuple[Manifest, ...]
    applied: tuple[Manifest, ...]
    upgrading: Upgrade
    patches: tuple[Patch, ...]
    delete: tuple[Manifest, ...]


def workload_changes(
    world: World,
    built: Sequence[Manifest],
    live: Mapping[str, Domain],
    *,
    has_data: bool,
    is_unsafe: bool,
    draining: str,
    turn: Turn,
) -> WorkloadChanges:
    """Return the changes for the manifests that were built, given what runs.

    `is_unsafe`: pods might not come back from a restart. `draining`: why no restart may begin. `turn`: the cluster's
    turn among all others.
    """
    wanted = [stamped(world, with_live_templates(world, one)) for one in built]
    waited = past_timeout(world, live)
    free = turns(world, wanted, waited, has_data, is_unsafe, draining)
    wanted = [paced(world, one, waited, free, has_data) for one in wanted]
    upgrading = upgrade(world, wanted, live, free.held, turn if has_data else None)
    anew = made_anew(world, wanted)
    switching = switched(world, wanted)
    left = {*upgrading.held, *anew, *switching}
    ending = {name_of(one): one for one in (*never_scheduled(world), *cured(world, wanted, waited, free, has_data))}
    return WorkloadChanges(
        wanted=tuple(wanted),
        applied=tuple(
            one for one in wanted if not (kind_of(one) in (STATEFUL_SET, DEPLOYMENT) and name_of(one) in left)
        ),
        upgrading=upgrading,
        patches=tuple(switching.values()),
        delete=(*ending.values(), *(one for going in anew.values() for one in going)),
    )
