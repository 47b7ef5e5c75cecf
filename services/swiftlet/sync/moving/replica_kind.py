"""Kinds of replicas that rounds keep equal: how their devices are asked, and how a difference is repaired."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from swiftlet.boundaries.objects import ObjectTransport, SyncTransport
from swiftlet.model import ObjectKey
from swiftlet.ring.model import Device
from swiftlet.sync.moving.copies import bring
from swiftlet.sync.moving.copy_batches import Outcome, bring_many
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.session.compare import Push
from swiftlet.sync.session.transfer_rules import TransferRules

Moved = Callable[[int], Awaitable[None]]
"""A function that is called with the size of each piece that was moved, and returns when the next one may go."""
Carry = Callable[[DevicePartitions, Device, Device, ObjectKey, Push, Moved], Awaitable[int]]
"""A function that brings what one entry stands for from one device to another; one of them is the replicator's own.

It returns how many bytes went, and raises the errors of `bring`.
"""
Size = Callable[[Device, ObjectKey], Awaitable[int]]
"""A function that returns the bytes of data of an object on a device; it raises SwiftletError."""
Many = Callable[[int, Device, Device, Sequence[tuple[int, Push]], Moved], Awaitable[list[Outcome]]]
"""A function that brings many objects of a policy, given with their partitions, as `bring_many` does."""


@dataclass(frozen=True, slots=True)
class ReplicaKind:
    """One kind of replicas that rounds keep equal.

    `transfer_rules` is None for the rules for objects; `begin` is called when a round begins.
    """

    transport: SyncTransport
    carry: Carry
    transfer_rules: TransferRules | None = None
    begin: Callable[[], None] = lambda: None
    many: Many | None = None
    """Handles many at once; None if they are handled one by one."""
    size: Size | None = None
    """None where entries have no size."""


def object_replicas(transport: ObjectTransport) -> ReplicaKind:
    """Return the kind of replicas that are objects, reached over `transport`."""

    async def carry(
        _own: DevicePartitions, source: Device, target: Device, key: ObjectKey, push: Push, moved: Moved
    ) -> int:
        return await bring(transport, source, target, key, push, moved)

    async def many(
        policy: int, source: Device, target: Device, pushes: Sequence[tuple[int, Push]], moved: Moved
    ) -> list[Outcome]:
        return await bring_many(transport, policy, source, target, pushes, moved)

    async def size(device: Device, key: ObjectKey) -> int:
        return (await transport.head(device, key)).size

    return ReplicaKind(transport, carry, many=many, size=size)
