"""What the devices of one region hold, asked of them one by one, within the region.

    python -m bench.wan.holdings STORE HOST ACCOUNT < NAMES

STORE is the folder of the store's files and HOST the region's address. NAMES is a JSON object of lists: the objects of
each container, whose policies have the indexes 0, 1 and so on. Prints a JSON object: for each container and object
[primary, any], what the primary in the region holds and the newest that any of its devices does, as
[timestamp, bytes, ETag]; null is nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path as File

from bench.wan.store import HASH_PATH_SUFFIX
from swiftlet.errors import NotFound
from swiftlet.model import ObjectKey
from swiftlet.names import HashPath, Path
from swiftlet.ring import Ring
from swiftlet.ring.codec import load
from swiftlet.ring.model import Device
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.native_calls import NativeSettings
from swiftlet.transport.native_client import NativeClient
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.transport.signing import ClusterKey

Held = tuple[str, int, str]
"""The timestamp, bytes and ETag of an object on a device."""
_AT_ONCE = 32


class Region:
    """The devices of one region."""

    def __init__(self, store: File, host: str) -> None:
        """Read the store's key from its files; use it within an event loop."""
        self._rings = store / "rings"
        self._host = host
        self._hash_path = HashPath(b"", HASH_PATH_SUFFIX.encode())
        secret = (store / "cluster.key").read_bytes().strip()
        client = NativeClient(NativeSettings(), [secret])
        self.transport = NativeObjectTransport(client, HttpDevices(NodeClient(key=ClusterKey(secret))))
        self._turns = asyncio.Semaphore(_AT_ONCE)

    async def objects(self, account: str, policy: int, container: str, names: Sequence[str]) -> list[list[Held | None]]:
        """Return [primary, any] for each name."""
        ring = load(self._rings / f"object-{policy}.ring")
        return await asyncio.gather(*(self._object(ring, policy, Path(account, container, name)) for name in names))

    async def _object(self, ring: Ring, policy: int, path: Path) -> list[Held | None]:
        digest = self._hash_path.of(path)
        key = ObjectKey(policy, ring.partition_of(digest), digest)
        primaries = [device for device in ring.primaries(key.partition) if device.host == self._host]
        others = [device for device in ring.devices if device and device.host == self._host and device not in primaries]
        async with self._turns:
            first = [one for one in [await self._held(device, key) for device in primaries] if one is not None]
            more = [one for one in [await self._held(device, key) for device in others] if one is not None]
        return [max(first, default=None), max([*first, *more], default=None)]

    async def _held(self, device: Device, key: ObjectKey) -> Held | None:
        try:
            info = await self.transport.head(device, key)
        except NotFound:
            return None
        return info.timestamp.normal, info.size, info.etag


async def main() -> None:
    """Print what the command line asks for."""
    store, host, account = sys.argv[1:]
    wanted = json.load(sys.stdin)
    region = Region(File(store), host)
    try:
        found = {
            container: dict(zip(names, await region.objects(account, policy, container, names), strict=True))
            for policy, (container, names) in enumerate(wanted.items())
        }
    finally:
        await region.transport.close()
    print(json.dumps(found))


if __name__ == "__main__":
    asyncio.run(main())
