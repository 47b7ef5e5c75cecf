"""Requests about shards, which container servers send to each other.

Fault model: as of `swiftlet.servers.containers.container_server`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict

from aiohttp import web

from swiftlet.errors import DeviceFailed
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseName, ObjectRow
from swiftlet.servers.shared.json_requests import Answer
from swiftlet.sharding import shard_access
from swiftlet.transport import http_shards as shards_wire
from swiftlet.transport import listing_wire as wire
from swiftlet.transport.wire import WireError, array, flag, number, timestamp

_Place = tuple[ListingStore, int, DatabaseName]


class ShardRoutes:
    """Request handlers over the databases of this process's devices."""

    def __init__(self, stores: Mapping[str, ListingStore]) -> None:
        """`stores` by the devices' names on this server."""
        self._stores = stores

    async def found_shard(self, request: web.Request, fields: Answer) -> Answer:
        """Begin a shard; the answer has no fields."""
        await shard_access.found(*self._place(request), flag(fields, "whole"))
        return {}

    async def merge_shard(self, request: web.Request, fields: Answer) -> Answer:
        """Merge rows into a shard, and return what that changed."""
        return asdict(await shard_access.merge(*self._place(request), _rows(fields)))

    async def page_shard(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `entries`: those of one page, between two positions."""
        low, high = wire.position_from_wire(fields, "low"), shards_wire.position(fields, "high")
        found = await shard_access.page(*self._place(request), shards_wire.query_from_wire(fields), low, high)
        return {"entries": [wire.entry_to_wire(entry) for entry in found]}

    async def look_shard(self, request: web.Request, fields: Answer) -> Answer:
        """Return the state of the shard."""
        return shards_wire.look_to_wire(await shard_access.look(*self._place(request), flag(fields, "middle")))

    async def tail_shard(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `rows`, from the last name down."""
        low, upto = wire.position_from_wire(fields, "low"), shards_wire.position(fields, "upto")
        limit = min(number(fields, "limit"), shards_wire.MAX_TAIL)
        rows = await shard_access.tail(*self._place(request), low, upto, limit)
        return {"rows": [wire.object_row_to_wire(row) for row in rows]}

    async def forget_shard(self, request: web.Request, fields: Answer) -> Answer:
        """Remove rows that are as given; the answer has no fields."""
        await shard_access.forget(*self._place(request), _rows(fields))
        return {}

    async def split_shard(self, request: web.Request, fields: Answer) -> Answer:
        """Add split points; the answer has no fields."""
        points, own = shards_wire.points_from_wire(fields), flag(fields, "own")
        await shard_access.add_points(*self._place(request), timestamp(fields, "timestamp"), points, own)
        return {}

    def _place(self, request: web.Request) -> _Place:
        store = self._stores.get(request.match_info["device"])
        if store is None:
            raise DeviceFailed(f"device {request.match_info['device']} is not served here")
        account = wire.checked_name(request.query.get("account"), "the account")
        container = wire.checked_name(request.query.get("container"), "the container")
        return store, int(request.match_info["partition"]), DatabaseName(account, container)


def _rows(fields: Answer) -> list[ObjectRow]:
    rows = array(fields, "rows")
    if len(rows) > wire.MAX_UPDATE_ROWS:
        raise WireError(f"{len(rows)} rows in one request; send at most {wire.MAX_UPDATE_ROWS}")
    return [wire.object_row_from_wire(row) for row in rows]
