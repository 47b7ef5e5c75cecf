"""A write that one native call sends to several devices, and their answers, which come together.

Fault model: as of `swiftlet.transport.native_caller`. Each device's answer is one reply or one domain error; one that
is slow lets the others wait for half of the caller's patience.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import cast

from swiftlet_native import TransportNode, TransportPeer, TransportWrite

from swiftlet.boundaries.objects import ContainerUpdate, WriteReply
from swiftlet.errors import SwiftletError
from swiftlet.model import ObjectKey, PutFooter, PutRecord
from swiftlet.native_values import bits_of, delete_at, place, raw, raw_pairs
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport.native_calls import CallFailed, Dialect, Failure

Target = tuple[TransportPeer, str, int]
"""A peer, a device of it, and the container replicas (bits) whose rows it keeps."""
Guest = tuple[bytes, bytes] | None
"""The grant of a guest, and the name of the object; None: a member of the cluster writes."""
Make = Callable[[TransportNode, int, list[Target], float, str], TransportWrite]
"""Makes the native call: with the token of its events, to these targets, within so many seconds, for a request's id."""
Told = Callable[[int, int], None]
"""Called with what guests are told in each answer: the version of the policy's ring, and the clock in ms since 1970."""

_REPLIES = {(pending, existed): WriteReply(pending, existed) for pending in (False, True) for existed in (False, True)}


class NativeWrite:
    """Behaves as `swiftlet.boundaries.objects.SentWrite` requires; the listener of its call."""

    __slots__ = ("_devices", "_dialect", "_fail", "_found", "_is_over", "_is_sound", "_news", "_sent", "_told")

    def __init__(
        self, devices: Sequence[Device], dialect: Dialect, fail: Failure, told: Told = lambda version, now_ms: None
    ) -> None:
        """Begin before anything was sent: `begun` follows."""
        self._devices = devices
        self._dialect = dialect
        self._fail = fail
        self._told = told
        self._found: list[WriteReply | SwiftletError | None] = [None] * len(devices)
        self._is_sound = True
        self._is_over = False
        self._news = asyncio.Event()
        self._sent: TransportWrite | None = None

    def begun(self, sent: TransportWrite) -> None:
        """Note the native call."""
        self._sent = sent

    @property
    def replies(self) -> Sequence[WriteReply]:
        """Return what the devices have answered."""
        return cast("list[WriteReply]", self._found)

    def event(self, kind: str, value: object) -> bool:
        """Take what has come; return whether that was the last."""
        if kind == "failed":
            failed = CallFailed(*cast("tuple[str, str]", value))
            for index, found in enumerate(self._found):
                if found is None:
                    self._note(index, self._fail(self._devices[index], failed))
            self._is_over = True
        else:
            self._take()
        # Who waits for later news waits for another event.
        news, self._news = self._news, asyncio.Event()
        news.set()
        return self._is_over

    def _take(self) -> None:
        assert self._sent is not None
        answers, self._is_over = self._sent.take()
        for index, (kind, value, told) in answers:
            if told is not None:
                self._told(*told)
            if kind == "written":
                self._found[index] = _REPLIES[cast("tuple[bool, bool]", value)]
            elif kind == "refused":
                status, header = cast("tuple[int, bytes]", value)
                self._note(index, self._dialect.refused(self._devices[index], status, header))
            else:
                failed = CallFailed(*cast("tuple[str, str]", value))
                self._note(index, self._fail(self._devices[index], failed))

    def _note(self, index: int, error: SwiftletError) -> None:
        self._found[index] = error
        self._is_sound = False

    async def settle(self, quorum: int, patience_s: float) -> float | None:
        """Return None once all devices have done it, else for how long to wait for others after a quorum."""
        half_s = patience_s / 2
        if self._is_sound and not self._is_over:
            timer = asyncio.get_running_loop().call_later(half_s, self._news.set)
            try:
                await self._news.wait()
            finally:
                timer.cancel()
        if not self._is_sound:
            return patience_s
        if self._is_over:
            return None
        # From now on each answer is told of.
        assert self._sent is not None
        self._sent.hurry()
        self._take()
        done = sum(isinstance(found, WriteReply) for found in self._found)
        return half_s if done >= quorum else patience_s

    async def reply(self, index: int) -> WriteReply:
        """Return what a device answers, or raise its error."""
        while (found := self._found[index]) is None:
            await self._news.wait()
        if isinstance(found, SwiftletError):
            raise found
        return found

    def cancel(self) -> None:
        """Wait for nothing any more."""
        assert self._sent is not None
        self._sent.cancel()


def put_all(
    guest: Guest,
    key: ObjectKey,
    record: PutRecord,
    body: bytes,
    footer: PutFooter,
) -> Make:
    """Return what stores a small object at several devices."""
    version = (
        record.timestamp.value,
        delete_at(record.metadata),
        raw(record.name),
        raw(record.content_type),
        raw_pairs(record.metadata),
        raw_pairs(record.sysmeta),
    )
    end = footer.size, footer.xxh3, raw(footer.etag)

    def make(node: TransportNode, token: int, targets: list[Target], timeout_s: float, trace: str) -> TransportWrite:
        return node.put(token, targets, guest, place(key), version, end, body, timeout_s, trace)

    return make


def delete_all(guest: Guest, key: ObjectKey, timestamp: Timestamp, name: str) -> Make:
    """Return what stores a tombstone at several devices."""

    def make(node: TransportNode, token: int, targets: list[Target], timeout_s: float, trace: str) -> TransportWrite:
        return node.delete(token, targets, guest, place(key), timestamp.value, raw(name), timeout_s, trace)

    return make


def targets_of(
    peers: Sequence[TransportPeer], devices: Sequence[Device], rows: Sequence[ContainerUpdate]
) -> list[Target]:
    """Return devices as native code takes them, each with its row."""
    return [
        (peer, device.device, bits_of(row.replicas)) for peer, device, row in zip(peers, devices, rows, strict=True)
    ]
