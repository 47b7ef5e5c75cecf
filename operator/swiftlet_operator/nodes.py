"""Watches nodes, and notices when other ones than before are about to be emptied.

Nodes are not children of clusters, and each changes all the time (its kubelet reports), so they are not watched through
the API. The API server is asked every few seconds for those that are cordoned, which it selects by itself, and every
minute for all of them, because of nodes that only have a taint. Clusters are reconciled when the answer has changed.

Fault model: the API server may be away or refuse: then the last answer stays. Each reconcile reads nodes by itself.
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
"""Seconds between requests for cordoned nodes; `kubectl drain` repeats a refused eviction after five."""
ALL_S = 60.0
"""Seconds between requests for all nodes."""

_log = logging.getLogger(__name__)


class Nodes(Protocol):
    """The requests of this module to an API server. They raise KubeError."""

    async def nodes(self, *, cordoned_only: bool) -> list[Manifest]:
        """Return all nodes, or those that are cordoned."""
        ...


def _is_cordoned(node: Manifest) -> bool:
    return bool((node.get("spec") or {}).get("unschedulable"))


async def follow_nodes(kube: Nodes, leads: Callable[[], bool], tell: Callable[[], None]) -> None:
    """Call `tell` when other nodes than at the last look are about to be emptied; until cancelled."""
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
                _log.warning("nodes can't be read: %s", error)
            if cordoned | tainted != before:
                tell()
        await asyncio.sleep(CORDONED_S)
