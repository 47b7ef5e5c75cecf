"""OpenStack Swift in every mode that has a meaning for it.

Its servers run as `bench.peers` sets them up: four nodes of one device each, three replicas, a proxy with two workers.
Its background daemons don't run by themselves; when something was mended, passes of the replicators of objects,
containers and accounts (`--once`) run on all nodes, again and again until they move nothing, and no node has a
partition of another. That is the soonest that all copies can be back. Tasks are over when the latter is so.
"""

from __future__ import annotations

import os
import shutil
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from bench.degrade import machine
from bench.degrade.machine import NotHereError
from bench.degrade.measuring import scenario, under_load
from bench.degrade.whole import WHOLE_WITHIN_S
from bench.peers.openstack import KEY, KINDS, PROXY_PORT, USER, VENV, OpenStack
from bench.peers.wire import address_of
from e2e.standalone.wire import Client
from swiftlet.bench.degrade.hand import Acts
from swiftlet.bench.degrade.phases import Way
from swiftlet.bench.results import Result
from swiftlet.bench.target import Target

NODES, REPLICAS, PART_POWER = 4, 3, 7
NODE = 0
"""Of which something is broken."""
ALL = tuple(KINDS)
RINGS_READ_S = 15.0
"""Servers look for new rings so often at least."""


@dataclass
class Peer:
    """A cluster that runs, and what is to be taken away after it."""

    cluster: OpenStack
    undo: ExitStack


Act = Callable[[Peer], None]


@dataclass(frozen=True)
class PeerMode:
    """A mode of the same name as ours."""

    what: str
    breaks: Act
    mends: Act
    prepares: Act = field(default=lambda _: None)
    """What is done before the servers start."""
    is_task: bool = False
    """Whether `breaks` is something that ends by itself, with a store that is whole."""
    kinds: tuple[str, ...] = ("object",)
    """The replicators that have something to do afterwards."""


def _ends(*kinds: str) -> Act:
    return lambda peer: peer.cluster.end_servers(NODE, kinds)


def _starts(*kinds: str) -> Act:
    return lambda peer: peer.cluster.start_servers(NODE, kinds)


def _starts_empty(*kinds: str, databases: bool = False) -> Act:
    def act(peer: Peer) -> None:
        peer.cluster.empty_disk(NODE, databases=databases)
        peer.cluster.start_servers(NODE, kinds)

    return act


def _nothing(_: Peer) -> None:
    """Leave it as it is."""


def _places() -> list[machine.Place]:
    return [(address_of(NODE), KINDS["object"])]


def _upgrades(peer: Peer) -> None:
    for node in range(NODES):
        for kind in ALL:
            peer.cluster.restart(node, kind)
    peer.cluster.restart_proxy()
    _returns_all(peer.cluster)


def _rebalances(peer: Peer) -> None:
    peer.cluster.start_nodes([NODES], ALL)
    peer.cluster.grow()
    # What servers store by the rings before has to move, too.
    time.sleep(RINGS_READ_S)
    _returns_all(peer.cluster)


MODES: Mapping[str, PeerMode] = {
    "process": PeerMode("an object server is killed, and started again", _ends("object"), _starts("object")),
    "disk": PeerMode(
        "an object server loses its disk, and is started with an empty one", _ends("object"), _starts_empty("object")
    ),
    "node": PeerMode("all servers of a node are killed, and come back", _ends(*ALL), _starts(*ALL), kinds=ALL),
    "zone": PeerMode(
        "all servers of a node are killed, and come back with an empty disk",
        _ends(*ALL),
        _starts_empty(*ALL, databases=True),
        kinds=ALL,
    ),
    "container": PeerMode(
        "a container server is killed, and started again",
        _ends("container"),
        _starts("container"),
        kinds=("container",),
    ),
    "proxy": PeerMode(
        "one of two workers of the proxy is killed",
        lambda peer: os.kill(peer.cluster.proxy_workers()[0], signal.SIGKILL),
        _nothing,
    ),
    "slow-disk": PeerMode(
        f"an object server's disk does {machine.SLOW_DISK_BYTES_PER_S / 1e6:g} MB/s and {machine.SLOW_DISK_IOS} "
        "operations/s",
        lambda peer: machine.throttle_disk(peer.cluster.device(NODE), peer.cluster.family(NODE, "object"), peer.undo),
        lambda _: machine.release_disk(),
    ),
    "full-disk": PeerMode(
        "a node's disk is full, and freed",
        lambda peer: machine.fill_disk(peer.cluster.device(NODE)),
        lambda peer: machine.free_disk(peer.cluster.device(NODE)),
        lambda peer: machine.mount_small_disk(peer.cluster.device(NODE), peer.undo),
        kinds=ALL,
    ),
    "slow-network": PeerMode(
        f"the network of an object server does {machine.SLOW_NETWORK}/s",
        lambda _: machine.slow_network(_places()),
        lambda _: machine.quicken_network(),
    ),
    "lossy-network": PeerMode(
        f"the network of an object server loses {machine.LOST_PACKETS} % of all packets, both ways",
        lambda _: machine.lose_packets(_places()),
        lambda _: machine.lose_no_packets(),
    ),
    "upgrade": PeerMode(
        "all servers are ended by SIGHUP, with requests answered to their end, and started again one by one",
        _upgrades,
        _nothing,
        is_task=True,
    ),
    "rebalance": PeerMode("a node is added, and gets its share of all objects", _rebalances, _nothing, is_task=True),
}
WITHOUT: Mapping[str, str] = {
    "metadata": "it has no metadata server: its clients are never given the way to devices",
    "redis": "its replicators tell each other nothing of nodes that are away",
}
"""Modes that have no counterpart, and why."""


def measure(name: str, directory: Path, seconds: float, objects: int) -> Result:
    """Start OpenStack Swift below a directory, break it and mend it under load. NotHereError without it."""
    if not VENV.is_dir():
        raise NotHereError("OpenStack Swift is not installed; bench/peers/prepare.sh does so")
    mode = MODES[name]
    with ExitStack() as undo:
        undo.callback(shutil.rmtree, directory / "peer", ignore_errors=True)
        cluster = OpenStack(directory / "peer", NODES, REPLICAS, PART_POWER, spare=int(name == "rebalance"))
        peer = Peer(cluster, undo)
        mode.prepares(peer)
        undo.callback(cluster.stop)
        cluster.start_storage(ALL)
        cluster.start_proxy()
        client = logged_in()
        target = Target(f"http://127.0.0.1:{PROXY_PORT}{client.base}", client.token)
        acts = Acts(
            breaks=lambda: mode.breaks(peer),
            mends=lambda: mode.mends(peer),
            until_whole=lambda over: until_whole(cluster, mode.kinds, over),
            is_task=mode.is_task,
        )
        return under_load(Way(f"{name}, OpenStack", mode.what, seconds, acts), target, scenario(objects))


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


def until_whole(cluster: OpenStack, kinds: Sequence[str], over: threading.Event) -> bool:
    """Wait until passes on all nodes move nothing more and none has another's objects; False: not in time."""
    began = time.monotonic()
    while not over.is_set() and time.monotonic() - began < WHOLE_WITHIN_S:
        if not cluster.passes(kinds) and not cluster.has_handoffs():
            return True
    return False


def _returns_all(cluster: OpenStack) -> None:
    """Let replicators pass until no node has what belongs on others.

    That they move nothing can't be asked for here: clients go on, and what they write is on some nodes before others.
    """
    deadline = time.monotonic() + WHOLE_WITHIN_S
    cluster.passes()
    while cluster.has_handoffs():
        assert time.monotonic() < deadline, f"nodes still had what belongs on others after {WHOLE_WITHIN_S:g} s"
        cluster.passes()
