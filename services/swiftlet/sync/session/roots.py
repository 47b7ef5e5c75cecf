"""Hashes above the suffixes: a partition's root, and one hash over the roots of many."""

from __future__ import annotations

from collections.abc import Sequence

from swiftlet_native import xxh3_128

from swiftlet.store import sethash

EMPTY_ROOT = sethash.root({})
"""The root of a partition in which nothing is."""


def over(roots: Sequence[bytes]) -> bytes:
    """One hash over roots in the order of their partitions; of a single one the root itself."""
    return roots[0] if len(roots) == 1 else xxh3_128(b"".join(roots))
