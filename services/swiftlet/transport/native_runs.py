"""Runs over the native transport: parts of many objects as one stream, without any of Python's work for each of them.

Native code asks the devices ahead, checks what comes against what is expected, and hands on what is in turn. Small
parts come several at a time.

Fault model: as of `swiftlet.transport.native_client` for every part. A run ends at the first thing that is wrong, with
nothing of that handed on; one in which nothing moves for the idle timeout is stopped, as if its device had failed then.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import cast

from swiftlet_native import ObjectWire, TransportNode, TransportPeer, TransportRun

from swiftlet.errors import NodeTimeout, SwiftletError
from swiftlet.native_values import Place, info_of, place, raw
from swiftlet.peers import Marks, RunEnd, RunPart
from swiftlet.transport.native_calls import STREAM_S, CallFailed, Chunk, Failure, NativeSettings, refused, wake

JOINED_BYTES = 256 * 1024
"""Up to here small parts are put together before they are handed on."""
PartParts = tuple[TransportPeer, str, Place, int, int, int | None, bytes | None, bool]
"""A part as native code has it."""


def run_part(peer: TransportPeer, part: RunPart) -> PartParts:
    """A part as it crosses the border."""
    etag = None if part.etag is None else raw(part.etag)
    return peer, part.device.device, place(part.key), part.start, part.stop, part.size, etag, part.unmarked


class NativeRun:
    """See `swiftlet.peers.Run`."""

    def __init__(self, parts: Sequence[RunPart], settings: NativeSettings, fail: Failure) -> None:
        """Before anything was asked for."""
        self._parts = parts
        self._settings = settings
        self._fail = fail
        self._events: deque[tuple[str, object]] = deque()
        self._more: asyncio.Future[None] | None = None
        self._run: TransportRun | None = None
        self._late: NodeTimeout | None = None
        self.end: RunEnd | None = None

    def begin(self, node: TransportNode, token: int, parts: list[PartParts], trace: str, marks: Marks) -> None:
        """Ask for the first ones; its events come under `token`."""
        names = [raw(name) for name in marks.metadata], [raw(name) for name in marks.sysmeta]
        self._run = node.run(token, parts, STREAM_S, trace, self._settings.window_bytes, names)

    def event(self, kind: str, value: object) -> bool:
        """Take an event; whether it was the last one."""
        self._events.append((kind, value))
        if self._more is not None:
            wake(self._more)
        return kind != "chunk"

    async def chunks(self) -> AsyncIterator[bytes]:
        """All bytes up to the end, or to what is wrong."""
        assert self._run is not None
        while self.end is None:
            if not self._events:
                await self._wait(self._run)
            data = self._joined()
            if data:
                self._run.taken(len(data))
                yield data
            elif self._events:
                self.end = self._ended(self._run, *self._events.popleft())

    def _joined(self) -> bytes:
        """What has come of chunks, up to a size; nothing when the next event is none."""
        pieces: list[bytes] = []
        size = 0
        while self._events and self._events[0][0] == "chunk":
            piece = cast("Chunk", self._events[0][1])[0]
            if pieces and size + len(piece) > JOINED_BYTES:
                break
            self._events.popleft()
            pieces.append(piece)
            size += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    async def _wait(self, run: TransportRun) -> None:
        loop = asyncio.get_running_loop()
        self._more = loop.create_future()
        timer = loop.call_later(self._settings.idle_timeout_s, wake, self._more)
        try:
            await self._more
        finally:
            timer.cancel()
        if not self._events and self._late is None:
            self._late = NodeTimeout(f"nothing was sent for {self._settings.idle_timeout_s:g} s")
            run.stop()  # Its end is an event like any other.

    def _ended(self, run: TransportRun, kind: str, value: object) -> RunEnd:
        ended = run.ended() if kind == "end" else None
        if ended is None:
            # This client was closed: what was on its way from native code is lost, so nobody can go on.
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
        """Want no more of it."""
        if self._run is not None:
            self._run.stop()
        self._events.clear()
