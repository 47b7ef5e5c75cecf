"""Stores that are measured in turns on this machine, each with three copies, or parity for as much, on four devices."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.openstack import KEY, PROXY_PORT, TUNING, USER, VENV, OpenStack, Tuning
from bench.peers.processes import Processes
from e2e.standalone.cluster import start_cluster
from e2e.standalone.wire import Client
from swiftlet import __version__
from swiftlet.bench.target import Keys, Target

BINARIES = Path(".cache/bench-peers-bin").absolute()
NODES, REPLICAS, PART_POWER = 4, 3, 7
_KEYS = Keys("bench", "benchmark")
_MINIO_PORT, _MASTER_PORT, _FILER_PORT, _VOLUME_PORT = 9310, 9320, 9330, 9340


@dataclass(frozen=True)
class Running:
    """A store that runs: where it is, and the processes that it consists of."""

    target: Target
    pids: list[int]


@dataclass(frozen=True)
class System:
    """A store that can be started in a directory."""

    name: str
    durability: str
    """How many copies or fragments there are when a PUT is acknowledged, and which of them are synced."""
    settings: str
    """How it is set up."""
    version: Callable[[], str]
    missing: Callable[[], str]
    """What has to be done before it can run; empty when nothing has to."""
    start: Callable[[Path], AbstractContextManager[Running]]


@contextmanager
def _swiftlet(directory: Path) -> Iterator[Running]:
    cluster = start_cluster(directory)
    try:
        cluster.wait_until_proved()
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        yield Running(Target(f"{cluster.endpoint}{client.base}", client.token), [cluster.process.pid])
    finally:
        cluster.stop()


@contextmanager
def openstack(directory: Path, tuning: Tuning = TUNING) -> Iterator[Running]:
    """Run OpenStack Swift in a directory."""
    cluster = OpenStack(directory, NODES, REPLICAS, PART_POWER, tuning=tuning)
    try:
        cluster.start_storage(("object", "container", "account"))
        cluster.start_proxy()
        time.sleep(1)
        client = Client(f"http://127.0.0.1:{PROXY_PORT}", USER, KEY)
        yield Running(Target(f"http://127.0.0.1:{PROXY_PORT}{client.base}", client.token), cluster.pids)
    finally:
        cluster.stop()


@contextmanager
def _minio(directory: Path) -> Iterator[Running]:
    directory.mkdir(parents=True)
    processes = Processes(directory / "log")
    # MINIO_CI_CD: several drives may be folders of one disk.
    settings = {
        "MINIO_ROOT_USER": _KEYS.access,
        "MINIO_ROOT_PASSWORD": _KEYS.secret,
        "MINIO_CI_CD": "1",
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
    }
    drives = [str(directory / f"drive-{number}") for number in range(NODES)]
    address = f"127.0.0.1:{_MINIO_PORT}"
    try:
        command = [str(BINARIES / "minio"), "server", "--quiet", "--address", address, *drives]
        processes.start("minio", command, {**os.environ, **settings})
        processes.wait_for([("127.0.0.1", _MINIO_PORT)])
        time.sleep(2)
        yield Running(Target(f"http://{address}", "", api="s3", keys=_KEYS), processes.pids)
    finally:
        processes.stop()


@contextmanager
def _seaweedfs(directory: Path, is_synced: bool) -> Iterator[Running]:
    weed = str(BINARIES / "weed")
    (directory / "master").mkdir(parents=True)
    (directory / "filer").mkdir()
    processes = Processes(directory / "log")
    master, filer = f"127.0.0.1:{_MASTER_PORT}", f"127.0.0.1:{_FILER_PORT}"
    here = ["-ip=127.0.0.1", f"-master={master}"]
    try:
        limits = ["-volumeSizeLimitMB=1024", "-defaultReplication=002"]
        folder = f"-mdir={directory / 'master'}"
        processes.start("master", [weed, "master", "-ip=127.0.0.1", f"-port={_MASTER_PORT}", folder, *limits])
        processes.wait_for([("127.0.0.1", _MASTER_PORT)])
        for number in range(NODES):
            (directory / f"volume-{number}").mkdir()
            place = [f"-port={_VOLUME_PORT + number}", f"-dir={directory / f'volume-{number}'}", "-max=30"]
            processes.start(f"volume-{number}", [weed, "volume", *here, *place])
        processes.wait_for(("127.0.0.1", _VOLUME_PORT + number) for number in range(NODES))
        place = [f"-port={_FILER_PORT}", f"-defaultStoreDir={directory / 'filer'}", "-defaultReplicaPlacement=002"]
        processes.start("filer", [weed, "filer", *here, *place])
        processes.wait_for([("127.0.0.1", _FILER_PORT)])
        time.sleep(5)
        if is_synced:
            _configure(weed, master, filer, "fs.configure -locationPrefix=/bench/ -fsync -apply")
        yield Running(Target(f"http://{filer}/bench", "", api="files"), processes.pids)
    finally:
        processes.stop()


def _configure(weed: str, master: str, filer: str, command: str) -> None:
    shell = [weed, "shell", f"-master={master}", f"-filer={filer}"]
    done = subprocess.run(shell, input=f"{command}\n", capture_output=True, text=True, timeout=60, check=False)
    if done.returncode or "fsync" not in done.stdout:
        raise RuntimeError(f"weed shell did not take {command!r}: {done.stdout[-1000:]}{done.stderr[-1000:]}")


def _built(name: str) -> Callable[[], str]:
    return lambda: (BINARIES / f"{name}.version").read_text("utf-8").strip()


def _installed() -> str:
    """Return the version of OpenStack Swift in the environment that it has for itself."""
    asked = "from importlib.metadata import version; print(version('swift'))"
    return subprocess.run([VENV / "python", "-c", asked], capture_output=True, text=True, check=True).stdout.strip()


def _program(name: str) -> Callable[[], str]:
    return lambda: "" if (BINARIES / name).is_file() else f"{name} is not built: bench/peers/build.sh"


SYSTEMS = (
    System(
        "Swiftlet",
        "3 copies, a write counts when 2 are synced",
        "`swiftlet standalone` as it comes",
        lambda: __version__,
        lambda: "",
        _swiftlet,
    ),
    System(
        "OpenStack Swift",
        "3 copies, a write counts when 2 are synced (fsync before rename)",
        "as its documentation's all in one: 4 nodes, a worker for each of their servers, 2 of the proxy, memcached",
        _installed,
        lambda: "" if VENV.is_dir() else "OpenStack Swift is not installed: bench/peers/prepare.sh",
        openstack,
    ),
    System(
        "MinIO",
        "2 + 2 erasure coding, synced",
        "one server over 4 drives",
        _built("minio"),
        _program("minio"),
        _minio,
    ),
    System(
        "SeaweedFS",
        "3 copies, all written, none synced (as it ships)",
        "a master, 4 volume servers and a filer",
        _built("weed"),
        _program("weed"),
        lambda directory: _seaweedfs(directory, is_synced=False),
    ),
    System(
        "SeaweedFS, fsync",
        "3 copies, all written and synced",
        "the same, with `fs.configure -fsync`",
        _built("weed"),
        _program("weed"),
        lambda directory: _seaweedfs(directory, is_synced=True),
    ),
)
