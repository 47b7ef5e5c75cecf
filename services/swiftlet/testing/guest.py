"""A client with direct access, as small as it can be: it asks one device at a time, and tells what that answered."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import aiohttp
from swiftlet_native import ObjectWire, TransportNode, TransportPeer, guest_answer, guest_header, xxh3_64

from swiftlet.names import HashPath, Path
from swiftlet.native_values import raw
from swiftlet.ring import codec
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.timestamp import TimestampClock

ANSWER_S = 30.0


class Reply(NamedTuple):
    """What a device has answered to a guest."""

    outcome: str
    """`ok`, or the name of an error."""
    header: bytes
    body: bytes
    ring_version: int
    now_ms: int


@dataclass(slots=True)
class Guest:
    """A client with a grant, and where the grant's objects are."""

    node: TransportNode
    granted: dict[str, Any]
    ring: Ring
    clock: TimestampClock = field(default_factory=TimestampClock)
    peers: dict[Device, TransportPeer] = field(default_factory=dict)

    @classmethod
    async def with_grant(
        cls, session: aiohttp.ClientSession, url: str, token: str, asked: Mapping[str, object], encrypted: bool = False
    ) -> Guest:
        """Ask the metadata server at `url` for a grant and the ring, and be ready to connect."""
        headers = {"X-Auth-Token": token}
        async with session.post(f"{url}/v1/grants", json=dict(asked), headers=headers) as answer:
            assert answer.status == 200, await answer.text()
            granted = await answer.json()
        async with session.get(f"{url}/v1/rings/{granted['policy']['index']}", headers=headers) as answer:
            ring = codec.decode(await answer.read())
        node = TransportNode(
            "guest", "elsewhere", [], pool_bytes=16 << 20, authorities=granted["authorities"] if encrypted else None
        )
        shown = granted["session"]
        node.set_session(base64.b64decode(shown["token"]), base64.b64decode(shown["secret"]))
        return cls(node, granted, ring)

    def place(self, path: Path) -> tuple[int, int, bytes]:
        """Return policy, partition and digest of an object."""
        secret = self.granted["hash_path"]
        digest = HashPath(base64.b64decode(secret["prefix"]), base64.b64decode(secret["suffix"])).of(path)
        return self.granted["policy"]["index"], self.ring.partition_of(digest), digest

    def devices(self, path: Path) -> tuple[Device, ...]:
        """Return the object's primaries."""
        return self.ring.primaries(self.place(path)[1])

    async def put(self, device: Device, path: Path, data: bytes, etag: str, timestamp: int, row: int = 1) -> Reply:
        """Store an object on one device, which owes its row to the container's replicas in `row`."""
        footer = (len(data), xxh3_64(data), etag.encode())
        pairs = [(b"X-Object-Meta-Colour", b"red")]
        name = raw(str(path))
        message = ObjectWire.put(
            device.device, self.place(path), row, timestamp, 0, name, b"text/plain", pairs, [], footer
        )
        return await self.ask(device, path, message, data)

    async def get(self, device: Device, path: Path) -> Reply:
        """Read an object from one device."""
        return await self.ask(device, path, ObjectWire.get(device.device, self.place(path), 0, 2**64 - 1, False))

    async def delete(self, device: Device, path: Path, timestamp: int, row: int = 1) -> Reply:
        """Delete an object from one device."""
        message = ObjectWire.delete(device.device, self.place(path), row, timestamp, raw(str(path)))
        return await self.ask(device, path, message)

    async def ask(self, device: Device, path: Path, message: tuple[int, bytes], body: bytes = b"") -> Reply:
        """Send a request with the grant, and return the answer."""
        method, header = message
        whole = guest_header(base64.b64decode(self.granted["grant"]), raw(path.obj or ""), header)
        status, header, content = await self._call(device, method, whole, body)
        ring_version, now_ms, rest = guest_answer(header)
        outcome = "ok" if status == 0 else ObjectWire.refusal(status, rest)[0]
        return Reply(outcome, rest, content, ring_version, now_ms)

    async def _call(self, device: Device, method: int, header: bytes, body: bytes) -> tuple[int, bytes, bytes]:
        if device not in self.peers:
            port = device.port + self.granted["native_port_offset"]
            self.peers[device] = self.node.peer(f"{device.host}:{device.port}", device.host, port)
        ticket = self.peers[device].call(1, method, ANSWER_S, "guest", header, body)
        loop = asyncio.get_running_loop()
        status, told, content = -1, b"", b""
        while True:
            ready = asyncio.Event()
            loop.add_reader(self.node.fileno(), ready.set)
            try:
                async with asyncio.timeout(ANSWER_S):
                    await ready.wait()
            finally:
                loop.remove_reader(self.node.fileno())
            for _, kind, value in self.node.events():
                found: Any = value
                if kind == "reply":
                    status, told, _, inside, whole = found
                    content += inside or b""
                    if whole:
                        return status, told, content
                elif kind == "chunk":
                    content += found[0]
                elif kind == "end":
                    return status, told, content
                elif kind == "failed":
                    ticket.cancel()
                    raise ConnectionError(f"{found[0]}: {found[1]}")
