"""What is broken, and how: each mode breaks one thing of a store on this machine, and puts it right again.

Two break nothing: they are tasks of an operator (`tasks`), and end by themselves.

A standalone store has four zones of one node each: an object server with one device, and a container server on three
of them. So a lost zone is a lost node here, and is told apart by what comes back: a node comes back with its disks, a
zone without.

What is not possible here: a network with delays (the kernel has no netem), a disk that answers with errors (no device
mapper target is made), and machines that lose power.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from bench.degrade import machine
from bench.degrade.machine import NotHereError
from bench.degrade.tasks import rebalances, upgrades
from e2e.standalone.cluster import Cluster, start_cluster
from swiftlet.main.commands.standalone.plan import HOST, NATIVE_PORT_OFFSET
from swiftlet.sync.failures.tests.redis_server import RedisServer

OBJECT, CONTAINER, DEVICE, DATABASES = "object-1", "container-1", "d1", "c1"
"""What is broken: the first of its kind."""


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


def _slows_the_disk(scene: Scene) -> None:
    machine.throttle_disk(scene.devices(DEVICE), [scene.cluster.pids[OBJECT]], scene.undo)


def _on_a_small_disk(scene: Scene) -> None:
    """Mount a small file system over an empty device of a store that has been started once."""
    start_cluster(scene.data, settings=scene.settings).stop()
    machine.mount_small_disk(scene.devices(DEVICE), scene.undo)


def _places(scene: Scene) -> list[machine.Place]:
    """Where the object server is reached: HTTP, and the native way."""
    port = urlsplit(scene.cluster.url(OBJECT)).port
    assert port is not None
    return [(HOST, port), (HOST, port + NATIVE_PORT_OFFSET)]


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
        Mode(
            "upgrade",
            "all services are ended by SIGTERM and started again one by one, each when the last one is in sync",
            upgrades,
            _nothing,
            is_task=True,
        ),
        Mode("rebalance", "a node is added, and gets its share of all objects", rebalances, _nothing, is_task=True),
        Mode(
            "slow-disk",
            f"an object server's disk does {machine.SLOW_DISK_BYTES_PER_S / 1e6:g} MB/s and {machine.SLOW_DISK_IOS} "
            "operations/s",
            _slows_the_disk,
            lambda _: machine.release_disk(),
        ),
        Mode(
            "full-disk",
            "an object server's disk is full, and freed",
            lambda scene: machine.fill_disk(scene.devices(DEVICE)),
            lambda scene: machine.free_disk(scene.devices(DEVICE)),
            _on_a_small_disk,
        ),
        Mode(
            "slow-network",
            f"the network of an object server does {machine.SLOW_NETWORK}/s",
            lambda scene: machine.slow_network(_places(scene)),
            lambda _: machine.quicken_network(),
            by_tcp=True,
        ),
        Mode(
            "lossy-network",
            f"the network of an object server loses {machine.LOST_PACKETS} % of all packets, both ways",
            lambda scene: machine.lose_packets(_places(scene)),
            lambda _: machine.lose_no_packets(),
            by_tcp=True,
        ),
        Mode("metadata", "the metadata server is killed, and started again", _ends("metadata"), _starts("metadata")),
        Mode("redis", "Redis is killed, and started again", _ends_redis, _starts_redis, _with_redis),
    )
}
