"""Objects with their replicas: quorum writes, reads that take the first good copy, streamed uploads.

This is between what knows why (the API, a client with direct access) and the transport (which knows one device). A
caller gets one answer or one domain error: NotFound, Superseded, Unavailable. Clients have it in their wheel: it
imports nothing that only services have, such as metrics.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from swiftlet.boundaries.objects import (
    ContainerUpdate,
    GetStream,
    PutStream,
    ReplicaTransport,
    SentWrite,
    WriteReply,
    WriteTransport,
)
from swiftlet.errors import GuestRefused, NotFound, SwiftletError, Unavailable, Unproved
from swiftlet.model import ObjectInfo, ObjectKey, ObjectRow, PostRecord, PutFooter, PutRecord
from swiftlet.names import HashPath, Path
from swiftlet.placement.fanout import Outcome, SlotRunner, finish_sent, read_each, write_all
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.outcomes import Written, acknowledged, refusal, row_of
from swiftlet.placement.owed import OwedRows
from swiftlet.placement.plan import ANYWHERE, Place, ReadPlan, plan_read, plan_write
from swiftlet.placement.rings import ObjectRings
from swiftlet.placement.transfers import Download, Upload
from swiftlet.ring.model import Device
from swiftlet.timestamp import ZERO, Timestamp

T = TypeVar("T")
Send = Callable[[WriteTransport, Sequence[Device], Sequence[ContainerUpdate]], Awaitable[SentWrite | None]]
"""Sends a write to devices, each with its row."""


@dataclass(slots=True)
class Bound:
    """The oldest version that a read may return: the newest version known, and any deletion that it finds
    on its way.
    """

    newest: tuple[Timestamp, Timestamp] = (ZERO, ZERO)
    deleted: Timestamp = ZERO

    def met(self, absence: NotFound) -> None:
        """Note that a device does not have the object."""
        if absence.timestamp is not None:
            self.deleted = max(self.deleted, absence.timestamp)

    def check(self, info: ObjectInfo, version: Timestamp | None = None) -> None:
        """Raise NotFound or OtherVersion unless this version may be returned."""
        if info.timestamp <= self.deleted:
            raise NotFound(f"{info.name} was deleted at {self.deleted}", self.deleted)
        if _age(info) < self.newest or version not in (None, info.timestamp):
            raise OtherVersion(f"the device has version {info.modified} of the object, not the requested one")


class OtherVersion(SwiftletError):
    """A device has another version of the object than the requested one, which may exist all the same."""


class TooLate(SwiftletError):
    """A device was ready for an upload only after its first bytes had been sent."""


class MissedWrites(Protocol):
    """What devices have missed of writes that were acknowledged without them."""

    def note(self, device: Device, policy: int, partition: int) -> None:
        """Note that a write of the partition was acknowledged, or may be, without this device."""
        ...

    def behind(self, policy: int, partition: int) -> frozenset[int]:
        """Return the ids of devices that missed something of a partition and do not know it yet."""
        ...

    def waits(self, device: Device) -> bool:
        """Return whether a device has missed something and does not know it yet."""
        ...


class ReplicatedObjects:
    """The objects of all policies, wherever their replicas are."""

    def __init__(
        self,
        rings: ObjectRings,
        transport: ReplicaTransport,
        rows: OwedRows,
        hash_path: HashPath,
        health: NodeHealth,
        missed: MissedWrites,
        post_quorum_wait_s: float = 0.5,
        write_timeout_s: float = 10.0,
        place: Place = ANYWHERE,
        writes: WriteTransport | None = None,
    ) -> None:
        """Copies near `place` are read first. `write_timeout_s` bounds how long one replica may hold up a streamed
        chunk before it is dropped. With `writes` small objects and deletions are sent to all devices at once.
        """
        self._rings = rings
        self._transport = transport
        self._rows = rows
        self._hash_path = hash_path
        self._health = health
        self._post_quorum_wait_s = post_quorum_wait_s
        self._write_timeout_s = write_timeout_s
        self._missed = missed
        self._writes = writes
        self.place = place

    def key(self, path: Path, policy: int) -> ObjectKey:
        """Return the object's place in the policy's current ring."""
        digest = self._hash_path.of(path)
        return ObjectKey(policy, self._rings.objects(policy).partition_of(digest), digest)

    async def put(self, path: Path, policy: int, record: PutRecord, body: bytes, footer: PutFooter) -> Written:
        """Store a small object. Raises Superseded when a quorum has a newer version, and Unavailable
        without a quorum.
        """
        key = self.key(path, policy)

        async def operation(device: Device, row: ContainerUpdate) -> WriteReply:
            return await self._transport.put(device, key, record, body, footer, row)

        async def send(
            writes: WriteTransport, devices: Sequence[Device], rows: Sequence[ContainerUpdate]
        ) -> SentWrite | None:
            return await writes.put_all(devices, key, record, body, footer, rows)

        return await self._write(path, key, record.timestamp, operation, row_of(path, record, footer), send)

    async def post(self, path: Path, policy: int, record: PostRecord) -> Written:
        """Replace metadata. Raises NotFound, Superseded and Unavailable."""
        key = self.key(path, policy)

        async def operation(device: Device, row: ContainerUpdate) -> WriteReply:
            return await self._transport.post(device, key, record, row, proved=True)

        return await self._write(path, key, record.timestamp, operation)

    async def delete(self, path: Path, policy: int, timestamp: Timestamp) -> Written:
        """Delete an object; the result's `existed` tells whether there was one. Raises Superseded and Unavailable."""
        key = self.key(path, policy)

        async def operation(device: Device, row: ContainerUpdate) -> WriteReply:
            return await self._transport.delete(device, key, timestamp, str(path), row)

        async def send(
            writes: WriteTransport, devices: Sequence[Device], rows: Sequence[ContainerUpdate]
        ) -> SentWrite | None:
            return await writes.delete_all(devices, key, timestamp, str(path), rows)

        row = ObjectRow(path.obj or "", timestamp, deleted=True)
        return await self._write(path, key, timestamp, operation, row, send)

    async def _write(
        self,
        path: Path,
        key: ObjectKey,
        timestamp: Timestamp,
        operation: Callable[[Device, ContainerUpdate], Awaitable[WriteReply]],
        row: ObjectRow | None = None,
        send: Send | None = None,
    ) -> Written:
        """Run a write; with `row` None the row depends on what devices hold, and is read from those that have it
        pending. `send` sends it to all devices at once.
        """
        plan = plan_write(self._rings.objects(key.policy), key.partition, self._health.suppressed)
        delivery = self._rows.delivery(path, key, timestamp, len(plan.slots))
        sent: SentWrite | None = None
        if send is not None and self._writes is not None:
            sent = await send(self._writes, plan.slots, [delivery.share(index) for index in range(len(plan.slots))])

        async def told(index: int, device: Device) -> WriteReply:
            if sent is not None and device is plan.slots[index]:
                reply = await sent.reply(index)
            else:
                reply = await operation(device, delivery.share(index))
            delivery.replied(index, device, reply)
            return reply

        def begin() -> None:
            if row is not None:
                delivery.begin(row)

        if sent is not None:
            outcome = await finish_sent(
                plan, sent, told, delivery.replied, self._health, self._post_quorum_wait_s, begin
            )
        else:
            outcome = await write_all(plan, told, self._health, self._post_quorum_wait_s, begin)
        self._note_missed(key, outcome)
        existed = acknowledged(outcome, plan.quorum, str(path))
        missing = await delivery.finish(row, functools.partial(self._row_as_it_is, path, key))
        return Written(existed, missing)

    def _note_missed(self, key: ObjectKey, outcome: Outcome[WriteReply]) -> None:
        """Remember which primaries have not confirmed a write that some device has."""
        if not outcome.replies:
            return
        done = {device.id for _, device, _ in outcome.replies}
        done.update([device.id for device, _ in outcome.refusals])
        for device in self._rings.objects(key.policy).primaries(key.partition):
            if device.id not in done:
                self._missed.note(device, key.policy, key.partition)

    async def _row_as_it_is(self, path: Path, key: ObjectKey, devices: list[Device]) -> ObjectRow:
        """Return the row of the newest object on these devices, or raise the error of one of them when none answers."""
        answers = await asyncio.gather(
            *(self._transport.head(device, key) for device in devices), return_exceptions=True
        )
        infos = [answer for answer in answers if isinstance(answer, ObjectInfo)]
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        odd = [error for error in errors if not isinstance(error, SwiftletError)]
        if odd or not infos:
            raise (odd or errors)[0]
        return functools.reduce(ObjectRow.merged, (ObjectRow.of(path.obj or "", info) for info in infos))

    async def upload(self, path: Path, policy: int, record: PutRecord, size: int | None) -> Upload:
        """Begin a streamed object; return when a quorum of devices is ready for its bytes."""
        key = self.key(path, policy)
        plan = plan_write(self._rings.objects(policy), key.partition, self._health.suppressed)
        delivery = self._rows.delivery(path, key, record.timestamp, len(plan.slots))
        runner: SlotRunner[PutStream] = SlotRunner(plan, self._health)
        begun = asyncio.Event()

        async def operation(index: int, device: Device) -> PutStream:
            if begun.is_set():
                raise TooLate("the first bytes have already been sent to the other devices")
            stream = await self._transport.open_put(device, key, record, size, delivery.share(index))
            if begun.is_set():
                await stream.abort()
                raise TooLate("the device was ready too late: the first bytes had already been sent to the others")
            return stream

        try:
            outcome = await runner.run(operation, post_quorum_wait_s=self._write_timeout_s)
        except BaseException:
            await asyncio.gather(*(stream.abort() for _, _, stream in runner.outcome.replies))
            raise
        begun.set()

        new_row = functools.partial(row_of, path, record)
        note = functools.partial(self._note_missed, key)
        upload = Upload(str(path), outcome, plan.quorum, self._health, self._write_timeout_s, delivery, new_row, note)
        if len(outcome.replies) < plan.quorum:
            await upload.abort()
            raise refusal(outcome, plan.quorum, str(path))
        return upload

    async def head(self, path: Path, policy: int, newest: bool = False) -> ObjectInfo:
        """Return the description of an object: of the first replica that has it, or with `newest` of the
        newest of all.
        """
        key = self.key(path, policy)
        if newest:
            return (await self._newest(path, key))[0]

        bound = Bound()

        async def operation(device: Device, proved: bool) -> ObjectInfo:
            info = await self._transport.head(device, key, proved=proved)
            bound.check(info)
            return info

        return await self._first_copy(path, key, operation, bound)

    async def get(
        self,
        path: Path,
        policy: int,
        start: int = 0,
        stop: int | None = None,
        newest: bool = False,
        version: Timestamp | None = None,
    ) -> Download:
        """Open bytes `[start, stop)` of an object, or of one `version` of it only. Raises NotFound and Unavailable.

        A range beyond the end opens and is empty: the caller sees the size in `info`.
        """
        key = self.key(path, policy)
        bound = Bound(_age((await self._newest(path, key))[0])) if newest else Bound()

        async def operation(device: Device, proved: bool) -> tuple[Device, GetStream]:
            stream = await self._transport.get(device, key, start, stop, proved=proved and not newest)
            try:
                bound.check(stream.info, version)
            except SwiftletError:
                await stream.close()
                raise
            return device, stream

        device, stream = await self._first_copy(path, key, operation, bound)
        return Download(self, key, device, stream, start, stop)

    def is_suppressed(self, device: Device) -> bool:
        """Return whether others are asked before a device: it failed lately, or does not know yet what it missed."""
        return self._health.suppressed(device) or self._missed.waits(device)

    def failed(self, device: Device) -> None:
        """Remember that a device failed in the middle of a read."""
        self._health.failed(device)

    async def reopen(
        self, key: ObjectKey, info: ObjectInfo, start: int, stop: int, without: set[int]
    ) -> tuple[Device, GetStream]:
        """Open the same version on another device, from byte `start` on. Raises Unavailable when none is left."""
        ring = self._rings.objects(key.policy)
        plan = plan_read(ring, key.partition, self._health.suppressed, place=self.place)

        async def operation(device: Device) -> tuple[Device, GetStream]:
            stream = await self._transport.get(device, key, start, stop)
            if stream.info.timestamp != info.timestamp:
                await stream.close()
                raise OtherVersion(
                    f"the device has version {stream.info.timestamp} of the object, not the one being read"
                )
            return device, stream

        rest = tuple(device for device in plan.devices if device.id not in without)
        others = ReadPlan((), plan.quorum, lambda: (rest, plan.handoffs))
        outcome = await read_each(others, operation, self._health, lambda o: bool(o.replies))
        if not outcome.replies:
            raise outcome.unavailable(info.name, 1)
        return outcome.replies[0][2]

    async def _newest(self, path: Path, key: ObjectKey, strict: bool = True) -> tuple[ObjectInfo, list[Device]]:
        """Return the newest version that any replica has, and the devices that have it.

        A quorum of the primaries must answer. Handoffs are asked too, as an acknowledged write may be mostly there; but
        a handoff may be older than all primaries, so it can't stand in for one. Unless `strict`, tombstones of handoffs
        count as well, and any device that has the object is believed.
        """
        plan = plan_read(self._rings.objects(key.policy), key.partition)
        devices = plan.devices
        answers = await asyncio.gather(
            *(self._transport.head(device, key) for device in devices), return_exceptions=True
        )
        found = [(a, d) for a, d in zip(answers, devices, strict=True) if isinstance(a, ObjectInfo)]
        gone = [a.timestamp for a in answers if isinstance(a, NotFound) and a.timestamp is not None]
        odd = [a for a in answers if isinstance(a, BaseException) and not isinstance(a, SwiftletError)]
        # A refusal of a guest is about the request, not about what a device has.
        odd += [a for a in answers if isinstance(a, GuestRefused)]
        if odd:
            raise odd[0]
        primary = [a for a, d in zip(answers, devices, strict=True) if d.id not in plan.handoffs]
        answered = sum(isinstance(a, ObjectInfo | NotFound) for a in primary)
        handoff = [a for a, d in zip(answers, devices, strict=True) if d.id in plan.handoffs]
        buried = sum(isinstance(a, NotFound) and a.timestamp is not None for a in handoff)
        if answered < plan.quorum and (strict or not (found or answered + buried >= plan.quorum)):
            raise Unavailable(
                f"{path}: {answered} of {len(primary)} replicas answered, too few to know the newest version"
            )
        if not found or (gone and max(gone) >= max(info.timestamp for info, _ in found)):
            raise NotFound(f"{path} does not exist", max(gone, default=None))
        newest = max((info for info, _ in found), key=_age)
        return newest, [device for info, device in found if _age(info) == _age(newest)]

    async def _first_copy(
        self, path: Path, key: ObjectKey, operation: Callable[[Device, bool], Awaitable[T]], bound: Bound
    ) -> T:
        behind = self._health.behind() | self._missed.behind(key.policy, key.partition)
        ring = self._rings.objects(key.policy)
        plan = plan_read(ring, key.partition, self._health.suppressed, behind=behind, place=self.place)

        async def bounded(device: Device) -> T:
            if device.id in self._missed.behind(key.policy, key.partition):
                raise Unproved(f"{device.name} has missed a write of the partition")
            try:
                return await operation(device, True)
            except NotFound as absence:
                bound.met(absence)
                raise

        outcome = await read_each(plan, bounded, self._health, lambda o: bool(o.replies))
        if outcome.replies:
            return outcome.replies[0][2]
        absent = outcome.refused_by(NotFound)
        if len(absent) >= plan.quorum:
            raise NotFound(f"{path} does not exist", max((e.timestamp for e in absent if e.timestamp), default=None))
        if outcome.unproved:
            return await self._newest_copy(path, key, operation, bound)
        raise outcome.unavailable(str(path), plan.quorum)

    async def _newest_copy(
        self, path: Path, key: ObjectKey, operation: Callable[[Device, bool], Awaitable[T]], bound: Bound
    ) -> T:
        """Run a read on a device with the newest version, when no device is left that can't have missed anything."""
        info, devices = await self._newest(path, key, strict=False)
        bound.newest = max(bound.newest, _age(info))
        outcome = await read_each(
            ReadPlan(devices, 1), lambda device: operation(device, False), self._health, lambda o: bool(o.replies)
        )
        if not outcome.replies:
            raise outcome.unavailable(str(path), 1)
        return outcome.replies[0][2]


def _age(info: ObjectInfo) -> tuple[Timestamp, Timestamp]:
    """Return the key by which a newer replica sorts after an older one: its data first, then its metadata."""
    return info.timestamp, info.meta_timestamp
