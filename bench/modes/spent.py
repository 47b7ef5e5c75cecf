"""Where the processor time of large objects goes: each mode, operation and size by itself, by kinds of processes.

    .venv/bin/python -m bench.modes.spent [--sizes 2 20] [--modes M1 M2 near] [--clients 8] [--mb 400] [--rounds 3]

A standalone store with ETags by XXH3 and clients that are a process each with one operation at a time, as in
`bench.modes.swiftx`. Each client puts, or gets, objects of one size until all have moved so many MB. Printed are the
nanoseconds of processors for each byte of an object, in user mode and in the system, of clients, proxies, object
servers and all others; modes take turns. Wall time does not matter, so other work on the machine disturbs little.

With `--profile DIRECTORY`, `perf record` samples each kind of processes meanwhile, into a file for each row.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from bench.modes.crew import Crew
from bench.modes.swiftx import MB, System
from e2e.standalone.cluster import Cluster, start_cluster
from swiftlet.client import V1, AsyncClient, Options

_NEVER = 1 << 40
_TICKS = os.sysconf("SC_CLK_TCK")
KINDS = ("client", "proxy", "object")
CONTAINER = "spent"


@dataclass(frozen=True)
class Times:
    """Processor seconds in user mode, and in the system."""

    user: float
    system: float


def times_of(pids: Sequence[int]) -> Times:
    """Return what processes have used so far, all their threads together."""
    user = system = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user += int(fields[11])
        system += int(fields[12])
    return Times(user / _TICKS, system / _TICKS)


def with_children(pid: int) -> list[int]:
    """Return a process and those that it has started."""
    found = [pid]
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in (task / "children").read_text().split():
            found += with_children(int(child))
    return found


def kinds_of(cluster: Cluster, clients: Sequence[int]) -> dict[str, list[int]]:
    """Return the processes of each kind; "others" are those of the store that are no proxy and no object server."""
    kinds: dict[str, list[int]] = {"client": list(clients), "proxy": [], "object": [], "others": []}
    for name, pid in cluster.pids.items():
        kind = name.partition("-")[0]
        kinds[kind if kind in kinds else "others"] += with_children(pid)
    return kinds


def work(system: System, size: int, number: int, ends: Connection) -> None:
    """Be one of the clients: say when its objects are there; at each message, make so many operations of a kind."""
    body = memoryview(random.Random(number).randbytes(size))
    names = [f"{system.name}/{number}/{size}/{one}" for one in range(2)]

    async def run() -> None:
        async with AsyncClient(system.login, system.options) as client:
            for name in names:
                await client.put(CONTAINER, name, body)
            loop = asyncio.get_running_loop()
            ends.send(None)
            while (asked := await loop.run_in_executor(None, ends.recv)) is not None:
                what, count = asked
                for one in range(count):
                    if what == "PUT":
                        await client.put(CONTAINER, names[one % 2], body)
                        continue
                    async with client.open(CONTAINER, names[one % 2]) as reading:
                        async for _ in reading:
                            pass
                ends.send(None)
            for name in names:
                await client.delete(CONTAINER, name)

    asyncio.run(run())


@contextmanager
def store(directory: Path) -> Iterator[tuple[Cluster, dict[str, System]]]:
    """Yield a store, running, and how its clients reach it in each mode."""
    policies = [{"index": 0, "name": "usual", "default": True}, {"index": 1, "name": "xxh3", "etag": "xxh3"}]
    sockets = directory / "s"
    sockets.mkdir()
    settings = {
        "SWIFTLET_POLICIES": json.dumps(policies),
        "SWIFTLET_CLUSTER__DIRECT_ACCESS": "true",
        "SWIFTLET_CLUSTER__NATIVE_SOCKET_DIRECTORY": str(sockets),
    }
    http = Options(hedge=False, segments_above_bytes=_NEVER, ranges_above_bytes=_NEVER, read_timeout_s=600.0)
    cluster = start_cluster(directory / "ours", "--policies", "usual,xxh3", settings=settings)
    try:
        cluster.wait_until_proved()
        login = V1(auth_url=cluster.auth_url, user=cluster.user, key=cluster.key)
        direct = replace(http, metadata_url=cluster.url("metadata"))
        found = [
            System("M1", login, http, "xxh3"),
            System("M2", login, direct, "xxh3"),
            System("near", login, replace(direct, socket_directory=str(sockets)), "xxh3"),
        ]
        yield cluster, {system.name: system for system in found}
    finally:
        cluster.stop()


async def prepare(system: System) -> None:
    """Create the container, and wait until grants for it count."""
    async with AsyncClient(system.login, system.options) as client:
        await client.create_container(CONTAINER, policy=system.policy)
    await asyncio.sleep(3)


@contextmanager
def profiled(directory: Path | None, row: str, kinds: Mapping[str, Sequence[int]]) -> Iterator[None]:
    """Sample each kind of processes within the block, if there is a directory for it."""
    running = []
    for kind in KINDS if directory is not None else ():
        command = ["perf", "record", "-q", "-F", "499", "-g", "-o", f"{directory}/{row}-{kind}.data", "-p"]
        running.append(subprocess.Popen([*command, ",".join(map(str, kinds[kind]))], stderr=subprocess.DEVNULL))
    try:
        yield
    finally:
        for process in running:
            process.send_signal(signal.SIGINT)
            process.wait(60)


def spent(
    cluster: Cluster, crew: Crew, what: str, size: int, count: int, profile: tuple[Path | None, str]
) -> dict[str, Times]:
    """Return processor nanoseconds for each byte of each kind of processes."""
    kinds = kinds_of(cluster, crew.pids)
    with profiled(*profile, kinds):
        before = {kind: times_of(pids) for kind, pids in kinds.items()}
        crew.ask((what, count))
        after = {kind: times_of(pids) for kind, pids in kinds.items()}
    scale = 1e9 / (size * count * len(crew.pids))
    return {
        kind: Times(
            scale * (after[kind].user - before[kind].user),
            scale * (after[kind].system - before[kind].system),
        )
        for kind in kinds
    }


def medians(rounds: Sequence[dict[str, Times]]) -> dict[str, Times]:
    """Return the median of each number."""
    return {
        kind: Times(
            statistics.median(one[kind].user for one in rounds),
            statistics.median(one[kind].system for one in rounds),
        )
        for kind in rounds[0]
    }


def total(row: Mapping[str, Times]) -> float:
    """Return the sum of all processes."""
    return sum(times.user + times.system for times in row.values())


def say(line: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Start the store, measure, and stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=float, nargs="*", default=[2, 20], help="of objects in MB")
    parser.add_argument("--modes", nargs="*", default=["M1", "M2", "near"])
    parser.add_argument("--operations", nargs="*", default=["PUT", "GET"])
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--mb", type=float, default=400, help="that all clients move together in each round")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--directory", type=Path, help="where the store keeps its data; a new one by default")
    parser.add_argument("--profile", type=Path, help="where the files of perf go")
    arguments = parser.parse_args()
    if arguments.profile is not None:
        arguments.profile.mkdir(parents=True, exist_ok=True)
    directory = Path(tempfile.mkdtemp(dir=arguments.directory)).absolute()
    try:
        with store(directory) as (cluster, systems):
            asyncio.run(prepare(systems["M1"]))
            say(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors; ns of processors for each byte\n")
            say("| | client, user | system | proxy, user | system | object, user | system | others | all |")
            say("|---|---|---|---|---|---|---|---|---|")
            for megabytes in arguments.sizes:
                size = int(megabytes * MB)
                count = max(1, round(arguments.mb / megabytes / arguments.clients))
                crews = {name: Crew(arguments.clients, partial(work, systems[name], size)) for name in arguments.modes}
                try:
                    for crew in crews.values():
                        crew.answers()
                    for what in arguments.operations:
                        rows: dict[str, list[dict[str, Times]]] = {name: [] for name in crews}
                        for number in range(arguments.rounds):
                            for name, crew in crews.items():
                                profile = arguments.profile if number == arguments.rounds - 1 else None
                                row = f"{name}-{what}-{megabytes:g}"
                                rows[name].append(spent(cluster, crew, what, size, count, (profile, row)))
                        for name, rounds in rows.items():
                            found = medians(rounds)
                            cells = [f"{part:.2f}" for kind in KINDS for part in (found[kind].user, found[kind].system)]
                            cells += [f"{found['others'].user + found['others'].system:.2f}", f"{total(found):.2f}"]
                            say(f"| {what} {megabytes:g} MB, {name} | " + " | ".join(cells) + " |")
                finally:
                    for crew in crews.values():
                        crew.end()
            say(f"\nload {os.getloadavg()[0]:.1f}")
    finally:
        shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
