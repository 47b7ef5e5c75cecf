"""Brings the rows of objects that the front has stored or deleted to their containers, many at a time, as rows of all
writes.

A batch is one task and one update for each of the container's replicas, however many objects are in it, and those cost
much more than the objects. So stored objects wait a moment for those that devices are still storing. The clients of a
batch are answered together and mostly send their next requests together: so they get in step, and devices have more to
write with one sync, too.

Fault model: a container may be gone, or its servers silent. As after any other write the row then stays pending at the
devices, or the stored object is deleted again. When the answer is not simply success, Python gives it: the request is
handed over and executed again, which makes a newer version of the same, or a newer deletion. This process may die at
any moment: the rows stay pending at the devices, which bring them.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog
from swiftlet_native import Front

from swiftlet.api.context.core import SwiftApi
from swiftlet.errors import SwiftletError
from swiftlet.names import Path
from swiftlet.native_values import EncodedRows, Place, key_at, replicas_of, text
from swiftlet.placement.rings import Rings
from swiftlet.placement.rows.row_updates import StoredRows
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp

GATHER_S = 0.005
"""Seconds for which durable objects wait at most for those that devices still store; a single writer never waits."""
ENOUGH = 100
"""The number of objects that do not wait for others."""
MAX_ROWS = 200
MAX_BYTES = 256 << 10
"""The largest number of rows in an update, and the largest size of their bytes."""
FINISH_S = 5.0
"""Seconds for writes in progress at shutdown: longer than a write waits for devices and rows, unless most devices are
silent.
"""
ACKNOWLEDGE_S = 1.0
"""Seconds at shutdown until rows that the front has delivered are durable, and devices have heard of it. Else they are
delivered a second time.
"""
_LOOK_S = 0.01

_log = structlog.get_logger("front")


Delivered = Callable[[StoredRows, Sequence[Sequence[int]]], None]
"""Called with rows that were sent to all replicas of their container, and the slices of room that each takes a part
of.
"""
_Kind = tuple[bytes, tuple[int, ...], int]
"""What objects of one update have in common: container, shares and policy."""


@dataclass(slots=True)
class _Batch:
    """Objects of one container; see `swiftlet_native.Front.made` for the parts."""

    container: bytes
    shares: list[int]
    tokens: list[int]
    encoded: list[bytes]
    written: list[tuple[Place, int]]
    numbers: list[list[int]]
    parts: list[list[int]]
    kind: _Kind = field(init=False)
    bytes: int = field(init=False)

    def __post_init__(self) -> None:
        """Derive the kind of the batch and its size in bytes."""
        self.kind = self.container, tuple(self.shares), self.written[0][0][0]
        self.bytes = sum(map(len, self.encoded))

    def has_room_for(self, other: _Batch) -> bool:
        """Return whether both fit into one update."""
        return len(self.tokens) + len(other.tokens) <= MAX_ROWS and self.bytes + other.bytes <= MAX_BYTES

    def add(self, other: _Batch) -> None:
        """Add another batch of the same kind."""
        self.tokens += other.tokens
        self.encoded += other.encoded
        self.written += other.written
        self.numbers += other.numbers
        self.parts += other.parts
        self.bytes += other.bytes


class RowBatches:
    """Takes stored objects from one front and hands their rows to placement."""

    def __init__(self, front: Front, api: SwiftApi, rings: Rings, delivered: Delivered) -> None:
        """Begin without any stored objects; `delivered` is told of rows."""
        self._front = front
        self._delivered = delivered
        self._api = api
        self._rings = rings
        self._tasks: set[asyncio.Task[None]] = set()
        self._gathered: list[_Batch] = []
        self._last: dict[_Kind, _Batch] = {}
        """The last waiting batch of each kind."""
        self._rows = 0
        """The number of waiting rows."""
        self._listing = 0
        """The number of rows that are being listed."""
        self._later: asyncio.TimerHandle | None = None

    def take(self) -> None:
        """Take what the front has stored since the last call, and begin to list it unless waiting for more is
        worthwhile.

        It is not when devices are storing nothing more, after `GATHER_S`, or when `ENOUGH` objects are there.
        """
        for tokens, container, shares, encoded, written, numbers, parts in self._front.made():
            self._gather(_Batch(container, shares, tokens, [encoded], written, numbers, parts))
        if not self._gathered:
            return
        # Rows that the front is delivering itself come here at once if they come at all.
        with_devices = self._front.storing() - self._front.rows()["delivering"] - self._rows - self._listing
        if with_devices <= 0 or self._rows >= ENOUGH:
            self._begin()
        elif self._later is None:
            self._later = asyncio.get_running_loop().call_later(GATHER_S, self._begin)

    def _gather(self, more: _Batch) -> None:
        """Add objects to the waiting batch of the same container, as far as one update has room."""
        self._rows += len(more.tokens)
        last = self._last.get(more.kind)
        if last is not None and last.has_room_for(more):
            last.add(more)
        else:
            self._last[more.kind] = more
            self._gathered.append(more)

    def _begin(self) -> None:
        if self._later is not None:
            self._later.cancel()
            self._later = None
        gathered, self._gathered, self._rows = self._gathered, [], 0
        self._last.clear()
        for batch in gathered:
            stored = self._stored(batch)
            if stored is None:
                self._front.listed(batch.tokens, False)
                continue
            self._listing += len(batch.tokens)
            task = asyncio.ensure_future(self._list(batch.tokens, stored, batch.parts))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _stored(self, batch: _Batch) -> StoredRows | None:
        """Return the rows with the devices that stored them.

        None when the ring has changed, so that the devices are not known any more.
        """
        account, _, container = text(batch.container)[1:-1].partition("/")
        ring = self._rings.objects(batch.kind[2])
        devices = [_devices(ring, slots) for slots in batch.numbers]
        known = [slots for slots in devices if slots is not None]
        if len(known) < len(devices):
            return None
        rows = EncodedRows(len(batch.tokens), b",".join(batch.encoded))
        versions = [(key_at(place), Timestamp(stamp)) for place, stamp in batch.written]
        return StoredRows(account, container, rows, [replicas_of(bits) for bits in batch.shares], versions, known)

    async def _list(self, tokens: list[int], stored: StoredRows, parts: list[list[int]]) -> None:
        repeated = set(tokens)
        """The requests that Python has to execute again."""
        try:
            if await self._api.objects.by_policy.list_stored(stored):
                # A deletion succeeds in a container that is gone, too.
                repeated = {token for token, row in zip(tokens, stored.rows, strict=True) if not row.deleted}
                await self._undo(stored)
            else:
                repeated = set()
                if any(parts):
                    self._delivered(stored, parts)
        except SwiftletError as error:
            _log.info(
                "rows of writes were not listed; Python repeats the writes",
                container=stored.container,
                writes=len(tokens),
                error=str(error),
            )
        finally:
            self._listing -= len(tokens)
            for is_listed in (True, False):
                told = [token for token in tokens if (token not in repeated) == is_listed]
                if told:
                    self._front.listed(told, is_listed)

    async def _undo(self, stored: StoredRows) -> None:
        """Delete the stored objects again, because the container was removed by another process."""
        api = self._api
        api.containers.forget(stored.account, stored.container)
        for row, (key, _) in zip(stored.rows, stored.written, strict=True):
            if row.deleted:
                continue
            path = Path(stored.account, stored.container, row.name)
            await api.objects.delete(path, key.policy, api.clock.next())

    async def finish(self, patience_s: float = FINISH_S) -> None:
        """Wait until no object is being stored or listed; the front begins no further writes.

        Devices that have not heard by then of rows that the front has delivered get a moment for that.
        """
        await _until(lambda: not self._front.storing() and not self._tasks, patience_s)
        await _until(self._is_acknowledged, ACKNOWLEDGE_S)

    def _is_acknowledged(self) -> bool:
        """Whether devices have heard of all rows that the front has delivered."""
        rows = self._front.rows()
        return not rows["not_durable"] and not rows["acknowledging"]


async def _until(holds: Callable[[], bool], patience_s: float) -> None:
    """Wait until another thread has made it true, at most this long."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(patience_s):
            while not holds():  # noqa: ASYNC110 - another thread makes it true
                await asyncio.sleep(_LOOK_S)


def _devices(ring: Ring, numbers: list[int]) -> list[Device] | None:
    found = [ring.devices[number] if number < len(ring.devices) else None for number in numbers]
    devices = [device for device in found if device is not None]
    return devices if len(devices) == len(numbers) else None
