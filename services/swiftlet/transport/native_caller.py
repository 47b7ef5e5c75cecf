"""The asyncio end of the native transport: calls with tokens, events in batches through one descriptor.

Nothing here blocks, and no call has a timer of its own: the native side has the deadlines, and reports their end like
any other end of a call. `swiftlet.transport.native_replicas` explains the methods; `docs/transport.md` is the protocol.

Fault model: a peer may be unreachable, refuse the handshake, fall silent (known within two seconds), or break off at
any byte. Each call ends with one answer or one NodeError; nothing is repeated. An address may change with the peer's
pod: it is looked up again whenever a call could not be made (`NotMade`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path

from swiftlet_native import TransportMany, TransportNode, TransportPeer, TransportTicket

from swiftlet.boundaries.objects import ContainerUpdate
from swiftlet.context import request_id
from swiftlet.errors import NodeError
from swiftlet.ring.model import Device
from swiftlet.transport.names import NAMES
from swiftlet.transport.native_calls import (
    MEMBERS,
    STREAM_S,
    Answer,
    CallFailed,
    Dialect,
    Listener,
    NativeSettings,
    NotMade,
    Reading,
    Writing,
    failure,
    outcome,
)
from swiftlet.transport.native_group import Told
from swiftlet.transport.native_many import NativeMany
from swiftlet.transport.native_writes import Make, NativeWrite, targets_of

_MAX_TRACE = 80
"""Characters of the longest id of a request."""
MAX_NAME = 255
"""Bytes of the longest name of a process or a peer."""

Message = tuple[int, bytes]
"""The number of a method, and the header of the request."""


def machine() -> str:
    """Return an identifier of this machine since its boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return socket.gethostname()


class NativeCaller(ABC):
    """The calls of this process to native object servers; runs in one event loop from the first call on."""

    def __init__(self, settings: NativeSettings) -> None:
        """No thread is started before `open` or the first call."""
        self.settings = settings
        self._node: TransportNode | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._token = 0
        self._calls: dict[int, Listener] = {}
        self._peers: dict[tuple[str, str | None, int], TransportPeer] = {}
        self._current: dict[tuple[str, int], TransportPeer] = {}

    def open(self) -> None:
        """Start the native side now instead of with the first call."""
        if self._node is None:
            self._node = self._made()

    @abstractmethod
    def _made(self) -> TransportNode:
        """Return a native side that has just been started."""

    def _start(self) -> TransportNode:
        self.open()
        assert self._node is not None
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._node.fileno(), self._drain, self._node)
        return self._node

    def _drain(self, node: TransportNode) -> None:
        for token, kind, value in node.events():
            listener = self._calls.get(token)
            if listener is not None and listener.event(kind, value):
                del self._calls[token]

    def known(self, device: Device) -> TransportPeer | None:
        """Return the peer that serves a device, if it is known already."""
        return self._current.get((device.host, device.port))

    async def peer(self, device: Device) -> TransportPeer:
        """Return the peer that serves a device. Raises NotMade when its name does not resolve."""
        found = self._current.get((device.host, device.port))
        if found is None:
            found = self._current[device.host, device.port] = await self._find(device)
        return found

    async def _find(self, device: Device) -> TransportPeer:
        port = device.port + self.settings.port_offset
        name = f"{device.host}:{device.port}"
        if not 0 < port <= 0xFFFF or len(name.encode()) > MAX_NAME:
            raise NotMade(f"{device.address} has no native port")
        address = await self._resolve(device, port)
        known = self._peers.get((name, address, port))
        if known is None:
            # The native side keeps peers for good, so this is done once per address that a peer has ever had.
            known = self._peers[name, address, port] = self._start().peer(name, address, port)
        return known

    async def _resolve(self, device: Device, port: int) -> str:
        try:
            return str(ipaddress.ip_address(device.host))
        except ValueError:
            pass
        try:
            async with asyncio.timeout(self.settings.connect_timeout_s):
                found = await NAMES.find(device.host, port)
        except (OSError, TimeoutError) as error:
            raise NotMade(f"{device.address}: its name does not resolve: {error}") from error
        return str(found[0][4][0])

    def forget(self, device: Device) -> None:
        """Look the address up again before the next call."""
        self._current.pop((device.host, device.port), None)

    def _next(self) -> int:
        self._token += 1
        return self._token

    def native(self) -> TransportNode:
        """Return the native side, after starting it if necessary."""
        return self._start()

    def listen(self, listener: Listener) -> tuple[TransportNode, int]:
        """Register a listener that makes no call; return the native side and the token of its events."""
        node, token = self._start(), self._next()
        self._calls[token] = listener
        return node, token

    def mute(self, token: int) -> None:
        """Remove the listener with this token."""
        self._calls.pop(token, None)

    async def ask(
        self, device: Device, message: Message, body: bytes | memoryview = b"", dialect: Dialect = MEMBERS
    ) -> tuple[bytes, bytes]:
        """Send a request with a short answer; return header and body. Raises the error of a refusal, and NodeError.

        `dialect` is how servers answer the sender.
        """
        answer = Answer(dialect)
        ticket = await self._call(device, message, body, self.settings.answer_timeout_s, answer)
        try:
            await answer.future
        except CallFailed:
            ticket.cancel()
        except BaseException:
            ticket.cancel()
            raise
        return outcome(device, answer, self._failure)

    def _failure(self, device: Device, failed: CallFailed) -> NodeError:
        error = failure(device, failed)
        if isinstance(error, NotMade):
            self.forget(device)
        return error

    async def _call(
        self, device: Device, message: Message, body: bytes | memoryview, timeout_s: float, listener: Listener
    ) -> TransportTicket:
        peer = await self.peer(device)
        token = self._next()
        self._calls[token] = listener
        try:
            return peer.call(token, message[0], timeout_s, trace(), message[1], body)
        except ValueError as error:
            del self._calls[token]
            raise NodeError(f"{device.address}: the request can't be made: {error}") from error

    async def write(
        self,
        devices: Sequence[Device],
        rows: Sequence[ContainerUpdate],
        make: Make,
        dialect: Dialect = MEMBERS,
        told: Told = lambda version, now_ms: None,
    ) -> NativeWrite | None:
        """Send a write to several devices by one native call; None when the address of one can't be found."""
        try:
            peers = [self._current.get((device.host, device.port)) or await self.peer(device) for device in devices]
        except NotMade:
            return None
        write = NativeWrite(devices, dialect, self._failure, told)
        node, token = self.listen(write)
        try:
            targets = targets_of(peers, devices, rows)
            write.begun(make(node, token, targets, self.settings.answer_timeout_s, trace()))
        except ValueError as error:
            self.mute(token)
            raise NodeError(f"the request can't be made: {error}") from error
        return write

    async def many(
        self,
        messages: Sequence[tuple[Device, TransportMany]],
        dialect: Dialect = MEMBERS,
        told: Told = lambda version, now_ms: None,
    ) -> NativeMany:
        """Send messages with many requests each. Raises NodeError when they can't be sent."""
        peers = [(await self.peer(device), message) for device, message in messages]
        sent = NativeMany([device for device, _ in messages], dialect, self._failure, told)
        node, token = self.listen(sent)
        try:
            sent.begun(node.send_many(token, peers, self.settings.answer_timeout_s, trace()))
        except ValueError as error:
            self.mute(token)
            raise NodeError(f"the requests can't be made: {error}") from error
        return sent

    async def read(self, device: Device, message: Message, dialect: Dialect = MEMBERS) -> Reading:
        """Send a request whose answer may be long; return when its head has arrived."""
        reading = Reading(device, self.settings, self._failure, dialect)
        reading.ticket = await self._call(device, message, b"", STREAM_S, reading)
        try:
            await reading.begin()
        except BaseException:
            reading.cancel()
            raise
        return reading

    async def upload(self, device: Device, message: Message, size: int | None, dialect: Dialect = MEMBERS) -> Writing:
        """Send a request whose body follows."""
        peer = await self.peer(device)
        token = self._next()
        writing = Writing(device, self.settings, self._failure, dialect)
        self._calls[token] = writing
        try:
            writing.upload = peer.upload(token, message[0], STREAM_S, trace(), message[1], size)
        except ValueError as error:
            del self._calls[token]
            raise NodeError(f"{device.address}: the request can't be made: {error}") from error
        return writing

    def report(self) -> list[Mapping[str, object]]:
        """Return the counters of each peer to which calls were made; see `TransportNode.report`."""
        return [] if self._node is None else [row for row in self._node.report() if not row["is_client"]]

    async def close(self) -> None:
        """End all connections; calls that wait for an answer fail."""
        if self._node is None:
            return
        if self._loop is not None:
            self._loop.remove_reader(self._node.fileno())
            self._loop = None
        calls, self._calls = self._calls, {}
        self._peers.clear()
        self._current.clear()
        for listener in calls.values():
            listener.event("failed", ("lost", "this client was closed"))
        # Its threads end when nothing refers to it any more; nobody should have to wait for that.
        last, self._node = [self._node], None
        try:
            await asyncio.to_thread(last.clear)
        except RuntimeError:
            # The interpreter ends, and starts no thread any more.
            last.clear()


def trace() -> str:
    """Return the id of the request by which servers know calls in their logs."""
    current = request_id.get()
    return current if len(current) <= _MAX_TRACE and current.isascii() else current.encode()[:16].hex()
