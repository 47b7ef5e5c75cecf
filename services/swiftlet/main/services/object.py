"""The object server: `swiftlet object`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path

from aiohttp import web
from swiftlet_native import Doubts

from swiftlet.errors import DeviceFailed, SettingsError, StoreFormatError
from swiftlet.main.encryption import only_encrypted, serve_encrypted
from swiftlet.main.keys import use_keys
from swiftlet.main.local_devices import hosts_of, local_devices, ring_host
from swiftlet.main.moves_report import report_moves
from swiftlet.main.nodes import serve_natively, use_listing_transport, use_object_transport
from swiftlet.main.policies import use_policies
from swiftlet.main.ring_names import object_ring
from swiftlet.main.rings import RingSet, hand_out_rings, use_rings
from swiftlet.main.sealed_keys import use_sealed_keys
from swiftlet.main.services.serving import serve_app
from swiftlet.placement.packed import PackedObjects
from swiftlet.placement.rows.row_queues import RowQueues
from swiftlet.ring.model import Coding
from swiftlet.servers.objects.native_pending import NativePending
from swiftlet.servers.objects.native_server import NativeServer, NativeServerSettings
from swiftlet.servers.objects.object_server import ObjectServer, ObjectServerSettings, add_object_routes
from swiftlet.servers.shared.sync_answers import placed_by
from swiftlet.settings import ObjectSection, ObjectSettings
from swiftlet.settings.policies import Policies
from swiftlet.store.native import NativeStore
from swiftlet.transport.native_caller import machine
from swiftlet.web.app import create_base_app
from swiftlet.web.logs import get_logger
from swiftlet.web.serve import ServeOptions
from swiftlet.web.statusz import STATUS

_log = get_logger("object")


def create_app(settings: ObjectSettings) -> web.Application:
    """Return the object server's application, which owns the devices.

    Raises DeviceFailed when no device can be used, and DeviceLocked.
    """
    cluster, section = settings.cluster, settings.object
    app = create_base_app(settings.service, trust_request_ids=True, middlewares=only_encrypted(cluster))
    rings = RingSet.of(settings, account=False, objects=False)
    use_rings(app, rings, cluster.ring_check_interval_s)
    report_moves(app)
    hand_out_rings(app, rings)
    # The server also works without the objects' rings; then it can't say in sync sessions what belongs here.
    policies = use_policies(app, settings, rings, lambda: changed())
    for policy in policies:
        rings.add(object_ring(policy.index))
    is_local = local_devices(section)
    rows = RowQueues(rings.container, use_listing_transport(app, cluster, section), cluster.hash_path)
    # What it asks is a few bytes each.
    objects = use_object_transport(app, cluster, section, settings.service, rdma=False)
    packed = PackedObjects(rings, objects.coded, policies.coding)
    stores, unused = open_stores(section)
    try:
        check_codings(stores, policies)
    except SettingsError:
        for store in stores.values():
            store.close()
        raise
    doubts = {name: doubted() for name in stores}

    async def closing(_app: web.Application) -> AsyncIterator[None]:
        yield
        # All are closed at the same time, as each may have an index to write.
        await asyncio.gather(*(asyncio.to_thread(store.close) for store in stores.values()))

    # This comes before the routes, so that the stores are closed after the work on them has ended.
    app.cleanup_ctx.append(closing)

    def ring_versions() -> dict[int, int]:
        versions = ((policy.index, rings.find(object_ring(policy.index))) for policy in policies)
        return {index: ring.version for index, ring in versions if ring is not None}

    native = use_native_server(app, settings, stores, unused, doubts, ring_versions)

    def changed() -> None:
        limit_aggregates(stores.values(), policies)
        native.set_codings({policy.index: policies.coding(policy.index) for policy in policies})

    changed()
    serve_encrypted(app, cluster)
    use_sealed_keys(app, cluster, {name: _root(section, name) for name in stores})
    key = use_keys(app, cluster).signing
    key.answer_to(hosts_of(section))
    pending = {name: NativePending(store) for name, store in stores.items()}
    placed = {name: placed_by(rings.objects, name, is_local) for name in stores}
    server = ObjectServer(
        stores,
        rows,
        server_settings(settings),
        key,
        unused=unused,
        pending=pending,
        placed=placed,
        doubts=doubts,
        packed=packed,
    )
    app[STATUS].add("devices", server.status)
    add_object_routes(app, server)
    return app


def guests_room(section: ObjectSection) -> tuple[int, int, int]:
    """Return the memory, connections and shared memory of clients with direct access."""
    return section.guest_pool_bytes, section.guest_connections, section.guest_shared_bytes


def check_codings(stores: Mapping[str, NativeStore], policies: Policies) -> None:
    """Raise SettingsError when a policy's objects on a device are kept in another way than the settings say: they could
    not be read.
    """
    for name, store in stores.items():
        for policy in policies:
            wanted = policies.coding(policy.index)
            for kept in store.kept_as(policy.index):
                if kept != wanted:
                    raise SettingsError(
                        f"coding of policy {policy.name}: device {name} has objects {_described(kept)}, and the "
                        f"settings ask for objects {_described(wanted)}: put the coding back, and add another policy "
                        "for new containers"
                    )


def _described(coding: Coding | None) -> str:
    return "that are whole" if coding is None else f"with {coding} fragments and cells of {coding.cell_bytes} bytes"


def limit_aggregates(stores: Iterable[NativeStore], policies: Policies) -> None:
    """Set the size up to which objects of each policy share volume files."""
    for store in stores:
        store.set_aggregate_below({policy.index: policy.aggregate_below for policy in policies})


def doubted() -> Doubts:
    """Return the doubts of a newly opened device, which may have missed anything. Raises OSError without a thread.

    Its replicator proves that it has everything, or brings what it lacks.
    """
    doubts = Doubts()
    doubts.doubt_all()
    doubts.watch()
    return doubts


def use_native_server(
    app: web.Application,
    settings: ObjectSettings,
    stores: Mapping[str, NativeStore],
    unused: Mapping[str, str],
    doubts: Mapping[str, Doubts],
    ring_versions: Callable[[], Mapping[int, int]],
) -> NativeServer:
    """Serve the stores over the native transport while `app` runs; return the server.

    Raises SettingsError when the port is not available, and when RDMA is required and does not work.
    """
    cluster, section = settings.cluster, settings.object
    server = NativeServer(
        stores,
        unused,
        use_keys(app, cluster).current,
        NativeServerSettings(
            name=f"{ring_host(section)}:{section.port}",
            machine=machine(),
            pool_bytes=cluster.native_pool_bytes,
            threads_per_device=section.threads_per_device,
            max_requests_per_device=section.max_requests_per_device,
            socket_directory=cluster.native_socket_directory,
            drain_s=settings.drain_s,
            rdma=cluster.rdma_mode,
            silence_s=cluster.peer_silence_s,
            encryption=cluster.encryption,
            guests=guests_room(section) if cluster.direct_access else None,
            hash_path=(cluster.hash_path.prefix, cluster.hash_path.suffix),
        ),
        {name: doubts[name] for name in stores},
        ring_versions,
    )
    app[STATUS].add("rdma", server.rdma_status)
    port = serve_natively(
        app,
        server,
        cluster,
        (section.host, section.port),
        server.takes_tls,
        "where objects are served",
        "free the port, or choose another offset for the whole cluster",
    )
    _log.info("the native transport listens", port=port, name=f"{ring_host(section)}:{section.port}")
    return server


def server_settings(settings: ObjectSettings) -> ObjectServerSettings:
    """Return the server's limits, from the settings of the same names."""
    section = settings.object
    return ObjectServerSettings(
        threads_per_device=section.threads_per_device,
        max_requests_per_device=section.max_requests_per_device,
        row_wait_s=section.row_wait_s,
        row_interval_s=section.row_interval_s,
        reclaim_age_s=settings.cluster.reclaim_age_s,
    )


def open_stores(section: ObjectSection) -> tuple[dict[str, NativeStore], dict[str, str]]:
    """Return the stores of all devices that can be used, and why the others can't be.

    One that fails leaves the others serving. Raises DeviceFailed, or StoreFormatError for another version of the
    format, when none can be used.
    """
    stores: dict[str, NativeStore] = {}
    failures: dict[str, DeviceFailed | StoreFormatError] = {}
    for name in section.devices:
        try:
            stores[name] = _open(section, name)
        except (DeviceFailed, StoreFormatError) as error:
            _log.error("a device can't be opened and is not served", device=name, error=str(error))
            failures[name] = error
    if not stores:
        raise next(iter(failures.values()))
    return stores, {name: str(error) for name, error in failures.items()}


def _open(section: ObjectSection, name: str) -> NativeStore:
    store = NativeStore(
        _root(section, name),
        reserve_bytes=section.reserve_bytes,
        reserve_percent=section.reserve_percent,
        require_mount=section.require_mount,
        compact_bytes_per_s=section.compact_bytes_per_s,
        audit_bytes_per_s=section.audit_bytes_per_s,
    )
    _log.info("a device has been opened", device=name, **store.recovery())
    return store


def _root(section: ObjectSection, name: str) -> Path:
    return section.devices_dir / name


def run(settings: ObjectSettings) -> int:
    """Serve until asked to end; return the exit code."""
    section = settings.object
    options = ServeOptions(drain_s=settings.drain_s)
    return serve_app(lambda: create_app(settings), section.host, section.port, options)
