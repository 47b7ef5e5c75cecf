"""Shards of containers at other container servers, over HTTP and JSON: the client's side and the forms of both.

Fault model: as in `swiftlet.transport.http_listing`; what arrives is checked as there.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from swiftlet.model import DatabaseName, ListingQuery, ObjectRow, RowsChange, ShardLook, Subdir
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport import listing_wire as wire
from swiftlet.transport.http_claims import well_formed
from swiftlet.transport.wire import WireError, array, flag, number, text

MAX_TAIL = 5_000
"""The largest number of rows in one answer to `shard_tail`."""


class HttpShards(ABC):
    """`ShardTransport`, with the methods of the class into which this one is mixed."""

    @abstractmethod
    async def _call(
        self, device: Device, method: str, path: str, query: Mapping[str, str | None], body: object = None
    ) -> dict[str, Any]:
        """Send a request to a device and return the JSON of its answer."""

    async def _shard(
        self, device: Device, partition: int, name: DatabaseName, what: str, body: object
    ) -> dict[str, Any]:
        query = {"account": name.account, "container": name.container}
        path = f"/v1/containers/{device.device}/{partition}/shard/{what}"
        return await self._call(device, "POST", path, query, body)

    async def shard_found(self, device: Device, partition: int, name: DatabaseName, whole: bool) -> None:
        """Behaves as `ShardTransport.shard_found` requires."""
        await self._shard(device, partition, name, "found", {"whole": whole})

    async def shard_merge(
        self, device: Device, partition: int, name: DatabaseName, rows: Sequence[ObjectRow]
    ) -> RowsChange:
        """Behaves as `ShardTransport.shard_merge` requires."""
        total = RowsChange(0, 0, 0, 0)
        for body in wire.rows_bodies(rows):
            answer = await self._shard(device, partition, name, "rows", body)
            with well_formed(device):
                change = change_from_wire(answer)
                total = RowsChange(
                    change.objects,
                    change.bytes,
                    total.more_objects + change.more_objects,
                    total.more_bytes + change.more_bytes,
                )
        return total

    async def shard_page(
        self, device: Device, partition: int, name: DatabaseName, query: ListingQuery, low: str, high: str | None
    ) -> Sequence[ObjectRow | Subdir]:
        """Behaves as `ShardTransport.shard_page` requires."""
        asked = {key: value for key, value in wire.listing_query_to_wire(query).items() if value is not None}
        answer = await self._shard(device, partition, name, "page", {"query": asked, "low": low, "high": high})
        with well_formed(device):
            return [wire.object_entry_from_wire(entry) for entry in array(answer, "entries")]

    async def shard_look(self, device: Device, partition: int, name: DatabaseName, middle: bool = False) -> ShardLook:
        """Behaves as `ShardTransport.shard_look` requires."""
        answer = await self._shard(device, partition, name, "look", {"middle": middle})
        with well_formed(device):
            return look_from_wire(answer)

    async def shard_tail(
        self, device: Device, partition: int, name: DatabaseName, low: str, upto: str | None, limit: int
    ) -> Sequence[ObjectRow]:
        """Behaves as `ShardTransport.shard_tail` requires."""
        answer = await self._shard(device, partition, name, "tail", {"low": low, "upto": upto, "limit": limit})
        with well_formed(device):
            return [wire.object_row_from_wire(row) for row in array(answer, "rows")]

    async def shard_forget(self, device: Device, partition: int, name: DatabaseName, rows: Sequence[ObjectRow]) -> None:
        """Behaves as `ShardTransport.shard_forget` requires."""
        for body in wire.rows_bodies(rows):
            await self._shard(device, partition, name, "forget", body)

    async def shard_points(
        self, device: Device, partition: int, name: DatabaseName, at: Timestamp, points: Sequence[str], own: bool
    ) -> None:
        """Behaves as `ShardTransport.shard_points` requires."""
        body = {"timestamp": at.value, "points": list(points), "own": own}
        await self._shard(device, partition, name, "points", body)


def change_from_wire(fields: Mapping[str, Any]) -> RowsChange:
    """Decode the outcome of rows; WireError."""
    return RowsChange(
        number(fields, "objects"),
        number(fields, "bytes"),
        _signed(fields, "more_objects"),
        _signed(fields, "more_bytes"),
    )


def _signed(fields: Mapping[str, Any], name: str) -> int:
    value = fields.get(name)
    if type(value) is not int:
        raise WireError(f"field {name!r} is not a number")
    return value


def look_to_wire(look: ShardLook) -> dict[str, Any]:
    """Encode the state of a shard."""
    return asdict(look)


def look_from_wire(fields: Mapping[str, Any]) -> ShardLook:
    """Decode the state of a shard. Raises WireError and InvalidName."""
    middle = fields.get("middle")
    return ShardLook(
        objects=number(fields, "objects"),
        bytes=number(fields, "bytes"),
        points=points_from_wire(fields),
        beyond=flag(fields, "beyond"),
        moving=flag(fields, "moving"),
        founded=flag(fields, "founded"),
        middle=None if middle is None else wire.checked_name(middle, "the middle"),
    )


def points_from_wire(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Decode split points. Raises WireError and InvalidName."""
    return tuple(wire.checked_name(point, "a split point") for point in array(fields, "points"))


def position(fields: Mapping[str, Any], name: str) -> str | None:
    """Return a field that is a name or null. Raises WireError and InvalidName."""
    return None if fields.get(name) is None else wire.position_from_wire(fields, name)


def query_from_wire(fields: Mapping[str, Any]) -> ListingQuery:
    """Decode the listing query of a page. Raises WireError."""
    asked = fields.get("query")
    if not isinstance(asked, dict):
        raise WireError("field 'query' is not an object")
    return wire.listing_query_from_wire({name: text(asked, name) for name in asked})
