"""In which order nodes work on a part of the queue: pure.

Every node puts all nodes into the same random order for each container of the queue. The first one works at once, the
next ones only on what is still there long after it was due: then those before them are away. Nobody asks anybody, and
two that work on the same thing do no harm.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection

TAKERS = 3
"""How many nodes of the order ever work on a container."""


def rank_of(container: str, nodes: Collection[str], mine: Collection[str]) -> int | None:
    """How many nodes come before the first of `mine`; None when it is none of ours. Nodes are `host:port`."""
    for rank, node in enumerate(sorted(nodes, key=lambda node: _order(container, node))[:TAKERS]):
        if node in mine:
            return rank
    return None


def _order(container: str, node: str) -> bytes:
    return hashlib.md5(f"{container} {node}".encode(), usedforsecurity=False).digest()
