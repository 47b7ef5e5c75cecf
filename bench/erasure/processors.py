"""What processes spend on large objects with erasure coding and with three copies, both policies in turns in one store.

User and system time of the proxy and of all object servers is the kernel's, of `/proc`, for each object that one client
writes or reads; what a store does by itself meanwhile is in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from bench.erasure.client import MIB, Objects
from bench.erasure.stores import Scheme
from bench.micro import Measured
from bench.peers.processes import family_of
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client
from swiftlet.bench.target import Target

_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
KINDS = ("user", "system")
Used = dict[tuple[str, str], float]
"""Milliseconds by services (proxy, object) and kind of time."""
Found = dict[tuple[str, str], list[Used]]
"""These of each turn, by operation and policy."""


def used_ms(pid: int) -> tuple[float, float]:
    """Return user and system time of a process so far, with those of its children that were waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system, user_of_children, system_of_children = (int(field) * _TICK_MS for field in fields[11:15])
    return user + user_of_children, system + system_of_children


def _used(cluster: Cluster) -> Used:
    found: Used = {}
    for service, pid in cluster.pids.items():
        name = service.partition("-")[0]
        for one in family_of(pid) if name in {"proxy", "object"} else ():
            for kind, taken in zip(KINDS, used_ms(one), strict=True):
                found[name, kind] = found.get((name, kind), 0.0) + taken
    return found


def measure(directory: Path, scheme: Scheme, turns: int, mib: int) -> Found:
    """Write and read an object of so many MiB in each policy and turn; a first turn does not count."""
    cluster = start_cluster(directory, "--policies", f"coded={scheme},copies")
    try:
        cluster.wait_until_proved()
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        target = Target(f"{cluster.endpoint}{client.base}", client.token)
        policies = {"coded": str(scheme), "copies": "3 copies"}
        found: Found = {}
        for number in range(turns + 1):
            for policy in policies if number % 2 else reversed(policies):
                objects = Objects(target, 1, mib * MIB, policy)
                objects.create()
                for what, work in (("PUT", objects.put), ("GET", objects.get)):
                    before = _used(cluster)
                    work()
                    after = _used(cluster)
                    if number:
                        taken = {key: after[key] - before[key] for key in before}
                        found.setdefault((what, policies[policy]), []).append(taken)
    finally:
        cluster.stop()
    return found


def reported(found: Found, scheme: Scheme, mib: int) -> Iterator[Measured]:
    """Yield what the page of all measurements has of it."""
    names = {"proxy": "proxy", "object": f"{scheme.devices} object servers"}
    for (what, policy), each in sorted(found.items(), reverse=True):
        for name, shown in names.items():
            for kind in KINDS:
                took = tuple(one[name, kind] for one in each)
                yield Measured(f"{what} of {mib} MiB, {policy}, {shown}, {kind}", "ms", took)
