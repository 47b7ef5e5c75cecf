"""Containers that move to another policy: a phase is set as the mover sets it, one after the other."""

from __future__ import annotations

from swiftlet.placement.tests.cluster import ACCOUNT, CONTAINER, MemoryCluster, at
from swiftlet.policy_moves import ITEM, Phase, PolicyMove


async def bring(
    cluster: MemoryCluster, phase: Phase | None, container: str = CONTAINER, source: int = 0, target: int = 1
) -> None:
    """Bring the databases of a container to a phase."""
    info = await cluster.listings.container_info(ACCOUNT, container)
    phases = list(Phase)
    begun = phases.index(info.move.phase) + 1 if info.move else 0
    for second, one in enumerate(phases[begun:] if phase else (), 500 + begun):
        move = PolicyMove(source, target, one, at(second), info.created)
        await cluster.listings.post_container(ACCOUNT, container, at(second), {ITEM: move.text()})
        if one is phase:
            break
