"""Finds which replica of a partition a device of this server holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device

IsLocal = Callable[[Device], bool]
"""A function that tells whether a device of the ring is this server's; devices of other servers may have the same
names.
"""
CurrentRing = Callable[[], Ring]
"""A function that returns the newest ring that is loaded."""


def own_index(holders: Sequence[Device], device: str, is_local: IsLocal) -> int | None:
    """Return the replica number of this server's `device` among a partition's holders; None for a handoff."""
    for index, holder in enumerate(holders):
        if holder.device == device and is_local(holder):
            return index
    return None


def holders_of(ring: Ring, partition: int) -> tuple[Device, ...]:
    """Return the partition's holders; none for a partition that the ring does not have."""
    return ring.primaries(partition) if partition < ring.partition_count else ()
