"""Listings and updates of a large container, in one database or split, through a container server over HTTP.

    .venv/bin/python -m bench.listing.bench_sharded [--rows 200000] [--parts 1 8] [--quiet] [--directory /some/disk]
    .venv/bin/python -m bench.listing.bench_sharded --above 100000

One container server with one device that holds everything. `--parts` splits the container evenly before the rows come,
so that a large one need not be moved first; of several numbers, each has a server of its own. `--above` is the number
of rows beyond which a database is split while others write (0: never); that is printed alone. Prints one line per
measurement. The directory should be on the kind of disk that will be used.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import statistics
import tempfile
import time
from array import array
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import structlog
from aiohttp import web
from aiohttp.test_utils import TestServer

from bench.micro import Measured, report
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseName, ListingQuery, ObjectRow
from swiftlet.names import HashPath
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.servers.containers.container_server import ContainerServer, add_container_routes
from swiftlet.sharding.shard_keeper import ShardKeeper, ShardSettings
from swiftlet.sharding.shard_moves import ShardMover
from swiftlet.sharding.sharded import ShardedReplicas
from swiftlet.timestamp import Timestamp, TimestampClock
from swiftlet.transport.http_client import HttpSettings, NodeClient
from swiftlet.transport.http_listing import HttpListingTransport

NAMES = ("AUTH_bench", "container")
HASH_PATH = HashPath(b"bench")
PATIENT = HttpSettings(connect_timeout_s=60.0, answer_timeout_s=300.0, idle_timeout_s=300.0)
"""Both ends are in one process, on a machine that others use."""


def row(number: int) -> ObjectRow:
    """A row as objects leave them."""
    return ObjectRow(f"photos/{number % 1000:03}/{number:09}.jpg", Timestamp(2), 4096, "0" * 32, "image/jpeg")


@dataclass(frozen=True)
class Filled:
    """How long it took to write rows."""

    rows: int
    seconds: float
    cpu_s: float

    @property
    def per_second(self) -> float:
        return self.rows / self.seconds


@dataclass(frozen=True)
class Timed:
    """The milliseconds that each repetition of something took, and those of processor time of one on average."""

    each_ms: tuple[float, ...]
    cpu_ms: float


@dataclass(frozen=True)
class Found:
    """What was measured of one container."""

    fill: Filled
    more: Filled
    """Rows that came when it was full."""
    pages: dict[str, Timed]


class Bench:
    """A server, a client, and the device that both call by its place."""

    def __init__(self, store: ListingStore, above: int) -> None:
        self.store = store
        self.device = Device(0, "device-0", "127.0.0.1", 1, "d0", "r", "z", "n", 1.0)
        self.transport = HttpListingTransport(NodeClient(PATIENT))
        replicas = ShardedReplicas("d0", store, self.transport, self.ring, lambda device: device.id == 0)
        clock = TimestampClock()
        self.keeper = ShardKeeper(replicas, ShardMover(replicas, clock), clock, ShardSettings(above_rows=above))
        store.follow(self.keeper.committed)
        self.server = ContainerServer({"d0": store}, sharded={"d0": replicas})

    def ring(self) -> Ring:
        return Ring(1, 4, 1, [self.device], [array("H", [0] * 16)])

    @property
    def partition(self) -> int:
        return self.ring().partition_of(HASH_PATH(*NAMES))

    async def divide(self, parts: int) -> None:
        """Split into so many databases while there is one row for each, and move these."""
        firsts = [row(part * 1000 // parts) for part in range(parts)]
        await self.transport.update_rows(self.device, self.partition, *NAMES, firsts)
        points = [f"photos/{part * 1000 // parts:03}" for part in range(1, parts)]
        name = DatabaseName(*NAMES)
        await self.transport.shard_points(self.device, self.partition, name, Timestamp(3), points, True)
        await self.settle()
        assert await self.shards() == parts - 1

    async def fill(self, label: str, numbers: range, batch: int, writers: int) -> Filled:
        """Rows in requests of `batch`, from several writers at once, in no order."""
        starts = list(range(numbers.start, numbers.stop, batch))
        random.Random(1).shuffle(starts)
        todo = iter(starts)
        begun, begun_cpu = time.perf_counter(), time.process_time()

        async def write() -> None:
            for start in todo:
                rows = [row(n) for n in range(start, min(start + batch, numbers.stop))]
                await self.transport.update_rows(self.device, self.partition, *NAMES, rows)

        await asyncio.gather(*(write() for _ in range(writers)))
        done = Filled(len(numbers), time.perf_counter() - begun, time.process_time() - begun_cpu)
        each_us = done.cpu_s / done.rows * 1e6
        print(f"{label:58} {done.per_second:8.0f} rows/s  CPU {each_us:5.0f} us per row", flush=True)
        return done

    async def split(self, rows: int) -> float:
        """Until nothing is too large, while one client lists and one updates; seconds."""
        begun = time.perf_counter()
        splitting = asyncio.create_task(self.settle())
        pages, updates = await asyncio.gather(
            self.while_under_way(splitting, self.page(ListingQuery(limit=1000, marker=row(rows // 2).name))),
            self.while_under_way(splitting, self.update_one),
        )
        await splitting
        for label, times in (("page of 1,000", pages), ("update of one row", updates)):
            shown = f"median {statistics.median(times):7.1f}  worst {max(times):7.1f} ms of {len(times)}"
            print(f"{f'{label} while it is split':46} {shown}", flush=True)
        return time.perf_counter() - begun

    async def settle(self) -> None:
        while await self.keeper.run_once():
            pass

    async def update_one(self) -> None:
        rows = [row(random.randrange(100_000))]
        await self.transport.update_rows(self.device, self.partition, *NAMES, rows)

    async def while_under_way(self, task: asyncio.Task[None], work: Callable[[], Awaitable[object]]) -> list[float]:
        """How many milliseconds each took."""
        times = []
        while not task.done():
            begun = time.perf_counter()
            await work()
            times.append((time.perf_counter() - begun) * 1000)
            await asyncio.sleep(0.02)
        return times

    def page(self, query: ListingQuery) -> Callable[[], Awaitable[object]]:
        return lambda: self.transport.list_objects(self.device, self.partition, *NAMES, query)

    async def shards(self) -> int:
        id = self.store.id_of(self.partition, DatabaseName(*NAMES))
        return len(await self.store.read(id, lambda database: database.points()))


async def timed(label: str, work: Callable[[], Awaitable[object]], repeat: int = 30) -> Timed:
    """Print the median and the worst duration, and the CPU time of client and server together; return them."""
    durations, begun_cpu = [], time.process_time()
    for _ in range(repeat):
        begun = time.perf_counter()
        await work()
        durations.append((time.perf_counter() - begun) * 1000)
    cpu_ms = (time.process_time() - begun_cpu) / repeat * 1000
    print(f"{label:46} median {statistics.median(durations):7.1f}  worst {max(durations):7.1f}  CPU {cpu_ms:7.1f} ms")
    return Timed(tuple(durations), cpu_ms)


async def measure(root: Path, rows: int, above: int, parts: int, writers: int) -> Found:
    """Fill a container, split it while others write, and print and return the figures."""
    async with AsyncExitStack() as stack:
        store = ListingStore(root / "d0", HASH_PATH)
        stack.push_async_callback(store.close)
        bench = Bench(store, above)
        app = web.Application(client_max_size=0)
        add_container_routes(app, bench.server)
        served = await stack.enter_async_context(TestServer(app))
        bench.device = replace(bench.device, port=served.port or 0)
        stack.push_async_callback(bench.transport.close)
        await bench.transport.put_container(bench.device, bench.partition, *NAMES, Timestamp(1), {}, None, 0)
        if parts > 1:
            await bench.divide(parts)
        label = f"fill with {rows} rows, 1000 in a request, {writers} writers"
        filled = await bench.fill(label, range(rows), 1000, writers)
        if above:
            seconds = await bench.split(rows)
            print(
                f"split into {await bench.shards() + 1} databases of at most {above} rows: {seconds:.1f} s", flush=True
            )
        last = rows + 100_000
        label = f"100000 more rows, 500 in a request, {writers} writers"
        more = await bench.fill(label, range(rows, last), 500, writers)
        middle = row(rows // 2000 * 1000 + 500).name
        queries = {
            "first page of 1,000": ListingQuery(limit=1000),
            "page of 1,000 from the middle": ListingQuery(limit=1000, marker=middle),
            "page of 1,000 from the middle in reverse": ListingQuery(limit=1000, marker=middle, reverse=True),
            "page of 10,000": ListingQuery(limit=10_000, marker=middle),
            "1,000 common prefixes": ListingQuery(limit=1000, prefix="photos/", delimiter="/"),
        }
        pages = {name: await timed(name, bench.page(query)) for name, query in queries.items()}
        info = await bench.transport.container_info(bench.device, bench.partition, *NAMES)
        assert info.object_count == last, info
        return Found(filled, more, pages)


def reported(found: Found, parts: int) -> Iterator[Measured]:
    """Yield what the page of all measurements has of a container in so many databases."""
    yield from written(found, parts)
    within = _within(parts)
    for name, page in found.pages.items():
        yield Measured(f"{name}, {within}", "ms", page.each_ms)
        yield Measured(f"{name}, {within}, processor time", "ms", (page.cpu_ms,))


def written(found: Found, parts: int) -> Iterator[Measured]:
    """Yield how fast rows came into so many databases."""
    within = _within(parts)
    yield Measured(f"fill with {found.fill.rows:,} rows, {within}", "rows/s", (found.fill.per_second,))
    yield Measured(f"{found.more.rows:,} rows more, {within}", "rows/s", (found.more.per_second,))


def _within(parts: int) -> str:
    return f"in {parts}" if parts > 1 else "in one"


def main() -> None:
    """Parse arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--above", type=int, default=0)
    parser.add_argument("--parts", type=int, nargs="+", default=[1], help="databases; of several numbers, each in turn")
    parser.add_argument("--writers", type=int, default=8)
    parser.add_argument("--quiet", action="store_true", help="report rows alone, as those on a quiet machine")
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    told: list[Measured] = []
    for parts in arguments.parts:
        with tempfile.TemporaryDirectory(dir=arguments.directory) as root:
            found = asyncio.run(measure(Path(root), arguments.rows, arguments.above, parts, arguments.writers))
        told += (written if arguments.quiet else reported)(found, parts)
    if arguments.above:
        return
    if arguments.quiet:
        report("listing-quiet", told)
    else:
        report("listing-server", told)


if __name__ == "__main__":
    main()
