"""The account and container server: `swiftlet container`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import swiftlet_native
from aiohttp import web

from swiftlet.errors import Unavailable
from swiftlet.listing.handle import Limits
from swiftlet.listing.pool import ListingStore
from swiftlet.main.background import in_background
from swiftlet.main.encryption import only_encrypted, serve_encrypted
from swiftlet.main.keys import use_keys
from swiftlet.main.local_devices import hosts_of, local_devices, ring_host
from swiftlet.main.moves_report import report_moves
from swiftlet.main.nodes import serve_natively, use_listing_transport
from swiftlet.main.policies import use_policy_list
from swiftlet.main.rings import RingSet, hand_out_rings, use_rings
from swiftlet.main.sealed_keys import use_sealed_keys
from swiftlet.main.services.serving import serve_app
from swiftlet.model import DatabaseId, DatabaseKind
from swiftlet.ring.holders import holders_of, own_index
from swiftlet.servers.containers.account_reports import AccountReporter, ReportSettings
from swiftlet.servers.containers.account_tally import AccountTally
from swiftlet.servers.containers.account_usage import AccountUsage
from swiftlet.servers.containers.container_server import ContainerServer, add_container_routes
from swiftlet.servers.containers.listing_answers import databases_placed_by
from swiftlet.servers.containers.listing_recount import Recount
from swiftlet.servers.containers.listing_upkeep import ListingUpkeep
from swiftlet.servers.containers.native_updates import NativeUpdates, NativeUpdatesSettings, table_status
from swiftlet.servers.containers.policy_tally import PolicyTally
from swiftlet.servers.shared.device_status import DeviceStatus
from swiftlet.settings import ContainerSettings
from swiftlet.sharding.shard_keeper import ShardKeeper, ShardSettings
from swiftlet.sharding.shard_moves import ShardMover
from swiftlet.sharding.sharded import ShardedReplicas
from swiftlet.timestamp import TimestampClock
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.native_caller import machine
from swiftlet.web.app import create_base_app
from swiftlet.web.logs import get_logger
from swiftlet.web.serve import ServeOptions
from swiftlet.web.statusz import STATUS

_log = get_logger("container")


def create_app(settings: ContainerSettings) -> web.Application:
    """Return the account and container server's application."""
    middlewares = only_encrypted(settings.cluster)
    app = create_base_app(settings.service, trust_request_ids=True, middlewares=middlewares)
    rings = RingSet.of(settings, objects=False)
    use_rings(app, rings, settings.cluster.ring_check_interval_s)
    report_moves(app)
    hand_out_rings(app, rings)
    transport = use_listing_transport(app, settings.cluster, settings.container)
    tables: dict[str, swiftlet_native.UpdateTable] = {}
    stores = _use_stores(app, settings, tables)
    if settings.container.native_updates:
        _use_native(app, settings, tables)
    reporter = _use_reporter(app, settings, stores, rings, transport)
    _use_upkeep(app, settings, stores)
    _use_status(app, stores)
    use_sealed_keys(app, settings.cluster, {name: store.root for name, store in stores.items()})
    sharded = _use_sharding(app, settings, stores, rings, transport)
    is_local = local_devices(settings.container)
    placed = {name: databases_placed_by(rings.account, rings.container, name, is_local) for name in stores}
    serve_encrypted(app, settings.cluster)
    key = use_keys(app, settings.cluster).signing
    key.answer_to(hosts_of(settings.container))
    server = ContainerServer(stores, reporter, key, sharded, placed)
    _use_usage(app, server.usage, AccountTally(stores, settings.container.usage_interval_s))
    _use_policies(app, settings, stores, rings)
    add_container_routes(app, server)
    return app


def _use_policies(
    app: web.Application, settings: ContainerSettings, stores: Mapping[str, ListingStore], rings: RingSet
) -> None:
    """Refuse deprecated policies, and report what still uses them, while `app` runs."""
    policies = use_policy_list(app, settings)
    section, is_local = settings.container, local_devices(settings.container)
    rings_of = {DatabaseKind.ACCOUNT: rings.account, DatabaseKind.CONTAINER: rings.container}

    def is_first(device: str, id: DatabaseId) -> bool:
        try:
            holders = holders_of(rings_of[id.kind](), id.partition)
        except Unavailable:
            return False
        return own_index(holders, device, is_local) == 0

    tally = PolicyTally(stores, lambda: policies, is_first, section.usage_interval_s, section.deprecated_policy_grace_s)

    async def tallied(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(tally.run):
            yield

    app.cleanup_ctx.append(tallied)
    app[STATUS].add("policies", tally.report)


def _use_usage(app: web.Application, usage: AccountUsage, tally: AccountTally) -> None:
    """Report what the busiest accounts hold, and which accounts hold most, while `app` runs."""

    async def shown(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(usage.run), in_background(tally.run):
            yield

    app.cleanup_ctx.append(shown)
    app[STATUS].add("accounts", tally.report)


def _use_stores(
    app: web.Application, settings: ContainerSettings, tables: dict[str, swiftlet_native.UpdateTable]
) -> Mapping[str, ListingStore]:
    """Return the devices' databases, which are closed with `app`, and add their update tables to `tables`.

    The tables are there even if nobody may bring rows: an earlier process may have left some. Raises DeviceLocked, and
    DeviceFailed when the rows of an earlier process can't be read.
    """
    section = settings.container
    limits = Limits(
        open_databases=section.open_databases,
        threads=section.threads_per_device,
        reserve_bytes=section.reserve_bytes,
    )

    def make_table(name: str, directory: Path) -> swiftlet_native.UpdateTable:
        table = tables[name] = swiftlet_native.UpdateTable(directory, name)
        return table

    def store(name: str) -> ListingStore:
        root, table = section.devices_dir / name, partial(make_table, name)
        return ListingStore(root, settings.cluster.hash_path, limits, name, table, section.fold_after_s)

    stores = {name: store(name) for name in section.devices}

    async def closing(_app: web.Application) -> AsyncIterator[None]:
        yield
        for one in stores.values():
            await one.close()

    async def folding(_app: web.Application) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for one in stores.values():
                await stack.enter_async_context(in_background(one.run_folding))
            yield

    app.cleanup_ctx.append(closing)
    app.cleanup_ctx.append(folding)
    app[STATUS].add("updates", lambda: {name: table_status(table) for name, table in tables.items()})
    return stores


def _use_native(
    app: web.Application, settings: ContainerSettings, tables: Mapping[str, swiftlet_native.UpdateTable]
) -> None:
    """Take container updates over the native transport while `app` runs. Raises SettingsError when the port is not
    available.
    """
    cluster, section = settings.cluster, settings.container
    name = f"{ring_host(section)}:{section.port}"
    server = NativeUpdates(
        tables,
        use_keys(app, cluster).current,
        NativeUpdatesSettings(
            name=name,
            machine=machine(),
            pool_bytes=cluster.native_pool_bytes,
            socket_directory=cluster.native_socket_directory,
            silence_s=cluster.peer_silence_s,
            encryption=cluster.encryption,
        ),
    )
    port = serve_natively(
        app,
        server,
        cluster,
        (section.host, section.port),
        lambda: True,
        "where container updates are taken",
        "free the port, choose another offset for the whole cluster, or set container.native_updates to false",
    )
    _log.info("the native transport listens", port=port, name=name)


def _use_reporter(
    app: web.Application,
    settings: ContainerSettings,
    stores: Mapping[str, ListingStore],
    rings: RingSet,
    transport: HttpListingTransport,
) -> AccountReporter:
    """Report containers' totals to their accounts while `app` runs."""
    reporter = AccountReporter(
        stores,
        rings.account,
        rings.container,
        transport,
        settings.cluster.hash_path,
        local_devices(settings.container),
        TimestampClock(),
        ReportSettings(interval_s=settings.container.account_update_interval_s),
    )

    async def reporting(_app: web.Application) -> AsyncIterator[None]:
        reporter.start()
        yield
        await reporter.stop()

    app.cleanup_ctx.append(reporting)
    return reporter


def _use_upkeep(app: web.Application, settings: ContainerSettings, stores: Mapping[str, ListingStore]) -> None:
    """Remove old markers, and count rows, while `app` runs."""
    upkeep = ListingUpkeep(stores, settings.cluster.reclaim_age_s)
    recount = Recount(stores, settings.container.recount_interval_s)

    async def kept(_app: web.Application) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(in_background(upkeep.run))
            if settings.container.recount_interval_s:
                await stack.enter_async_context(in_background(recount.run))
            yield

    app.cleanup_ctx.append(kept)


def _use_sharding(
    app: web.Application,
    settings: ContainerSettings,
    stores: Mapping[str, ListingStore],
    rings: RingSet,
    transport: HttpListingTransport,
) -> Mapping[str, ShardedReplicas]:
    """Split containers that have grown, and serve split ones as a whole, while `app` runs."""
    section, clock = settings.container, TimestampClock()
    limits = ShardSettings(above_rows=section.shard_above_rows, takeover_s=section.shard_takeover_s)
    sharded: dict[str, ShardedReplicas] = {}
    keepers: dict[str, ShardKeeper] = {}
    for name, store in stores.items():
        replicas = sharded[name] = ShardedReplicas(name, store, transport, rings.container, local_devices(section))
        keepers[name] = ShardKeeper(replicas, ShardMover(replicas, clock), clock, limits)
        store.follow(keepers[name].committed)

    async def kept(_app: web.Application) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            for keeper in keepers.values():
                await stack.enter_async_context(in_background(keeper.run))
            yield

    app.cleanup_ctx.append(kept)
    app[STATUS].add("shards", lambda: {name: keeper.report() for name, keeper in keepers.items()})
    return sharded


def _use_status(app: web.Application, stores: Mapping[str, ListingStore]) -> None:
    """Report how full the devices are, and whether they work; their replicator reports their standing in the rings."""
    known = {name: DeviceStatus(name) for name in stores}

    def devices() -> dict[str, object]:
        return {name: status.fields() for name, status in known.items()}

    async def watch() -> None:
        await asyncio.gather(
            *(status.watch(partial(status.look, stores[name].usage)) for name, status in known.items())
        )

    async def watched(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(watch):
            yield

    app.cleanup_ctx.append(watched)
    app[STATUS].add("devices", devices)


def run(settings: ContainerSettings) -> int:
    """Serve until asked to end; return the exit code."""
    section = settings.container
    # The query of a listing has three names of up to 1024 bytes each, three times as long when percent-encoded.
    options = ServeOptions(drain_s=settings.drain_s, max_line_size=32_768)
    return serve_app(lambda: create_app(settings), section.host, section.port, options)
