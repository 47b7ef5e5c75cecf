"""OpenStack Swift in the modes that make sense for it too: a server, a node and its disk lost.

Its servers run as `bench.peers` sets them up: four nodes of one device each, three replicas, a proxy with two workers.
Its background daemons don't run by themselves; when something was mended, `swift-object-replicator --once` runs on all
nodes, one after the other, again and again until a pass moves nothing. That is the soonest that all copies of objects
can be back; databases are not looked at.
"""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.degrade.measuring import Hand, Measured, under_load
from bench.degrade.modes import NotHereError
from bench.degrade.whole import WHOLE_WITHIN_S
from bench.peers.openstack import KEY, PROXY_PORT, USER, VENV, OpenStack
from bench.peers.wire import Wire
from e2e.standalone.wire import Client
from swiftlet.bench.target import Target

NODES, REPLICAS, PART_POWER = 4, 3, 7
_ALL = ("object", "container", "account")


@dataclass(frozen=True)
class PeerMode:
    """A mode of the same name as ours: which servers of the first node end, and whether its disk is lost with them."""

    what: str
    kinds: tuple[str, ...]
    is_emptied: bool = False


MODES: Mapping[str, PeerMode] = {
    "process": PeerMode("an object server is killed, and started again", ("object",)),
    "disk": PeerMode("an object server loses its disk, and is started with an empty one", ("object",), is_emptied=True),
    "node": PeerMode("all servers of a node are killed, and come back", _ALL),
    "container": PeerMode("a container server is killed, and started again", ("container",)),
}


def measure(name: str, directory: Path, seconds: float, objects: int) -> Measured:
    """Start OpenStack Swift below a directory, break it and mend it under load. NotHereError without it."""
    if not VENV.is_dir():
        raise NotHereError("OpenStack Swift is not installed; bench/peers/prepare.sh does so")
    mode = MODES[name]
    cluster = OpenStack(directory / "peer", NODES, REPLICAS, PART_POWER)
    try:
        cluster.start_storage(_ALL)
        cluster.start_proxy()
        client = logged_in()
        target = Target(f"http://127.0.0.1:{PROXY_PORT}{client.base}", client.token)
        hand = Hand(
            breaks=lambda: cluster.end_servers(0, mode.kinds),
            mends=lambda: _mends(cluster, mode),
            until_whole=lambda over: until_whole(cluster, over),
        )
        return under_load(f"{name}, OpenStack", mode.what, target, hand, seconds, objects)
    finally:
        cluster.stop()
        shutil.rmtree(directory / "peer", ignore_errors=True)


def logged_in(within_s: float = 30.0, wait: Callable[[float], None] = time.sleep) -> Client:
    """Return a client of an OpenStack Swift that has just been started, once it lets that log in."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return Client(f"http://127.0.0.1:{PROXY_PORT}", USER, KEY)
        except Exception:
            if time.monotonic() > deadline:
                raise
            wait(0.5)


def _mends(cluster: OpenStack, mode: PeerMode) -> None:
    if mode.is_emptied:
        cluster.empty_disk(0)
    cluster.start_servers(0, mode.kinds)


def until_whole(cluster: OpenStack, over: threading.Event) -> float | None:
    """The seconds until passes on all nodes move nothing more; None: not in time."""
    wire, began = Wire(NODES), time.monotonic()
    while not over.is_set() and time.monotonic() - began < WHOLE_WITHIN_S:
        passes = [cluster.one_pass(node, wire) for node in range(NODES)]
        if not any(one.moved or one.failed for one in passes):
            return time.monotonic() - began
    return None
