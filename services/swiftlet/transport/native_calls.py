"""One call over the native transport, with a short answer, an answer in pieces, or a body in pieces.

Fault model: see `swiftlet.transport.native_caller`. If a device answers before it has a whole body, the writing ends.
Waits in the middle of a transfer are bounded here; a caller that gives up ends the call, so that the device releases
it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, cast

from swiftlet_native import ObjectWire, TransportTicket, TransportUpload, TransportWindow

from swiftlet.errors import NodeBusy, NodeError, NodeTimeout, NodeUnreachable, SwiftletError
from swiftlet.ring.model import Device
from swiftlet.transport.modes import Encryption, Mode
from swiftlet.transport.wire import error_from_wire

PORT_OFFSET = 1000
"""Usual distance of an object server's native port from its HTTP port."""
STREAM_S = 86_400.0
"""The deadline of a whole transfer; its pauses have bounds of their own, and a process that dies ends its calls."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""The largest size in bytes of a list in an answer."""


@dataclass(frozen=True, slots=True)
class NativeSettings:
    """How a client of native object servers behaves; times in seconds."""

    connect_timeout_s: float = 0.5
    answer_timeout_s: float = 10.0
    idle_timeout_s: float = 10.0
    """Seconds for which a transfer may make no progress in either direction."""
    pool_bytes: int = 128 * 1024 * 1024
    """Bytes of memory for what is received; a transfer that finds it full waits."""
    port_offset: int = PORT_OFFSET
    window_bytes: int = 2 * 1024 * 1024
    """Bytes of a run that may wait for its reader."""
    unsent_bytes: int = 2 * 1024 * 1024
    """Bytes of an upload that may wait to be sent to one node when its writer gives it more."""
    socket_directory: Path | None = None
    """The directory in which peers on the same machine have their sockets."""
    name: str = "client"
    """The name by which servers count this process as a client."""
    rdma: Mode = "off"
    """Whether bodies are sent by RDMA to peers that have it too."""
    silence_s: float = 1.5
    """Seconds of silence after which the connection to a peer is closed."""
    encryption: Encryption = "none"
    """Whether connections are encrypted."""


class NotMade(NodeUnreachable):
    """There is no connection, so the request was not sent."""


class CallFailed(Exception):
    """A call that ended without an answer; it has the kind and reason of the native side."""

    def __init__(self, kind: str, why: str) -> None:
        """Take the values of a failure in `TransportNode.events`."""
        super().__init__(kind, why)
        self.kind = kind
        self.why = why


Failure = Callable[[Device, CallFailed], NodeError]
"""Turns a failed call into a domain error."""


def failure(device: Device, failed: CallFailed) -> NodeError:
    """Return the domain error for a call that got no answer."""
    kind, message = failed.kind, f"{device.address}: {failed.why}"
    if kind == "unreachable":
        return NotMade(message)
    if kind == "lost":
        return NodeUnreachable(message)
    if kind == "deadline":
        return NodeTimeout(message)
    if kind in ("overloaded", "no-memory", "going-away"):
        return NodeBusy(message)
    return NodeError(message)


def refused(device: Device, status: int, header: bytes) -> SwiftletError:
    """Return the domain error for the refusal of a server."""
    name, message, timestamp = ObjectWire.refusal(status, header)
    fields: dict[str, object] = {"error": name, "message": f"{device.address}: {message}"}
    if timestamp is not None:
        fields["timestamp"] = timestamp
    return error_from_wire(500, fields)


class Dialect(Protocol):
    """How servers answer somebody."""

    def header(self, header: bytes) -> bytes:
        """Return the header of an answer without what is put before it. Raises ValueError when it is malformed."""
        ...

    def refused(self, device: Device, status: int, header: bytes) -> SwiftletError:
        """Return the domain error for the refusal of a server."""
        ...


class OfMembers:
    """How servers answer members of the cluster."""

    def header(self, header: bytes) -> bytes:
        """Return the header: nothing is before it."""
        return header

    def refused(self, device: Device, status: int, header: bytes) -> SwiftletError:
        """Return the domain error for the refusal of a server."""
        return refused(device, status, header)


MEMBERS = OfMembers()


def _read(dialect: Dialect, header: bytes) -> bytes:
    try:
        return dialect.header(header)
    except ValueError as error:
        raise CallFailed("invalid", f"an answer that can't be decoded: {error}") from error


class Listener(Protocol):
    """Receives the events of a call."""

    def event(self, kind: str, value: object) -> bool:
        """Process an event; return whether it was the last one."""
        ...


_Reply = tuple[int, bytes, int | None, bytes | None, bool]
"""The status, the header, the size of the body, the whole body if it is small, and whether nothing follows."""
Chunk = tuple[bytes, TransportWindow]
"""Bytes of the body, and the window that lets the sender go on."""


def _failed(value: object) -> CallFailed:
    kind, why = cast("tuple[str, str]", value)
    return CallFailed(kind, why)


class Answer:
    """Collects a short answer."""

    __slots__ = ("_header", "_pieces", "_size", "_status", "dialect", "future")

    def __init__(self, dialect: Dialect = MEMBERS) -> None:
        """Begin before the first event. The future's result is status, header and body."""
        self.dialect = dialect
        self.future: asyncio.Future[tuple[int, bytes, bytes]] = asyncio.get_running_loop().create_future()
        self._status = 0
        self._header = b""
        self._pieces: list[bytes] = []
        self._size = 0

    def event(self, kind: str, value: object) -> bool:
        """Process an event; return whether it was the last one."""
        over = kind in ("end", "failed")
        if self.future.done():
            return over
        if kind == "reply":
            self._status, header, _, body, over = cast("_Reply", value)
            try:
                self._header = _read(self.dialect, header)
            except CallFailed as failed:
                self.future.set_exception(failed)
                return over
            if body is not None:
                self._pieces.append(body)
            if self._status != 0:
                self._done()
                return over
        elif kind == "chunk":
            self._pieces.append(cast("Chunk", value)[0])
            self._size += len(self._pieces[-1])
            if self._size > MAX_ANSWER_BYTES:
                why = f"an answer of more than {MAX_ANSWER_BYTES} bytes"
                self.future.set_exception(CallFailed("remote", why))
        elif kind == "failed":
            self.future.set_exception(_failed(value))
            return True
        if over:
            self._done()
        return over

    def _done(self) -> None:
        self.future.set_result((self._status, self._header, b"".join(self._pieces)))


def outcome(device: Device, answer: Answer, fail: Failure) -> tuple[bytes, bytes]:
    """Return header and body of an answer. Raises the domain error of a refusal, and NodeError."""
    failed = answer.future.exception()
    if isinstance(failed, CallFailed):
        raise fail(device, failed)
    status, header, body = answer.future.result()
    if status != 0:
        raise answer.dialect.refused(device, status, header)
    return header, body


def wake(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_result(None)


class Reading:
    """An answer that comes in pieces."""

    def __init__(self, device: Device, settings: NativeSettings, fail: Failure, dialect: Dialect = MEMBERS) -> None:
        """Begin before the first event."""
        self._device = device
        self._settings = settings
        self._fail = fail
        self.dialect = dialect
        self._events: deque[tuple[str, object]] = deque()
        self._more: asyncio.Future[None] | None = None
        self._over = False
        self._first: bytes | None = None
        self._whole = False
        self.ticket: TransportTicket | None = None
        self.header = b""
        self.footer = b""

    def event(self, kind: str, value: object) -> bool:
        """Process an event; return whether it was the last one."""
        self._over = kind in ("end", "failed") or (kind == "reply" and cast("_Reply", value)[4])
        self._events.append((kind, value))
        if self._more is not None:
            wake(self._more)
        return self._over

    async def _next(self, timeout_s: float) -> object:
        if not self._events:
            # A bare timer is used, as `asyncio.timeout` costs as much as all else in waiting for a small read.
            loop = asyncio.get_running_loop()
            self._more = loop.create_future()
            timer = loop.call_later(timeout_s, wake, self._more)
            try:
                await self._more
            finally:
                timer.cancel()
            if not self._events:
                self.cancel()
                raise NodeTimeout(f"{self._device.address} sent nothing for {timeout_s:g} s")
        kind, value = self._events.popleft()
        if kind == "failed":
            raise self._fail(self._device, _failed(value))
        return value

    async def begin(self) -> None:
        """Wait for the head; a refusal is raised as a domain error."""
        value = await self._next(self._settings.answer_timeout_s)
        status, header, _, self._first, self._whole = cast("_Reply", value)
        try:
            self.header = _read(self.dialect, header)
        except CallFailed as failed:
            raise self._fail(self._device, failed) from None
        if status != 0:
            raise self.dialect.refused(self._device, status, self.header)

    async def piece(self) -> bytes | None:
        """Return the next bytes; None at the end, when `footer` is there (empty if everything was in the head)."""
        if self._first is not None:
            first, self._first = self._first, None
            return first
        if self._whole:
            return None
        value = await self._next(self._settings.idle_timeout_s)
        if isinstance(value, bytes):
            self.footer = value
            return None
        # With the window the sender may send on: a caller that asks for the next piece is done with the last one.
        return cast("Chunk", value)[0]

    def cancel(self) -> None:
        """Cancel the rest; a second call does nothing."""
        self._events.clear()
        if not self._over and self.ticket is not None:
            self.ticket.cancel()


class Writing:
    """A body that is sent in pieces, and the answer to it."""

    def __init__(self, device: Device, settings: NativeSettings, fail: Failure, dialect: Dialect = MEMBERS) -> None:
        """Begin before anything was sent."""
        self._device = device
        self._settings = settings
        self._fail = fail
        self._answer = Answer(dialect)
        self._unsent = 0
        self._room: asyncio.Future[None] | None = None
        self._ended = False
        self.upload: TransportUpload | None = None

    def event(self, kind: str, value: object) -> bool:
        """Process an event; return whether it was the last one."""
        over = False
        if kind == "sent":
            self._unsent -= cast("int", value)
        else:
            over = self._answer.event(kind, value)
        if self._room is not None and not self._room.done() and (self._has_room or self._answer.future.done()):
            self._room.set_result(None)
        return over

    @property
    def _has_room(self) -> bool:
        return self._unsent <= self._settings.unsent_bytes

    @property
    def waiting(self) -> int:
        """The bytes that wait to be sent."""
        return 0 if self.upload is None else self.upload.waiting()

    def check(self) -> None:
        """Raise the error that the device answered before it had the whole body, if there is one."""
        if self._answer.future.done():
            outcome(self._device, self._answer, self._fail)
            raise NodeError(f"{self._device.address} answered before it had the whole object")

    def send(self, chunk: bytes | memoryview) -> bool:
        """Begin to send up to `MAX_SENT_BYTES`; return whether there is room for more."""
        self.check()
        assert self.upload is not None
        if self._ended or not self.upload.send(chunk):
            raise NodeError(f"{self._device.address}: the upload was aborted")
        self._unsent += len(chunk)
        return self._has_room

    async def room(self) -> None:
        """Return when there is room for more."""
        loop, idle_s = asyncio.get_running_loop(), self._settings.idle_timeout_s
        while not self._has_room:
            left, self._room = self.waiting, loop.create_future()
            timer = loop.call_later(idle_s, wake, self._room)
            try:
                await self._room
            finally:
                timer.cancel()
            self.check()
            if not self._has_room and self.waiting == left:
                self.cancel()
                raise NodeTimeout(f"{self._device.address} took no data for {idle_s:g} s")

    async def finish(self, footer: bytes) -> bytes:
        """End the body; return the header of the answer."""
        self.check()
        assert self.upload is not None
        self.upload.end(footer)
        self._ended = True
        answer_s = self._settings.answer_timeout_s
        done, _ = await asyncio.wait({self._answer.future}, timeout=answer_s)
        if not done:
            raise NodeTimeout(f"{self._device.address} did not answer within {answer_s:g} s")
        return outcome(self._device, self._answer, self._fail)[0]

    def cancel(self) -> None:
        """Abort the upload, of which nothing is kept; does nothing after the end."""
        if self.upload is not None and not self._ended:
            self._ended = True
            # The answer will be that the call was cancelled, and nobody asks for it.
            self._answer.future.add_done_callback(lambda answer: answer.cancelled() or answer.exception())
            self.upload.cancel()
