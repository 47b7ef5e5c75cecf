"""Many objects of a container directly: one message for each device that is involved, whatever the number of names.

What a message does not do for certain, and completely, is left to single requests, which know all about quorums,
handoffs, renewed grants and newer rings: a name whose devices have not all done the same, or done it otherwise than
expected, and everything when there is no grant.

Fault model: as of `swiftlet.client.direct.way`. A device that is slow delays what it was asked for by `PATIENCE_S` at
most; writes that a quorum has by then are done, as with proxies.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeVar

from swiftlet_native import ObjectWire, TransportMany, md5_of_each, xxh3_64, xxh3_128

from swiftlet.client.direct import plain
from swiftlet.client.direct.errors import GoByHttp
from swiftlet.client.direct.grants import Granted, Kind
from swiftlet.client.direct.parts import Parts, Rights
from swiftlet.client.values import Content, ObjectInfo, ObjectRequest, Written
from swiftlet.client.way import MAX_SMALL_BYTES, Deletion
from swiftlet.context import new_request_id, request_id
from swiftlet.errors import NodeError, SwiftletError, Unavailable
from swiftlet.model import ObjectInfo as StoredInfo
from swiftlet.model import ObjectKey
from swiftlet.names import Path
from swiftlet.native_values import bits_of, info_of, place, raw, raw_pairs
from swiftlet.placement.objects import ReplicatedObjects
from swiftlet.placement.owed import share
from swiftlet.placement.write_plan import WritePlan
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport.native_many import NativeMany, One

T = TypeVar("T")
PATIENCE_S = 0.5
"""Seconds for which the slowest device is waited for, when others have answered."""

_NOTHING: list[tuple[bytes, bytes]] = []


@dataclass(slots=True)
class _Message:
    """A message to a device, and for whom its answers are: the numbers of names, and of their slots."""

    device: Device
    many: TransportMany
    asked: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class _Outbox:
    """Messages by device; a further one where there is no more room in one."""

    grant: bytes
    messages: list[_Message] = field(default_factory=list)
    _open: dict[int, _Message] = field(default_factory=dict)

    def add(self, device: Device, number: int, slot: int, push: Callable[[TransportMany], bool]) -> None:
        """Append a request to the device's message. Raises ValueError for one that is over a limit."""
        message = self._open.get(device.id)
        if message is None or not push(message.many):
            message = self._open[device.id] = _Message(device, TransportMany(device.device, self.grant))
            if not push(message.many):
                raise ValueError("a request that is too large to be one of many")
            self.messages.append(message)
        message.asked.append((number, slot))


@dataclass(slots=True)
class _Write:
    """A write that was sent to the devices of its slots."""

    key: ObjectKey
    plan: WritePlan
    at: Timestamp
    done: list[Device] = field(default_factory=list)
    existed: bool = False
    has_failed: bool = False
    late: set[int] = field(default_factory=set)
    """Ids of devices that have not answered."""

    @property
    def is_decided(self) -> bool:
        """Whether it needs no further answer."""
        return self.has_failed or not self.late or self.plan.quorum.met(self.done)

    @property
    def is_done(self) -> bool:
        """Whether it counts: all devices have done it, or most of them while others only are late."""
        return not self.has_failed and self.plan.quorum.met(self.done)


class DirectMany:
    """Many objects of a container at a time, to and from the devices."""

    def __init__(self, parts: Callable[[], Parts], *, writes: bool) -> None:
        """`parts` returns those of this event loop; without `writes` objects are only read."""
        self._parts = parts
        self._writes = writes

    async def get(self, container: str, names: Sequence[str]) -> list[Content | None]:
        """Return small objects with their bytes; None of those that have to be asked for singly."""

        def push(many: TransportMany, name: bytes, key: ObjectKey) -> bool:
            return many.get(name, place(key), MAX_SMALL_BYTES, True)

        found = await self._read(container, names, push)
        return [
            Content(body, plain.described(info)) if info is not None and len(body) == info.size else None
            for info, body in found
        ]

    async def head(self, container: str, names: Sequence[str]) -> list[ObjectInfo | None]:
        """Return what the store tells of objects; None of those that have to be asked for singly."""
        found = await self._read(container, names, lambda many, name, key: many.head(name, place(key), True))
        return [None if info is None else plain.described(info) for info, _ in found]

    async def put(self, container: str, objects: Sequence[tuple[str, bytes]]) -> list[Written | None]:
        """Store small objects without metadata; None of those that have to be stored singly."""
        results: list[Written | None] = [None] * len(objects)
        granted = await self._granted(container, Kind.WRITE) if self._writes else None
        if granted is None:
            return results
        rights, sizes = granted.rights, [len(data) for _, data in objects]
        news = [plain.new_object(ObjectRequest(container, name)) for name, _ in objects]
        names = [
            name if new is not None and size <= min(MAX_SMALL_BYTES, rights.max_size) and granted.take(size) else None
            for (name, _), new, size in zip(objects, news, sizes, strict=True)
        ]
        etags = _etags(rights, [data for _, data in objects])

        def push(number: int, path: Path, write: _Write, row: int) -> Callable[[TransportMany], bool]:
            name, data = objects[number]
            new = news[number]
            assert new is not None
            version = (write.at.value, 0, raw(str(path)), raw(new.content_type), raw_pairs(new.metadata), _NOTHING)
            footer = sizes[number], xxh3_64(data), raw(etags[number])
            return lambda many: many.put(raw(name), place(write.key), row, version, footer, data)

        for number, write in (await self._write(container, rights, names, push)).items():
            if write.is_done:
                modified = datetime.fromtimestamp(write.at.http_seconds, UTC)
                results[number] = Written(etags[number], sizes[number], modified, is_compared=True)
        return results

    async def delete(self, container: str, names: Sequence[str]) -> list[Deletion]:
        """Delete objects; say of each what has come of it."""
        results = [Deletion.SINGLY] * len(names)
        granted = await self._granted(container, Kind.WRITE) if self._writes else None
        if granted is None:
            return results

        def push(number: int, path: Path, write: _Write, row: int) -> Callable[[TransportMany], bool]:
            name, full = raw(names[number]), raw(str(path))
            return lambda many: many.delete(name, place(write.key), row, write.at.value, full)

        plainly = [name if plain.is_deletion(ObjectRequest(container, name)) else None for name in names]
        for number, write in (await self._write(container, granted.rights, plainly, push)).items():
            if not write.is_done:
                results[number] = Deletion.UNCERTAIN
            else:
                results[number] = Deletion.DONE if write.existed else Deletion.ABSENT
        return results

    async def _granted(self, container: str, kind: Kind) -> Granted[Rights] | None:
        parts = self._parts()
        if parts.devices.lasts:
            return None
        try:
            granted = await parts.granted(container, kind, None)
        except GoByHttp:
            return None
        # Where copies are made in a region alone, others may have to be compared.
        return None if granted.rights.write_quorum == "local" else granted

    async def _read(
        self, container: str, names: Sequence[str], push: Callable[[TransportMany, bytes, ObjectKey], bool]
    ) -> list[tuple[StoredInfo | None, bytes]]:
        """Ask one device for each name; return what it has, with bytes that are those of their checksum."""
        results: list[tuple[StoredInfo | None, bytes]] = [(None, b"")] * len(names)
        granted = await self._granted(container, Kind.READ)
        if granted is None:
            return results
        parts, rights = self._parts(), granted.rights
        objects, outbox = parts.objects(rights, container, ""), _Outbox(rights.signed)
        for number, name in enumerate(names):
            if parts.not_plain.has(container, name) or not plain.is_read(ObjectRequest(container, name)):
                continue
            key = objects.key(parts.path(rights, container, name), rights.policy)
            device = objects.first_reader(key)
            if device is not None:
                outbox.add(device, number, 0, lambda many, name=name, key=key: push(many, raw(name), key))  # type: ignore[misc]
        sent = await _sent(parts, rights, outbox)
        if sent is None:
            return results
        await sent.wait(PATIENCE_S)
        if not sent.is_over:
            sent.cancel()
        for message, answer in zip(outbox.messages, sent.answers, strict=True):
            _note(parts, message.device, answer)
            if isinstance(answer, list):
                for (number, _), one in zip(message.asked, answer, strict=True):
                    results[number] = _found(one)
        return results

    async def _write(
        self,
        container: str,
        rights: Rights,
        names: Sequence[str | None],
        push: Callable[[int, Path, _Write, int], Callable[[TransportMany], bool]],
    ) -> dict[int, _Write]:
        """Send writes to all of their devices, without names that are None; return them by number, once decided."""
        parts = self._parts()
        objects, outbox = parts.objects(rights, container, ""), _Outbox(rights.signed)
        writes: dict[int, _Write] = {}
        for number, name in enumerate(names):
            if name is None:
                continue
            path = parts.path(rights, container, name)
            try:
                write = self._planned(parts, objects, rights, path)
            except Unavailable:
                continue
            try:
                slots = write.plan.slots
                for slot, device in enumerate(slots):
                    row = share(path, rights.container_replicas, slot, len(slots))
                    outbox.add(device, number, slot, push(number, path, write, bits_of(row.replicas)))
            except ValueError:
                write.has_failed = True
            writes[number] = write
        sent = await _sent(parts, rights, outbox)
        if sent is None:
            return {}
        await sent.wait(PATIENCE_S)
        seen: set[int] = set()
        while True:
            for index, (message, answer) in enumerate(zip(outbox.messages, sent.answers, strict=True)):
                if answer is not None and index not in seen:
                    seen.add(index)
                    _note(parts, message.device, answer)
                    _take(message, answer, writes)
            if sent.is_over or all(write.is_decided for write in writes.values()):
                break
            await sent.wait()
        for number, write in writes.items():
            if write.is_done and write.late:
                missed = parts.missed(rights, container, names[number] or "")
                for device in write.plan.slots:
                    if device.id in write.late:
                        missed.note(device, write.key.policy, write.key.partition)
        return writes

    @staticmethod
    def _planned(parts: Parts, objects: ReplicatedObjects, rights: Rights, path: Path) -> _Write:
        key = objects.key(path, rights.policy)
        plan = objects.plan_write(key)
        return _Write(key, plan, parts.clock.next(), late={device.id for device in plan.slots})


async def _sent(parts: Parts, rights: Rights, outbox: _Outbox) -> NativeMany | None:
    """Send messages; None when that can't be done."""
    if not outbox.messages:
        return None
    messages = [(message.device, message.many) for message in outbox.messages]
    token = request_id.set(new_request_id())
    try:
        return await parts.calls(rights, "").many(messages)
    except NodeError:
        return None
    finally:
        request_id.reset(token)


def _note(parts: Parts, device: Device, answer: Sequence[One] | SwiftletError | None) -> None:
    """Note how a device is."""
    if isinstance(answer, NodeError):
        parts.health.failed(device)
    elif isinstance(answer, list):
        parts.health.succeeded(device)
        parts.devices.worked()


def _take(message: _Message, answer: Sequence[One] | SwiftletError, writes: dict[int, _Write]) -> None:
    """Note what a device has answered to its writes."""
    for index, (number, _) in enumerate(message.asked):
        write = writes[number]
        write.late.discard(message.device.id)
        status, header = (1, b"") if isinstance(answer, SwiftletError) else answer[index][:2]
        try:
            _, existed = ObjectWire.written(header) if status == 0 else (False, False)
        except ValueError:
            status, existed = 1, False
        if status == 0:
            write.done.append(message.device)
            write.existed |= existed
        else:
            write.has_failed = True


def _found(one: One) -> tuple[StoredInfo | None, bytes]:
    status, header, body = one
    if status != 0:
        return None, b""
    try:
        parts, known = ObjectWire.found(header)
    except ValueError:
        return None, b""
    if body and xxh3_64(body) != known:
        return None, b""
    return info_of(parts), body


def _etags(rights: Rights, all_data: Sequence[bytes]) -> list[str]:
    if rights.etag == "md5":
        return [digest.hex() for digest in md5_of_each(all_data)]
    return [f"xxh3-{xxh3_128(data).hex()}" for data in all_data]
