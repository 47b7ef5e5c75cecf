"""Encryption between services as `cluster.encryption` sets it: contexts, refusals, and the report.

A server takes connections with TLS and without on the same port. With `required` it refuses requests without TLS,
except for health, metrics, status, rings and sealed keys, which Kubernetes, Prometheus and the operator request in
plain text.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from swiftlet.errors import Unauthorized
from swiftlet.main.keys import use_keys
from swiftlet.servers.shared.json_requests import refusal
from swiftlet.settings import ClusterSection
from swiftlet.transport.tls import PeerTls
from swiftlet.web.statusz import STATUS
from swiftlet.web.tls_or_plain import PEER_TLS, Contexts

_FOR_ANYBODY = frozenset({"/healthz", "/readyz", "/metrics", "/statusz", "/sealed-keys"})
_RINGS = "/rings/"
_REFUSED = Unauthorized("connections have to be encrypted here (cluster.encryption: required)")

_TLS = web.AppKey("tls", PeerTls)
_PORTS = web.AppKey("tls_ports", list[Callable[[], bool]])
"""Functions that tell whether a port takes TLS."""


def use_encryption(app: web.Application, cluster: ClusterSection) -> PeerTls:
    """Set up TLS for `app`, once for all its parts, with the keys in use."""
    if _TLS not in app:
        ports: list[Callable[[], bool]] = []
        app[_PORTS] = ports
        keys = use_keys(app, cluster)
        tls = app[_TLS] = PeerTls(cluster.encryption, keys.current)
        keys.follow(tls.use)
        app[STATUS].add("encryption", lambda: {"mode": tls.mode, "ready": all(takes() for takes in ports)})
    return app[_TLS]


def report_port(app: web.Application, cluster: ClusterSection, takes_tls: Callable[[], bool]) -> None:
    """Add another port for peers to the status report's `encryption`; `takes_tls` tells whether it takes TLS."""
    use_encryption(app, cluster)
    app[_PORTS].append(takes_tls)


def serve_encrypted(app: web.Application, cluster: ClusterSection) -> None:
    """Serve peers over TLS too, on the port of `app`."""
    app[PEER_TLS] = Contexts(use_encryption(app, cluster).server)


def only_encrypted(cluster: ClusterSection) -> list[Middleware]:
    """Return the middlewares that refuse peers without encryption; none unless encryption is required."""
    if cluster.encryption != "required":
        return []

    @web.middleware
    async def checked(request: web.Request, handler: Handler) -> web.StreamResponse:
        transport = request.transport
        encrypted = transport is not None and transport.get_extra_info("sslcontext") is not None
        if encrypted or request.path in _FOR_ANYBODY or request.path.startswith(_RINGS):
            return await handler(request)
        return refusal(_REFUSED)

    return [checked]
