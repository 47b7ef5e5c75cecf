"""Small objects with erasure coding are packed by the running replicator: they take the space that
`docs/guide/erasure-coding.md` says, and stay what they were.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.test_coded_space import live_bytes
from e2e.standalone.wire import Client
from swiftlet.main.commands.standalone.plan import Layout
from swiftlet.main.ring_names import object_ring
from swiftlet.ring import RingBuilder
from swiftlet.ring.codec import save_builder

OBJECTS = int(os.environ.get("PACKED_OBJECTS", "300"))
LEAST, MOST = 1024, 10_240
"""Bytes of a small object."""
PART_POWER = 2
"""Few partitions, so that each has a pack of more than a mebibyte."""
CLIENTS = 4
CODINGS = os.environ.get("PACKED_CODINGS", "4+2").split()
"""Data and parity fragments of the policies that are tried."""
WITHIN_S = 600.0
TOMBSTONE_BYTES = 256
"""What a tombstone takes at most. A deleted object has one among the fragments and one among the copies."""
SETTINGS = {
    "SWIFTLET_REPLICATOR__INTERVAL_S": "1",
    "SWIFTLET_REPLICATOR__CODED_RECOVERY_AFTER_S": "10",
    "SWIFTLET_REPLICATOR__PROBE_INTERVAL_S": "0.5",
}
PACKING = {"pack_after_s": 2, "pack_least_bytes": 1}
"""Settings of a replicator that packs at once."""

Bodies = dict[str, bytes]


def pack(cluster: Cluster, **settings: float) -> None:
    """Have the replicator pack from now on what is cold; `settings` are some of its own."""
    cluster.kill("replicator")
    cluster.set("replicator", replicator={**PACKING, **settings})
    cluster.start("replicator")


def start(data: Path, coding: str, settings: Mapping[str, str] | None = None) -> Cluster:
    """Start a store whose second policy has erasure coding and small objects."""
    fragments = sum(map(int, coding.split("+")))
    layout = Layout(data)
    layout.rings.mkdir(parents=True, exist_ok=True)
    builder = RingBuilder(PART_POWER, fragments, min_part_hours=1)
    save_builder(builder, layout.rings / f"{object_ring(1)}.builder")
    options = ("--policies", f"usual,coded={coding}", "--pack-below", "65536")
    return start_cluster(data, *options, settings={**SETTINGS, **(settings or {})})


def packs_of(cluster: Cluster) -> dict[str, Any]:
    """The replicator's report of its last round of packing."""
    try:
        with urllib.request.urlopen(cluster.url("replicator") + "/statusz", timeout=30) as answer:
            return json.load(answer)["packs"] or {}
    except OSError:
        return {}


def wait_until_packed(cluster: Cluster, cold_s: float = 2.0 * PACKING["pack_after_s"]) -> dict[str, Any]:
    """Wait until partitions were looked at after everything is cold, and there was nothing to pack, to finish, to write
    anew or to delete; return the last report.
    """
    began_s, deadline = time.time(), time.monotonic() + WITHIN_S
    seen: dict[float, bool] = {}
    while True:
        last = packs_of(cluster)
        idle = last and not any(
            last[name] for name in ("made", "finished", "retired", "failed", "paused", "unfinished", "waiting", "below")
        )
        if last and last["looked"] and last["endedAt"] > began_s + cold_s:
            seen[last["endedAt"]] = bool(idle)
            if len(seen) >= 3 and all(list(seen.values())[-3:]):
                return last
        assert time.monotonic() < deadline, (last, cluster.log("replicator")[-4000:])
        time.sleep(0.3)


def in_threads(work: Any, items: Any) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(work, items))


def put_all(client: Client, bodies: Bodies) -> None:
    def put(name: str) -> None:
        assert client.call("PUT", f"c/{name}", {"X-Object-Meta-Name": name}, bodies[name]).status == 201

    in_threads(put, bodies)


def assert_right(client: Client, bodies: Bodies) -> None:
    """Assert that all objects are what they are, and that nothing else is listed."""

    def read(name: str) -> None:
        got = client.call("GET", f"c/{name}")
        assert (got.status, got.body) == (200, bodies[name]), (name, got.status, got.body[:200])
        assert got.headers["X-Object-Meta-Name"] == name

    in_threads(read, bodies)


def assert_listed(client: Client, bodies: Bodies) -> None:
    listed = client.call("GET", "c", query="format=json&limit=10000").json()
    assert {row["name"]: row["bytes"] for row in listed} == {name: len(body) for name, body in bodies.items()}


def made(number: int) -> Bodies:
    dice = random.Random(number)
    return {f"o{one:05}": dice.randbytes(dice.randint(LEAST, MOST)) for one in range(OBJECTS)}


def user_bytes(bodies: Bodies) -> int:
    return sum(len(body) + 2 * len(name) for name, body in bodies.items())


def delete_most(client: Client, bodies: Bodies) -> Bodies:
    """Delete three of five objects; return the others."""
    left = {name: body for number, (name, body) in enumerate(bodies.items()) if number % 5 in {0, 3}}

    def delete(name: str) -> None:
        assert client.call("DELETE", f"c/{name}").status == 204

    in_threads(delete, bodies.keys() - left.keys())
    return left


@contextmanager
def packed(data: Path, coding: str, objects: Bodies) -> Iterator[tuple[Cluster, Client, dict[str, Any]]]:
    """Yield a store whose container `c` has these objects, a client, and the report of packing once the small ones are
    packed.
    """
    cluster = start(data, coding)
    try:
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        assert client.call("PUT", "c", {"X-Storage-Policy": "coded"}).status == 201
        put_all(client, objects)
        # All are cold when the first is packed.
        time.sleep(PACKING["pack_after_s"])
        pack(cluster)
        yield cluster, client, wait_until_packed(cluster)
    finally:
        assert cluster.stop() == 0


def snapshot(cluster: Cluster, to: Path) -> Path:
    """Copy what is on the devices of a store that runs, as if all object servers were killed at this moment."""
    servers = [pid for name, pid in cluster.pids.items() if name.startswith("object-")]
    for pid in servers:
        os.kill(pid, signal.SIGSTOP)
    try:
        # Volumes may have room that nothing was written into.
        copy = ["cp", "--recursive", "--sparse=always", str(Layout(cluster.data).devices), str(to)]
        subprocess.run(copy, check=True, timeout=WITHIN_S)
    finally:
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
    return to


@pytest.mark.timeout(WITHIN_S + OBJECTS)
@pytest.mark.parametrize("coding", CODINGS)
def test_cold_objects_take_little_more_than_their_coded_bytes_and_deleted_ones_give_theirs_back(
    tmp_path: Path, coding: str
) -> None:
    bodies = made(1)
    with packed(tmp_path, coding, bodies) as (cluster, client, _):
        copied = snapshot(cluster, tmp_path / "snapshot")
        assert_right(client, bodies)
        assert_listed(client, bodies)
        left = delete_most(client, bodies)
        seen = wait_until_packed(cluster)
        assert seen["live_bytes"] >= 0.7 * seen["pack_bytes"] > 0, seen
        assert_right(client, left)
        assert_listed(client, left)
    share = live_bytes(copied) / user_bytes(bodies)
    print(f"{coding}: {share:.3f} bytes for each byte of {len(bodies)} objects")
    assert 1.5 <= share < 1.58
    live, tombstones = live_bytes(tmp_path / "devices"), TOMBSTONE_BYTES * (len(bodies) - len(left))
    fragments = sum(map(int, coding.split("+")))
    print(f"{live} bytes for {user_bytes(left)} of {len(left)} objects, and {len(bodies) - len(left)} deleted ones")
    # At 4+2 a byte takes one and a half, and packs stay of which 0.7 are alive; with all packs it would be 3.8 times.
    assert live < 1.6 / 0.7 * user_bytes(left) + (fragments + 3) * tombstones
