"""`ObjectTransport`: objects over the native transport, and requests between replicators and servers over HTTP.

Fault model: see `swiftlet.transport.native_replicas`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from swiftlet_native import ObjectWire, TransportPeer

from swiftlet.boundaries.objects import MAX_ACKNOWLEDGED, Marks, PendingDoubt, Run, RunPart, Verdict
from swiftlet.model import Entry, ObjectKey
from swiftlet.native_values import entry_of, entry_parts, place, version_parts
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.native_client import NativeClient
from swiftlet.transport.native_coded import NativeCoded
from swiftlet.transport.native_replicas import NativeReplicas, made, parsed


class NativeObjectTransport(NativeReplicas):
    """Objects on other nodes' devices, and all else that members of the cluster ask of object servers."""

    def __init__(self, client: NativeClient, devices: HttpDevices) -> None:
        """Both arguments are closed by `close`."""
        super().__init__(client)
        self._client = client
        self._devices = devices
        self.coded = NativeCoded(client)
        """Objects with erasure coding."""

    @property
    def client(self) -> NativeClient:
        """The native client, for keys and counters."""
        return self._client

    def native_peer(self, device: Device) -> TransportPeer | None:
        """Return the peer that serves a device, if it is known already."""
        return self._client.known(device)

    async def peer(self, device: Device) -> TransportPeer:
        """Return the peer that serves a device. Raises NodeError when its address can't be found."""
        return await self._client.peer(device)

    def runs(self, device: Device) -> bool:
        """Whether the device's server was found already."""
        return self._client.known(device) is not None

    def open_run(self, parts: Sequence[RunPart], marks: Marks) -> Run:
        return self._client.open_run(parts, marks)

    async def acknowledge(self, device: Device, written: Sequence[tuple[ObjectKey, Timestamp]]) -> None:
        """Acknowledge the rows of these versions."""
        if len(written) > MAX_ACKNOWLEDGED:
            raise ValueError(f"{len(written)} versions are more than {MAX_ACKNOWLEDGED} at a time")
        if written:
            await self._client.ask(device, made(device, ObjectWire.acknowledge, version_parts(written)))

    async def policies(self, device: Device) -> list[int]:
        """Return the storage policies of which the device has objects or tombstones."""
        _, body = await self._client.ask(device, made(device, ObjectWire.policies))
        return parsed(device, ObjectWire.numbers, body)

    async def partitions(self, device: Device, policy: int) -> list[int]:
        """Return the partitions that are not empty."""
        _, body = await self._client.ask(device, made(device, ObjectWire.partitions, policy))
        return parsed(device, ObjectWire.numbers, body)

    async def suffix_hashes(self, device: Device, policy: int, partition: int) -> Mapping[str, bytes]:
        """Return the set hash of each suffix."""
        _, body = await self._client.ask(device, made(device, ObjectWire.suffixes, policy, partition))
        return {f"{suffix:03x}": total for suffix, total in parsed(device, ObjectWire.suffix_hashes, body)}

    async def entries(self, device: Device, policy: int, partition: int, suffix: str) -> list[Entry]:
        """Return the device's entries in a suffix."""
        message = made(device, ObjectWire.entries, policy, partition, int(suffix, 16))
        _, body = await self._client.ask(device, message)
        return [entry_of(parts) for parts in parsed(device, ObjectWire.entry_list, body)]

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
        header, _ = await self._client.ask(device, made(device, ObjectWire.remove, place(key), entry_parts(entry)))
        return header == b"\x01"

    async def close(self) -> None:
        await asyncio.gather(self._client.close(), self._devices.close())
