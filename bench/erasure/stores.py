"""The stores that are compared: ours and OpenStack Swift's, each with three copies and with erasure coding.

All have a device for each fragment, ours one more, and those with copies have as many; the policy is the default one.
OpenStack Swift's coding is liberasurecode's `isa_l_rs_cauchy` by pyeclib, which needs ISA-L's library (Debian:
libisal2), in segments of 1 MiB, its default.
"""

from __future__ import annotations

import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.degrade.peer import logged_in
from bench.degrade.whole import WHOLE_WITHIN_S
from bench.erasure.space import Space, space_of
from bench.peers.openstack import PROXY_PORT, OpenStack
from bench.peers.systems import Running
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client
from swiftlet.bench.degrade.whole import stands, status
from swiftlet.bench.target import Target
from swiftlet.sync.session.compare import IN_FLIGHT_S

COPIES, PART_POWER = 3, 7
POLICIES = 2
"""Of our stores: the one that is measured, and another one, which determines the number of devices."""
_RECONSTRUCTOR = """\
[object-reconstructor]
reconstructor_workers = 0
concurrency = 4
recon_cache_path = {etc}
log_level = INFO
"""


@dataclass(frozen=True)
class Scheme:
    """How many fragments of an object there are."""

    data: int
    parity: int

    def __str__(self) -> str:
        return f"{self.data}+{self.parity}"

    @property
    def devices(self) -> int:
        """Return the number of devices that an object is on."""
        return self.data + self.parity


@dataclass(frozen=True)
class Stored:
    """A store that runs, and what can be done to it."""

    running: Running
    lose: Callable[[int], None]
    """End the object servers of so many devices."""
    restore: Callable[[], None]
    """Start the object servers that `lose` has ended."""
    replace: Callable[[], None]
    """Put an empty device in the place of the first one, and let nothing of it be repaired before `begin`."""
    begin: Callable[[], None]
    """Let the store repair from now on."""
    rebuild: Callable[[int], bool]
    """Repair until the first device is whole again, `WHOLE_WITHIN_S` at most; return whether it is.

    Ours proves that. OpenStack Swift proves nothing: its device is whole when it has so many bytes.
    """
    space: Callable[[], Space]
    """Return how many bytes of disk all devices take for objects."""
    space_of_first: Callable[[], Space]
    devices: Path
    """A folder on the disk that all devices are on."""
    count: int
    """The number of devices."""


@dataclass(frozen=True)
class Store:
    """A kind of store."""

    name: str
    is_ours: bool
    is_coded: bool
    start: Callable[[Path], AbstractContextManager[Stored]]


def stores(scheme: Scheme) -> tuple[Store, ...]:
    """Return the four that are compared."""
    return (
        Store("Swiftlet, 3 copies", True, False, lambda path: _ours(path, scheme, is_coded=False)),
        Store(f"Swiftlet, {scheme}", True, True, lambda path: _ours(path, scheme, is_coded=True)),
        Store("OpenStack, 3 copies", False, False, lambda path: _theirs(path, scheme, is_coded=False)),
        Store(f"OpenStack, {scheme}", False, True, lambda path: _theirs(path, scheme, is_coded=True)),
    )


@contextmanager
def _ours(path: Path, scheme: Scheme, *, is_coded: bool) -> Iterator[Stored]:
    # The other policy is there for its number of devices alone.
    coded = f"coded={scheme}"
    cluster = start_cluster(path, "--policies", f"{coded},usual" if is_coded else f"usual,{coded}")
    try:
        cluster.wait_until_proved()
        client = Client(cluster.endpoint, cluster.user, cluster.key)
        running = Running(Target(f"{cluster.endpoint}{client.base}", client.token), [cluster.process.pid])
        held = _OurDevices(cluster)
        first = partial(held.space_of, 1)
        does = held.lose, held.restore, held.replace, held.begin, held.rebuild, held.space, first
        yield Stored(running, *does, path, len(_devices_of(cluster)))
    finally:
        cluster.stop()


class _OurDevices:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lost: list[str] = []

    def lose(self, count: int) -> None:
        self._lost = [f"object-{number}" for number in range(1, count + 1)]
        self._cluster.kill(*self._lost)

    def restore(self) -> None:
        self._cluster.start(*self._lost)
        self._cluster.wait_until_proved()

    def replace(self) -> None:
        self._cluster.kill("replicator", "object-1")
        self._lost = ["replicator", "object-1"]
        for one in self._devices("d1").iterdir():
            shutil.rmtree(one) if one.is_dir() else one.unlink()

    def begin(self) -> None:
        self._cluster.start(*self._lost)

    def rebuild(self, _wanted: int) -> bool:
        """Wait until the replicator has proved that no device lacks anything, of whatever is not too young to be looked
        at by the first of its rounds.
        """
        since_s = time.time() + IN_FLIGHT_S
        return _until(lambda: is_whole_again(self._cluster, since_s))

    def space(self) -> Space:
        return sum((space_of(self._devices(name)) for name in _devices_of(self._cluster)), Space())

    def space_of(self, number: int) -> Space:
        return space_of(self._devices(f"d{number}"))

    def _devices(self, name: str) -> Path:
        return self._cluster.data / "devices" / name


def _devices_of(cluster: Cluster) -> list[str]:
    """The names of the devices of object servers, each of which has one."""
    return [name.replace("object-", "d") for name in cluster.services if name.startswith("object-")]


def is_whole_again(cluster: Cluster, since_s: float) -> bool:
    """Whether all devices were compared in both policies by rounds that began since then, with nothing left to do."""
    names = [name for name in cluster.services if name == "replicator" or name.startswith("object-")]
    urls = {name: cluster.management_url(name) for name in names}
    try:
        found = [len(device["rings"]) for device in status(urls["replicator"])["devices"].values()]
    except (OSError, ValueError):
        return False
    return found == [POLICIES] * len(_devices_of(cluster)) and stands(urls, since_s)


@contextmanager
def _theirs(path: Path, scheme: Scheme, *, is_coded: bool) -> Iterator[Stored]:
    cluster = CodedOpenStack(path, scheme) if is_coded else OpenStack(path, scheme.devices, COPIES, PART_POWER)
    try:
        cluster.start_storage(("object", "container", "account"))
        cluster.start_proxy()
        client = logged_in()
        running = Running(Target(f"http://127.0.0.1:{PROXY_PORT}{client.base}", client.token), cluster.pids)
        held = _TheirDevices(path, cluster)
        first = partial(held.space_of, 0)
        does = held.lose, held.restore, held.replace, held.begin, held.rebuild, held.space, first
        yield Stored(running, *does, path, cluster.nodes)
    finally:
        cluster.stop()


class _TheirDevices:
    def __init__(self, path: Path, cluster: OpenStack) -> None:
        self._path = path
        self._cluster = cluster
        self._lost = 0

    def lose(self, count: int) -> None:
        self._lost = count
        for node in range(count):
            self._cluster.end_servers(node, ("object",))

    def restore(self) -> None:
        for node in range(self._lost):
            self._cluster.start_servers(node, ("object",))

    def replace(self) -> None:
        self._cluster.empty_disk(0)

    def begin(self) -> None:
        """Do nothing: `rebuild` runs the passes."""

    def rebuild(self, wanted: int) -> bool:
        """Run passes on all nodes at the same time, again and again, as their daemons would without a pause."""
        program = "reconstructor" if isinstance(self._cluster, CodedOpenStack) else "replicator"
        over = threading.Event()
        passing = [
            threading.Thread(target=self._passes, args=(node, program, over), daemon=True)
            for node in range(self._cluster.nodes)
        ]
        for one in passing:
            one.start()
        try:
            return _until(lambda: self.space_of(0).stored >= wanted)
        finally:
            over.set()
            for one in passing:
                one.join()

    def _passes(self, node: int, program: str, over: threading.Event) -> None:
        while not over.is_set():
            process = subprocess.Popen(
                self._cluster.once(node, f"swift-object-{program}"),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            while process.poll() is None:
                if over.wait(0.2):
                    process.terminate()
                    process.wait()

    def space(self) -> Space:
        return sum((self.space_of(node) for node in range(self._cluster.nodes)), Space())

    def space_of(self, node: int) -> Space:
        return space_of(self._path / f"node-{node}" / "d" / "objects")


class CodedOpenStack(OpenStack):
    """OpenStack Swift with erasure coding as its only policy."""

    def __init__(self, directory: Path, scheme: Scheme) -> None:
        """Write configuration and rings; those of accounts and containers have three replicas."""
        super().__init__(directory, scheme.devices, COPIES, PART_POWER)
        other = directory / "ring"
        OpenStack(other, scheme.devices, scheme.devices, PART_POWER)
        shutil.copy(other / "etc" / "object.ring.gz", self._etc / "object.ring.gz")
        with (self._etc / "swift.conf").open("a") as file:
            file.write(
                "[storage-policy:0]\nname = coded\ndefault = yes\npolicy_type = erasure_coding\n"
                f"ec_type = isa_l_rs_cauchy\nec_num_data_fragments = {scheme.data}\n"
                f"ec_num_parity_fragments = {scheme.parity}\n"
            )
        for node in range(scheme.devices):
            with (self._etc / f"object-{node}.conf").open("a") as file:
                file.write(_RECONSTRUCTOR.format(etc=self._etc))


def _until(is_so: Callable[[], bool]) -> bool:
    began = time.monotonic()
    while not (found := is_so()) and time.monotonic() - began < WHOLE_WITHIN_S:
        time.sleep(0.1)
    return found
