"""What is broken, and how: each mode breaks one thing of a store on this machine, and puts it right again.

Two break nothing: they are tasks of an operator (`tasks`), and end by themselves.

A standalone store has four zones of one node each: an object server with one device, and a container server on three
of them. So a lost zone is a lost node here, and is told apart by what comes back: a node comes back with its disks, a
zone without.

What is not possible here: a network with delays (the kernel has no netem), a disk that answers with errors (no device
mapper target is made), and machines that lose power.
"""

from __future__ import annotations

import errno
import os
import shutil
import socket
import subprocess
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from bench.degrade.tasks import rebalances, upgrades
from e2e.standalone.cluster import Cluster, start_cluster
from swiftlet.main.commands.standalone.plan import NATIVE_PORT_OFFSET
from swiftlet.sync.failures.tests.redis_server import RedisServer

OBJECT, CONTAINER, DEVICE, DATABASES = "object-1", "container-1", "d1", "c1"
"""What is broken: the first of its kind."""
SLOW_DISK_BYTES_PER_S, SLOW_DISK_IOS = 2_000_000, 40
SLOW_NETWORK = "20mbit"
LOST_PACKETS = 3
"""So many of a hundred packets are lost."""
FULL_DISK_BYTES = 3 << 30
"""Of memory, for a file system that also holds a third and more of what is written in all phases."""
_LEAST_PIECE = 4096
_BLKIO = Path("/sys/fs/cgroup/blkio")


class NotHereError(Exception):
    """This machine can't do it; the message says what is missing."""


@dataclass
class Scene:
    """A store, and what was made around it before it was started; `undo` has what is to be taken away."""

    data: Path
    undo: ExitStack
    settings: dict[str, str] = field(default_factory=dict)
    redis: RedisServer | None = None
    running: Cluster | None = None
    added: dict[str, str] = field(default_factory=dict)
    """Management URLs of services that were added to the store, by their names."""

    @property
    def cluster(self) -> Cluster:
        """The store, which runs."""
        assert self.running is not None
        return self.running

    @property
    def management(self) -> dict[str, str]:
        """The management URLs of all services, by their names."""
        return {name: self.cluster.management_url(name) for name in self.cluster.services} | self.added

    def devices(self, name: str) -> Path:
        """Where a device has its data."""
        return self.data / "devices" / name


Act = Callable[[Scene], None]


@dataclass(frozen=True)
class Mode:
    """A way to break something: before the store starts, for a while, and afterwards."""

    name: str
    what: str
    breaks: Act
    mends: Act
    prepares: Act = field(default=lambda _: None)
    by_tcp: bool = False
    """Whether the services have to speak TCP to each other, which they don't on one machine."""
    is_task: bool = False
    """Whether `breaks` is something that ends by itself, with a store that is whole; the second phase lasts so long."""


def _ends(*services: str) -> Act:
    return lambda scene: scene.cluster.kill(*services)


def _starts(*services: str) -> Act:
    return lambda scene: scene.cluster.start(*services)


def _starts_empty(services: tuple[str, ...], devices: tuple[str, ...]) -> Act:
    def act(scene: Scene) -> None:
        for device in devices:
            for one in scene.devices(device).iterdir():
                shutil.rmtree(one) if one.is_dir() else one.unlink()
        scene.cluster.start(*services)

    return act


def _nothing(_: Scene) -> None:
    """Leave it as it is."""


def _ends_a_worker(scene: Scene) -> None:
    workers = psutil.Process(scene.cluster.pids["proxy"]).children()
    workers[0].kill()


def _with_redis(scene: Scene) -> None:
    if shutil.which("redis-server") is None:
        raise NotHereError("redis-server is not installed")
    folder = scene.data.parent / "redis"
    folder.mkdir()
    scene.redis = RedisServer(folder)
    scene.redis.start()
    scene.undo.callback(scene.redis.kill)
    scene.settings["SWIFTLET_REDIS__URL"] = scene.redis.url


def _ends_redis(scene: Scene) -> None:
    assert scene.redis is not None
    scene.redis.kill()


def _starts_redis(scene: Scene) -> None:
    assert scene.redis is not None
    scene.redis.start()


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise NotHereError(f"{' '.join(command[:3])}: {done.stderr.strip() or 'it failed'}")


def _slows_the_disk(scene: Scene) -> None:
    """Put the object server into a group that may read and write little."""
    if not (_BLKIO / "blkio.throttle.write_bps_device").exists():
        raise NotHereError("there is no controller that slows a process's disk (blkio of cgroups version 1)")
    number = os.stat(scene.devices(DEVICE)).st_dev
    disk = Path(f"/sys/dev/block/{os.major(number)}:{os.minor(number)}")
    if not disk.exists():
        raise NotHereError("the store is on no disk; choose another --directory")
    if (disk / "partition").exists():
        disk = disk.resolve().parent
    name = (disk / "dev").read_text().strip()
    group = _BLKIO / f"swiftlet-degrade-{os.getpid()}"
    group.mkdir()
    scene.undo.callback(_removes, group)
    for limit, value in (
        ("write_bps", SLOW_DISK_BYTES_PER_S),
        ("read_bps", SLOW_DISK_BYTES_PER_S),
        ("write_iops", SLOW_DISK_IOS),
        ("read_iops", SLOW_DISK_IOS),
    ):
        (group / f"blkio.throttle.{limit}_device").write_text(f"{name} {value}")
    _moves(group, scene)


def _moves(group: Path, scene: Scene) -> None:
    (group / "cgroup.procs").write_text(str(scene.cluster.pids[OBJECT]))


def _removes(group: Path) -> None:
    if not group.exists():
        return
    for pid in (group / "cgroup.procs").read_text().split():
        (_BLKIO / "cgroup.procs").write_text(pid)
    group.rmdir()


def _on_a_small_disk(scene: Scene) -> None:
    """Mount a small file system over an empty device of a store that has been started once."""
    start_cluster(scene.data, settings=scene.settings).stop()
    place = scene.devices(DEVICE)
    _run("mount", "-t", "tmpfs", "-o", f"size={FULL_DISK_BYTES}", "tmpfs", str(place))
    scene.undo.callback(subprocess.run, ["umount", str(place)], check=False)


def _fills_the_disk(scene: Scene) -> None:
    """Take all room, in pieces: the store takes some of it at the same time."""
    place = scene.devices(DEVICE)
    with (place / "ballast").open("wb") as file:
        size, piece = 0, 64 << 20
        while piece >= _LEAST_PIECE:
            try:
                os.posix_fallocate(file.fileno(), size, piece)
                size += piece
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                piece //= 2


def _frees_the_disk(scene: Scene) -> None:
    (scene.devices(DEVICE) / "ballast").unlink()


def _ports(scene: Scene) -> tuple[int, int]:
    """The ports of the object server: HTTP, and the native one."""
    port = urlsplit(scene.cluster.url(OBJECT)).port
    assert port is not None
    return port, port + NATIVE_PORT_OFFSET


def _slows_the_network(scene: Scene) -> None:
    _own_network()
    _run("tc", "qdisc", "add", "dev", "lo", "root", "handle", "1:", "htb", "default", "10")
    _run("tc", "class", "add", "dev", "lo", "parent", "1:", "classid", "1:10", "htb", "rate", "40gbit")
    _run("tc", "class", "add", "dev", "lo", "parent", "1:", "classid", "1:20", "htb", "rate", SLOW_NETWORK)
    for port in _ports(scene):
        for side in ("dport", "sport"):
            _run(
                *("tc", "filter", "add", "dev", "lo", "parent", "1:", "protocol", "ip", "u32"),
                *("match", "ip", side, str(port), "0xffff", "flowid", "1:20"),
            )


def _quickens_the_network(_: Scene) -> None:
    _run("tc", "qdisc", "del", "dev", "lo", "root")


def _loses_packets(scene: Scene) -> None:
    _own_network()
    _run("nft", "add table inet degrade")
    _run("nft", "add chain inet degrade input { type filter hook input priority 0; }")
    ports = ", ".join(map(str, _ports(scene)))
    for side in ("dport", "sport"):
        rule = f"add rule inet degrade input tcp {side} {{ {ports} }} numgen random mod 100 < {LOST_PACKETS} drop"
        _run("nft", rule)


def _loses_no_packets(_: Scene) -> None:
    _run("nft", "delete table inet degrade")


def is_own_network() -> bool:
    """Whether this process has a network namespace of its own: one without a way to other machines."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def _own_network() -> None:
    """Refuse to change the machine's own network."""
    if not is_own_network():
        raise NotHereError("it is for a network namespace of its own: unshare --net --mount")


MODES: Mapping[str, Mode] = {
    mode.name: mode
    for mode in (
        Mode("process", "an object server is killed, and started again", _ends(OBJECT), _starts(OBJECT)),
        Mode(
            "disk",
            "an object server loses its disk, and is started with an empty one",
            _ends(OBJECT),
            _starts_empty((OBJECT,), (DEVICE,)),
        ),
        Mode(
            "node",
            "an object and a container server are killed, and come back",
            _ends(OBJECT, CONTAINER),
            _starts(OBJECT, CONTAINER),
        ),
        Mode(
            "zone",
            "an object and a container server are killed, and come back with empty disks",
            _ends(OBJECT, CONTAINER),
            _starts_empty((OBJECT, CONTAINER), (DEVICE, DATABASES)),
        ),
        Mode("container", "a container server is killed, and started again", _ends(CONTAINER), _starts(CONTAINER)),
        Mode("proxy", "one of two workers of the proxy is killed", _ends_a_worker, _nothing),
        Mode("metadata", "the metadata server is killed, and started again", _ends("metadata"), _starts("metadata")),
        Mode("redis", "Redis is killed, and started again", _ends_redis, _starts_redis, _with_redis),
        Mode(
            "slow-disk",
            f"an object server's disk does {SLOW_DISK_BYTES_PER_S / 1e6:g} MB/s and {SLOW_DISK_IOS} operations/s",
            _slows_the_disk,
            lambda scene: _removes(_BLKIO / f"swiftlet-degrade-{os.getpid()}"),
        ),
        Mode(
            "full-disk",
            "an object server's disk is full, and freed",
            _fills_the_disk,
            _frees_the_disk,
            _on_a_small_disk,
        ),
        Mode(
            "slow-network",
            f"the network of an object server does {SLOW_NETWORK}/s",
            _slows_the_network,
            _quickens_the_network,
            by_tcp=True,
        ),
        Mode(
            "lossy-network",
            f"the network of an object server loses {LOST_PACKETS} % of all packets, both ways",
            _loses_packets,
            _loses_no_packets,
            by_tcp=True,
        ),
        Mode(
            "upgrade",
            "all services are ended by SIGTERM and started again one by one, each when the last one is in sync",
            upgrades,
            _nothing,
            is_task=True,
        ),
        Mode("rebalance", "a node is added, and gets its share of all objects", rebalances, _nothing, is_task=True),
    )
}
