"""Requests of the replicators of databases to a container server: questions of sessions, and replicas' rows.

Requests name a device and mostly a database; see `docs/wire.md`. `swiftlet.listing.replica` and
`swiftlet.servers.containers.listing_answers` carry them out.

Fault model: see `swiftlet.servers.shared.json_requests` for hostile requests. Every change is a merge, except that a
handoff's copy is removed: that is refused for a database that belongs here by this server's own ring, or has changed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from aiohttp import web

from swiftlet.errors import DeviceFailed
from swiftlet.listing import replica
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseId, DatabaseKind, ObjectRow
from swiftlet.servers.containers.container_metrics import DURATION, REQUESTS
from swiftlet.servers.containers.listing_answers import answer_databases
from swiftlet.servers.containers.listing_index import ListingIndex
from swiftlet.servers.shared.json_requests import Answer, answered, read_signed
from swiftlet.servers.shared.sync_answers import PlacedBy, nowhere
from swiftlet.sync.databases.entries import POLICIES
from swiftlet.transport import listing_wire as wire
from swiftlet.transport.object_messages import MAX_SYNC_MESSAGE
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import WireError, array


class SyncRoutes:
    """Request handlers over the stores of this process's devices."""

    def __init__(
        self, stores: Mapping[str, ListingStore], key: ClusterKey | None, placed: Mapping[str, PlacedBy]
    ) -> None:
        """`stores` and `placed` by the devices' names on this server; `key` None accepts unsigned requests."""
        self._stores = stores
        self._key = key
        self._placed = placed
        self._indexes = {name: ListingIndex(store) for name, store in stores.items()}

    async def close(self, _app: web.Application) -> None:
        """End the background work."""
        for index in self._indexes.values():
            await index.close()

    def _store(self, request: web.Request) -> ListingStore:
        """Return the store of the device that the request's path names; DeviceFailed when it is not served here."""
        device = request.match_info["device"]
        store = self._stores.get(device)
        if store is None:
            raise DeviceFailed(f"device {device} is not served here")
        return store

    # Rounds.

    async def session(self, request: web.Request) -> web.StreamResponse:
        """Answer a question of a sync session."""
        begun = time.perf_counter()

        async def run() -> bytes:
            message = await read_signed(request, MAX_SYNC_MESSAGE, self._key)
            self._store(request)
            device = request.match_info["device"]
            return await answer_databases(self._indexes[device], message, self._placed.get(device, nowhere))

        response = await answered(run)
        REQUESTS.labels("session", str(response.status)).inc()
        DURATION.labels("session").observe(time.perf_counter() - begun)
        return response

    async def knock(self, request: web.Request, _fields: Answer) -> Answer:
        """Answer with `kinds`, if the device works."""
        self._store(request).require()
        return {"kinds": [kind.value for kind in DatabaseKind]}

    async def held_partitions(self, request: web.Request, _fields: Answer) -> Answer:
        """Answer with the `partitions` that have databases of a kind, ascending."""
        self._store(request)
        kind, index = _kind(request), self._indexes[request.match_info["device"]]
        await index.ready(kind)
        return {"partitions": index.partitions(kind)}

    async def database_state(self, request: web.Request, _fields: Answer) -> Answer:
        """Answer with the state of a database."""
        return wire.state_to_wire(await replica.state_of(self._store(request), _id(request)))

    async def page_digests(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `pages`: the end and the set hash of each."""
        after, upto = wire.position_from_wire(fields, "after"), wire.position_from_wire(fields, "upto")
        pages = await replica.page_digests(self._store(request), _id(request), after, upto)
        return {"pages": [wire.page_digest_to_wire(*page) for page in pages]}

    async def replace_rows(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `replaced`: how many rows were still as the request says."""
        id = _container_id(request)
        changes = [_change(change) for change in _bounded(array(fields, "changes"))]
        return {"replaced": await replica.replace_rows(self._store(request), id, changes)}

    async def find_rows(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with the `rows` of the names that have one, and the first split `point`."""
        names = [wire.checked_name(name, "an object's name") for name in _bounded(array(fields, "names"))]
        rows, point = await replica.find_rows(self._store(request), _container_id(request), names)
        return {"rows": [wire.object_row_to_wire(row) for row in rows], "point": point}

    async def forget_database(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `gone`: whether the database was removed from the device."""
        store, id = self._store(request), _id(request)
        fingerprint = wire.digest_from_wire(fields, "fingerprint")
        placed = self._placed.get(request.match_info["device"], nowhere)
        if placed(POLICIES[id.kind]).is_primary(id.partition):
            return {"gone": False}
        return {"gone": await store.remove(id, fingerprint)}

    async def databases(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `databases`, and whether there are `more` after them."""
        after = None if fields.get("after") is None else wire.id_from_text(fields["after"])
        found, more = await replica.databases_after(self._store(request), _kind(request), after)
        return {"databases": [wire.id_to_wire(id) for id in found], "more": more}

    async def exchange_state(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with the state after the merge."""
        state = await replica.merge_state(self._store(request), _id(request), wire.state_from_wire(fields))
        return wire.state_to_wire(state)

    async def compare_rows(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `{"equal": true}`, or with `rows` and the name `upto` which they reach."""
        digest = wire.digest_from_wire(fields, "digest")
        after, upto = wire.position_from_wire(fields, "after"), wire.position_from_wire(fields, "upto")
        page = await replica.compare_rows(self._store(request), _id(request), after, upto, digest)
        if page is None:
            return {"equal": True}
        return {"equal": False, "rows": [wire.row_to_wire(row) for row in page.rows], "upto": page.upto}

    async def merge_rows(self, request: web.Request, fields: Answer) -> Answer:
        """Merge rows of another replica and answer nothing."""
        id = _id(request)
        is_container = id.kind is DatabaseKind.CONTAINER
        decode = wire.object_row_from_wire if is_container else wire.container_row_from_wire
        rows = [decode(row) for row in rows_of(fields)]
        await replica.merge_rows(self._store(request), id, wire.name_from_wire(fields), rows)
        return {}


def rows_of(fields: Answer) -> list[Any]:
    """Return the rows in a request, unparsed; WireError when there are too many."""
    return _bounded(array(fields, "rows"))


def _bounded(rows: list[Any]) -> list[Any]:
    if len(rows) > wire.MAX_UPDATE_ROWS:
        raise WireError(f"{len(rows)} rows in one request; send at most {wire.MAX_UPDATE_ROWS}")
    return rows


def _id(request: web.Request) -> DatabaseId:
    info = request.match_info
    return wire.id_from_wire(info["kind"], info["partition"], info["digest"])


def _container_id(request: web.Request) -> DatabaseId:
    id = _id(request)
    if id.kind is not DatabaseKind.CONTAINER:
        raise WireError(f"database {id} does not belong to a container and has no rows of objects")
    return id


def _change(change: object) -> tuple[ObjectRow, ObjectRow]:
    if not isinstance(change, list) or len(change) != 2:
        raise WireError("a change must be a list of two rows")
    old, new = map(wire.object_row_from_wire, change)
    if old.name != new.name:
        raise WireError("the two rows of a change must have the same name")
    return old, new


def _kind(request: web.Request) -> DatabaseKind:
    try:
        return DatabaseKind(request.match_info["kind"])
    except ValueError as error:
        raise WireError(str(error)) from error
