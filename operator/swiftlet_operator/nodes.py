"""Looks at nodes: whether others are about to be emptied than before.

Nodes are no children of anybody, and each of them changes all the time (its kubelet reports), so they are not watched.
The API server is asked for those that are cordoned, which it picks by itself, every few seconds, and for all of them
every minute, because of nodes that have a taint alone. Clusters are looked at anew when the answer is another one.

Fault model: the API server may be away or refuse: then the last answer stands. Each reconcile looks at nodes by itself.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Protocol

from swiftlet_operator.manifests import Manifest, name_of
from swiftlet_operator.plan.cordoned import is_leaving
from swiftlet_operator.problems import KubeError

CORDONED_S = 5.0
"""Seconds between looks at cordoned nodes: `kubectl drain` repeats a refused eviction after five."""
ALL_S = 60.0
"""Seconds between looks at all nodes."""

_log = logging.getLogger(__name__)


class Nodes(Protocol):
    """What is asked of an API server. Raises KubeError."""

    async def nodes(self, *, cordoned_only: bool) -> list[Manifest]:
        """All nodes, or those that are cordoned."""
        ...


def _is_cordoned(node: Manifest) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


async def follow_nodes(kube: Nodes, leads: Callable[[], bool], tell: Callable[[], None]) -> None:
    """Call `tell` when other nodes are about to be emptied than at the last look; until cancelled."""
    cordoned: frozenset[str] = frozenset()
    tainted: frozenset[str] = frozenset()
    all_due_at = 0.0
    while True:
        if leads():
            before = cordoned | tainted
            try:
                cordoned = frozenset(name_of(node) for node in await kube.nodes(cordoned_only=True))
                if time.monotonic() >= all_due_at:
                    every = await kube.nodes(cordoned_only=False)
                    tainted = frozenset(name_of(one) for one in every if is_leaving(one) and not _is_cordoned(one))
                    all_due_at = time.monotonic() + ALL_S
            except KubeError as error:
                _log.warning("nodes can't be looked at: %s", error)
            if cordoned | tainted != before:
                tell()
        await asyncio.sleep(CORDONED_S)
