"""What the benchmark's pods say of themselves, so that a cluster can come to rest: all is well and in sync.

One server on the loopback interface answers for the pods of all clusters, on one port for each service. Each cluster
has an address of its own there, by which the server knows whose rings are asked for. Pods of the same name in different
clusters have the same devices, and a report may name more devices than its pod has.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

from swiftlet_operator.build.site import DATABASE_DEVICE

SERVICES = ("object", "replicator", "container", "proxy", "metadata")
_TIB = 1 << 40
_RINGS = ("account", "container", "object-0", "object-1")


@dataclass
class Used:
    """The versions of published objects that the pods of a cluster say they use.

    `rings`: versions by ring. `sealed_keys`: generation of the copy on every device. `users`: the users file's digest.
    """

    rings: dict[str, int] = field(default_factory=dict)
    sealed_keys: int = 0
    users: str | None = None


UsedAt = Callable[[str], Used]
"""From the address of a cluster's pods to what they use."""


def address_of(cluster: int) -> str:
    """The address of all pods of a cluster, by its number from 0 to 65,023."""
    return f"127.1.{cluster // 254}.{cluster % 254 + 1}"


@asynccontextmanager
async def served(devices: Sequence[str], used_at: UsedAt) -> AsyncIterator[Mapping[str, int]]:
    """Answer `GET /statusz`; yields the port of each service. `devices`: of all pods of a cluster, as in rings."""
    runners: list[web.AppRunner] = []
    ports = {}
    try:
        for service in SERVICES:
            runner = web.AppRunner(_app(service, devices, used_at), access_log=None)
            runners.append(runner)
            await runner.setup()
            await web.TCPSite(runner, "0.0.0.0", 0).start()
            ports[service] = runner.addresses[0][1]
        yield ports
    finally:
        for runner in runners:
            await runner.cleanup()


def _app(service: str, devices: Sequence[str], used_at: UsedAt) -> web.Application:
    async def answer(request: web.Request) -> web.Response:
        assert request.transport is not None
        address = request.transport.get_extra_info("sockname")[0]
        return web.json_response(_report(service, devices, used_at(address)))

    app = web.Application()
    app.router.add_get("/statusz", answer)
    return app


def _rings_of(device: str) -> Sequence[str]:
    return _RINGS[:2] if device.endswith(f"/{DATABASE_DEVICE}") else _RINGS[2:]


def _report(service: str, devices: Sequence[str], used: Used) -> dict[str, Any]:
    now_s = time.time()

    def in_sync(ring: str) -> dict[str, Any]:
        standing = {"held": 1, "misplaced": 0, "behind": 0, "unchecked": 0, "syncedAt": now_s}
        return {**standing, "ringVersion": used.rings.get(ring, 0)}

    space = {"capacityBytes": _TIB, "freeBytes": _TIB * 9 // 10, "state": "serving", "pending": 0}
    found: dict[str, Any] = {}
    if service == "object":
        found = {"d0": space}
    elif service == "container":
        found = {DATABASE_DEVICE: {**space, "pending": None}}
    elif service == "replicator":
        found = {device: {"rings": {ring: in_sync(ring) for ring in _rings_of(device)}} for device in devices}
    return {
        "service": service,
        "version": "bench",
        "startedAt": now_s,
        "keys": ["00000000"],
        "rings": {ring: used.rings[ring] for ring in _RINGS if ring in used.rings},
        "transports": {"http": 1} if service in ("proxy", "replicator") else {},
        "users": used.users,
        "usersOfWorkers": [used.users] if service == "proxy" else [],
        "sealedKeys": dict.fromkeys(found, used.sealed_keys) if service in ("object", "container") else {},
        "devices": found,
        **({"failures": {"redis": "up"}} if service == "replicator" else {}),
    }
