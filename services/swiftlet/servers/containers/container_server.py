"""The account and container server: an HTTP shell around the listing databases of its devices.

Requests name a device, a partition, and the account and container in the query; see `docs/wire.md`. `swiftlet.listing`
carries them out, and `swiftlet.transport.listing_wire` defines their form. After a container was created or deleted
this is reported to its account before the answer goes out, for as long as the reporter allows.

Fault model: see `swiftlet.servers.shared.json_requests` for hostile requests. An answer may get lost; every write is
idempotent by its timestamps, so callers repeat it or leave it to sync.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from aiohttp import web

from swiftlet.errors import DeviceFailed, SwiftletError
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseId, DatabaseName
from swiftlet.servers.containers.account_usage import AccountUsage
from swiftlet.servers.containers.change_log import ChangeLog
from swiftlet.servers.containers.claim_routes import ClaimRoutes
from swiftlet.servers.containers.container_metrics import DURATION, REQUESTS
from swiftlet.servers.containers.listing_routes import SyncRoutes, rows_of
from swiftlet.servers.containers.policy_routes import PolicyRoutes
from swiftlet.servers.containers.row_stream import RowStreams
from swiftlet.servers.containers.shard_routes import ShardRoutes
from swiftlet.servers.shared.json_requests import Answer, answered, parsed, read_signed
from swiftlet.servers.shared.sync_answers import PlacedBy
from swiftlet.sharding.sharded import ShardedReplicas
from swiftlet.timestamp import Timestamp
from swiftlet.transport import listing_wire as wire
from swiftlet.transport import row_wire
from swiftlet.transport.signing import ClusterKey
from swiftlet.transport.wire import WireError, answers_to_wire, timestamp


class ContainerReporter(Protocol):
    """Reports the totals of a container to its account."""

    async def report_now(self, device: str, id: DatabaseId) -> bool:
        """Report within a bounded time; a report that fails is retried later."""
        ...


class ContainerServer:
    """Request handlers over the stores of this process's devices."""

    def __init__(
        self,
        stores: Mapping[str, ListingStore],
        reporter: ContainerReporter | None = None,
        key: ClusterKey | None = None,
        sharded: Mapping[str, ShardedReplicas] | None = None,
        placed: Mapping[str, PlacedBy] | None = None,
    ) -> None:
        """`stores` by the devices' names on this server; `key` None accepts unsigned requests.

        `sharded` has the same devices' containers with their shards, None where no container is ever split. `placed`
        tells where the rings put the same devices, None where no ring is known.
        """
        self.stores = stores
        self.key = key
        self.shards = ShardRoutes(stores)
        self.policies = PolicyRoutes(stores)
        self.changes = ChangeLog()
        for store in stores.values():
            store.watch(self.changes.note)
        self.sync = SyncRoutes(stores, key, placed or {})
        self.claims = ClaimRoutes(stores, reporter, sharded)
        self._sharded = sharded or {}
        self.rows = RowStreams(stores, self._sharded, key)
        self.usage = AccountUsage(stores)
        self._reporter = reporter

    def store(self, request: web.Request) -> ListingStore:
        """Return the store of the device that the request's path names; DeviceFailed when it is not served here."""
        device = request.match_info["device"]
        store = self.stores.get(device)
        if store is None:
            raise DeviceFailed(f"device {device} is not served here")
        return store

    def containers(self, request: web.Request) -> ListingStore | ShardedReplicas:
        """Return the containers of the device that the request's path names, shards included."""
        return self._sharded.get(request.match_info["device"]) or self.store(request)

    # Containers.

    async def put_container(self, request: web.Request, fields: Answer) -> Answer:
        """Create or update a container and answer `{"created": bool}`."""
        store, place = self.store(request), self._container(request)
        policy = None if fields.get("policy") is None else wire.policy_from_wire(fields, "policy")
        created = await store.put_container(
            *place,
            timestamp(fields, "timestamp"),
            wire.metadata_from_wire(fields),
            policy,
            wire.policy_from_wire(fields, "default_policy"),
            wire.bounds_from_wire(fields),
        )
        await self._report(request, store, *place)
        return {"created": created}

    async def post_container(self, request: web.Request, fields: Answer) -> Answer:
        """Merge a container's metadata and answer nothing."""
        store, place = self.store(request), self._container(request)
        stamp, metadata = timestamp(fields, "timestamp"), wire.metadata_from_wire(fields)
        await store.post_container(*place, stamp, metadata, wire.bounds_from_wire(fields))
        return {}

    async def delete_container(self, request: web.Request, _fields: Answer) -> Answer:
        """Delete a container and answer nothing."""
        store, place = self.store(request), self._container(request)
        await self.containers(request).delete_container(*place, _stamp(request))
        await self._report(request, store, *place)
        return {}

    async def describe_containers(self, request: web.Request, fields: Answer) -> Answer:
        """Answer with `answers` to `containers`: each with totals and metadata, or its error."""
        store = self.store(request)

        async def described(place: wire.Described) -> Answer | SwiftletError:
            try:
                return wire.container_info_to_wire(await store.container_info(*place))
            except SwiftletError as error:
                return error

        return answers_to_wire(await asyncio.gather(*map(described, wire.places_from_wire(fields))))

    async def list_container(self, request: web.Request, _fields: Answer) -> Answer | bytes:
        """Answer with totals, metadata and `entries`, or with the page as text where that is requested and possible."""
        place, query = self._container(request), wire.listing_query_from_wire(request.query)
        form = wire.form_from_wire(request.query)
        if form is not None:
            page = await self.store(request).list_text(*place, query, form)
            if page is not None:
                return wire.page_to_wire(*page)
        info, entries = await self.containers(request).list_objects(*place, query)
        return {**wire.container_info_to_wire(info), "entries": [wire.entry_to_wire(entry) for entry in entries]}

    async def update_container(self, request: web.Request, fields: Answer) -> Answer:
        """Merge object rows into a container and answer nothing."""
        place = self._container(request)
        await self.containers(request).update_rows(*place, [wire.object_row_from_wire(row) for row in rows_of(fields)])
        return {}

    # Accounts.

    async def put_account(self, request: web.Request, fields: Answer) -> Answer:
        """Create or update an account and answer `{"created": bool}`."""
        store, place = self.store(request), self._account(request)
        stamp, metadata = timestamp(fields, "timestamp"), wire.metadata_from_wire(fields)
        return {"created": await store.put_account(*place, stamp, metadata, wire.bounds_from_wire(fields))}

    async def post_account(self, request: web.Request, fields: Answer) -> Answer:
        """Merge an account's metadata and answer nothing."""
        store, place = self.store(request), self._account(request)
        stamp, metadata = timestamp(fields, "timestamp"), wire.metadata_from_wire(fields)
        await store.post_account(*place, stamp, metadata, wire.bounds_from_wire(fields))
        return {}

    async def delete_account(self, request: web.Request, _fields: Answer) -> Answer:
        """Delete an account and answer nothing."""
        store, place = self.store(request), self._account(request)
        await store.delete_account(*place, _stamp(request))
        return {}

    async def get_account(self, request: web.Request, _fields: Answer) -> Answer:
        """Answer with an account's totals and metadata."""
        store, place = self.store(request), self._account(request)
        self.usage.note(request.match_info["device"], *place)
        return wire.account_info_to_wire(await store.account_info(*place))

    async def list_account(self, request: web.Request, _fields: Answer) -> Answer:
        """Answer with totals, metadata and `entries`."""
        store, place = self.store(request), self._account(request)
        info, entries = await store.list_containers(*place, wire.listing_query_from_wire(request.query))
        return {**wire.account_info_to_wire(info), "entries": [wire.entry_to_wire(entry) for entry in entries]}

    async def update_account(self, request: web.Request, fields: Answer) -> Answer:
        """Merge container rows into an account and answer nothing."""
        store, place = self.store(request), self._account(request)
        self.usage.note(request.match_info["device"], *place)
        await store.update_containers(*place, [wire.container_row_from_wire(row) for row in rows_of(fields)])
        return {}

    # Parts.

    def _account(self, request: web.Request) -> tuple[int, str]:
        account = wire.checked_name(request.query.get("account"), "the account")
        return int(request.match_info["partition"]), account

    def _container(self, request: web.Request) -> tuple[int, str, str]:
        container = wire.checked_name(request.query.get("container"), "the container")
        return *self._account(request), container

    async def _report(
        self, request: web.Request, store: ListingStore, partition: int, account: str, container: str
    ) -> None:
        if self._reporter is not None:
            id = store.id_of(partition, DatabaseName(account, container))
            await self._reporter.report_now(request.match_info["device"], id)

    def handler(
        self,
        operation: str,
        work: Callable[[web.Request, Answer], Awaitable[Answer | bytes]],
        max_body: int,
        *,
        once: bool = False,
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Return `work` as a handler of aiohttp: with the body read, checked and parsed, counted and timed.

        With `once` a request is obeyed only once: somebody who overheard it could do harm by repeating it.
        """

        async def handle(request: web.Request) -> web.StreamResponse:
            begun = time.perf_counter()

            async def run() -> Answer | bytes:
                return await work(request, parsed(await read_signed(request, max_body, self.key, once=once)))

            response = await answered(run)
            REQUESTS.labels(operation, str(response.status)).inc()
            DURATION.labels(operation).observe(time.perf_counter() - begun)
            return response

        return handle


def add_container_routes(app: web.Application, server: ContainerServer) -> None:
    """Add all routes of an account and container server to an application."""
    partition = "{device}/{partition:[0-9]{1,10}}"
    container, account = f"/v1/containers/{partition}", f"/v1/accounts/{partition}"
    claims = f"/v1/{{kind:accounts|containers}}/{partition}/claims"
    sync = "/v1/sync/{device}"
    database = sync + "/{kind}/{partition:[0-9]{1,10}}/{digest:[0-9a-f]{32}}"
    small, large = wire.MAX_UPDATE_BODY, wire.MAX_SYNC_BODY
    routes: list[tuple[str, str, Any, int]] = [
        ("PUT", container, server.put_container, small),
        ("POST", container, server.post_container, small),
        ("DELETE", container, server.delete_container, small),
        ("POST", "/v1/descriptions/{device}", server.describe_containers, small),
        ("GET", f"{container}/listing", server.list_container, small),
        ("POST", f"{container}/rows", server.update_container, small),
        ("POST", f"{container}/shard/found", server.shards.found_shard, small),
        ("POST", f"{container}/shard/rows", server.shards.merge_shard, small),
        ("POST", f"{container}/shard/page", server.shards.page_shard, small),
        ("POST", f"{container}/shard/look", server.shards.look_shard, small),
        ("POST", f"{container}/shard/tail", server.shards.tail_shard, small),
        ("POST", f"{container}/shard/forget", server.shards.forget_shard, small),
        ("POST", f"{container}/shard/points", server.shards.split_shard, small),
        ("PUT", account, server.put_account, small),
        ("POST", account, server.post_account, small),
        ("DELETE", account, server.delete_account, small),
        ("GET", account, server.get_account, small),
        ("GET", f"{account}/listing", server.list_account, small),
        ("POST", f"{account}/rows", server.update_account, small),
        ("POST", claims, server.claims.take_claims, small),
        ("POST", f"{claims}/confirm", server.claims.confirm_claims, small),
        ("POST", f"{claims}/cancel", server.claims.cancel_claims, small),
        ("POST", "/v1/policies/{device}", server.policies.policy_containers, small),
        ("POST", "/v1/changes", server.changes.changes, small),
        ("GET", sync, server.sync.knock, small),
        ("POST", sync + "/{kind}", server.sync.databases, small),
        ("GET", sync + "/{kind}", server.sync.held_partitions, small),
        ("POST", f"{database}/state", server.sync.exchange_state, large),
        ("GET", f"{database}/state", server.sync.database_state, small),
        ("POST", f"{database}/pages", server.sync.page_digests, small),
        ("POST", f"{database}/compare", server.sync.compare_rows, large),
        ("POST", f"{database}/rows", server.sync.merge_rows, large),
        ("POST", f"{database}/replace", server.sync.replace_rows, large),
        ("POST", f"{database}/find", server.sync.find_rows, large),
        ("POST", f"{database}/forget", server.sync.forget_database, small),
    ]
    # This route has to come before the one that would take its path for a kind of databases.
    app.router.add_route("POST", f"{sync}/session", server.sync.session)
    for method, path, work, max_body in routes:
        once = path.endswith("/forget")
        app.router.add_route(method, path, server.handler(work.__name__, work, max_body, once=once))
    app.router.add_route("GET", row_wire.PATH, server.rows.handle)
    app.on_shutdown.append(server.rows.close)
    app.on_cleanup.append(server.sync.close)


def _stamp(request: web.Request) -> Timestamp:
    value = request.query.get("timestamp", "")
    if not (value.isascii() and value.isdigit() and len(value) <= 20):
        raise WireError(f"timestamp {value!r} is not a number")
    return timestamp({"timestamp": int(value)}, "timestamp")
