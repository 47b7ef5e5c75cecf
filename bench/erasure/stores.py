"""The stores that are compared: ours and OpenStack Swift's, each with three copies and with erasure coding.

All have a device for each fragment, so that one with copies has as many, too; the policy is the default one.
OpenStack Swift's coding is liberasurecode's `isa_l_rs_cauchy` by pyeclib, which needs ISA-L's library (Debian:
libisal2), in segments of 1 MiB, its default.
"""

from __future__ import annotations

import os
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
from bench.peers.openstack import PROXY_PORT, OpenStack
from bench.peers.systems import Running
from e2e.standalone.cluster import Cluster, start_cluster
from e2e.standalone.wire import Client
from swiftlet.bench.target import Target

COPIES, PART_POWER = 3, 7
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
    """Put an empty device in the place of the first one, and let nothing of it be repaired before `rebuild`."""
    rebuild: Callable[[int], float]
    """Wait until the first device has so many bytes again, `WHOLE_WITHIN_S` at most; return the seconds."""
    used: Callable[[], int]
    """Return how many bytes of disk all devices take for objects."""
    used_of_first: Callable[[], int]
    devices: Path
    """A folder on the disk that all devices are on."""


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
        first = partial(held.used_of, 1)
        yield Stored(running, held.lose, held.restore, held.replace, held.rebuild, held.used, first, path)
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

    def rebuild(self, wanted: int) -> float:
        self._cluster.start(*self._lost)
        return _until(lambda: self.used_of(1) >= wanted)

    def used(self) -> int:
        return sum(_used(one) for one in self._cluster.data.joinpath("devices").glob("d*"))

    def used_of(self, number: int) -> int:
        return _used(self._devices(f"d{number}"))

    def _devices(self, name: str) -> Path:
        return self._cluster.data / "devices" / name


@contextmanager
def _theirs(path: Path, scheme: Scheme, *, is_coded: bool) -> Iterator[Stored]:
    cluster = CodedOpenStack(path, scheme) if is_coded else OpenStack(path, scheme.devices, COPIES, PART_POWER)
    try:
        cluster.start_storage(("object", "container", "account"))
        cluster.start_proxy()
        client = logged_in()
        running = Running(Target(f"http://127.0.0.1:{PROXY_PORT}{client.base}", client.token), cluster.pids)
        held = _TheirDevices(path, cluster)
        first = partial(held.used_of, 0)
        yield Stored(running, held.lose, held.restore, held.replace, held.rebuild, held.used, first, path)
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

    def rebuild(self, wanted: int) -> float:
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
            return _until(lambda: self.used_of(0) >= wanted)
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

    def used(self) -> int:
        return sum(self.used_of(node) for node in range(self._cluster.nodes))

    def used_of(self, node: int) -> int:
        return _used(self._path / f"node-{node}" / "d" / "objects")


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


def _used(path: Path) -> int:
    """Return how many bytes of disk the files below a directory take; those that go meanwhile count as nothing."""
    total = 0
    for folder, _, files in os.walk(path):
        for name in files:
            try:
                total += Path(folder, name).stat().st_blocks * 512
            except FileNotFoundError:
                continue
    return total


def _until(is_so: Callable[[], bool]) -> float:
    began = time.monotonic()
    while (waited := time.monotonic() - began) < WHOLE_WITHIN_S and not is_so():
        time.sleep(0.1)
    return waited
