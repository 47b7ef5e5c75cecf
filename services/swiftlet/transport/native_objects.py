"""`ObjectTransport`: objects over the native transport, and requests between replicators and servers over HTTP.

A small PUT is one message with its body; its bytes go from where Python has them to the socket without a copy. A large
one first asks whether the device would take it (PREPARE), so that a caller can turn to another device before any of its
data was sent, and then streams. Writes answer PENDING: the device has the row with its record.

Fault model: see `swiftlet.transport.native_client`. Nothing is repeated here. Without its footer an upload leaves
nothing. What is read is checked against the xxh3 from its sender before its last byte is passed on, so that damage
never makes a whole object.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TypeVar

from swiftlet_native import Hasher, ObjectWire, TransportPeer

from swiftlet.boundaries.objects import (
    MAX_ACKNOWLEDGED,
    ContainerUpdate,
    Marks,
    PendingDoubt,
    Run,
    RunPart,
    Verdict,
    WriteReply,
)
from swiftlet.errors import NodeError, SizeMismatch
from swiftlet.model import Entry, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.native_values import (
    bits_of,
    delete_at,
    entry_of,
    entry_parts,
    info_of,
    place,
    raw,
    raw_pairs,
    version_parts,
)
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.native_calls import Reading, Writing
from swiftlet.transport.native_client import Message, NativeClient

T = TypeVar("T")

_MAX_PIECE = 1024 * 1024
"""The number of bytes that are sent at a time."""
_END = 2**64 - 1


class NativeObjectTransport:
    """Objects on other nodes' devices."""

    def __init__(self, client: NativeClient, devices: HttpDevices) -> None:
        """Both arguments are closed by `close`."""
        self._client = client
        self._devices = devices

    @property
    def client(self) -> NativeClient:
        """The native client, for keys and counters."""
        return self._client

    def native_peer(self, device: Device) -> TransportPeer | None:
        """Return the peer that serves a device, if it is known already."""
        return self._client.known(device)

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
        header, _ = await self._client.ask(device, _put(device, key, record, footer, row), body)
        return _written(device, header)

    async def open_put(
        self, device: Device, key: ObjectKey, record: PutRecord, size: int | None, row: ContainerUpdate | None
    ) -> NativePutStream:
        """Begin a large object; return once the device said that it would take it."""
        message = _made(device, ObjectWire.prepare, place(key), _bits(row), record.timestamp.value, size)
        await self._client.ask(device, message)
        writing = await self._client.upload(device, _put(device, key, record, None, row), size)
        return NativePutStream(device, writing, size)

    async def get(
        self, device: Device, key: ObjectKey, start: int = 0, stop: int | None = None, *, proved: bool = False
    ) -> NativeGetStream:
        """Read bytes `[start, stop)`."""
        end = _END if stop is None else max(0, stop)
        message = _made(device, ObjectWire.get, place(key), start, end, proved)
        reading = await self._client.read(device, message)
        try:
            parts, known = _parsed(device, ObjectWire.found, reading.header)
        except NodeError:
            reading.cancel()
            raise
        info = info_of(parts)
        expected = max(0, min(info.size, info.size if stop is None else stop) - start)
        return NativeGetStream(device, reading, info, expected, known)

    def runs(self, device: Device) -> bool:
        """Whether the device's server was found already."""
        return self._client.known(device) is not None

    def open_run(self, parts: Sequence[RunPart], marks: Marks) -> Run:
        return self._client.open_run(parts, marks)

    async def head(self, device: Device, key: ObjectKey, *, proved: bool = False) -> ObjectInfo:
        """Return an object's description."""
        header, _ = await self._client.ask(device, _made(device, ObjectWire.head, place(key), proved))
        return info_of(_parsed(device, ObjectWire.found, header)[0])

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
        message = _made(
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
        header, _ = await self._client.ask(device, message)
        return _written(device, header)

    async def delete(
        self, device: Device, key: ObjectKey, timestamp: Timestamp, name: str, row: ContainerUpdate | None
    ) -> WriteReply:
        """Store a tombstone for an object."""
        message = _made(device, ObjectWire.delete, place(key), _bits(row), timestamp.value, raw(name))
        header, _ = await self._client.ask(device, message)
        return _written(device, header)

    async def acknowledge(self, device: Device, written: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Acknowledge the rows of these versions."""
        if len(written) > MAX_ACKNOWLEDGED:
            raise ValueError(f"{len(written)} versions are more than {MAX_ACKNOWLEDGED} at a time")
        if written:
            await self._client.ask(device, _made(device, ObjectWire.acknowledge, version_parts(written)))

    async def policies(self, device: Device) -> list[int]:
        """Return the storage policies of which the device has objects or tombstones."""
        _, body = await self._client.ask(device, _made(device, ObjectWire.policies))
        return _parsed(device, ObjectWire.numbers, body)

    async def partitions(self, device: Device, policy: int) -> list[int]:
        """Return the partitions that are not empty."""
        _, body = await self._client.ask(device, _made(device, ObjectWire.partitions, policy))
        return _parsed(device, ObjectWire.numbers, body)

    async def suffix_hashes(self, device: Device, policy: int, partition: int) -> Mapping[str, bytes]:
        """Return the set hash of each suffix."""
        _, body = await self._client.ask(device, _made(device, ObjectWire.suffixes, policy, partition))
        return {f"{suffix:03x}": total for suffix, total in _parsed(device, ObjectWire.suffix_hashes, body)}

    async def entries(self, device: Device, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Return the device's entries in a suffix."""
        message = _made(device, ObjectWire.entries, policy, partition, int(suffix, 16))
        _, body = await self._client.ask(device, message)
        return [entry_of(parts) for parts in _parsed(device, ObjectWire.entry_list, body)]

    async def judge(self, device: Device, verdict: Verdict) -> PendingDoubt | None:
        """Inform a device about its partitions."""
        return await self._devices.judge(device, verdict)

    async def ask(self, device: Device, message: bytes) -> bytes:
        """Return the answer to a question of a sync session."""
        return await self._devices.ask(device, message)

    async def read_copies(self, device: Device, wanted: bytes) -> bytes:
        """Return copies of many objects."""
        return await self._devices.read_copies(device, wanted)

    async def take_copies(self, device: Device, copies: bytes) -> bytes:
        """Store copies on a device."""
        return await self._devices.take_copies(device, copies)

    async def remove(self, device: Device, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy."""
        header, _ = await self._client.ask(device, _made(device, ObjectWire.remove, place(key), entry_parts(entry)))
        return header == b"\x01"

    async def close(self) -> None:
        await asyncio.gather(self._client.close(), self._devices.close())


def _bits(row: ContainerUpdate | None) -> int:
    return 0 if row is None else bits_of(row.replicas)


def _made(device: Device, make: Callable[..., Message], *arguments: object) -> Message:
    """Encode a request; NodeError when it is larger than the transport allows."""
    try:
        return make(device.device, *arguments)
    except (ValueError, OverflowError) as error:
        raise NodeError(f"{device.address}: the request can't be made: {error}") from error


def _put(
    device: Device, key: ObjectKey, record: PutRecord, footer: PutFooter | None, row: ContainerUpdate | None
) -> Message:
    return _made(
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


def _parsed(device: Device, parse: Callable[[bytes], T], data: bytes) -> T:
    """Decode a peer's answer; NodeError when it is malformed."""
    try:
        return parse(data)
    except ValueError as error:
        raise NodeError(f"{device.address} sent an answer that can't be decoded: {error}") from error


def _written(device: Device, header: bytes) -> WriteReply:
    pending, existed = _parsed(device, ObjectWire.written, header)
    return WriteReply(pending, existed)


class NativePutStream:
    """A large object on its way to one device."""

    def __init__(self, device: Device, writing: Writing, size: int | None) -> None:
        """Continue `writing`, an upload that has begun; `size` is None when the sender does not know it."""
        self._device = device
        self._writing = writing
        self._size = size
        self._sent = 0

    async def write(self, chunk: bytes | memoryview) -> None:
        """Send a chunk; return when there is room for the next one."""
        view = memoryview(chunk).cast("B")
        if self._size is not None and self._sent + len(view) > self._size:
            raise SizeMismatch(f"the body has more than the {self._size} bytes that were announced")
        self._sent += len(view)
        if len(view) <= _MAX_PIECE:
            if len(view):
                await self._writing.send(chunk)
            else:
                self._writing.check()
            return
        for start in range(0, len(view), _MAX_PIECE):
            await self._writing.send(view[start : start + _MAX_PIECE])

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

    @property
    def info(self) -> ObjectInfo:
        """Return the description of the object on this device."""
        return self._info

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the requested bytes; NodeError if they end early or do not match their checksum."""
        hasher = Hasher(md5=False, xxh3=True)
        # The last piece is held back until all of them were checked.
        held = b""
        while True:
            piece = await self._reading.piece()
            if piece is None:
                break
            hasher.update(piece)
            self._left -= len(piece)
            if self._left < 0:
                self._reading.cancel()
                raise NodeError(f"{self._device.address} sent more bytes than were requested")
            if held:
                yield held
            held = piece
        if self._left:
            raise NodeError(f"{self._device.address} ended its answer {self._left} bytes early")
        expected = self._known if self._known is not None else int.from_bytes(self._reading.footer, "big")
        if hasher.xxh3_64() != expected:
            raise NodeError(f"{self._device.address} sent bytes that do not match their checksum")
        if held:
            yield held

    async def close(self) -> None:
        """Stop the download; a second call does nothing."""
        self._reading.cancel()
