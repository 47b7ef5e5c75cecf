"""Runs over the native transport: parts of many objects as one stream, without work in Python for each of them.

Native code requests parts from the devices ahead, checks what comes against what is expected, and keeps the next bytes
until they are taken. Small parts come several at a time.

Fault model: as of `swiftlet.transport.native_caller` for every part. A run ends at the first thing that is wrong, and
nothing of that is passed on. One in which nothing moves for the idle timeout is stopped, as if its device had failed
then. A client that takes nothing for a moment does not keep the transport's memory, which others wait for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

from swiftlet_native import ObjectWire, TransportNode, TransportPeer, TransportRun

from swiftlet.boundaries.objects import Marks, RunEnd, RunPart
from swiftlet.errors import NodeTimeout, SwiftletError
from swiftlet.native_values import Place, info_of, place, raw
from swiftlet.transport.native_calls import STREAM_S, CallFailed, Failure, NativeSettings, refused, wake

MOMENT_S = 0.02
"""Seconds; data that waits for longer is copied out of the transport's memory, in some cases after half of them."""
PartParts = tuple[TransportPeer, str, Place, int, int, int | None, bytes | None, bool]
"""A part in the form of native code."""


def run_part(peer: TransportPeer, part: RunPart) -> PartParts:
    """Return a part in the form of native code."""
    etag = None if part.etag is None else raw(part.etag)
    return peer, part.device.device, place(part.key), part.start, part.stop, part.size, etag, part.unmarked


class NativeRun:
    """Behaves as `swiftlet.boundaries.objects.Run` requires."""

    def __init__(self, parts: Sequence[RunPart], settings: NativeSettings, fail: Failure) -> None:
        """Begin before the first request."""
        self._parts = parts
        self._settings = settings
        self._fail = fail
        self._last: tuple[str, object] | None = None
        """The last event of the run."""
        self._more: asyncio.Future[None] | None = None
        self._has_more = False
        self._run: TransportRun | None = None
        self._taken = 0
        self._moment: asyncio.TimerHandle | None = None
        self._late: NodeTimeout | None = None
        self.end: RunEnd | None = None

    def begin(self, node: TransportNode, token: int, parts: list[PartParts], trace: str, marks: Marks) -> None:
        """Request the first parts; events of the run have `token`."""
        names = [raw(name) for name in marks.metadata], [raw(name) for name in marks.sysmeta]
        self._run = node.run(token, parts, STREAM_S, trace, self._settings.window_bytes, names)
        self._look_later(self._run)

    def event(self, kind: str, value: object) -> bool:
        """Process an event; return whether it was the last one."""
        self._has_more = True
        if kind != "sent":
            self._last = kind, value
        if self._more is not None:
            wake(self._more)
        return kind != "sent"

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield all bytes up to the end, or up to the first error."""
        assert self._run is not None
        while self.end is None:
            self._has_more = False
            data = self._run.take()
            if data is not None:
                self._taken += 1
                yield data
            elif self._last is not None:
                self.end = self._ended(self._run, *self._last)
                self._look_no_more()
            else:
                await self._wait(self._run)

    async def _wait(self, run: TransportRun) -> None:
        loop = asyncio.get_running_loop()
        self._more = loop.create_future()
        timer = loop.call_later(self._settings.idle_timeout_s, wake, self._more)
        try:
            await self._more
        finally:
            timer.cancel()
        if not self._has_more and self._late is None:
            self._late = NodeTimeout(f"nothing was sent for {self._settings.idle_timeout_s:g} s")
            run.stop()  # The cancellation ends the run with an event like any other end.

    def _look_later(self, run: TransportRun) -> None:
        loop = asyncio.get_running_loop()
        self._moment = loop.call_later(MOMENT_S, self._look, run, self._taken)

    def _look(self, run: TransportRun, taken: int) -> None:
        if taken == self._taken:
            run.copy()
        self._look_later(run)

    def _look_no_more(self) -> None:
        if self._moment is not None:
            self._moment.cancel()

    def _ended(self, run: TransportRun, kind: str, value: object) -> RunEnd:
        ended = run.ended() if kind == "end" else None
        if ended is None:
            # This client was closed: what was on its way from native code is lost, so the run can't go on.
            raise self._fail(self._parts[0].device, CallFailed(*cast("tuple[str, str]", value)))
        done, sent, found, failed, refusal = ended
        info = info_of(ObjectWire.found(found)[0]) if found else None
        error: SwiftletError | None = None
        if failed is not None:
            error = self._fail(self._parts[done].device, CallFailed(*failed))
        elif refusal is not None:
            error = refused(self._parts[done].device, *refusal)
        elif done < len(self._parts):
            error = self._late
        return RunEnd(done, sent, info, error)

    async def close(self) -> None:
        """Cancel the rest of the run."""
        self._look_no_more()
        if self._run is not None:
            self._run.close()
