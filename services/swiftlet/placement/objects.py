"""Objects of the whole cluster: quorum writes, first-good-copy reads, streamed uploads.

Between the API (which knows HTTP and what a client may do) and the transport (which knows one device). A caller
gets one answer or one domain error: NotFound, Superseded, Unavailable.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from swiftlet.errors import NodeError, NodeTimeout, NotFound, Superseded, SwiftletError, Unavailable
from swiftlet.model import ObjectInfo, ObjectKey, ObjectRow, PostRecord, PutFooter, PutRecord
from swiftlet.names import HashPath, Path
from swiftlet.peers import GetStream, ObjectTransport, PutStream, RowFate, WriteReply
from swiftlet.placement.fanout import NODE_TROUBLE, Outcome, SlotRunner, read_each, write_all
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.plan import ReadPlan, plan_read, plan_write
from swiftlet.placement.rings import Rings
from swiftlet.placement.rows import RowRouter
from swiftlet.ring.model import Device
from swiftlet.timestamp import ZERO, Timestamp

T = TypeVar("T")


@dataclass(slots=True)
class _Bound:
    """What a read must not go behind: the newest version, and any deletion that it meets on its way."""

    newest: tuple[Timestamp, Timestamp] = (ZERO, ZERO)
    deleted: Timestamp = ZERO

    def met(self, absence: NotFound) -> None:
        """A device does not have it."""
        if absence.timestamp is not None:
            self.deleted = max(self.deleted, absence.timestamp)

    def check(self, info: ObjectInfo, version: Timestamp | None = None) -> None:
        """NotFound or OtherVersion unless this is what may be read."""
        if info.timestamp <= self.deleted:
            raise NotFound(f"{info.name} was deleted at {self.deleted}", self.deleted)
        if _age(info) < self.newest or version not in (None, info.timestamp):
            raise OtherVersion(f"the version of {info.modified} is here, not the one asked for")


class OtherVersion(SwiftletError):
    """A device has the object, but not in the version asked for; says nothing about whether that one exists."""


class TooLate(SwiftletError):
    """A device was ready for an upload whose first bytes had gone by."""


@dataclass(frozen=True, slots=True)
class Written:
    """A write that reached its quorum."""

    existed: bool
    container_missing: bool
    """Whether most container replicas said that the container is gone: the caller undoes the write."""


def _written(outcome: Outcome[WriteReply], quorum: int) -> Written:
    missing = sum(reply.row is RowFate.NO_CONTAINER for _, _, reply in outcome.replies)
    existed = any(reply.existed for _, _, reply in outcome.replies)
    return Written(existed, missing >= quorum)


class ClusterObjects:
    """The objects of all policies, wherever they are."""

    def __init__(
        self,
        rings: Rings,
        transport: ObjectTransport,
        rows: RowRouter,
        hash_path: HashPath,
        health: NodeHealth,
        post_quorum_wait_s: float = 0.5,
        write_timeout_s: float = 10.0,
    ) -> None:
        """`write_timeout_s` bounds how long one replica may hold up a streamed chunk before it is dropped."""
        self._rings = rings
        self._transport = transport
        self._rows = rows
        self._hash_path = hash_path
        self._health = health
        self._post_quorum_wait_s = post_quorum_wait_s
        self._write_timeout_s = write_timeout_s

    def key(self, path: Path, policy: int) -> ObjectKey:
        """The object's place in the policy's ring as it is now."""
        digest = self._hash_path.of(path)
        return ObjectKey(policy, self._rings.objects(policy).partition_of(digest), digest)

    async def put(self, path: Path, policy: int, record: PutRecord, body: bytes, footer: PutFooter) -> Written:
        """Store a small object; Superseded when a newer version is on a quorum, Unavailable without a quorum."""
        key = self.key(path, policy)

        async def operation(index: int, device: Device, slots: int) -> WriteReply:
            row = self._rows.share(path, index, slots)
            return await self._transport.put(device, key, record, body, footer, row)

        return await self._write(path, key, operation, row_of(path, record, footer))

    async def post(self, path: Path, policy: int, record: PostRecord) -> Written:
        """Replace metadata; NotFound, Superseded, Unavailable."""
        key = self.key(path, policy)

        async def operation(index: int, device: Device, slots: int) -> WriteReply:
            return await self._transport.post(device, key, record, self._rows.share(path, index, slots))

        return await self._write(path, key, operation)

    async def delete(self, path: Path, policy: int, timestamp: Timestamp) -> Written:
        """Delete; `existed` says whether there was an object. Superseded, Unavailable."""
        key = self.key(path, policy)

        async def operation(index: int, device: Device, slots: int) -> WriteReply:
            row = self._rows.share(path, index, slots)
            return await self._transport.delete(device, key, timestamp, str(path), row)

        return await self._write(path, key, operation, ObjectRow(path.obj or "", timestamp, deleted=True))

    async def _write(
        self,
        path: Path,
        key: ObjectKey,
        operation: Callable[[int, Device, int], Awaitable[WriteReply]],
        row: ObjectRow | None = None,
    ) -> Written:
        plan = plan_write(self._rings.objects(key.policy), key.partition, self._health.suppressed)
        slots = len(plan.slots)
        outcome = await write_all(
            plan, lambda i, device: operation(i, device, slots), self._health, self._post_quorum_wait_s
        )
        written = settle(outcome, plan.quorum, str(path))
        if row is not None and not written.container_missing:
            await self._rows.make_up(path, row, outcome, slots)
        return written

    async def upload(self, path: Path, policy: int, record: PutRecord, size: int | None) -> Upload:
        """Begin a streamed object; returns when a quorum of devices is ready for its bytes."""
        key = self.key(path, policy)
        plan = plan_write(self._rings.objects(policy), key.partition, self._health.suppressed)
        slots = len(plan.slots)
        runner: SlotRunner[PutStream] = SlotRunner(plan, self._health)
        begun = asyncio.Event()

        async def operation(index: int, device: Device) -> PutStream:
            if begun.is_set():
                raise TooLate("the first bytes have gone by")
            stream = await self._transport.open_put(device, key, record, size, self._rows.share(path, index, slots))
            if begun.is_set():
                await stream.abort()
                raise TooLate("was ready too late: the first bytes have gone by")
            return stream

        try:
            outcome = await runner.run(operation, post_quorum_wait_s=self._write_timeout_s)
        except BaseException:
            await asyncio.gather(*(stream.abort() for _, _, stream in runner.outcome.replies))
            raise
        begun.set()

        async def committed(finished: Outcome[WriteReply], footer: PutFooter) -> None:
            await self._rows.make_up(path, row_of(path, record, footer), finished, slots)

        upload = Upload(str(path), outcome, plan.quorum, self._health, self._write_timeout_s, committed)
        if len(outcome.replies) < plan.quorum:
            await upload.abort()
            raise refusal(outcome, plan.quorum, str(path))
        return upload

    async def head(self, path: Path, policy: int, newest: bool = False) -> ObjectInfo:
        """Describe an object: by the first replica that has it, or with `newest` by the newest of all replicas."""
        key = self.key(path, policy)
        if newest:
            return (await self._newest(path, key))[0]

        bound = _Bound()

        async def operation(device: Device) -> ObjectInfo:
            info = await self._transport.head(device, key)
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
        """Open bytes `[start, stop)` of an object, or of one `version` of it only; NotFound, Unavailable.

        A range beyond the end opens and is empty: the caller sees the size in `info`.
        """
        key = self.key(path, policy)
        bound = _Bound(_age((await self._newest(path, key))[0])) if newest else _Bound()

        async def operation(device: Device) -> tuple[Device, GetStream]:
            stream = await self._transport.get(device, key, start, stop)
            try:
                bound.check(stream.info, version)
            except SwiftletError:
                await stream.close()
                raise
            return device, stream

        device, stream = await self._first_copy(path, key, operation, bound)
        return Download(self, key, device, stream, start, stop)

    def failed(self, device: Device) -> None:
        """Remember that a device failed in the middle of a read."""
        self._health.failed(device)

    async def reopen(
        self, key: ObjectKey, info: ObjectInfo, start: int, stop: int, without: set[int]
    ) -> tuple[Device, GetStream]:
        """The same version from another device, from byte `start` on; Unavailable when none is left."""
        plan = plan_read(self._rings.objects(key.policy), key.partition, self._health.suppressed)

        async def operation(device: Device) -> tuple[Device, GetStream]:
            stream = await self._transport.get(device, key, start, stop)
            if stream.info.timestamp != info.timestamp:
                await stream.close()
                raise OtherVersion(f"the version of {stream.info.timestamp} is here, not the one being read")
            return device, stream

        rest = tuple(device for device in plan.devices if device.id not in without)
        outcome = await read_each(
            ReadPlan(rest, plan.handoffs, plan.quorum), operation, self._health, lambda o: bool(o.replies)
        )
        if not outcome.replies:
            raise outcome.unavailable(info.name, 1)
        return outcome.replies[0][2]

    async def _newest(self, path: Path, key: ObjectKey) -> tuple[ObjectInfo, Device]:
        """The newest that any replica has; the handoffs are asked too: an acknowledged write may be mostly there.

        A quorum of the primaries must answer. A handoff may be older than all of them, so it can't stand in for one.
        """
        plan = plan_read(self._rings.objects(key.policy), key.partition)
        devices = plan.devices
        answers = await asyncio.gather(
            *(self._transport.head(device, key) for device in devices), return_exceptions=True
        )
        found = [(a, d) for a, d in zip(answers, devices, strict=True) if isinstance(a, ObjectInfo)]
        gone = [a.timestamp for a in answers if isinstance(a, NotFound) and a.timestamp is not None]
        odd = [a for a in answers if isinstance(a, BaseException) and not isinstance(a, SwiftletError)]
        if odd:
            raise odd[0]
        primary = [a for a, d in zip(answers, devices, strict=True) if d.id not in plan.handoffs]
        answered = sum(isinstance(a, ObjectInfo | NotFound) for a in primary)
        if answered < plan.quorum:
            raise Unavailable(f"{path}: {answered} of {len(primary)} replicas answered, too few to know the newest")
        if not found or (gone and max(gone) >= max(info.timestamp for info, _ in found)):
            raise NotFound(f"{path} does not exist", max(gone, default=None))
        return max(found, key=lambda pair: _age(pair[0]))

    async def _first_copy(
        self, path: Path, key: ObjectKey, operation: Callable[[Device], Awaitable[T]], bound: _Bound
    ) -> T:
        plan = plan_read(self._rings.objects(key.policy), key.partition, self._health.suppressed)

        async def bounded(device: Device) -> T:
            try:
                return await operation(device)
            except NotFound as absence:
                bound.met(absence)
                raise

        outcome = await read_each(plan, bounded, self._health, lambda o: bool(o.replies))
        if outcome.replies:
            return outcome.replies[0][2]
        absent = outcome.refused_by(NotFound)
        if len(absent) >= plan.quorum:
            raise NotFound(f"{path} does not exist", max((e.timestamp for e in absent if e.timestamp), default=None))
        raise outcome.unavailable(str(path), plan.quorum)


def _age(info: ObjectInfo) -> tuple[Timestamp, Timestamp]:
    """What makes a replica newer than another: its data first, then its metadata."""
    return info.timestamp, info.meta_timestamp


def row_of(path: Path, record: PutRecord, footer: PutFooter) -> ObjectRow:
    """The listing row of a new version."""
    return ObjectRow(path.obj or "", record.timestamp, footer.size, footer.etag, record.content_type)


def refusal(outcome: Outcome[T], quorum: int, what: str) -> SwiftletError:
    """The error of a write without a quorum of successes: what most devices decided, or Unavailable."""
    superseded = outcome.refused_by(Superseded)
    if superseded and len(superseded) + len(outcome.replies) >= quorum:
        return max(superseded, key=lambda error: error.timestamp)
    absent = outcome.refused_by(NotFound)
    if len(absent) >= quorum:
        return NotFound(f"{what} does not exist", max((e.timestamp for e in absent if e.timestamp), default=None))
    others = [e for _, e in outcome.refusals if not isinstance(e, Superseded | NotFound)]
    if len(others) >= quorum:
        return others[0]
    return outcome.unavailable(what, quorum)


def settle(outcome: Outcome[WriteReply], quorum: int, what: str) -> Written:
    """A write's answer: by its quorum of successes, or the error that says why there is none."""
    if len(outcome.replies) >= quorum:
        return _written(outcome, quorum)
    raise refusal(outcome, quorum, what)


class Upload:
    """A streamed object on its way to all replicas; each chunk is handed to every live replica uncopied.

    A replica that fails or holds up a chunk longer than the write timeout is dropped; the upload fails with
    Unavailable once fewer than a quorum are left.
    """

    def __init__(
        self,
        what: str,
        outcome: Outcome[PutStream],
        quorum: int,
        health: NodeHealth,
        write_timeout_s: float,
        committed: Callable[[Outcome[WriteReply], PutFooter], Awaitable[None]],
    ) -> None:
        """`outcome` holds the streams that opened; `committed` is awaited after a commit that reached its quorum."""
        self._what = what
        self._live: list[tuple[int, Device, PutStream]] = list(outcome.replies)
        self._history: Outcome[WriteReply] = Outcome([], list(outcome.refusals), list(outcome.troubles))
        self._quorum = quorum
        self._health = health
        self._write_timeout_s = write_timeout_s
        self._committed = committed

    async def write(self, chunk: bytes | memoryview) -> None:
        """Hand a chunk to all replicas; Unavailable when too few are left (and nothing is stored)."""
        for slot in list(self._live):
            try:
                async with asyncio.timeout(self._write_timeout_s):
                    await slot[2].write(chunk)
            except TimeoutError:
                await self._drop(slot, NodeTimeout(f"took no data for {self._write_timeout_s} s"))
            except SwiftletError as error:
                await self._drop(slot, error)
        if len(self._live) < self._quorum:
            await self.abort()
            raise refusal(self._history, self._quorum, self._what)

    async def _drop(self, slot: tuple[int, Device, PutStream], error: SwiftletError) -> None:
        _, device, stream = slot
        self._live.remove(slot)
        self._note(device, error)
        await stream.abort()

    def _note(self, device: Device, error: SwiftletError) -> None:
        if isinstance(error, NODE_TROUBLE):
            self._health.failed(device)
            self._history.troubles.append((device, error))
        else:
            self._history.refusals.append((device, error))

    async def commit(self, footer: PutFooter) -> Written:
        """Make it durable on all live replicas; Superseded, Unavailable."""

        async def one(slot: tuple[int, Device, PutStream]) -> None:
            index, device, stream = slot
            try:
                reply = await stream.commit(footer)
            except SwiftletError as error:
                self._note(device, error)
            else:
                self._history.replies.append((index, device, reply))

        await asyncio.gather(*(one(slot) for slot in self._live))
        written = settle(self._history, self._quorum, self._what)
        if not written.container_missing:
            await self._committed(self._history, footer)
        return written

    async def abort(self) -> None:
        """Give up everywhere; no device keeps anything."""
        live, self._live = self._live, []
        await asyncio.gather(*(slot[2].abort() for slot in live))


class Download:
    """An object on its way to a client; a device that fails in the middle is replaced by another one."""

    def __init__(
        self,
        objects: ClusterObjects,
        key: ObjectKey,
        device: Device,
        stream: GetStream,
        start: int,
        stop: int | None,
    ) -> None:
        """`stream` stands at byte `start` and ends before `stop`, or at the object's end."""
        self._objects = objects
        self._key = key
        self._device = device
        self._stream = stream
        self._tried = {device.id}
        self.info = stream.info
        self.stop = self.info.size if stop is None else min(stop, self.info.size)
        self.start = min(start, self.stop)

    async def chunks(self) -> AsyncIterator[bytes]:
        """All bytes of the range in order; Unavailable when no device has the rest."""
        position = self.start
        while True:
            try:
                async for chunk in self._stream.chunks():
                    position += len(chunk)
                    yield chunk
                if position >= self.stop:
                    return
                raise NodeError(f"ended {self.stop - position} bytes early")
            except NodeError:
                self._objects.failed(self._device)
                with contextlib.suppress(NodeError):
                    await self._stream.close()
                self._device, self._stream = await self._objects.reopen(
                    self._key, self.info, position, self.stop, self._tried
                )
                self._tried.add(self._device.id)

    async def close(self) -> None:
        """Let go of the connection."""
        await self._stream.close()
