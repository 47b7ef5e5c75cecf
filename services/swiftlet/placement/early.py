"""Uploads whose first bytes go to devices together with the question whether they take the object.

Waiting for that answer first would cost a round trip, which is most of the time of an upload to another region. What is
sent before all have answered is held here, so that a device that stands in for another one gets it too; more than that
is sent only when a quorum of devices has agreed. An object that is smaller takes one round trip altogether.

Fault model: as of `ReplicatedUpload`. What ended before all had answered may be on devices, as a small object may be.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from swiftlet.boundaries.objects import PutStream, WriteReply, pieces_of
from swiftlet.errors import SwiftletError
from swiftlet.model import PutFooter
from swiftlet.placement.outcomes import Written
from swiftlet.placement.transfers import Upload

EARLY_BYTES = 2 * 1024 * 1024
"""Bytes of an upload that are sent before devices have agreed to take it, and held until then."""


class EarlyStream:
    """A stream to a device that may not have agreed yet to take it."""

    def __init__(self, stream: PutStream) -> None:
        """`stream` sends to the device."""
        self._stream = stream
        self._commit: asyncio.Future[WriteReply] | None = None
        self.failed: SwiftletError | None = None
        """Why nothing more can be sent, if that was found before the device has answered."""

    @property
    def waiting(self) -> int:
        """The bytes that were given and are not sent yet, as far as the sender knows."""
        return self._stream.waiting

    def send(self, chunk: bytes | memoryview) -> bool:
        """Begin to send a chunk; return whether there is room for the next one."""
        return self._stream.send(chunk)

    def send_early(self, chunk: bytes | memoryview) -> None:
        """Begin to send a chunk before the device has answered; an error is kept until it has."""
        if self.failed is None:
            try:
                self._stream.send(chunk)
            except SwiftletError as error:
                self.failed = error

    def commit_early(self, footer: PutFooter) -> None:
        """Finish before the device has answered; `commit` returns what becomes of it."""
        if self.failed is None and self._commit is None:
            self._commit = asyncio.ensure_future(self._stream.commit(footer))
            # Nobody may ask for it any more.
            self._commit.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def room(self) -> None:
        """Return when there is room for the next chunk."""
        await self._stream.room()

    async def write(self, chunk: bytes | memoryview) -> None:
        """Send a chunk of any size; return when there is room for the next one."""
        await self._stream.write(chunk)

    async def commit(self, footer: PutFooter) -> WriteReply:
        """Finish; return once the object is durable. Raises the errors of `PutStream.commit`."""
        if self._commit is not None:
            return await self._commit
        return await self._stream.commit(footer)

    async def abort(self) -> None:
        """Give up. A second call, or one after `commit`, does nothing."""
        if self._commit is not None and not self._commit.done():
            self._commit.cancel()
        await self._stream.abort()


class EarlySends:
    """What has been sent of an upload while its devices are asked, to all that were asked so far."""

    def __init__(self) -> None:
        """Nothing has been sent."""
        self._held: list[bytes | memoryview] = []
        self._bytes = 0
        self._footer: PutFooter | None = None
        self._streams: list[EarlyStream] = []
        self._is_over = False

    def begin(self, stream: PutStream) -> EarlyStream:
        """Send to another device what the others have been sent."""
        early = EarlyStream(stream)
        if not self._is_over:
            for piece in self._held:
                early.send_early(piece)
            if self._footer is not None:
                early.commit_early(self._footer)
            self._streams.append(early)
        return early

    def takes(self, chunk: bytes | memoryview) -> bool:
        """Send a chunk to all and return True; False when that would be more than is held."""
        if self._bytes + len(chunk) > EARLY_BYTES:
            return False
        self._bytes += len(chunk)
        self._held.append(chunk)
        for piece in pieces_of(chunk):
            for stream in self._streams:
                stream.send_early(piece)
        return True

    def finish(self, footer: PutFooter) -> None:
        """Let all that have been asked finish."""
        self._footer = footer
        for stream in self._streams:
            stream.commit_early(footer)

    @property
    def is_finished(self) -> bool:
        """Whether devices may have made the object durable already."""
        return self._footer is not None

    def end(self) -> None:
        """Forget it all: whoever has agreed is known."""
        self._is_over = True
        self._held.clear()
        self._streams.clear()


class EarlyUpload:
    """An upload that is sent while it is being opened."""

    def __init__(self, open_upload: Callable[[EarlySends], Awaitable[Upload]]) -> None:
        """`open_upload` asks the devices, and tells `EarlySends` of the stream to each of them."""
        self._sends = EarlySends()
        self._opening = asyncio.ensure_future(open_upload(self._sends))
        self._upload: Upload | None = None

    @property
    def is_open(self) -> bool:
        """Whether a quorum of devices is known to take the object."""
        return self._upload is not None

    async def opened(self) -> Upload:
        """Return when a quorum of devices takes the object. Raises Superseded and Unavailable."""
        if self._upload is None:
            self._upload = await self._opening
            self._sends.end()
        return self._upload

    async def write(self, chunk: bytes | memoryview) -> None:
        """Send a chunk. Raises Unavailable when too few devices are left, and Superseded as long as they are asked;
        then nothing is stored.
        """
        if self._opening.done() or not self._sends.takes(chunk):
            await (await self.opened()).write(chunk)

    async def commit(self, footer: PutFooter) -> Written:
        """Make the object durable. Raises Superseded and Unavailable."""
        if self._upload is None:
            self._sends.finish(footer)
        return await (await self.opened()).commit(footer)

    async def abort(self) -> None:
        """Abort the upload, of which nothing is kept; does nothing after `commit`."""
        self._opening.cancel()
        await asyncio.wait({self._opening})
        self._sends.end()
        if not self._opening.cancelled() and self._opening.exception() is None:
            await self._opening.result().abort()
