"""Which transport a peer is spoken to over: native where its native port answers with the handshake, else HTTP.

Where objects may go natively alone (`must_be_native`), nothing is probed, and who has no native port can't be reached.
What replicators ask, and what devices are told of their partitions, goes over HTTP in any case.

The first request to a peer waits for a probe, for as long as connecting may take. Where it fails HTTP is used, and the
native port is looked at again beside the requests, after pauses that grow to a minute.

Fault model: a peer may have no native port (its stores are not native, or the port is taken), lose it or get it while
we run, or be gone altogether, which both transports notice. A request that was *not sent*, because there is no native
connection, is made over HTTP. One that may have been sent is never made a second time, although all of them could be:
PUT, POST, DELETE, REMOVE and acknowledgements are idempotent by their timestamps, reads are anyway; but a second DELETE
or REMOVE answers differently from the first one, and the layer above has other replicas to turn to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog
from swiftlet_native import TransportPeer

from swiftlet.boundaries.objects import (
    ContainerUpdate,
    GetStream,
    Marks,
    ObjectTransport,
    PendingDoubt,
    PutStream,
    Run,
    RunPart,
    Verdict,
    WriteReply,
)
from swiftlet.errors import NodeBusy, NodeError, NodeUnreachable
from swiftlet.model import Entry, ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport.native_calls import NotMade
from swiftlet.transport.native_client import NativeClient
from swiftlet.transport.native_metrics import FALLBACKS
from swiftlet.transport.native_objects import NativeObjectTransport

T = TypeVar("T")

FIRST_PAUSE_S = 5.0
LAST_PAUSE_S = 60.0
"""Pauses between looks at a native port that can't be used; doubled each time, up to the last."""

_log = structlog.get_logger("transport")


@dataclass(slots=True)
class _Peer:
    """The state of one server."""

    native: bool | None = None
    """Whether its native port can be used; None before the first probe."""
    failures: int = 0
    look_at: float = 0.0
    """When to look again, of the clock."""
    probing: asyncio.Task[None] | None = None


def reason_of(error: NodeError) -> str:
    """Why HTTP is used, as the metric has it."""
    if isinstance(error, NodeBusy):
        return "busy"
    if not isinstance(error, NodeUnreachable):
        return "failed"
    denied = ("refused by a peer", "another server", "does not have the cluster's key")
    return "denied" if any(sign in str(error) for sign in denied) else "unreachable"


class ChoosingObjectTransport:
    """Objects on other nodes' devices, over the better transport that each server has."""

    def __init__(
        self,
        native: NativeObjectTransport,
        http: ObjectTransport,
        clock: Callable[[], float] = time.monotonic,
        *,
        must_be_native: bool = False,
    ) -> None:
        """Both become the transport's to close; `clock` in seconds. `must_be_native`: no object goes over HTTP."""
        self._must_be_native = must_be_native
        self._native = native
        self._http = http
        self._clock = clock
        self._peers: dict[tuple[str, int], _Peer] = {}

    @property
    def client(self) -> NativeClient:
        """The native calls' own side."""
        return self._native.client

    def native_peer(self, device: Device) -> TransportPeer | None:
        """Return the peer that serves a device natively; None where HTTP is used, or before the first probe."""
        peer = self._peers.get((device.host, device.port))
        is_native = self._must_be_native or (peer is not None and peer.native)
        return self._native.native_peer(device) if is_native else None

    async def _is_native(self, device: Device) -> bool:
        peer = self._peers.get((device.host, device.port))
        if peer is None:
            peer = self._peers[device.host, device.port] = _Peer()
        if peer.native:
            return True
        if peer.probing is None and (peer.native is None or self._clock() >= peer.look_at):
            peer.probing = asyncio.create_task(self._probe(device, peer))
        if peer.native is None and peer.probing is not None:
            await asyncio.shield(peer.probing)
        return bool(peer.native)

    async def _probe(self, device: Device, peer: _Peer) -> None:
        try:
            await self._native.probe(device)
        except NodeError as error:
            self._fall_back(device, peer, error)
        except BaseException:
            # Neither native nor known not to be: the next request looks again.
            peer.native = bool(peer.native)
            raise
        else:
            if peer.failures:
                _log.info("the native transport is used again", peer=f"{device.host}:{device.port}")
            peer.native, peer.failures = True, 0
        finally:
            peer.probing = None

    def _fall_back(self, device: Device, peer: _Peer, error: NodeError) -> None:
        FALLBACKS.labels(reason_of(error)).inc()
        if not peer.failures:
            _log.info("HTTP is used", peer=f"{device.host}:{device.port}", reason=str(error))
        peer.native = False
        peer.look_at = self._clock() + min(FIRST_PAUSE_S * 2 ** min(peer.failures, 8), LAST_PAUSE_S)
        peer.failures += 1

    async def _either(self, device: Device, call: Callable[[ObjectTransport], Awaitable[T]]) -> T:
        if self._must_be_native:
            return await call(self._native)
        if await self._is_native(device):
            try:
                return await call(self._native)
            except NotMade as error:
                self._fall_back(device, self._peers[device.host, device.port], error)
        return await call(self._http)

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
        return await self._either(device, lambda way: way.put(device, key, record, body, footer, row))

    async def open_put(
        self, device: Device, key: ObjectKey, record: PutRecord, size: int | None, row: ContainerUpdate | None
    ) -> PutStream:
        """Begin a large object."""
        return await self._either(device, lambda way: way.open_put(device, key, record, size, row))

    async def get(
        self, device: Device, key: ObjectKey, start: int = 0, stop: int | None = None, *, proved: bool = False
    ) -> GetStream:
        """Read bytes `[start, stop)`."""
        return await self._either(device, lambda way: way.get(device, key, start, stop, proved=proved))

    def runs(self, device: Device) -> bool:
        """Whether the device is spoken to natively."""
        return self.native_peer(device) is not None

    def open_run(self, parts: Sequence[RunPart], marks: Marks) -> Run:
        """Begin a run: native devices alone have them.

        One that can't be reached any more ends it; whoever then asks that device by itself has HTTP used.
        """
        return self._native.open_run(parts, marks)

    async def head(self, device: Device, key: ObjectKey, *, proved: bool = False) -> ObjectInfo:
        """Return an object's description."""
        return await self._either(device, lambda way: way.head(device, key, proved=proved))

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
        return await self._either(device, lambda way: way.post(device, key, record, row, proved=proved))

    async def delete(
        self, device: Device, key: ObjectKey, timestamp: Timestamp, name: str, row: ContainerUpdate | None
    ) -> WriteReply:
        """Store a tombstone for an object."""
        return await self._either(device, lambda way: way.delete(device, key, timestamp, name, row))

    async def acknowledge(self, device: Device, written: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """The rows of these versions are through; lost, and made up for by the device, while HTTP is used."""
        await self._either(device, lambda way: way.acknowledge(device, written))

    async def policies(self, device: Device) -> list[int]:
        """Storage policies with anything on the device."""
        return await self._either(device, lambda way: way.policies(device))

    async def partitions(self, device: Device, policy: int) -> list[int]:
        """Partitions with anything in them."""
        return await self._either(device, lambda way: way.partitions(device, policy))

    async def suffix_hashes(self, device: Device, policy: int, partition: int) -> Mapping[str, bytes]:
        """Set hash per suffix."""
        return await self._either(device, lambda way: way.suffix_hashes(device, policy, partition))

    async def entries(self, device: Device, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Return the device's entries in a suffix."""
        return await self._either(device, lambda way: way.entries(device, policy, partition, suffix))

    async def judge(self, device: Device, verdict: Verdict) -> PendingDoubt | None:
        """Tell a device of its partitions; always over HTTP."""
        return await self._http.judge(device, verdict)

    async def ask(self, device: Device, message: bytes) -> bytes:
        """The answer to a question of a sync session; these always go over HTTP."""
        return await self._http.ask(device, message)

    async def read_copies(self, device: Device, wanted: bytes) -> bytes:
        """Copies of many objects; over HTTP's stream, as questions are."""
        return await self._http.read_copies(device, wanted)

    async def take_copies(self, device: Device, copies: bytes) -> bytes:
        """Store copies on a device, over the HTTP stream."""
        return await self._http.take_copies(device, copies)

    async def remove(self, device: Device, key: ObjectKey, entry: Entry) -> bool:
        """Forget a handoff copy."""
        return await self._either(device, lambda way: way.remove(device, key, entry))

    async def close(self) -> None:
        probing = [peer.probing for peer in self._peers.values() if peer.probing is not None]
        for task in probing:
            task.cancel()
        await asyncio.gather(*probing, return_exceptions=True)
        await asyncio.gather(self._native.close(), self._http.close())
