"""Requests of replicators' rounds to container servers over HTTP: a part of `ListingSyncTransport`.

Fault model: as in `swiftlet.transport.http_listing`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from swiftlet.model import DatabaseId, DatabaseKind, DatabaseState, ObjectRow
from swiftlet.ring.model import Device
from swiftlet.transport import listing_wire as wire
from swiftlet.transport.http_claims import well_formed
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.object_messages import MAX_SYNC_MESSAGE
from swiftlet.transport.wire import BYTES_TYPE, WireError, array, flag, number, text

MAX_PARTITION = (1 << 32) - 1
"""The highest number of a partition."""


class HttpDatabases(ABC):
    """Questions and small requests, sent with the methods of the class into which this one is mixed."""

    _client: NodeClient

    @abstractmethod
    async def _call(
        self, device: Device, method: str, path: str, query: Mapping[str, str | None], body: object = None
    ) -> dict[str, Any]:
        """Send a request to a device and return the JSON of its answer."""

    async def knock(self, device: Device) -> None:
        """Behaves as `ListingSyncTransport.knock` requires."""
        await self._call(device, "GET", f"/v1/sync/{device.device}", {})

    async def ask_sync(self, device: Device, message: bytes) -> bytes:
        """Behaves as `ListingSyncTransport.ask_sync` requires."""
        target = f"/v1/sync/{device.device}/session"
        return await self._client.call(
            device, "POST", target, message, content_type=BYTES_TYPE, max_answer=MAX_SYNC_MESSAGE
        )

    async def held_partitions(self, device: Device, kind: DatabaseKind) -> Sequence[int]:
        """Behaves as `ListingSyncTransport.held_partitions` requires."""
        answer = await self._call(device, "GET", f"/v1/sync/{device.device}/{kind.value}", {})
        with well_formed(device):
            return _ascending(array(answer, "partitions"))

    async def database_state(self, device: Device, id: DatabaseId) -> DatabaseState:
        """Behaves as `ListingSyncTransport.database_state` requires."""
        answer = await self._call(device, "GET", database_path(device, id, "state"), {})
        with well_formed(device):
            return wire.state_from_wire(answer)

    async def page_digests(self, device: Device, id: DatabaseId, after: str, upto: str) -> Sequence[tuple[str, bytes]]:
        """Behaves as `ListingSyncTransport.page_digests` requires."""
        body = {"after": after, "upto": upto}
        answer = await self._call(device, "POST", database_path(device, id, "pages"), {}, body)
        with well_formed(device):
            return [wire.page_digest_from_wire(page) for page in array(answer, "pages")]

    async def replace_rows(self, device: Device, id: DatabaseId, changes: Sequence[tuple[ObjectRow, ObjectRow]]) -> int:
        """Behaves as `ListingSyncTransport.replace_rows` requires."""
        body = {"changes": [[wire.object_row_to_wire(old), wire.object_row_to_wire(new)] for old, new in changes]}
        answer = await self._call(device, "POST", database_path(device, id, "replace"), {}, body)
        with well_formed(device):
            return number(answer, "replaced")

    async def find_rows(self, device: Device, id: DatabaseId, names: Sequence[str]) -> tuple[Sequence[ObjectRow], str]:
        """Behaves as `ListingSyncTransport.find_rows` requires."""
        answer = await self._call(device, "POST", database_path(device, id, "find"), {}, {"names": list(names)})
        with well_formed(device):
            return [wire.object_row_from_wire(row) for row in array(answer, "rows")], text(answer, "point")

    async def forget_database(self, device: Device, id: DatabaseId, fingerprint: bytes) -> bool:
        """Behaves as `ListingSyncTransport.forget_database` requires."""
        body = {"fingerprint": fingerprint.hex()}
        answer = await self._call(device, "POST", database_path(device, id, "forget"), {}, body)
        with well_formed(device):
            return flag(answer, "gone")


def database_path(device: Device, id: DatabaseId, what: str) -> str:
    """Return the path of a request about one database of a device."""
    return f"/v1/sync/{device.device}/{wire.id_to_wire(id)}/{what}"


def _ascending(values: Sequence[object]) -> list[int]:
    found: list[int] = []
    for value in values:
        if type(value) is not int or not (found[-1] if found else -1) < value <= MAX_PARTITION:
            raise WireError(f"{value!r} is not a partition, or is out of order")
        found.append(value)
    return found
