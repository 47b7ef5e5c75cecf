"""Brings many small objects from one device to another at a time: one question to the source, its copies to the target.

The receiving device checks what arrives against its checksums, refuses what is older than what it has, and answers for
each object once all are durable.

Fault model: either device may fail in the middle: what was taken stays, and may be brought once more. An object that is
not given, because it is large, damaged or gone, has to be brought alone by the caller; that shows the reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.errors import SwiftletError
from swiftlet.ring.model import Device
from swiftlet.sync.moving.copies_wire import (
    Wanted,
    copies_bytes,
    given_from,
    outcomes_from,
    tombstone_bytes,
    wanted_bytes,
)
from swiftlet.sync.session.answers import PackedPushes, needs_of
from swiftlet.sync.session.compare import Need, Push

Outcome = int | SwiftletError | None
"""The bytes of data that were sent, the error of one that failed, or None for one that has to travel alone."""


async def bring_many(
    transport: ObjectTransport,
    policy: int,
    source: Device,
    target: Device,
    pushes: Sequence[tuple[int, Push]],
    moved: Callable[[int], Awaitable[None]],
) -> list[Outcome]:
    """Bring what `target` lacks of up to `MAX_OBJECTS` objects, given with their partitions; return the outcome of
    each.

    `moved` is called with the size of each message, and returns when the next one may go. Raises NodeError and its
    subclasses, and WireError.
    """
    outcomes: list[Outcome] = [None] * len(pushes)
    needs = needs_of(pushes)
    deleted = [index for index, need in enumerate(needs) if need is Need.TOMBSTONE]
    waiting = [index for index, need in enumerate(needs) if need is not Need.TOMBSTONE]
    question, tombstones = _asked_for(policy, pushes, deleted, waiting)
    while waiting or deleted:
        going: list[tuple[int, int]] = []
        copies = copies_bytes(policy, ())
        if waiting:
            given = given_from(await transport.read_copies(source, question), len(waiting))
            going = [(index, size) for index, size in zip(waiting, given.sizes, strict=False) if size is not None]
            waiting = waiting[len(given.sizes) :]
            copies = given.copies
            if waiting:
                question = wanted_bytes(policy, (_wanted(*pushes[index]) for index in waiting))
        going += [(index, 0) for index in deleted]
        copies += tombstones
        deleted, tombstones = [], b""
        if going:
            errors = outcomes_from(await transport.take_copies(target, copies), len(going))
            for (index, size), error in zip(going, errors, strict=True):
                outcomes[index] = size if error is None else error
            await moved(sum(size for index, size in going if isinstance(outcomes[index], int)))
    return outcomes


def _asked_for(
    policy: int, pushes: Sequence[tuple[int, Push]], deleted: Sequence[int], waiting: Sequence[int]
) -> tuple[bytes, bytes]:
    """Return the first question for copies, and the tombstones."""
    if isinstance(pushes, PackedPushes):
        return pushes.copies(policy)
    dead = [pushes[index] for index in deleted]
    tombstones = [tombstone_bytes(partition, one.entry.digest, one.entry.timestamp) for partition, one in dead]
    return wanted_bytes(policy, (_wanted(*pushes[index]) for index in waiting)), b"".join(tombstones)


def _wanted(partition: int, push: Push) -> Wanted:
    return Wanted(partition, push.entry.digest, push.need is Need.META)
