"""Reads the versions that an object's devices hold, and merges them into one row.

Fault model: any device may be down, slow or behind; what one of them does not say makes a look incomplete, never wrong.
A copy may be on its way from a handoff to a primary: a complete look asks handoffs first, and then primaries once more,
so that it finds a copy that moves between the questions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

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


class Objects:
    """Reads versions of objects from their devices; each walk has one, in one event loop."""

    def __init__(self, transport: ObjectTransport, rings: Callable[[int], Ring], hash_path: HashPath) -> None:
        """`rings` returns the newest ring of a policy; Unavailable when there is none."""
        self._transport = transport
        self._rings = rings
        self._hash_path = hash_path
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def judge(self, path: Path, policy: int, row: ObjectRow | None) -> tuple[Verdict, Looked]:
        """Return the verdict on an object's row, and the look that it rests on. Raises Unavailable without a ring.

        Handoffs are asked only where the primaries' answers leave it undecided.
        """
        ring = self._rings(policy)
        digest = self._hash_path.of(path)
        key = ObjectKey(policy, ring.partition_of(digest), digest)
        primaries = ring.primaries(key.partition)
        looked = await self._look(primaries, key, path.obj or "")
        verdict = judge(row, looked.truth, False)
        if verdict is NoRepair.UNDECIDED and looked.complete:
            looked = await self._look_everywhere(ring, primaries, key, path.obj or "")
            verdict = judge(row, looked.truth, looked.complete)
        return verdict, looked

    async def _look_everywhere(self, ring: Ring, primaries: Sequence[Device], key: ObjectKey, name: str) -> Looked:
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
