"""Hashes above those of suffixes: the root of a partition, and one hash over the roots of many."""

from __future__ import annotations

from collections.abc import Sequence

from swiftlet_native import xxh3_128

from swiftlet.store import sethash

EMPTY_ROOT = sethash.root({})
"""The root of a partition that holds nothing."""


def over(roots: Sequence[bytes]) -> bytes:
    """Return one hash over the roots of several partitions in order; for a single partition it is the root itself."""
    return roots[0] if len(roots) == 1 else xxh3_128(b"".join(roots))
