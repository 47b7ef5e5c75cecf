"""Direct access on one machine, by TCP and through shared memory: `python -m bench.dataplane.near [--rounds N]`.

Three object servers with a device each, a metadata server and a proxy are one process; a client with direct access is
this one. Both ways take turns in each round: objects of one size are stored and read one after another. Medians of
rounds; processor time is that of both processes. Devices are in TMPDIR: on a memory file system disks cost nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import statistics
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop

from swiftlet.client.bodies import BytesBody
from swiftlet.client.direct.way import DirectWay
from swiftlet.client.values import ObjectRequest
from swiftlet.main.tests.direct_cluster import DirectCluster
from swiftlet.main.tests.test_direct_way import make_container, way_to
from swiftlet.testing.ways.conformance import read
from swiftlet.web.logs import configure_logging

CONTAINER = "near"
SIZES = {10 << 10: 100, 10 << 20: 8}
"""Objects of a size in a round."""


def used_s() -> float:
    """Return the processor time of this process in seconds."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


async def serve(cluster: DirectCluster, pipe: Connection) -> None:
    """Serve until the other side says so; tell it the processor time whenever it asks."""
    async with cluster.running():
        await make_container(cluster, CONTAINER)
        pipe.send(used_s())
        while await asyncio.to_thread(pipe.recv):
            pipe.send(used_s())


def servers(cluster: DirectCluster, pipe: Connection) -> None:
    """Run all servers of the cluster in this process, until the pipe says otherwise."""
    configure_logging("object", level="error")
    uvloop.run(serve(cluster, pipe))


class Measured:
    """Seconds and processor seconds for each object, of one way and kind of request."""

    def __init__(self) -> None:
        self.seconds: list[float] = []
        self.used: list[float] = []

    def medians(self) -> tuple[float, float]:
        """Return the medians of both over all rounds."""
        return statistics.median(self.seconds), statistics.median(self.used)


async def measure(ways: dict[str, DirectWay], rounds: int, pipe: Connection) -> None:
    """Print what each way takes."""

    def all_used_s() -> float:
        pipe.send(True)
        return used_s() + float(pipe.recv())

    for size, count in SIZES.items():
        body = BytesBody(bytes(range(256)) * (size // 256))
        found = {(name, kind): Measured() for name in ways for kind in ("PUT", "GET")}
        for number in range(rounds + 1):
            for name, way in ways.items():
                requests = [ObjectRequest(CONTAINER, f"{size}/{one}") for one in range(count)]
                for kind in ("PUT", "GET"):
                    used, begun = all_used_s(), time.perf_counter()
                    for request in requests:
                        await (way.put(request, body) if kind == "PUT" else read(way, request))
                    seconds, used = time.perf_counter() - begun, all_used_s() - used
                    if number:
                        # The first round connects.
                        found[name, kind].seconds.append(seconds / count)
                        found[name, kind].used.append(used / count)
        for kind in ("PUT", "GET"):
            for name in ways:
                seconds, used = found[name, kind].medians()
                print(f"{size >> 10:6} KiB {kind} {name:14} {seconds * 1e3:8.2f} ms {used * 1e3:8.2f} ms of processors")


async def main() -> None:
    """Start the servers, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as directory, tempfile.TemporaryDirectory() as sockets:
        cluster = DirectCluster(Path(directory), object_servers=3, native_socket_directory=sockets)
        ours, theirs = multiprocessing.Pipe()
        process = multiprocessing.get_context("fork").Process(target=servers, args=(cluster, theirs), daemon=True)
        process.start()
        await asyncio.to_thread(ours.recv)
        ways = {"TCP": way_to(cluster), "shared memory": way_to(cluster, socket_directory=sockets)}
        try:
            await measure(ways, rounds, ours)
        finally:
            for way in ways.values():
                await way.close()
            ours.send(False)
            process.join()


if __name__ == "__main__":
    asyncio.run(main())
