"""Objects with their replicas: quorum writes, reads that take the first good copy, streamed uploads.

This is between what knows why (the API, a client with direct access) and the transport (which knows one device). A
caller gets one answer or one domain error: NotFound, Superseded, Unavailable. Clients have it in their wheel: it
imports nothing that only services have, such as metrics.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from swiftlet.boundaries.objects import (
    ContainerUpdate,
    GetStream,
    PutStream,
    ReplicaTransport,
    SentWrite,
    WriteReply,
    WriteTransport,
)
from swiftlet.errors import NotFound, SwiftletError, Unavailable
from swiftlet.model import ObjectInfo, ObjectKey, ObjectRow, PostRecord, PutFooter, PutRecord
from swiftlet.names import HashPath, Path
from swiftlet.placement.copies import Bound, Copies, MissedWrites, OtherVersion, WriteQuorums, age, majority
from swiftlet.placement.early import EarlySends, EarlyStream, EarlyUpload
from swiftlet.placement.fanout import Outcome, SlotRunner, finish_sent, read_each, write_all
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.hedges import Hedges
from swiftlet.placement.outcomes import Written, acknowledged, refusal, row_of
from swiftlet.placement.owed import OwedRow, OwedRows
from swiftlet.placement.plan import ANYWHERE, Place, ids_of
from swiftlet.placement.quorums import Quorum
from swiftlet.placement.rings import ObjectRings
from swiftlet.placement.transfers import Download, ReplicatedDownload, ReplicatedUpload, Upload
from swiftlet.placement.write_plan import Near, WritePlan, near_devices, plan_write, writes_near
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp

T = TypeVar("T")
Send = Callable[[WriteTransport, Sequence[Device], Sequence[ContainerUpdate]], Awaitable[SentWrite | None]]
"""Sends a write to devices, each with its row."""


class TooLate(SwiftletError):
    """A device was ready for an upload only after its first bytes had been sent."""


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
        quorums: WriteQuorums = majority,
        compared: Callable[[], None] = lambda: None,
        hedges: Hedges | None = None,
        writes: WriteTransport | None = None,
    ) -> None:
        """Copies near `place` are read first. `write_timeout_s` bounds how long one replica may hold up a streamed
        chunk before it is dropped. `quorums` tells what acknowledges writes; see `Copies` for `compared` and `hedges`.
        With `writes` small objects and deletions are sent to all devices at once.
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
        self.quorums = quorums
        self._copies = Copies(rings, transport, health, missed, place, quorums, compared, hedges)
        self.place = place

    def key(self, path: Path, policy: int) -> ObjectKey:
        """Return the object's place in the policy's current ring."""
        digest = self._hash_path.of(path)
        return ObjectKey(policy, self._rings.objects(policy).partition_of(digest), digest)

    def first_reader(self, key: ObjectKey) -> Device | None:
        """Return the device that a read asks first; None when that one may have missed something."""
        return self._copies.first_reader(key)

    def plan_write(self, key: ObjectKey) -> WritePlan:
        """Return the plan of a write. Raises Unavailable when a region that it needs has not answered lately."""
        return self._plan(key)

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

        return (await self._write(path, key, record.timestamp, operation, row_of(path, record, footer), send))[0]

    async def post(self, path: Path, policy: int, record: PostRecord) -> Written:
        """Replace metadata. Raises NotFound, Superseded and Unavailable."""
        key = self.key(path, policy)

        async def operation(device: Device, row: ContainerUpdate) -> WriteReply:
            return await self._transport.post(device, key, record, row, proved=True)

        if self._is_near(key):
            return await self._post_near(path, key, record.timestamp, operation)
        return (await self._write(path, key, record.timestamp, operation))[0]

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
        written, done = await self._write(path, key, timestamp, operation, row, send)
        if not written.existed and await self._copies.existed(path, key, timestamp, done):
            return replace(written, existed=True)
        return written

    def _plan(self, key: ObjectKey) -> WritePlan:
        """Return the plan of a write. Raises Unavailable when a region that it needs has not answered lately."""
        ring, quorum = self._rings.objects(key.policy), self.quorums(key.policy)
        plan = plan_write(ring, key.partition, self._health.suppressed, quorum, self.place)
        if plan.hopeless is not None:
            raise Unavailable(plan.hopeless)
        return plan

    def _is_near(self, key: ObjectKey) -> bool:
        """Return whether the copies of a write are made in this region."""
        return self.quorums(key.policy) == "local" and writes_near(self._rings.objects(key.policy), self.place)

    async def _write(
        self,
        path: Path,
        key: ObjectKey,
        timestamp: Timestamp,
        operation: Callable[[Device, ContainerUpdate], Awaitable[WriteReply]],
        row: ObjectRow | None = None,
        send: Send | None = None,
    ) -> tuple[Written, Sequence[Device]]:
        """Run a write, and return which devices have done it.

        With `row` None the row depends on what devices hold: it is made of what they answer, or read from those that
        have it pending. `send` sends the write to all devices at once.
        """
        plan = self._plan(key)
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
        row = row or _row_of_all(path, outcome)
        missing = await delivery.finish(row, functools.partial(self._row_as_it_is, path, key))
        return Written(existed, missing), outcome.done

    async def _post_near(
        self,
        path: Path,
        key: ObjectKey,
        timestamp: Timestamp,
        operation: Callable[[Device, ContainerUpdate], Awaitable[WriteReply]],
    ) -> Written:
        """Run a POST on the devices of this region, and on all others that may have the object when too few here do."""
        ring = self._rings.objects(key.policy)
        near = near_devices(ring, key.partition, self.place)
        here = (*near.primaries, *near.standing)
        primaries, holders = ring.primaries(key.partition), ring.may_hold(key.partition)
        handoffs = ids_of(holders) - ids_of(primaries)
        slots = {device.id: number % len(primaries) for number, device in enumerate(holders)}
        delivery = self._rows.delivery(path, key, timestamp, len(primaries))
        outcome: Outcome[WriteReply] = Outcome()
        for devices in (here, tuple(device for device in holders if device not in here)):
            plan = WritePlan(devices, near.quorum, lambda: ((), handoffs))
            told = _telling(delivery, operation, [slots[device.id] for device in devices])
            outcome.add(await write_all(plan, told, self._health, self._post_quorum_wait_s))
            # A primary here that has missed nothing and lacks it knows better than copies beside it.
            if near.quorum.met(outcome.done) and not outcome.refused_by(NotFound):
                break
        self._note_missed(key, outcome)
        if not near.quorum.met(outcome.done):
            raise self._post_refused(path, near, outcome)
        row = _row_of_all(path, outcome)
        return Written(True, await delivery.finish(row, functools.partial(self._row_as_it_is, path, key)))

    def _post_refused(self, path: Path, near: Near, outcome: Outcome[WriteReply]) -> SwiftletError:
        error = refusal(outcome, near.quorum, str(path))
        if isinstance(error, NotFound) and outcome.replies:
            # Some device has it: whoever has not has been brought nothing yet.
            return outcome.unavailable(str(path), near.quorum)
        absent = [device for device, refused in outcome.refusals if isinstance(refused, NotFound)]
        silent = [device for device, _ in (*outcome.troubles, *outcome.unproved)]
        here = [device for device in (*near.primaries, *near.standing) if device not in silent]
        if isinstance(error, Unavailable) and not outcome.done and near.proves_absence(absent, here):
            return NotFound(f"{path} does not exist in region {self.place.region}, and other regions can't be asked")
        return error

    def _note_missed(self, key: ObjectKey, outcome: Outcome[T]) -> None:
        """Remember which primaries have not confirmed a write that some device has.

        Those in other regions miss every write that is made in one, and get it from the replicators. One in this region
        that does not have what another region's devices have changed gets it from any of these, changed or not.
        """
        if not outcome.replies:
            return
        near = self._is_near(key)
        done = {device.id for _, device, _ in outcome.replies}
        done.update([device.id for device, error in outcome.refusals if not (near and isinstance(error, NotFound))])
        for device in self._rings.objects(key.policy).primaries(key.partition):
            if device.id not in done and (not near or device.region == self.place.region):
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
        return _merged(path, infos)

    async def begin_upload(self, path: Path, policy: int, record: PutRecord, size: int | None) -> Upload:
        """Begin a streamed object; its first bytes may be sent before devices have said that they take it."""
        return EarlyUpload(functools.partial(self._upload, path, policy, record, size))

    async def upload(self, path: Path, policy: int, record: PutRecord, size: int | None) -> Upload:
        """Begin a streamed object; return when a quorum of devices is ready for its bytes."""
        return await self._upload(path, policy, record, size)

    async def _upload(
        self, path: Path, policy: int, record: PutRecord, size: int | None, early: EarlySends | None = None
    ) -> ReplicatedUpload:
        key = self.key(path, policy)
        plan = self._plan(key)
        delivery = self._rows.delivery(path, key, record.timestamp, len(plan.slots))
        runner: SlotRunner[PutStream] = SlotRunner(plan, self._health)
        begun = asyncio.Event()

        async def operation(index: int, device: Device) -> PutStream:
            if begun.is_set():
                raise TooLate("the first bytes have already been sent to the other devices")
            stream = await self._open_put(device, key, (record, size, delivery.share(index)), early)
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
        upload = ReplicatedUpload(
            str(path), outcome, plan.quorum, self._health, self._write_timeout_s, delivery, new_row, note
        )
        if not plan.quorum.met(outcome.done):
            await upload.abort()
            if early is not None and early.is_finished:
                self._note_missed(key, outcome)
            raise refusal(outcome, plan.quorum, str(path))
        return upload

    async def _open_put(
        self,
        device: Device,
        key: ObjectKey,
        what: tuple[PutRecord, int | None, ContainerUpdate],
        early: EarlySends | None,
    ) -> PutStream:
        """Begin a large object on a device; return once it takes it. `early` is sent while it is asked."""
        if early is None:
            return await self._transport.open_put(device, key, *what)
        streams: list[EarlyStream] = []
        await self._transport.open_put(device, key, *what, lambda stream: streams.append(early.begin(stream)))
        (stream,) = streams
        if stream.failed is not None:
            await stream.abort()
            raise stream.failed
        return stream

    async def head(self, path: Path, policy: int, newest: bool = False) -> ObjectInfo:
        """Return the description of an object: of the first replica that has it, or with `newest` of the
        newest of all.
        """
        key = self.key(path, policy)
        if newest:
            return (await self._copies.newest(path, key))[0]

        bound = Bound()

        async def operation(device: Device, proved: bool) -> ObjectInfo:
            info = await self._transport.head(device, key, proved=proved)
            bound.check(info)
            return info

        return await self._copies.first(path, key, operation, bound)

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
        return await self.get_copy(path, policy, start, stop, newest, version)

    async def get_copy(
        self,
        path: Path,
        policy: int,
        start: int = 0,
        stop: int | None = None,
        newest: bool = False,
        version: Timestamp | None = None,
    ) -> ReplicatedDownload:
        """Do as `get` in a policy that has copies."""
        key = self.key(path, policy)
        bound = Bound(age((await self._copies.newest(path, key))[0])) if newest else Bound()

        async def operation(device: Device, proved: bool) -> tuple[Device, GetStream]:
            stream = await self._transport.get(device, key, start, stop, proved=proved and not newest)
            try:
                bound.check(stream.info, version)
            except SwiftletError:
                await stream.close()
                raise
            return device, stream

        async def discard(opened: tuple[Device, GetStream]) -> None:
            await opened[1].close()

        device, stream = await self._copies.first(path, key, operation, bound, discard)
        return ReplicatedDownload(self, key, device, stream, start, stop)

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

        async def operation(device: Device) -> tuple[Device, GetStream]:
            stream = await self._transport.get(device, key, start, stop)
            if stream.info.timestamp != info.timestamp:
                await stream.close()
                raise OtherVersion(
                    f"the device has version {stream.info.timestamp} of the object, not the one being read"
                )
            return device, stream

        others = self._copies.others(key, without)
        outcome = await read_each(others, operation, self._health, lambda o: bool(o.replies))
        if not outcome.replies:
            raise outcome.unavailable(info.name, Quorum(1))
        return outcome.replies[0][2]


def _row_of_all(path: Path, outcome: Outcome[WriteReply]) -> ObjectRow | None:
    """Return the row of the newest of what devices have told with their answers; None when none has."""
    infos = [reply.info for _, _, reply in outcome.replies if reply.info is not None]
    return _merged(path, infos) if infos else None


def _merged(path: Path, infos: Sequence[ObjectInfo]) -> ObjectRow:
    return functools.reduce(ObjectRow.merged, (ObjectRow.of(path.obj or "", info) for info in infos))


def _telling(
    delivery: OwedRow,
    operation: Callable[[Device, ContainerUpdate], Awaitable[WriteReply]],
    slots: Sequence[int],
) -> Callable[[int, Device], Awaitable[WriteReply]]:
    """Return the operation with the row that its device keeps, of whose answer the row's delivery is told.

    `slots` are those of the plan's slots by which rows are distributed.
    """

    async def told(index: int, device: Device) -> WriteReply:
        slot = slots[index]
        reply = await operation(device, delivery.share(slot))
        delivery.replied(slot, device, reply)
        return reply

    return told
