"""OpenStack Swift, M1 and M2 side by side in one run, with the loads of Swift-X's figure 8 and table III.

    unshare --net .venv/bin/python -m bench.modes.swiftx [--sizes 1 10 100] [--scale 20] [--seconds 15] [--rounds 2]

`bench/peers/prepare.sh` installs OpenStack Swift; it and a standalone store run at the same time, and are used in
turns. The same client (`swiftlet.client`) loads all of them: over HTTP (OpenStack, M1) and directly (M2), through
sockets and, "near", through memory that it shares with object servers, as a proxy does on one machine. Objects go
in one request whatever their size, and are compared with their ETags in both directions: MD5 with OpenStack, and MD5 or
xxh3 with ours, as the storage policy says.

*Latency*: one operation after the other, from a file and into a file, with what the client did meanwhile: seconds in
digests, and in reading or writing the file. The rest is the network, the store and its disks, as far as nothing of that
ran at the same time.

*Mixes*: eight clients, each a process with one operation at a time, for so many seconds. `--scale` divides the sizes of
the source; 1 repeats it, and needs 120 GB for each store. Prints markdown, and reports what was measured of both.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

import swiftlet_native

from bench.micro import Measured, report
from bench.modes.crew import Crew
from bench.peers import front
from bench.peers.openstack import KEY, PROXY_PORT, USER
from e2e.standalone.cluster import start_cluster
from swiftlet.client import V1, AsyncClient, Options, digests
from swiftlet.client import downloads as files
from swiftlet.client.direct import hashing
from swiftlet.client.direct import way as direct_way
from swiftlet.transport import native_replicas

MB = 10**6
CLIENTS = 8
COPIES = 3
CONTAINERS = 8
_NEVER = 1 << 40


@dataclass(frozen=True)
class Mix:
    """A row of table III: sizes in MB with the objects of each, and how often which operation is made."""

    name: str
    sizes: Sequence[tuple[int, float]]
    create: float
    read: float
    update: float


MIXES = (
    Mix("1: 10 MB, 100 MB, 1 GB", ((114, 10), (57, 100), (29, 1000)), 0.4, 0.4, 0.2),
    Mix("2: 100 MB, 1 GB, 5 GB", ((23, 100), (13, 1000), (4, 5000)), 0.4, 0.5, 0.1),
)
BARS = {"M1": 7.3, "M2": 15.0, "M2, near": 15.0}


@dataclass(frozen=True)
class System:
    """One store as clients reach it."""

    name: str
    login: V1
    options: Options
    policy: str | None


# --- one client ---


class Clock:
    """Seconds that some functions took since they were wrapped."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def wrapped(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, timed."""

        def timed(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return work(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - began

        return timed


class Clocks:
    """Tell how long a client has spent on digests, and on its files."""

    def __init__(self) -> None:
        """Wrap what computes digests, and what reads and writes files, in this process."""
        self.digest, self.file = Clock(), Clock()
        for kind in (digests._Md5, digests._Xxh3, digests._Xxh3Short):
            patch.object(kind, "update", self.digest.wrapped(kind.update)).start()
        clock, real = self.digest, swiftlet_native.Hasher

        class Timed:
            def __init__(self, **flags: bool) -> None:
                self._hasher = real(**flags)
                self.update = clock.wrapped(self._hasher.update)

            def __getattr__(self, name: str) -> Any:
                return getattr(self._hasher, name)

        class Together:
            @staticmethod
            def update_each(pieces: Sequence[tuple[Any, Any]]) -> None:
                each([(hasher._hasher, data) for hasher, data in pieces])

        each = clock.wrapped(real.update_each)
        patch.object(hashing, "Hasher", Together).start()
        for module in (direct_way, native_replicas):
            patch.object(module, "Hasher", Timed).start()
        patch.object(files, "_write_all", self.file.wrapped(files._write_all)).start()
        patch.object(os, "pread", self.file.wrapped(os.pread)).start()


async def latency(system: System, source: Path, rounds: int, clocks: Clocks) -> dict[str, list[tuple[float, ...]]]:
    """Return seconds of PUTs and GETs of a file: all, in digests, in the file."""
    found: dict[str, list[tuple[float, ...]]] = {"PUT": [], "GET": []}
    target = source.with_name("read")
    async with AsyncClient(system.login, system.options) as client:
        for number in range(rounds + 1):
            for what in found:
                digest_s, file_s, began = clocks.digest.seconds, clocks.file.seconds, time.monotonic()
                if what == "PUT":
                    await client.put("latency", "object", source)
                else:
                    await client.download("latency", "object", target)
                taken = (
                    time.monotonic() - began,
                    clocks.digest.seconds - digest_s,
                    clocks.file.seconds - file_s,
                )
                if number:
                    # The first one logs in, and asks for grants.
                    found[what].append(taken)
        target.unlink()
        await client.delete("latency", "object")
    return found


# --- eight clients ---


def work(system: System, source: Path, number: int, ends: Connection) -> None:
    """Be one of the clients: at each message, a mix and a time, make its operations and answer with what was done."""

    async def run() -> None:
        async with AsyncClient(system.login, system.options) as client:
            loop = asyncio.get_running_loop()
            while (asked := await loop.run_in_executor(None, ends.recv)) is not None:
                ends.send(await operations(client, number, body, *asked))

    # All clients of all stores share these pages.
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        body = memoryview(mapped)
        asyncio.run(run())
        body.release()


async def operations(
    client: AsyncClient, number: int, body: memoryview, mix: Mix, scale: float, seconds: float
) -> tuple[int, int, float]:
    """Return operations and bytes of one client, and the seconds that they took."""
    rng = random.Random(number)
    sizes = [int(size * MB / scale) for _, size in mix.sizes]
    weights = [count for count, _ in mix.sizes]
    kinds, shares = ("create", "read", "update"), (mix.create, mix.read, mix.update)
    container, made = f"mix{number % CONTAINERS}", 0
    own = {size: [f"{number}/{size}"] for size in sizes}
    for size in sizes:
        await client.put(container, own[size][0], body[:size])
    began, done, moved = time.monotonic(), 0, 0
    while time.monotonic() < began + seconds:
        (size,), (kind,) = rng.choices(sizes, weights), rng.choices(kinds, shares)
        if kind == "read":
            async with client.open(container, rng.choice(own[size])) as reading:
                async for _ in reading:
                    pass
        elif kind == "create":
            name = f"{number}/{size}/{made}"
            await client.put(container, name, body[:size])
            made += 1
            own[size].append(name)
        else:
            await client.put(container, rng.choice(own[size]), body[:size])
        done += 1
        moved += size
    taken = time.monotonic() - began
    for names in own.values():
        for name in names:
            await client.delete(container, name)
    return done, moved, taken


def rates_of(crew: Crew, mix: Mix, scale: float, seconds: float) -> tuple[float, float]:
    """Return operations and MB in a second of a mix that all clients make."""
    found = crew.ask((mix, scale, seconds))
    return sum(done / taken for done, _, taken in found), sum(moved / taken for _, moved, taken in found) / MB


# --- all of it ---


def check_room(directory: Path, scale: float) -> None:
    """End the program when a store of a mix has no room: what is written in a round takes as much as what is there."""
    most = max(sum(size for _, size in mix.sizes) for mix in MIXES) * MB / scale
    needed, free = 2 * CLIENTS * COPIES * most, float(shutil.disk_usage(directory).free)
    if directory.stat().st_dev == Path("/dev/shm").stat().st_dev:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        free = min(free, 1024 * float(lines["MemAvailable"].split()[0]))
    if needed > free:
        sys.exit(f"mixes need {needed / 1e9:.0f} GB in {directory}, which has {free / 1e9:.0f}: use a larger --scale")


@contextmanager
def systems(directory: Path, etag: str) -> Iterator[list[System]]:
    """Yield the stores, running; ours has a policy with the kind of ETag."""
    policies = [{"index": 0, "name": "usual", "default": True}, {"index": 1, "name": etag, "etag": etag}]
    sockets = directory / "s"
    sockets.mkdir()
    settings = {
        "SWIFTLET_POLICIES": json.dumps(policies),
        "SWIFTLET_CLUSTER__DIRECT_ACCESS": "true",
        "SWIFTLET_CLUSTER__NATIVE_SOCKET_DIRECTORY": str(sockets),
    }
    whole = {"hedge": False, "segments_above_bytes": _NEVER, "ranges_above_bytes": _NEVER, "read_timeout_s": 600.0}
    http = Options(**whole)  # type: ignore[arg-type]
    with front.openstack(directory / "openstack") as (theirs, _):
        cluster = start_cluster(directory / "ours", "--policies", f"usual,{etag}", settings=settings)
        try:
            cluster.wait_until_proved()
            login = V1(auth_url=cluster.auth_url, user=cluster.user, key=cluster.key)
            address = f"http://127.0.0.1:{PROXY_PORT}/auth/v1.0"
            del theirs
            direct = Options(**whole, metadata_url=cluster.url("metadata"))  # type: ignore[arg-type]
            yield [
                System("OpenStack", V1(auth_url=address, user=USER, key=KEY), http, None),
                System("M1", login, http, etag),
                System("M2", login, direct, etag),
                System("M2, near", login, replace(direct, socket_directory=str(sockets)), etag),
            ]
        finally:
            cluster.stop()


async def prepare(found: Sequence[System]) -> None:
    """Create the containers of both stores, and wait until grants for ours count."""
    for system in found:
        if system.name.startswith("M2"):
            continue
        async with AsyncClient(system.login, system.options) as client:
            for name in ["latency", *(f"mix{number}" for number in range(CONTAINERS))]:
                await client.create_container(name, policy=system.policy)
    # Grants that rest on what was known before the containers were made count from then on.
    await asyncio.sleep(3)


def split(rows: Sequence[tuple[float, ...]]) -> dict[str, tuple[float, ...]]:
    """Return the milliseconds of each round of an operation, and of its parts; "" is the whole."""
    whole, digest, own = (tuple(1e3 * seconds for seconds in column) for column in zip(*rows, strict=True))
    rest = tuple(max(0.0, a - b - c) for a, b, c in zip(whole, digest, own, strict=True))
    return {"": whole, "digests": digest, "file": own, "the rest": rest}


def latencies(found: Sequence[System], directory: Path, sizes: Sequence[float], rounds: int) -> Iterator[Measured]:
    """Print the table of figure 8, and yield what the page of all measurements has of it."""
    clocks = Clocks()
    say("| size, MB | | system | ms | digests, ms | file, ms | the rest, ms | as long as OpenStack |")
    say("|---|---|---|---|---|---|---|---|")
    source = directory / "source"
    for size in sizes:
        write(source, size)
        taken: dict[tuple[str, str], dict[str, tuple[float, ...]]] = {}
        for system in found:
            for what, rows in asyncio.run(latency(system, source, rounds, clocks)).items():
                taken[what, system.name] = split(rows)
        for what in ("PUT", "GET"):
            for system in found:
                parts = taken[what, system.name]
                medians = [statistics.median(each) for each in parts.values()]
                ratio = medians[0] / statistics.median(taken[what, found[0].name][""])
                cells = " | ".join(f"{one:,.1f}" for one in medians)
                say(f"| {size:g} | {what} | {system.name} | {cells} | {ratio:.2f} |")
                for part, each in parts.items():
                    yield Measured(f"{what} of {size:,g} MB, {system.name}{part and f', {part}'}", "ms", each)
    source.unlink()


def mixes(found: Sequence[System], directory: Path, scale: float, seconds: float, rounds: int) -> Iterator[Measured]:
    """Print the operations a second of table III's mixes, and yield what the page of all measurements has of them."""
    say(f"\nEight clients, {seconds:g} s, sizes divided by {scale:g}\n")
    say("| mix | system | operations/s | MB/s | each round | as a multiple of OpenStack | bar |")
    say("|---|---|---|---|---|---|---|")
    source = directory / "source"
    write(source, max(size for mix in MIXES for _, size in mix.sizes) / scale)
    crews = {system.name: Crew(CLIENTS, partial(work, system, source)) for system in found}
    try:
        for mix in MIXES:
            rates: dict[str, list[tuple[float, float]]] = {name: [] for name in crews}
            for _ in range(rounds):
                for name, crew in crews.items():
                    rates[name].append(rates_of(crew, mix, scale, seconds))
            for name, rows in rates.items():
                rate, moved = (statistics.median(column) for column in zip(*rows, strict=True))
                each, ratio = ", ".join(f"{one:.2f}" for one, _ in rows), multiple(rates, name)
                bar = f"{BARS[name]:g}: {'met' if ratio >= BARS[name] else 'not met'}" if name in BARS else ""
                say(f"| {mix.name} | {name} | {rate:.2f} | {moved:,.0f} | {each} | {ratio:.2f} | {bar} |")
            yield from of_mix(f"mix {mix.name}, divided by {scale:g}", rates)
    finally:
        for crew in crews.values():
            crew.end()


def multiple(rates: Mapping[str, Sequence[tuple[float, float]]], name: str) -> float:
    """Return how many times the first store's operations another one does, by the medians of all rounds."""
    first, own = (statistics.median(rate for rate, _ in rates[one]) for one in (next(iter(rates)), name))
    return own / first


def of_mix(mix: str, rates: Mapping[str, Sequence[tuple[float, float]]]) -> Iterator[Measured]:
    """Yield the rounds of a mix: operations and MB in a second; and how many times OpenStack's operations they are."""
    for name, rows in rates.items():
        yield Measured(f"{mix}, {name}", "1/s", tuple(rate for rate, _ in rows))
        yield Measured(f"{mix}, {name}, bytes", "MB/s", tuple(moved for _, moved in rows))
        if name in BARS:
            what = f"{mix}, {name}, by OpenStack's rate (bar {BARS[name]:g})"
            yield Measured(what, "times", (multiple(rates, name),))


def write(path: Path, size: float) -> None:
    """Write a file of so many MB."""
    block = random.Random(8).randbytes(MB)
    with path.open("wb") as file:
        for _ in range(int(size)):
            file.write(block)
        file.write(block[: int((size - int(size)) * MB)])


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Start the stores, measure, and stop them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="*", default=[1, 10, 100], help="in MB; up to 5000")
    parser.add_argument("--scale", type=float, default=20, help="by which the sizes of the mixes are divided")
    parser.add_argument("--seconds", type=float, default=15, help="of each round of a mix; 0 for none")
    parser.add_argument("--rounds", type=int, default=3, help="of everything")
    parser.add_argument("--etag", choices=["xxh3", "md5"], default="xxh3", help="of our policy")
    parser.add_argument("--directory", type=Path, help="where both stores keep their data; a new one by default")
    arguments = parser.parse_args()
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    if arguments.directory is not None:
        arguments.directory.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=arguments.directory)).absolute()
    single: list[Measured] = []
    mixed: list[Measured] = []
    try:
        if arguments.seconds:
            check_room(directory, arguments.scale)
        with systems(directory, arguments.etag) as found:
            asyncio.run(prepare(found))
            say(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors; ETags of ours: {arguments.etag}\n")
            if arguments.sizes:
                single += latencies(found, directory, arguments.sizes, arguments.rounds)
            if arguments.seconds:
                mixed += mixes(found, directory, arguments.scale, arguments.seconds, arguments.rounds)
            say(f"\nload {os.getloadavg()[0]:.1f}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    if single:
        report("modes-latency", single)
    if mixed:
        report("modes-mixes", mixed)


if __name__ == "__main__":
    main()
