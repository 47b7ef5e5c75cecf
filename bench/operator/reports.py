"""What the benchmark's pods say of themselves, so that a cluster can come to rest: all is well and in sync.

One server on the loopback interface answers for the pods of all clusters, on one port for each service: pods of the
same name in different clusters have the same devices, and a report may name more devices than its pod has.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

ADDRESS = "127.0.0.1"
SERVICES = ("object", "replicator", "container", "proxy", "metadata")
_NEWEST = 1_000_000
"""A version that no ring reaches."""
_TIB = 1 << 40
_RINGS = ("account", "container", "object-0", "object-1")


@asynccontextmanager
async def served(devices: Sequence[str]) -> AsyncIterator[Mapping[str, int]]:
    """Answer `GET /statusz`; the port of each service. `devices`: of all storage pods, as in rings (`POD/d0`)."""
    runners: list[web.AppRunner] = []
    ports = {}
    try:
        for service in SERVICES:
            runner = web.AppRunner(_app(service, devices), access_log=None)
            runners.append(runner)
            await runner.setup()
            await web.TCPSite(runner, ADDRESS, 0).start()
            ports[service] = runner.addresses[0][1]
        yield ports
    finally:
        for runner in runners:
            await runner.cleanup()


def _app(service: str, devices: Sequence[str]) -> web.Application:
    async def answer(_: web.Request) -> web.Response:
        return web.json_response(_report(service, devices))

    app = web.Application()
    app.router.add_get("/statusz", answer)
    return app


def _report(service: str, devices: Sequence[str]) -> dict[str, Any]:
    now_s = time.time()
    in_sync = {"held": 1, "misplaced": 0, "behind": 0, "unchecked": 0, "syncedAt": now_s, "ringVersion": _NEWEST}
    space = {"capacityBytes": _TIB, "freeBytes": _TIB * 9 // 10, "state": "serving", "outbox": 0}
    found: dict[str, Any] = {}
    if service == "object":
        found = {"d0": space}
    elif service == "container":
        found = {"db": {**space, "outbox": None, "rings": dict.fromkeys(_RINGS[:2], in_sync)}}
    elif service == "replicator":
        found = {device: {"rings": dict.fromkeys(_RINGS[2:], in_sync)} for device in devices}
    return {
        "service": service,
        "version": "bench",
        "startedAt": now_s,
        "keys": ["00000000"],
        "rings": dict.fromkeys(_RINGS, _NEWEST),
        "transports": {"http": 1} if service in ("proxy", "replicator") else {},
        "devices": found,
    }
