"""The transports of a service: connections to storage nodes that are closed when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from typing import Protocol

from aiohttp import web

from swiftlet.boundaries.bodies import Bodies
from swiftlet.errors import SettingsError
from swiftlet.main.background import in_background
from swiftlet.main.encryption import report_port, use_encryption
from swiftlet.main.keys import use_keys
from swiftlet.settings import ClusterSection
from swiftlet.settings.sections import NodeTimeouts
from swiftlet.transport.http_client import HttpSettings, NodeClient, TlsOf
from swiftlet.transport.http_devices import HttpDevices
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.native_bodies import NativeBodies
from swiftlet.transport.native_calls import NativeSettings
from swiftlet.transport.native_client import NativeClient, client_name
from swiftlet.transport.native_metrics import TAKE_S, NativeMetrics, by_transport
from swiftlet.transport.native_objects import NativeObjectTransport
from swiftlet.transport.signing import ClusterKey
from swiftlet.web.statusz import STATUS

Node = tuple[str, int]
"""The host and port of a service."""


class _Closing(Protocol):
    async def close(self) -> None: ...


class _Transports:
    """The peers of all transports of one application, for its status report."""

    def __init__(self) -> None:
        self.http: list[Callable[[], frozenset[Node]]] = []
        self.native: list[Callable[[], dict[str, int]]] = []
        self.http_name = "http"

    def add_http(self, connected: Callable[[], frozenset[Node]], encrypted: bool) -> None:
        """Count these peers too; a process encrypts connections to all of them or to none."""
        self.http.append(connected)
        self.http_name = "https" if encrypted else "http"

    def counts(self) -> dict[str, int]:
        """Return how many peers are connected over which transport."""
        counts = {self.http_name: len({peer for connected in self.http for peer in connected()})}
        for native in self.native:
            for transport, peers in native().items():
                counts[transport] = counts.get(transport, 0) + peers
        return counts


_TRANSPORTS = web.AppKey("transports", _Transports)


def _transports(app: web.Application) -> _Transports:
    if _TRANSPORTS not in app:
        mine = app[_TRANSPORTS] = _Transports()
        app[STATUS].add("transports", mine.counts)
    return app[_TRANSPORTS]


def count_transports(app: web.Application, native: Callable[[], dict[str, int]]) -> None:
    """Add these native peers to the status report's `transports`."""
    _transports(app).native.append(native)


class NativeServing(Protocol):
    """A server of the native transport."""

    def listen(self, host: str, port: int) -> int:
        """Accept clients and return the port. Raises OSError when the port is not available."""
        ...

    def set_keys(self, keys: Sequence[bytes]) -> None:
        """Use these keys in handshakes from now on."""
        ...

    def status(self) -> dict[str, object]:
        """Return the field `native` of the status report."""
        ...

    def transports(self) -> dict[str, int]:
        """Return how many clients are connected over which transport."""
        ...

    async def leave(self, _app: web.Application) -> None:
        """Ask clients to send nothing more; for `app.on_shutdown`."""
        ...

    def run(self, _app: web.Application) -> AsyncIterator[None]:
        """Serve until shutdown; for `app.cleanup_ctx`."""
        ...


def serve_natively(
    app: web.Application,
    server: NativeServing,
    cluster: ClusterSection,
    address: tuple[str, int],
    takes_tls: Callable[[], bool],
    what_for: str,
    way_out: str,
) -> int:
    """Serve clients of the native transport while `app` runs, and return the port.

    `address` is that of the HTTP server. Raises SettingsError when the port is not available; its text says `what_for`
    the port is, and the `way_out`.
    """
    report_port(app, cluster, takes_tls)
    use_keys(app, cluster).follow(server.set_keys)
    app.on_shutdown.append(server.leave)
    app.cleanup_ctx.append(server.run)
    app[STATUS].add("native", server.status)
    count_transports(app, server.transports)
    host, port = address[0], address[1] + cluster.native_port_offset
    try:
        return server.listen(host, port)
    except (OSError, OverflowError) as error:
        raise SettingsError(
            f"cluster.native_port_offset: can't listen on port {port} ({error}), {what_for}; {way_out}"
        ) from error


def http_settings(timeouts: NodeTimeouts) -> HttpSettings:
    """Return the timeouts of a service's HTTP client."""
    return HttpSettings(
        connect_timeout_s=timeouts.connect_timeout_s,
        answer_timeout_s=timeouts.answer_timeout_s,
        idle_timeout_s=timeouts.answer_timeout_s,
    )


def native_settings(cluster: ClusterSection, timeouts: NodeTimeouts, service: str) -> NativeSettings:
    """Return the settings of a service's native client, with the same timeouts."""
    return NativeSettings(
        connect_timeout_s=timeouts.connect_timeout_s,
        answer_timeout_s=timeouts.answer_timeout_s,
        idle_timeout_s=timeouts.answer_timeout_s,
        pool_bytes=cluster.native_pool_bytes,
        port_offset=cluster.native_port_offset,
        socket_directory=cluster.native_socket_directory,
        name=client_name(service),
        rdma=cluster.rdma_mode,
        silence_s=cluster.peer_silence_s,
        encryption=cluster.encryption,
    )


def use_listing_transport(
    app: web.Application, cluster: ClusterSection, timeouts: NodeTimeouts
) -> HttpListingTransport:
    """Return a transport to account and container databases on other nodes, for the life of `app`."""
    transport = HttpListingTransport(NodeClient(*_http(app, cluster, timeouts)))
    _transports(app).add_http(transport.connected, cluster.encryption != "none")
    _closed_with(app, transport)
    return transport


def use_node_client(app: web.Application, cluster: ClusterSection, timeouts: NodeTimeouts) -> NodeClient:
    """Return a client for other requests to servers, for the life of `app`."""
    client = NodeClient(*_http(app, cluster, timeouts))
    _closed_with(app, client)
    return client


def use_devices(app: web.Application, cluster: ClusterSection, timeouts: NodeTimeouts) -> HttpDevices:
    """Return what asks object servers over HTTP, for the life of `app`."""
    devices = _devices(app, cluster, timeouts)
    _closed_with(app, devices)
    return devices


def use_object_transport(
    app: web.Application, cluster: ClusterSection, timeouts: NodeTimeouts, service: str, *, rdma: bool = True
) -> NativeObjectTransport:
    """Return a transport to objects on other nodes, for the life of `app`.

    Servers count their clients by the name `service`. Without `rdma` RDMA is not used, whatever the cluster says.
    """
    devices = _devices(app, cluster, timeouts)
    transport = NativeObjectTransport(_native_client(app, cluster, timeouts, service, rdma), devices)
    _closed_with(app, transport)
    return transport


def bodies_for(transport: NativeObjectTransport) -> Bodies:
    """Return the memory and threads for bodies that are sent over a transport."""
    return NativeBodies(transport.client)


def _devices(app: web.Application, cluster: ClusterSection, timeouts: NodeTimeouts) -> HttpDevices:
    devices = HttpDevices(NodeClient(*_http(app, cluster, timeouts)))
    _transports(app).add_http(devices.connected, cluster.encryption != "none")
    return devices


def _http(
    app: web.Application, cluster: ClusterSection, timeouts: NodeTimeouts
) -> tuple[HttpSettings, ClusterKey, TlsOf]:
    return http_settings(timeouts), use_keys(app, cluster).signing, use_encryption(app, cluster).client


def _native_client(
    app: web.Application, cluster: ClusterSection, timeouts: NodeTimeouts, service: str, rdma: bool
) -> NativeClient:
    keys = use_keys(app, cluster)
    settings = native_settings(cluster, timeouts, service)
    if not rdma:
        settings = replace(settings, rdma="off")
    client = NativeClient(settings, keys.current)
    if settings.rdma != "off":
        client.open()
        app[STATUS].add("rdma", client.rdma_status)
    keys.follow(client.set_keys)
    count_transports(app, lambda: by_transport(client.report()))
    metrics = NativeMetrics(client.report)

    async def taking() -> None:
        while True:
            metrics.take()
            await asyncio.sleep(TAKE_S)

    async def counted(_app: web.Application) -> AsyncIterator[None]:
        async with in_background(taking):
            yield
        metrics.take()

    app.cleanup_ctx.append(counted)
    return client


def _closed_with(app: web.Application, transport: _Closing) -> None:
    """Close the transport when `app` ends."""

    async def closing(_app: web.Application) -> AsyncIterator[None]:
        yield
        await transport.close()

    app.cleanup_ctx.append(closing)
