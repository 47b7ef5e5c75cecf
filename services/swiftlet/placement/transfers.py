"""Streams between a client and the replicas: an upload to all of them, a download from any that lasts.

Fault model: any device may fail, hang or lie about its length at any byte. An upload goes on while a quorum is left; a
download goes on while one device has the same version.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from swiftlet_native import Hasher

from swiftlet.boundaries.objects import GetStream, PutStream, WriteReply, pieces_of
from swiftlet.errors import NodeDamaged, NodeError, NodeTimeout, SwiftletError, Unavailable
from swiftlet.model import ObjectInfo, ObjectKey, ObjectRow, PutFooter
from swiftlet.placement.fanout import NODE_TROUBLE, Outcome
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.outcomes import Written, acknowledged, refusal
from swiftlet.placement.owed import OwedRow
from swiftlet.placement.quorums import Quorum
from swiftlet.ring.model import Device


class Replicas(Protocol):
    """Finds another device with the rest of the bytes of a download."""

    def failed(self, device: Device) -> None:
        """Remember that a device failed in the middle of a read."""
        ...

    async def reopen(
        self, key: ObjectKey, info: ObjectInfo, start: int, stop: int, without: set[int]
    ) -> tuple[Device, GetStream]:
        """Open the same version on another device. Raises Unavailable when none is left."""
        ...


class Upload(Protocol):
    """A streamed object on its way to devices."""

    @property
    def is_open(self) -> bool:
        """Whether devices are known to take the object. Until then `write` and `commit` raise Superseded for that."""
        ...

    async def write(self, chunk: bytes | memoryview) -> None:
        """Send a chunk. Raises Unavailable when too few devices are left; then nothing is stored."""
        ...

    async def commit(self, footer: PutFooter) -> Written:
        """Make the object durable. Raises Superseded and Unavailable."""
        ...

    async def abort(self) -> None:
        """Abort the upload, of which nothing is kept; does nothing after `commit`."""
        ...


class Download(Protocol):
    """A range of an object on its way to a client."""

    info: ObjectInfo
    start: int
    stop: int
    """The end of the range, at most the object's."""

    def chunks(self) -> AsyncIterator[bytes]:
        """Yield all bytes of the range in order. Raises Unavailable when no device has the rest."""
        ...

    async def close(self) -> None:
        """Stop; a second call does nothing."""
        ...


class ReplicatedUpload:
    """A streamed object on its way to all replicas; each chunk is passed to every live replica uncopied.

    A replica that fails, or holds up a chunk and takes nothing of it for the write timeout, is dropped. The upload
    fails with Unavailable once those that are left are no quorum.
    """

    is_open = True
    """They have agreed before."""

    def __init__(
        self,
        what: str,
        outcome: Outcome[PutStream],
        quorum: Quorum,
        health: NodeHealth,
        write_timeout_s: float,
        delivery: OwedRow,
        row_of: Callable[[PutFooter], ObjectRow],
        note_missed: Callable[[Outcome[WriteReply]], None] = lambda outcome: None,
    ) -> None:
        """`outcome` holds the streams that opened; `delivery` is of the row that `row_of` makes of the footer.

        `note_missed` is called with the outcome of a version that some device may have.
        """
        self._what = what
        self._live: list[tuple[int, Device, PutStream]] = list(outcome.replies)
        self._history: Outcome[WriteReply] = Outcome([], list(outcome.refusals), list(outcome.troubles))
        self._quorum = quorum
        self._health = health
        self._write_timeout_s = write_timeout_s
        self._delivery = delivery
        self._row_of = row_of
        self._note_missed = note_missed

    async def write(self, chunk: bytes | memoryview) -> None:
        """Send a chunk to all replicas; return when each has room for the next one.

        Raises Unavailable when too few are left; then nothing is stored.
        """
        for piece in pieces_of(chunk):
            await self._send(piece)

    async def _send(self, piece: bytes | memoryview) -> None:
        """Send a piece to all replicas before any of them is waited for."""
        full: list[tuple[int, Device, PutStream]] = []
        for slot in list(self._live):
            try:
                if not slot[2].send(piece):
                    full.append(slot)
            except SwiftletError as error:
                await self._drop(slot, error)
        for slot in full:
            try:
                await self._room(slot[2])
            except SwiftletError as error:
                await self._drop(slot, error)
        live = [device for _, device, _ in self._live]
        if not self._quorum.met(live):
            await self.abort()
            raise refusal(self._history, self._quorum, self._what, live)

    async def _room(self, stream: PutStream) -> None:
        """Return when there is room for the next piece. Raises NodeTimeout when nothing moves."""
        while True:
            left = stream.waiting
            try:
                async with asyncio.timeout(self._write_timeout_s):
                    return await stream.room()
            except TimeoutError:
                if stream.waiting >= left:
                    raise NodeTimeout(f"took no data for {self._write_timeout_s} s") from None

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
        """Make the object durable on all live replicas. Raises Superseded and Unavailable."""
        row = self._row_of(footer)

        async def one(slot: tuple[int, Device, PutStream]) -> None:
            index, device, stream = slot
            try:
                reply = await stream.commit(footer)
            except SwiftletError as error:
                self._note(device, error)
            else:
                self._history.replies.append((index, device, reply))
                self._delivery.replied(index, device, reply)
                if self._quorum.met(self._history.done):
                    self._delivery.begin(row)

        await asyncio.gather(*(one(slot) for slot in self._live))
        self._note_missed(self._history)
        existed = acknowledged(self._history, self._quorum, self._what)
        return Written(existed, await self._delivery.finish(row))

    async def abort(self) -> None:
        """Abort the upload on all devices; none keeps anything of it."""
        live, self._live = self._live, []
        await asyncio.gather(*(slot[2].abort() for slot in live))


class ReplicatedDownload:
    """An object on its way to a client; a device that fails in the middle is replaced by another one."""

    def __init__(
        self,
        source: Replicas,
        key: ObjectKey,
        device: Device,
        stream: GetStream,
        start: int,
        stop: int | None,
    ) -> None:
        """`stream` begins at byte `start` and ends before `stop`, or at the end of the object."""
        self._source = source
        self._key = key
        self._device = device
        self._stream = stream
        self._tried = {device.id}
        self._hasher: Hasher | None = None
        """That of all bytes, once a device has been replaced."""
        self.info = stream.info
        self.stop = self.info.size if stop is None else min(stop, self.info.size)
        self.start = min(start, self.stop)

    @property
    def hasher(self) -> Hasher:
        """The xxh3 of the bytes that were yielded so far."""
        return self._stream.hasher if self._hasher is None else self._hasher

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all bytes of the range in order.

        Raises Unavailable when no device has the rest, or before the last of them when wrong ones were yielded.
        """
        position = self.start
        while True:
            begun = position
            try:
                async for chunk in self._stream.chunks():
                    position += len(chunk)
                    if self._hasher is not None:
                        self._hasher.update(chunk)
                        self._compare(position)
                    yield chunk
                if position >= self.stop:
                    return
                raise NodeError(f"the device's answer ended {self.stop - position} bytes early")
            except NodeError as error:
                self._source.failed(self._device)
                if isinstance(error, NodeDamaged) and position > begun:
                    # Nobody knows which of them are wrong, and what was passed on can't be taken back.
                    raise Unavailable(f"{self.info.name}: {error}, and some of them were passed on") from error
                self._hasher = self.hasher
                with contextlib.suppress(NodeError):
                    await self._stream.close()
                if position > begun:
                    # Those that failed before may have been restarted meanwhile.
                    self._tried = {self._device.id}
                self._device, self._stream = await self._source.reopen(
                    self._key, self.info, position, self.stop, self._tried
                )
                self._tried.add(self._device.id)

    def _compare(self, position: int) -> None:
        """Compare the bytes of several devices once all of them are there, if they are the whole object."""
        if self._hasher is None or self.start > 0 or position < self.info.size or self.info.xxh3 is None:
            return
        if self._hasher.xxh3_64() != self.info.xxh3:
            raise Unavailable(f"{self.info.name}: what several devices sent does not match the checksum of the object")

    async def close(self) -> None:
        await self._stream.close()
