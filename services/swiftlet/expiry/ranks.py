"""The order in which nodes work on a part of the queue. Pure.

Every node puts all nodes into the same random order for each container of the queue. The first one works at once, the
next ones only on tasks that are still there long after they were due: then those before them are away. Nodes do not
talk about it, and two that work on the same task do no harm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

TAKERS = 3
"""The number of nodes, from the first of the order, that ever work on a container."""


def rank_of(container: str, nodes: Collection[str], mine: Collection[str]) -> int | None:
    """Return how many nodes come before the first of `mine`; None if that is `TAKERS` or more. Nodes are
    `host:port`.
    """
    for rank, node in enumerate(sorted(nodes, key=lambda node: _order(container, node))[:TAKERS]):
        if node in mine:
            return rank
    return None


def _order(container: str, node: str) -> bytes:
    return hashlib.md5(f"{container} {node}".encode(), usedforsecurity=False).digest()
