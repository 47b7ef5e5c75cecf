"""How the audit reads objects with erasure coding: as clients do, by what a quorum of places says.

A single device can't say what an object is: its fragment may be of a version that never counted, or that is
overwritten. So each look is a read of the newest version without any of its bytes.

Fault model: that of reads. As many devices as there are parity fragments may be away, or have been replaced by empty
ones, and what they do not say makes no answer wrong. Before something that a row says is taken back, each device that
may have a fragment or a copy of the object, a handoff's included, has to say that it shows nothing newer. Whether small
objects of the policy are copies now is not asked: they may have been.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection

from swiftlet.boundaries.coded import COPIES, PLACES, CodedPlaces, CodedRepair, CodedTransport, TooFewFragments
from swiftlet.errors import NotFound, SwiftletError, Unavailable
from swiftlet.model import ObjectInfo, ObjectKey, ObjectRow
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Coding, Device
from swiftlet.sync.audit.looking import Looked

Head = Callable[[Device, ObjectKey], Awaitable[ObjectInfo]]
"""A function that describes a device's copy of an object. Raises NotFound with the tombstone's timestamp, NodeError."""
_AT_ONCE = 4
"""Objects that are read at a time, each from several devices."""


class Coded:
    """Behaves as `swiftlet.sync.audit.looking.Look` requires, for policies with erasure coding."""

    def __init__(
        self,
        transport: CodedTransport,
        repair: CodedRepair,
        head: Head,
        rings: Callable[[int], Ring],
        codings: Callable[[int], Coding | None],
    ) -> None:
        """`head` asks a device for its copy of a small object.

        `rings` and `codings` are asked for policies with erasure coding alone.
        """
        self._transport = transport
        self._repair = repair
        self._head = head
        self._rings = rings
        self._codings = codings
        self._gate = asyncio.Semaphore(_AT_ONCE)

    def partition_of(self, policy: int, digest: bytes) -> int:
        """Return the partition of the ring that an object is in."""
        return self._rings(policy).partition_of(digest)

    def walker(self, policy: int, partition: int, own: Collection[int]) -> int | None:
        """Return the device at the place that `partition` of a store is for, if that is the first one among `own`.

        One more place than there are parity fragments is walked, so that one is left whatever is lost. What a handoff
        has is looked up at its place.
        """
        ring, coding = self._rings(policy), self._coding(policy)
        partition, place = divmod(partition, PLACES)
        if partition >= ring.partition_count:
            return None
        at = [device.id for device in ring.primaries(partition)[: coding.parity + 1]]
        first = next((index for index, id in enumerate(at) if id in own), None)
        return None if first is None or place not in {first, COPIES} else at[first]

    async def stored(self, device: Device, key: ObjectKey) -> ObjectInfo:
        """Return the newest version of the object of a device's fragment."""
        return await self._newest(self._places(key.policy, key.partition // PLACES, key.digest))

    async def look(self, key: ObjectKey, name: str) -> Looked:
        """Return the newest version; incomplete when too few devices have answered."""
        try:
            info = await self._newest(self._places(key.policy, key.partition, key.digest))
        except NotFound as absence:
            deleted = absence.timestamp
            return Looked(None if deleted is None else ObjectRow(name, deleted, deleted=True), True)
        except SwiftletError:
            return Looked(None, False)
        return Looked(ObjectRow.of(name, info), True)

    async def look_everywhere(self, key: ObjectKey, name: str) -> Looked:
        """Return the newest version, complete when no device that may have a fragment shows something newer."""
        places = self._places(key.policy, key.partition, key.digest)
        devices = places.ring.may_hold(key.partition)
        answers = [await self._shown(device, places) for device in devices]
        looked = await self.look(key, name)
        shown = [timestamp for found in answers if found is not None for timestamp in found]
        newest = -1 if looked.truth is None else looked.truth.timestamp.value
        is_complete = None not in answers and all(timestamp <= newest for timestamp in shown)
        return Looked(looked.truth, looked.complete and is_complete)

    async def _shown(self, device: Device, places: CodedPlaces) -> list[int] | None:
        """Return the timestamps of what a device shows of the fragments of all places, and of its copy.

        None when it has not answered.
        """
        async with self._gate:
            try:
                found = await self._copied(device, places)
                for place in range(places.coding.fragments):
                    shown = await self._repair.show(device, places.key_at(place))
                    found += [] if shown is None else [shown.version[0]]
            except SwiftletError:
                return None
        return found

    async def _copied(self, device: Device, places: CodedPlaces) -> list[int]:
        """Return the timestamp of a device's copy or its tombstone; nothing when it has neither. Raises NodeError."""
        try:
            return [(await self._head(device, places.key_of_copies())).timestamp.value]
        except NotFound as absence:
            return [] if absence.timestamp is None else [absence.timestamp.value]

    async def _newest(self, places: CodedPlaces) -> ObjectInfo:
        """Read the newest version, and nothing of it. Raises NotFound and Unavailable."""
        async with self._gate:
            try:
                stream = await self._transport.get_coded(places, range(places.coding.fragments), 0, 0, has_small=True)
            except TooFewFragments as error:
                told = "; ".join(f"{device.name}: {why}" for device, why in error.refused)
                raise Unavailable(f"too few devices have answered ({told or 'the others have no fragment'})") from error
            await stream.close()
        return stream.info

    def _coding(self, policy: int) -> Coding:
        coding = self._codings(policy)
        assert coding is not None
        return coding

    def _places(self, policy: int, partition: int, digest: bytes) -> CodedPlaces:
        ring, coding = self._rings(policy), self._coding(policy)
        return CodedPlaces.in_ring(ObjectKey(policy, partition, digest), coding, ring, coding.parity)
