"""Connections to object servers as a guest: by a session of a metadata server, each request with its grant.

Fault model: as of `swiftlet.transport.native_caller`. Answers of object servers are read as those of strangers: what is
malformed is a NodeError of that server. On one machine a server sees all of this client's memory for transfers; bytes
of its answers that it changes while they are read are not those of their checksum.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from swiftlet_native import ObjectWire, TransportMany, TransportNode, guest_answer, guest_header

from swiftlet.boundaries.objects import ContainerUpdate
from swiftlet.errors import GuestRefused, NodeError, SwiftletError
from swiftlet.model import ObjectKey, PutFooter, PutRecord
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport.native_caller import Message, NativeCaller, machine
from swiftlet.transport.native_calls import NativeSettings, Reading, Writing, refused
from swiftlet.transport.native_group import Told
from swiftlet.transport.native_many import NativeMany
from swiftlet.transport.native_writes import NativeWrite, delete_all, put_all

_ABOUT_GUESTS = frozenset({"Unauthorized", "Forbidden", "ClockDiffers", "NotPlain"})
UNSENT_BYTES = 4 << 20
"""Bytes of an upload that may wait to be sent to one server: with as many that are given to it, all that it takes."""
POOL_BYTES = 64 << 20
"""Bytes of memory for what is received, of one session; a transfer that finds it full waits."""


class GuestCaller(NativeCaller):
    """The connections of one session, in one event loop."""

    def __init__(
        self,
        session: bytes,
        secret: bytes,
        port_offset: int,
        authorities: Sequence[str],
        ends: float,
        timeout_s: float,
        socket_directory: str | None = None,
    ) -> None:
        """`ends` is when no connection can be made by the session any more, on this client's monotonic clock.

        With `authorities` (PEM) connections are encrypted, to servers with a certificate by one of them. Servers of
        this machine with a socket in `socket_directory` are reached by that, and share memory with this client.
        """
        settings = NativeSettings(
            connect_timeout_s=timeout_s,
            pool_bytes=POOL_BYTES,
            unsent_bytes=UNSENT_BYTES,
            port_offset=port_offset,
            socket_directory=None if socket_directory is None else Path(socket_directory),
            name="guest",
        )
        super().__init__(settings)
        self.session = session
        self.ends = ends
        self._secret = secret
        self._authorities = list(authorities)

    @property
    def is_idle(self) -> bool:
        """Whether no call is under way."""
        return not self._calls

    def _made(self) -> TransportNode:
        node = TransportNode(
            self.settings.name,
            machine(),
            [],
            pool_bytes=self.settings.pool_bytes,
            socket_directory=self.settings.socket_directory,
            silence_s=self.settings.silence_s,
            authorities=self._authorities or None,
        )
        node.set_session(self.session, self._secret)
        return node


@dataclass(frozen=True, slots=True)
class GuestCalls:
    """The calls of one request: each with the grant and the object's name before the header that a member sends."""

    caller: GuestCaller
    grant: bytes
    name: bytes
    told: Told

    async def ask(self, device: Device, message: Message, body: bytes | memoryview = b"") -> tuple[bytes, bytes]:
        """Send a request with a short answer; return header and body."""
        return await self.caller.ask(device, self._as_guest(message), body, self)

    async def read(self, device: Device, message: Message) -> Reading:
        """Send a request whose answer may be long; return when its head has arrived."""
        return await self.caller.read(device, self._as_guest(message), self)

    async def upload(self, device: Device, message: Message, size: int | None) -> Writing:
        """Send a request whose body follows."""
        return await self.caller.upload(device, self._as_guest(message), size, self)

    async def put_all(
        self,
        devices: Sequence[Device],
        key: ObjectKey,
        record: PutRecord,
        body: bytes,
        footer: PutFooter,
        rows: Sequence[ContainerUpdate],
    ) -> NativeWrite | None:
        """Store a small object at devices, each with its row, by one native call."""
        make = put_all((self.grant, self.name), key, record, body, footer)
        return await self.caller.write(devices, rows, make, self, self.told)

    async def delete_all(
        self,
        devices: Sequence[Device],
        key: ObjectKey,
        timestamp: Timestamp,
        name: str,
        rows: Sequence[ContainerUpdate],
    ) -> NativeWrite | None:
        """Store a tombstone at devices, each with its row, by one native call."""
        make = delete_all((self.grant, self.name), key, timestamp, name)
        return await self.caller.write(devices, rows, make, self, self.told)

    async def many(self, messages: Sequence[tuple[Device, TransportMany]]) -> NativeMany:
        """Send messages with many requests each, which name their objects themselves."""
        return await self.caller.many(messages, self, self.told)

    def _as_guest(self, message: Message) -> Message:
        method, header = message
        try:
            return method, guest_header(self.grant, self.name, header)
        except ValueError as error:
            raise NodeError(f"the request can't be made: {error}") from error

    def header(self, header: bytes) -> bytes:
        """Return the header that a member would have been sent. Raises ValueError."""
        version, now_ms, rest = guest_answer(header)
        self.told(version, now_ms)
        return rest

    def refused(self, device: Device, status: int, header: bytes) -> SwiftletError:
        """Return the error of a refusal: GuestRefused where it is about the guest alone."""
        kind, message, _ = ObjectWire.refusal(status, header)
        if kind in _ABOUT_GUESTS:
            return GuestRefused(f"{device.address}: {message}", kind)
        return refused(device, status, header)
