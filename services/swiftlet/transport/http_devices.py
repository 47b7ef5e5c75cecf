"""Requests to object servers over HTTP: questions and copies of replicators, and what devices may have missed.

Objects themselves go over the native transport alone (`swiftlet.transport.native_objects`).

Fault model: see `swiftlet.transport.http_client` for requests, `swiftlet.transport.sync_streams` for the stream.
"""

from __future__ import annotations

from swiftlet.boundaries.objects import PendingDoubt, Verdict
from swiftlet.errors import NodeError, SwiftletError
from swiftlet.ring.model import Device
from swiftlet.transport import sync_wire
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.object_messages import doubt_from, judge_path, verdict_json
from swiftlet.transport.sync_streams import SyncStreams
from swiftlet.transport.wire import json_bytes, json_object


class HttpDevices:
    """Devices of other nodes, over a shared pool of connections and one stream to each server."""

    def __init__(self, client: NodeClient) -> None:
        """`client` is closed by `close`."""
        self._client = client
        self._streams = SyncStreams(client)

    def connected(self) -> frozenset[tuple[str, int]]:
        """Return host and port of the nodes to which a connection is open."""
        return self._client.connected()

    async def judge(self, device: Device, verdict: Verdict) -> PendingDoubt | None:
        """Inform a device about its partitions; return what is in doubt after that, None when nothing is."""
        body = json_bytes(verdict_json(verdict))
        answer = await self._client.call(device, "POST", judge_path(device.device), body)
        try:
            return doubt_from(json_object(answer))
        except SwiftletError as error:
            raise NodeError(f"{device.address} sent an answer that can't be decoded: {error}") from error

    async def ask(self, device: Device, message: bytes) -> bytes:
        """Return the answer to a question of a sync session."""
        return await self._streams.ask(device, sync_wire.QUESTION, message)

    async def read_copies(self, device: Device, wanted: bytes) -> bytes:
        """Return copies of many objects."""
        return await self._streams.ask(device, sync_wire.READ, wanted)

    async def take_copies(self, device: Device, copies: bytes) -> bytes:
        """Store copies on a device."""
        return await self._streams.ask(device, sync_wire.WRITE, copies)

    async def close(self) -> None:
        await self._streams.close()
        await self._client.close()
