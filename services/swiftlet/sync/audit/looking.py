"""Reads the versions that an object's devices hold, and merges them into one row.

Fault model: any device may be down, slow or behind; what one of them does not say makes a look incomplete, never wrong.
A copy may be on its way from a handoff to a primary: a complete look asks handoffs first, and then primaries once more,
so that it finds a copy that moves between the questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Protocol

from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.errors import NotFound, SwiftletError
from swiftlet.model import ObjectInfo, ObjectKey, ObjectRow
from swiftlet.names import HashPath, Path
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.audit.verdict import NoRepair, Verdict, judge

_AT_ONCE = 16
"""Requests to object devices under way at a time."""


@dataclass(frozen=True, slots=True)
class Looked:
    """The row that results from the answers of the devices (None for no object), and whether all of them answered."""

    truth: ObjectRow | None
    complete: bool


class Look(Protocol):
    """Reads the versions of objects from their devices. All methods raise Unavailable for a policy without a ring."""

    def partition_of(self, policy: int, digest: bytes) -> int:
        """Return the partition of the ring that an object is in."""
        ...

    def walker(self, policy: int, partition: int, own: Collection[int]) -> int | None:
        """Return the device that looks up what is in a partition of its store, of those with the ids `own`; None when
        other devices do.
        """
        ...

    async def stored(self, device: Device, key: ObjectKey) -> ObjectInfo:
        """Return the object of an entry of a device, `key` as it is in its store. Raises NotFound and SwiftletError."""
        ...

    async def look(self, key: ObjectKey, name: str) -> Looked:
        """Return what the devices say that an object is read from."""
        ...

    async def look_everywhere(self, key: ObjectKey, name: str) -> Looked:
        """Return what all devices say that may have something of an object."""
        ...


class Objects:
    """Gives verdicts on rows by the versions that devices hold; each walk has one, in one event loop."""

    def __init__(self, looks: Callable[[int], Look], hash_path: HashPath) -> None:
        """`looks` returns how objects of a policy are read."""
        self.looks = looks
        self._hash_path = hash_path

    async def judge(self, path: Path, policy: int, row: ObjectRow | None) -> tuple[Verdict, Looked]:
        """Return the verdict on an object's row, and the look that it rests on. Raises Unavailable without a ring.

        Handoffs are asked only where the answers of a read leave it undecided.
        """
        look, digest, name = self.looks(policy), self._hash_path.of(path), path.obj or ""
        key = ObjectKey(policy, look.partition_of(policy, digest), digest)
        looked = await look.look(key, name)
        verdict = judge(row, looked.truth, False)
        if verdict is NoRepair.UNDECIDED and looked.complete:
            looked = await look.look_everywhere(key, name)
            verdict = judge(row, looked.truth, looked.complete)
        return verdict, looked


class Copies:
    """Behaves as `Look` requires, for policies with whole objects."""

    def __init__(self, transport: ObjectTransport, rings: Callable[[int], Ring]) -> None:
        """`rings` returns the newest ring of a policy; Unavailable when there is none."""
        self._transport = transport
        self._rings = rings
        self._gate = asyncio.Semaphore(_AT_ONCE)

    def partition_of(self, policy: int, digest: bytes) -> int:
        """Return the partition of the ring that an object is in."""
        return self._rings(policy).partition_of(digest)

    def walker(self, policy: int, partition: int, own: Collection[int]) -> int | None:
        """Return the first primary among `own`, so that each replicator looks at a partition once."""
        return next((one.id for one in self._rings(policy).primaries(partition) if one.id in own), None)

    async def stored(self, device: Device, key: ObjectKey) -> ObjectInfo:
        """Return the object as the device has it."""
        return await self._transport.head(device, key)

    async def look(self, key: ObjectKey, name: str) -> Looked:
        """Return what the primaries say."""
        return await self._look(self._rings(key.policy).primaries(key.partition), key, name)

    async def look_everywhere(self, key: ObjectKey, name: str) -> Looked:
        """Return what handoffs say, and then the primaries."""
        ring = self._rings(key.policy)
        primaries = ring.primaries(key.partition)
        handoffs = [device for device in ring.may_hold(key.partition) if device not in primaries]
        aside = await self._look(handoffs, key, name)
        again = await self._look(primaries, key, name)
        return Looked(_merged([aside.truth, again.truth]), aside.complete and again.complete)

    async def _look(self, devices: Sequence[Device], key: ObjectKey, name: str) -> Looked:
        answers = await asyncio.gather(*(self._ask(device, key, name) for device in devices))
        return Looked(
            _merged([answer for answer in answers if not isinstance(answer, SwiftletError)]),
            not any(isinstance(answer, SwiftletError) for answer in answers),
        )

    async def _ask(self, device: Device, key: ObjectKey, name: str) -> ObjectRow | SwiftletError | None:
        async with self._gate:
            try:
                info: ObjectInfo = await self._transport.head(device, key)
            except NotFound as absence:
                deleted = absence.timestamp
                return None if deleted is None else ObjectRow(name, deleted, deleted=True)
            except SwiftletError as error:
                return error
        return ObjectRow.of(name, info)


def _merged(rows: Sequence[ObjectRow | None]) -> ObjectRow | None:
    known = [row for row in rows if row is not None]
    return reduce(ObjectRow.merged, known) if known else None
