"""`ReplicaTransport`: objects over the native transport, by whoever has calls: members and guests.

A small PUT is one message with its body; its bytes go from where Python has them to the socket without a copy. A large
one asks whether the device would take it (PREPARE), so that a caller can turn to another device, and streams: then, or
right behind the question, with what it can send to another device as well. Writes answer PENDING: the device has the
row with its record.

Fault model: see `swiftlet.transport.native_caller`. Nothing is repeated here. Without its footer an upload leaves
nothing. What is read is checked against the xxh3 from its sender before its last byte is passed on, so that damage
never makes a whole object.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol, TypeVar

from swiftlet_native import Hasher, ObjectWire

from swiftlet.boundaries.objects import ContainerUpdate, WriteReply, pieces_of
from swiftlet.errors import NodeDamaged, NodeError, SizeMismatch
from swiftlet.model import ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.native_values import bits_of, delete_at, info_of, place, raw, raw_pairs
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport.native_caller import Message
from swiftlet.transport.native_calls import Reading, Writing

T = TypeVar("T")

_END = 2**64 - 1


class Calls(Protocol):
    """Calls to object servers: those of `swiftlet.transport.native_caller.NativeCaller`."""

    async def ask(self, device: Device, message: Message, body: bytes | memoryview = b"") -> tuple[bytes, bytes]:
        """Send a request with a short answer; return header and body. Raises the error of a refusal, and NodeError."""
        ...

    async def read(self, device: Device, message: Message) -> Reading:
        """Send a request whose answer may be long; return when its head has arrived."""
        ...

    async def upload(self, device: Device, message: Message, size: int | None) -> Writing:
        """Send a request whose body follows."""
        ...


class NativeReplicas:
    """Replicas of objects on other nodes' devices, one at a time."""

    def __init__(self, calls: Calls) -> None:
        """Make requests by `calls`."""
        self._calls = calls

    async def put(
        self,
        device: Device,
        key: ObjectKey,
        record: PutRecord,
        body: bytes,
        footer: PutFooter,
        row: ContainerUpdate | None,
    ) -> WriteReply:
        """Store a small object in one round trip."""
        header, _ = await self._calls.ask(device, _put(device, key, record, footer, row), body)
        return _written(device, header)

    async def open_put(
        self,
        device: Device,
        key: ObjectKey,
        record: PutRecord,
        size: int | None,
        row: ContainerUpdate | None,
        begun: Callable[[NativePutStream], object] | None = None,
    ) -> NativePutStream:
        """Begin a large object; return once the device said that it would take it. `begun` gets the stream before."""
        message = made(device, ObjectWire.prepare, place(key), _bits(row), record.timestamp.value, size)
        if begun is None:
            await self._calls.ask(device, message)
        put = _put(device, key, record, None, row)
        if begun is None:
            return NativePutStream(device, await self._calls.upload(device, put, size), size)
        # The question is sent first, and the stream begins right behind it.
        asked = asyncio.ensure_future(self._calls.ask(device, message))
        try:
            await asyncio.sleep(0)
            stream = NativePutStream(device, await self._calls.upload(device, put, size), size)
        except BaseException:
            asked.cancel()
            await asyncio.gather(asked, return_exceptions=True)
            raise
        try:
            begun(stream)
            await asked
        except BaseException:
            asked.cancel()
            await stream.abort()
            raise
        return stream

    async def get(
        self, device: Device, key: ObjectKey, start: int = 0, stop: int | None = None, *, proved: bool = False
    ) -> NativeGetStream:
        """Read bytes `[start, stop)`."""
        end = _END if stop is None else max(0, stop)
        message = made(device, ObjectWire.get, place(key), start, end, proved)
        reading = await self._calls.read(device, message)
        try:
            parts, known = parsed(device, ObjectWire.found, reading.header)
        except NodeError:
            reading.cancel()
            raise
        info = info_of(parts)
        expected = max(0, min(info.size, info.size if stop is None else stop) - start)
        return NativeGetStream(device, reading, info, expected, known)

    async def head(self, device: Device, key: ObjectKey, *, proved: bool = False) -> ObjectInfo:
        """Return an object's description."""
        header, _ = await self._calls.ask(device, made(device, ObjectWire.head, place(key), proved))
        return info_of(parsed(device, ObjectWire.found, header)[0])

    async def post(
        self,
        device: Device,
        key: ObjectKey,
        record: PostRecord,
        row: ContainerUpdate | None = None,
        *,
        proved: bool = False,
    ) -> WriteReply:
        """Replace an object's metadata."""
        content_type = None if record.content_type is None else raw(record.content_type)
        message = made(
            device,
            ObjectWire.post,
            place(key),
            _bits(row),
            record.timestamp.value,
            delete_at(record.metadata),
            raw_pairs(record.metadata),
            content_type,
            record.content_type_timestamp.value if content_type is not None else 0,
            proved,
        )
        header, _ = await self._calls.ask(device, message)
        pending, existed, parts = parsed(device, ObjectWire.posted, header)
        return WriteReply(pending, existed, None if parts is None else info_of(parts))

    async def delete(
        self, device: Device, key: ObjectKey, timestamp: Timestamp, name: str, row: ContainerUpdate | None
    ) -> WriteReply:
        """Store a tombstone for an object."""
        message = made(device, ObjectWire.delete, place(key), _bits(row), timestamp.value, raw(name))
        header, _ = await self._calls.ask(device, message)
        return _written(device, header)


def _bits(row: ContainerUpdate | None) -> int:
    return 0 if row is None else bits_of(row.replicas)


def made(device: Device, make: Callable[..., Message], *arguments: object) -> Message:
    """Encode a request; NodeError when it is larger than the transport allows."""
    try:
        return make(device.device, *arguments)
    except (ValueError, OverflowError) as error:
        raise NodeError(f"{device.address}: the request can't be made: {error}") from error


def _put(
    device: Device, key: ObjectKey, record: PutRecord, footer: PutFooter | None, row: ContainerUpdate | None
) -> Message:
    return made(
        device,
        ObjectWire.put,
        place(key),
        _bits(row),
        record.timestamp.value,
        delete_at(record.metadata),
        raw(record.name),
        raw(record.content_type),
        raw_pairs(record.metadata),
        raw_pairs(record.sysmeta),
        None if footer is None else (footer.size, footer.xxh3, raw(footer.etag)),
    )


def parsed(device: Device, parse: Callable[[bytes], T], data: bytes) -> T:
    """Decode a peer's answer; NodeError when it is malformed."""
    try:
        return parse(data)
    except ValueError as error:
        raise NodeError(f"{device.address} sent an answer that can't be decoded: {error}") from error


def _written(device: Device, header: bytes) -> WriteReply:
    pending, existed = parsed(device, ObjectWire.written, header)
    return WriteReply(pending, existed)


class NativePutStream:
    """A large object on its way to one device."""

    def __init__(self, device: Device, writing: Writing, size: int | None) -> None:
        """Continue `writing`, an upload that has begun; `size` is None when the sender does not know it."""
        self._device = device
        self._writing = writing
        self._size = size
        self._sent = 0

    @property
    def waiting(self) -> int:
        """The bytes that were given and are not sent yet."""
        return self._writing.waiting

    def send(self, chunk: bytes | memoryview) -> bool:
        """Begin to send a chunk of up to `MAX_SENT_BYTES`; return whether there is room for the next one."""
        if self._size is not None and self._sent + len(chunk) > self._size:
            raise SizeMismatch(f"the body has more than the {self._size} bytes that were announced")
        self._sent += len(chunk)
        if len(chunk):
            return self._writing.send(chunk)
        self._writing.check()
        return True

    async def room(self) -> None:
        """Return when there is room for the next chunk."""
        await self._writing.room()

    async def write(self, chunk: bytes | memoryview) -> None:
        """Send a chunk of any size; return when there is room for the next one."""
        for piece in pieces_of(chunk):
            if not self.send(piece):
                await self.room()

    async def commit(self, footer: PutFooter) -> WriteReply:
        """Finish the upload; return when it is durable."""
        if self._size is not None and self._sent != self._size:
            await self.abort()
            raise SizeMismatch(f"the body has {self._sent} of the {self._size} bytes that were announced")
        end = ObjectWire.footer((footer.size, footer.xxh3, raw(footer.etag)))
        return _written(self._device, await self._writing.finish(end))

    async def abort(self) -> None:
        """Abort the upload; the device keeps nothing."""
        self._writing.cancel()


class NativeGetStream:
    """An object on its way from one device."""

    def __init__(self, device: Device, reading: Reading, info: ObjectInfo, expected: int, known: int | None) -> None:
        """`reading` stands at the first byte of data; `known` is the xxh3 of what comes, None if it comes last."""
        self._device = device
        self._reading = reading
        self._info = info
        self._left = expected
        self._known = known
        self.hasher = Hasher(md5=False, xxh3=True)

    @property
    def info(self) -> ObjectInfo:
        """Return the description of the object on this device."""
        return self._info

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the requested bytes; NodeError if they end early, NodeDamaged if they do not match their checksum."""
        # The last piece is held back until all of them were checked. Each is digested when it is passed on.
        held = b""
        while True:
            piece = await self._reading.piece()
            if piece is None:
                break
            self._left -= len(piece)
            if self._left < 0:
                self._reading.cancel()
                raise NodeError(f"{self._device.address} sent more bytes than were requested")
            if held:
                self.hasher.update(held)
                yield held
            held = piece
        if self._left:
            raise NodeError(f"{self._device.address} ended its answer {self._left} bytes early")
        expected = self._known if self._known is not None else int.from_bytes(self._reading.footer, "big")
        before = self.hasher.copy()
        self.hasher.update(held)
        if self.hasher.xxh3_64() != expected:
            self.hasher = before
            raise NodeDamaged(f"{self._device.address} sent bytes that do not match their checksum")
        if held:
            yield held

    async def close(self) -> None:
        """Stop the download; a second call does nothing."""
        self._reading.cancel()
