"""A write that one native call sends to several devices, and their answers, which come together.

Fault model: as of `swiftlet.transport.native_caller`. Each device's answer is one reply or one domain error; one that
is slow lets the others wait for half of the caller's patience.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from swiftlet_native import TransportGroup, TransportNode, TransportPeer

from swiftlet.boundaries.objects import ContainerUpdate, WriteReply
from swiftlet.errors import SwiftletError
from swiftlet.model import ObjectKey, PutFooter, PutRecord
from swiftlet.native_values import bits_of, delete_at, place, raw, raw_pairs
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport.native_calls import Dialect, Failure
from swiftlet.transport.native_group import NativeGroup, Told

Target = tuple[TransportPeer, str, int]
"""A peer, a device of it, and the container replicas (bits) whose rows it keeps."""
Guest = tuple[bytes, bytes] | None
"""The grant of a guest, and the name of the object; None: a member of the cluster writes."""
Make = Callable[[TransportNode, int, list[Target], float, str], TransportGroup]
"""Makes the native call: with the token of its events, to these targets, within so many seconds, for a request's id."""

_REPLIES = {(pending, existed): WriteReply(pending, existed) for pending in (False, True) for existed in (False, True)}


class NativeWrite(NativeGroup[WriteReply]):
    """Behaves as `swiftlet.boundaries.objects.SentWrite` requires."""

    def __init__(
        self, devices: Sequence[Device], dialect: Dialect, fail: Failure, told: Told = lambda version, now_ms: None
    ) -> None:
        """Begin before anything was sent: `begun` follows."""
        super().__init__(devices, dialect, fail, told, _reply)

    @property
    def replies(self) -> Sequence[WriteReply]:
        """Return what the devices have answered."""
        return cast("list[WriteReply]", self.answers)

    async def settle(self, quorum: int, patience_s: float) -> float | None:
        """Return None once all devices have done it, else for how long to wait for others after a quorum."""
        half_s = patience_s / 2
        if self._is_sound and not self.is_over:
            await self.news(half_s)
        if not self._is_sound:
            return patience_s
        if self.is_over:
            return None
        self.hurry()
        done = sum(isinstance(answer, WriteReply) for answer in self.answers)
        return half_s if done >= quorum else patience_s

    @property
    def _is_sound(self) -> bool:
        """Whether no device has failed or refused."""
        return not any(isinstance(answer, SwiftletError) for answer in self.answers)

    async def reply(self, index: int) -> WriteReply:
        """Return what a device answers, or raise its error."""
        while (answer := self.answers[index]) is None:
            await self.news()
        if isinstance(answer, SwiftletError):
            raise answer
        return answer


def _reply(value: object) -> WriteReply:
    return _REPLIES[cast("tuple[bool, bool]", value)]


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

    def make(node: TransportNode, token: int, targets: list[Target], timeout_s: float, trace: str) -> TransportGroup:
        return node.put(token, targets, guest, place(key), version, end, body, timeout_s, trace)

    return make


def delete_all(guest: Guest, key: ObjectKey, timestamp: Timestamp, name: str) -> Make:
    """Return what stores a tombstone at several devices."""

    def make(node: TransportNode, token: int, targets: list[Target], timeout_s: float, trace: str) -> TransportGroup:
        return node.delete(token, targets, guest, place(key), timestamp.value, raw(name), timeout_s, trace)

    return make


def targets_of(
    peers: Sequence[TransportPeer], devices: Sequence[Device], rows: Sequence[ContainerUpdate]
) -> list[Target]:
    """Return devices as native code takes them, each with its row."""
    return [
        (peer, device.device, bits_of(row.replicas)) for peer, device, row in zip(peers, devices, rows, strict=True)
    ]
