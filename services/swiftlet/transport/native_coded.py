"""`CodedTransport`: objects with erasure coding over the native transport, coded and put together by native code.

Python gives native code a body piece by piece and takes a range chunk by chunk; cells, devices that are replaced, and
commits are none of its business. It waits, for events and for the times that native code names.

Fault model: that of `swiftlet_native.CodedWriting` and `CodedReading`. A write in which nothing moves for the idle
timeout is given up. A client that takes nothing for a moment does not keep the transport's memory, which others need. A
read in the middle of which this process was stopped for a while ends. Devices whose address is not known yet are looked
up by the first request of their ring, and again when they could not be reached.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypeVar, cast

from swiftlet_native import CodedDevices, CodedReading, CodedWriting, TransportPeer

from swiftlet.boundaries.coded import (
    CodedDeletion,
    CodedEnd,
    CodedPlaces,
    CodedPosted,
    CodedWriteEnded,
    PendingRow,
    Refused,
    TooFewFragments,
)
from swiftlet.boundaries.objects import ContainerUpdate, pieces_of
from swiftlet.errors import NodeError, NodeTimeout, NotFound
from swiftlet.model import ObjectInfo, PostRecord, PutFooter, PutRecord
from swiftlet.native_values import bits_of, delete_at, info_of, place, raw, raw_pairs
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport.native_caller import NativeCaller, trace
from swiftlet.transport.native_calls import STREAM_S, CallFailed, NotMade, failure, refused, wake
from swiftlet.transport.native_runs import MOMENT_S

AFTER_QUORUM_S = 0.5
"""Seconds for which the other devices are waited for once a deletion counts, or metadata do."""
STILL_S = 5.0
"""Seconds for which this process may stand still in the middle of a read. Servers of this machine use memory anew that
they have lent over a connection that broke more than 10 s ago; cells in it that were checked may be others by now.
"""
_LEAST_WAIT_S = 0.005
_END = 2**64 - 1
_RINGS = 256
"""Rings whose devices are remembered: as many as there are policies."""

T = TypeVar("T", covariant=True)
NativeRefused = Sequence[tuple[int, tuple[str, str] | None, tuple[int, bytes] | None]]
"""Devices by their ids, each with a failure's kind and text, or the status and header of a refusal."""


@dataclass(frozen=True, slots=True)
class _Known:
    """The devices of a ring as native code has them, and the peers that they were made with."""

    ring: Ring
    peers: Sequence[TransportPeer | None]
    devices: CodedDevices


class Waiter:
    """Waits for events of one operation."""

    def __init__(self) -> None:
        self._more: asyncio.Future[None] | None = None
        self.is_over = False

    def event(self, kind: str, value: object) -> bool:
        """Process an event; return whether it was the last one."""
        self.is_over = kind in ("end", "failed")
        if self._more is not None:
            wake(self._more)
        return self.is_over

    async def wait(self, seconds: float) -> bool:
        """Wait for an event, so long at most; return whether there was one."""
        loop = asyncio.get_running_loop()
        self._more = loop.create_future()
        was_late = False

        def late() -> None:
            nonlocal was_late
            was_late = True
            if self._more is not None:
                wake(self._more)

        timer = loop.call_later(seconds, late)
        try:
            await self._more
        finally:
            timer.cancel()
            self._more = None
        return not was_late


class _Step(Protocol[T]):
    """A deletion, or metadata, on the way to the devices of all places."""

    def turn(self) -> float | None: ...

    def ended(self) -> T | None: ...

    def close(self) -> None: ...


class NativeCoded:
    """Objects with erasure coding, by the calls of one process."""

    def __init__(self, caller: NativeCaller) -> None:
        """Know no devices yet."""
        self._caller = caller
        self._known: dict[int, _Known] = {}

    async def open_coded_put(
        self, places: CodedPlaces, record: PutRecord, size: int | None, rows: Sequence[ContainerUpdate]
    ) -> NativeCodedPut:
        """Ask the devices of all places to take their fragments, and return the stream that codes the object."""
        parts = await self.parts(places)
        waiter = Waiter()
        node, token = self._caller.listen(waiter)
        settings = self._caller.settings
        version = _version(record)
        waits = settings.answer_timeout_s, STREAM_S, settings.connect_timeout_s, settings.answer_timeout_s
        try:
            writing = node.write_coded(token, parts, version, secrets.randbits(63), size, _bits(rows), waits, trace())
        except ValueError as error:
            self._caller.mute(token)
            raise NodeError(f"{record.name} can't be coded: {error}") from error
        return NativeCodedPut(self, places, waiter, writing, token)

    async def put_small(
        self, places: CodedPlaces, record: PutRecord, body: bytes, footer: PutFooter, rows: Sequence[ContainerUpdate]
    ) -> CodedEnd:
        """Store a small object as copies at the first places."""
        parts = await self.parts(places)
        waiter = Waiter()
        node, token = self._caller.listen(waiter)
        waits = self._caller.settings.answer_timeout_s, AFTER_QUORUM_S
        told = footer.size, footer.xxh3, raw(footer.etag)
        try:
            writing = node.write_small(token, parts, _version(record), told, body, _bits(rows), waits, trace())
        except ValueError as error:
            self._caller.mute(token)
            raise NodeError(f"{record.name} can't be stored: {error}") from error
        ended = await self._end_of(writing, waiter, token)
        if ended is None:
            return CodedEnd("unknown", None, 0)
        verdict, past, copies, pending, all_refused = ended
        return CodedEnd(
            cast("Literal['acknowledged', 'failed', 'unknown']", verdict),
            None if past is None else Timestamp(past),
            copies,
            refused=self.refused(places, all_refused),
            pending=_pending(places, pending),
        )

    async def delete_coded(
        self, places: CodedPlaces, timestamp: Timestamp, name: str, rows: Sequence[ContainerUpdate]
    ) -> CodedDeletion:
        """Put a tombstone at each place."""
        parts = await self.parts(places)
        waiter = Waiter()
        node, token = self._caller.listen(waiter)
        waits = self._caller.settings.answer_timeout_s, AFTER_QUORUM_S
        try:
            deleting = node.delete_coded(token, parts, timestamp.value, raw(name), _bits(rows), waits, trace())
        except ValueError as error:
            self._caller.mute(token)
            raise NodeError(f"{name} can't be deleted: {error}") from error
        ended = await self._end_of(deleting, waiter, token)
        if ended is None:
            return CodedDeletion("unknown", True)
        verdict, existed, newer, pending, all_refused = ended
        return CodedDeletion(
            cast("Literal['acknowledged', 'superseded', 'unknown']", verdict),
            existed,
            None if newer is None else Timestamp(newer),
            self.refused(places, all_refused),
            _pending(places, pending),
        )

    async def post_coded(
        self, places: CodedPlaces, of: Timestamp | None, record: PostRecord, rows: Sequence[ContainerUpdate]
    ) -> CodedPosted:
        """Put metadata at each place, or on the copies of a small object."""
        parts = await self.parts(places)
        waiter = Waiter()
        node, token = self._caller.listen(waiter)
        waits = self._caller.settings.answer_timeout_s, AFTER_QUORUM_S
        typed = record.content_type is not None
        post = (
            record.timestamp.value,
            delete_at(record.metadata),
            raw_pairs(record.metadata),
            None if record.content_type is None else raw(record.content_type),
            record.content_type_timestamp.value if typed else 0,
        )
        try:
            version = None if of is None else of.value
            posting = node.post_coded(token, parts, version, post, _bits(rows), waits, trace())
        except ValueError as error:
            self._caller.mute(token)
            raise NodeError(f"metadata can't be posted: {error}") from error
        ended = await self._end_of(posting, waiter, token)
        if ended is None:
            return CodedPosted("unknown")
        verdict, newer, info, pending, all_refused = ended
        return CodedPosted(
            cast("Literal['acknowledged', 'superseded', 'deleted', 'unknown']", verdict),
            None if newer is None else Timestamp(newer),
            None if info is None else info_of(info),
            self.refused(places, all_refused),
            _pending(places, pending),
        )

    async def _end_of(self, step: _Step[T], waiter: Waiter, token: int) -> T | None:
        """Wait for the end of a step at all places, and return it; None when this client was closed before."""
        try:
            while (ended := step.ended()) is None:
                wait_s = step.turn()
                if waiter.is_over and step.ended() is None:
                    return None
                await waiter.wait(max(_LEAST_WAIT_S, wait_s or 0.0))
            return ended
        finally:
            step.close()
            self._caller.mute(token)

    async def get_coded(
        self,
        places: CodedPlaces,
        first: Sequence[int],
        start: int,
        stop: int | None,
        has_small: bool = False,
        sound: int = 0,
    ) -> NativeCodedGet:
        """Read bytes `[start, stop)` of the newest version."""
        parts = await self.parts(places)
        waiter = Waiter()
        node, token = self._caller.listen(waiter)
        settings = self._caller.settings
        waits = settings.answer_timeout_s, sound, settings.window_bytes, has_small
        end = _END if stop is None else max(0, stop)
        try:
            reading = node.read_coded(token, parts, list(first), start, end, waits, trace())
        except ValueError as error:
            self._caller.mute(token)
            raise NodeError(f"fragments can't be read: {error}") from error
        stream = NativeCodedGet(self, places, waiter, reading, token)
        try:
            await stream.begin()
        except BaseException:
            await stream.close()
            raise
        return stream

    @property
    def caller(self) -> NativeCaller:
        """Return the calls of this process."""
        return self._caller

    async def parts(
        self, places: CodedPlaces
    ) -> tuple[CodedDevices, tuple[int, int, bytes], tuple[int, int, int], list[int], list[int]]:
        """Return what native code is told of where an object's fragments are."""
        coding = places.coding
        devices = await self.devices(places.key.policy, places.ring)
        numbers = [device.id for device in places.at], [device.id for device in places.spares]
        return devices, place(places.key), (coding.data, coding.parity, coding.cell_bytes), *numbers

    async def devices(self, policy: int, ring: Ring) -> CodedDevices:
        """Return a ring's devices, as far as their addresses can be found; the same ones as before while they have the
        same addresses.
        """
        unknown = [device for device in ring.devices if device is not None and self._caller.known(device) is None]
        if unknown:
            await asyncio.gather(*map(self._caller.peer, unknown), return_exceptions=True)
        peers = [None if device is None else self._caller.known(device) for device in ring.devices]
        known = self._known.get(policy)
        if known is not None and known.ring is ring and known.peers == peers:
            return known.devices
        targets = [
            None if peer is None or device is None else (peer, device.device)
            for peer, device in zip(peers, ring.devices, strict=True)
        ]
        if len(self._known) >= _RINGS:
            self._known.clear()
        made = self._known[policy] = _Known(ring, peers, CodedDevices(targets))
        return made.devices

    def refused(self, places: CodedPlaces, all_refused: NativeRefused) -> list[Refused]:
        """Return the devices that gave no good answer, and why, each once."""
        told: dict[int, Refused] = {}
        for number, failed, refusal in all_refused:
            device = places.ring.device(number)
            if failed is not None:
                error = failure(device, CallFailed(*failed))
                if isinstance(error, NotMade):
                    self._caller.forget(device)
                told[number] = device, error
            elif refusal is not None:
                told[number] = device, refused(device, *refusal)
        return list(told.values())

    def forget(self, device: Device) -> None:
        """Look the address of a device up again before the next request of its ring."""
        self._caller.forget(device)

    def mute(self, token: int) -> None:
        """Hear no more of an operation."""
        self._caller.mute(token)

    @property
    def idle_timeout_s(self) -> float:
        """Return the number of seconds for which nothing may move."""
        return self._caller.settings.idle_timeout_s


def _version(record: PutRecord) -> tuple[int, int, bytes, bytes, list[tuple[bytes, bytes]], list[tuple[bytes, bytes]]]:
    return (
        record.timestamp.value,
        delete_at(record.metadata),
        raw(record.name),
        raw(record.content_type),
        raw_pairs(record.metadata),
        raw_pairs(record.sysmeta),
    )


def _bits(rows: Sequence[ContainerUpdate]) -> list[int]:
    return [bits_of(row.replicas) for row in rows]


def _pending(places: CodedPlaces, pending: Sequence[tuple[int, int]]) -> list[PendingRow]:
    return [(slot, places.ring.device(number)) for slot, number in pending]


class NativeCodedPut:
    """Behaves as `swiftlet.boundaries.coded.CodedPutStream` requires."""

    def __init__(
        self, coded: NativeCoded, places: CodedPlaces, waiter: Waiter, writing: CodedWriting, token: int
    ) -> None:
        """Begin before the first byte."""
        self._coded = coded
        self._places = places
        self._waiter = waiter
        self._writing = writing
        self._token = token

    async def write(self, chunk: bytes | memoryview) -> None:
        """Code and send a chunk; return when there is room for the next one."""
        for piece in pieces_of(chunk):
            await self._room()
            if not self._writing.push(piece):
                raise NodeError("native code takes no bytes where it said that it would")

    async def _room(self) -> None:
        """Wait until something may be given. Raises CodedWriteEnded."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + self._coded.idle_timeout_s
        while (wait_s := self._writing.turn()) != 0:
            if wait_s is None:
                raise CodedWriteEnded(self._ended())
            left_s = until_s - loop.time()
            if left_s <= 0:
                await self.abort()
                raise NodeTimeout(f"the devices took no data for {self._coded.idle_timeout_s:g} s")
            await self._waiter.wait(min(wait_s, left_s))

    async def commit(self, etag: str) -> CodedEnd:
        """Finish; return once it is known how the write has ended."""
        try:
            await self._room()
        except CodedWriteEnded as ended:
            return ended.end
        if not self._writing.finish(raw(etag)):
            raise NodeError("native code takes no end where it said that it would")
        while (wait_s := self._writing.turn()) is not None:
            await self._waiter.wait(wait_s)
        return self._ended()

    def _ended(self) -> CodedEnd:
        ended = self._writing.ended()
        if ended is None:
            # This client was closed.
            return CodedEnd("unknown", None, 0)
        verdict, past, prepared, _, is_too_large, all_refused = ended
        return CodedEnd(
            cast("Literal['acknowledged', 'failed', 'unknown']", verdict),
            None if past is None else Timestamp(past),
            prepared,
            is_too_large,
            self._coded.refused(self._places, all_refused),
        )

    def pending(self) -> list[PendingRow]:
        """Return the rows that devices have pending by now."""
        return _pending(self._places, self._writing.pending())

    async def abort(self) -> None:
        """Give up, or wait for nothing any more."""
        self._writing.close()
        self._coded.mute(self._token)


class NativeCodedGet:
    """Behaves as `swiftlet.boundaries.coded.CodedGetStream` requires."""

    def __init__(
        self, coded: NativeCoded, places: CodedPlaces, waiter: Waiter, reading: CodedReading, token: int
    ) -> None:
        """Begin before the first answer."""
        self._coded = coded
        self._places = places
        self._waiter = waiter
        self._reading = reading
        self._token = token
        self._info: ObjectInfo | None = None
        self._is_small = False
        self._taken = 0
        self._moment: asyncio.TimerHandle | None = None
        self._ran_at = 0.0
        self._stood_still = False

    async def begin(self) -> None:
        """Return when it is known what the object is. Raises NotFound and TooFewFragments."""
        while True:
            found = self._reading.info()
            if found is not None:
                self._info, self._is_small = replace(info_of(found), xxh3=None), self._reading.is_small()
                # It may have taken long, but nothing was passed on.
                self._ran_at = asyncio.get_running_loop().time()
                self._look_later()
                return
            self._look_at_end()
            await self._wait()

    def _look_at_end(self) -> bool:
        """Return whether all has been passed on. Raises NotFound, TooFewFragments and NodeError."""
        ended = self._reading.ended()
        if ended is None:
            if self._waiter.is_over:
                raise NodeError("this client was closed")
            return False
        kind, deleted, all_refused = ended
        if kind == "whole":
            return True
        if kind == "not-found":
            raise NotFound("there is no such object", None if deleted is None else Timestamp(deleted))
        raise TooFewFragments(self._coded.refused(self._places, all_refused))

    async def _wait(self) -> None:
        wait_s = self._reading.turn()
        # What is there since then is seen without waiting.
        if wait_s is not None and self._reading.ended() is None:
            await self._waiter.wait(wait_s)

    @property
    def info(self) -> ObjectInfo:
        """Return the description of the object; `begin` has to have returned."""
        assert self._info is not None
        return self._info

    @property
    def is_small(self) -> bool:
        """Whether the object is a small one, which lies as copies; `begin` has to have returned."""
        assert self._info is not None
        return self._is_small

    @property
    def hedges(self) -> int:
        """Return how often others were asked in the place of a device that was late, until `close`."""
        return self._reading.hedges()

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the requested bytes."""
        while True:
            ended = self._reading.ended() is not None
            data = self._reading.take()
            if data is not None:
                self._note_pace()
                if self._stood_still:
                    raise NodeError(f"this proxy stood still for more than {STILL_S:g} s, so bytes may have changed")
                self._taken += 1
                yield data
            elif ended:
                self._look_at_end()
                return
            elif not self._look_at_end():
                await self._wait()

    def _look_later(self) -> None:
        loop = asyncio.get_running_loop()
        self._moment = loop.call_later(MOMENT_S, self._look, self._taken)

    def _note_pace(self) -> None:
        now = asyncio.get_running_loop().time()
        self._stood_still |= now - self._ran_at > STILL_S
        self._ran_at = now

    def _look(self, taken: int) -> None:
        self._note_pace()
        if taken == self._taken:
            self._reading.copy()
        self._look_later()

    async def close(self) -> None:
        """Ask for nothing more; a second call does nothing."""
        if self._moment is not None:
            self._moment.cancel()
        self._reading.close()
        self._coded.mute(self._token)
