"""What operations and rounds cost by the number of containers on a device.

One database is made as container servers make it; all others are its bytes with another name of the same length, which
is thousands of times faster. Operations are those of the listing store, without HTTP; rounds are of three devices.

Three devices are filled at once, and are kept equal: what operations change on one is copied to the others.
"""

from __future__ import annotations

import asyncio
import gc
import shutil
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path

import uvloop
from aiohttp import web

from bench.scale.curves import REPLICAS, Operation, Point, Round
from bench.scale.predictions import FIRST, NOTHING
from bench.scale.rings import builder_of, operation
from bench.scale.rounds import LACKED, REPEATS
from bench.sync.cluster import KEY, Relay
from bench.sync.measure import PATIENT, memory_mb, processor_s, reset_peak
from swiftlet.errors import NotFound
from swiftlet.listing.layout import database_path
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseId, DatabaseKind, ListingQuery, ObjectRow
from swiftlet.names import HashPath
from swiftlet.ring import Ring
from swiftlet.servers.containers.container_server import ContainerServer, add_container_routes
from swiftlet.servers.tests.database_rounds import Rounds
from swiftlet.sync.session.topology import ROUND_MODES
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_listing import HttpListingTransport

PART_POWER = 10
MEASURED = 500
"""Operations of each kind."""
AT_ONCE = 16
ACCOUNT = "AUTH_scale"
_TRIES_FOR_S = 7200.0
"""Seconds within which devices have to have read their databases for the first time."""
_HASH_PATH = HashPath(b"bench")


def name(number: int) -> str:
    """The container with this number; all names have one length, as one takes the place of the other."""
    return f"container-{number:08}"


def place(number: int) -> tuple[int, str, str]:
    """Where a container is: partition, account and name."""
    digest = _HASH_PATH(ACCOUNT, name(number))
    return int.from_bytes(digest[:4], "big") >> (32 - PART_POWER), ACCOUNT, name(number)


class Filler:
    """Makes the same databases of containers in the directories of some devices."""

    def __init__(self, roots: Sequence[Path]) -> None:
        """Each directory is a device's."""
        self._roots = roots
        self._made = 0
        self._template = b""

    def fill(self, count: int) -> None:
        """Have so many containers with an object each; no store may be open on the directories."""
        if not self._template:
            uvloop.run(self._make_first())
        for number in range(self._made, count):
            content = self._template.replace(name(0).encode(), name(number).encode())
            for root in self._roots:
                path = path_of(root, number)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        self._made = max(self._made, count)

    async def _make_first(self) -> None:
        store = ListingStore(self._roots[0], _HASH_PATH)
        await store.put_container(*place(0), Timestamp(1), {}, None, 0)
        await store.update_rows(*place(0), [_row("first")])
        await store.close()
        self._template = path_of(self._roots[0], 0).read_bytes()

    def copy(self, numbers: Iterable[int]) -> None:
        """Have these containers on all devices as they are on the first; no store may be open on the directories."""
        for number in numbers:
            for root in self._roots[1:]:
                shutil.copyfile(path_of(self._roots[0], number), path_of(root, number))


def path_of(root: Path, number: int) -> Path:
    """Return the path of the database with this number on a device."""
    partition, account, container = place(number)
    return database_path(root, DatabaseId(DatabaseKind.CONTAINER, partition, _HASH_PATH(account, container)))


def _row(object_: str, tick: int = 2) -> ObjectRow:
    return ObjectRow(object_, Timestamp(tick), 4096, "0" * 32, "image/jpeg")


def points(counts: Sequence[int], most_in_rounds: int, directory: Path) -> Iterator[Point]:
    """Measure with each of these numbers of containers, in devices that grow; rounds up to `most_in_rounds`."""
    with tempfile.TemporaryDirectory(dir=directory, prefix="scale-containers-") as parent:
        roots = [Path(parent) / f"d{number}" for number in range(REPLICAS)]
        filler = Filler(roots)
        for count in sorted(counts):
            began = time.perf_counter()
            filler.fill(count)
            filled_s = time.perf_counter() - began
            size = sum(path_of(roots[0], number).stat().st_size for number in range(count))
            chosen = _chosen(count)
            found = uvloop.run(_operations(roots[0], chosen))
            filler.copy(set(chosen))
            turns = uvloop.run(rounds(roots, count)) if count <= most_in_rounds else ()
            amounts = {"containers_fill_s": filled_s, "containers_bytes": float(size)}
            yield Point(at={"containers": count}, operations=found, rounds=turns, amounts=amounts)


def _chosen(count: int) -> list[int]:
    """Return containers all over a device that has so many, one for each operation of a kind."""
    step = max(1, count // MEASURED) | 1
    return [number * step % count for number in range(MEASURED)]


async def _operations(device: Path, numbers: Sequence[int]) -> tuple[Operation, ...]:
    """Operations on these containers of a device, each as if nobody had asked for it for long."""
    chosen = [place(number) for number in numbers]
    works: dict[str, Callable[[ListingStore, int], Awaitable[object]]] = {
        "totals": lambda store, number: store.container_info(*chosen[number]),
        "page": lambda store, number: store.list_objects(*chosen[number], ListingQuery(limit=1000)),
        "row": lambda store, number: store.update_rows(*chosen[number], [_row(f"o{number}", 3 + number)]),
    }
    found = []
    for kind, work in works.items():
        store = ListingStore(device, _HASH_PATH)
        found.append(await _timed(kind, store, work))
        await store.close()
    return tuple(found)


async def _timed(kind: str, store: ListingStore, work: Callable[[ListingStore, int], Awaitable[object]]) -> Operation:
    times: list[float] = []
    numbers = iter(range(MEASURED))

    async def ask() -> None:
        for number in numbers:
            before_s = time.perf_counter()
            await work(store, number)
            times.append(time.perf_counter() - before_s)

    cpu_s, began_s = time.process_time(), time.perf_counter()
    await asyncio.gather(*(ask() for _ in range(AT_ONCE)))
    return operation(kind, times, time.perf_counter() - began_s, time.process_time() - cpu_s)


async def rounds(roots: Sequence[Path], count: int) -> tuple[Round, ...]:
    """Measure rounds among devices that hold the same containers, so many; they hold the same afterwards."""
    async with AsyncExitStack() as stack:
        return await _rounds(roots, count, stack)


async def _rounds(roots: Sequence[Path], count: int, stack: AsyncExitStack) -> tuple[Round, ...]:
    builder = builder_of(PART_POWER, len(roots))
    builder.rebalance(500_000)
    old, stores, relays = builder.ring, [], []
    for number, root in enumerate(roots):
        store = ListingStore(root, _HASH_PATH)
        stack.push_async_callback(store.close)
        stores.append(store)
        app = web.Application(client_max_size=0)
        server = ContainerServer({f"d{number}": store}, key=KEY)
        add_container_routes(app, server)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        relay = Relay(runner.addresses[0][1])
        await relay.start()
        stack.push_async_callback(relay.stop)
        relays.append(relay)
    # A node each, as only what lies on others costs anything.
    devices = [
        replace(device, host="127.0.0.1", port=relay.port, node=f"n{number}", device=f"d{number}")
        for number, (device, relay) in enumerate(zip(old.devices, relays, strict=True))
        if device is not None
    ]
    ring = Ring(1, PART_POWER, len(roots), devices, old.rows)
    transport = HttpListingTransport(NodeClient(PATIENT, key=KEY))
    stack.push_async_callback(transport.close)
    replicator = Rounds(transport, devices[0], lambda: ring, mode=ROUND_MODES["batched"])
    found = [await _round(FIRST, replicator, relays)]
    several = [await _round(NOTHING, replicator, relays) for _ in range(REPEATS)]
    found.append(sorted(several, key=lambda one: one.seconds)[REPEATS // 2])
    lacked = await _written(stores[1:], count)
    found.append(await _round(f"{lacked} rows lacking", replicator, relays))
    if replicator.last.pulled < lacked:
        raise RuntimeError(f"{replicator.last.pulled} of {lacked} rows came in the round that was to fetch them")
    return tuple(found)


async def _written(stores: Sequence[ListingStore], containers: int) -> int:
    """Put a row that is new into some of so many containers of all but one device; into how many."""
    count = 0
    for number in range(LACKED):
        try:
            for store in stores:
                await store.update_rows(*place(number), [_row(f"new-{containers}", 10_000)])
        except NotFound:
            break
        count += 1
    return count


async def _round(kind: str, replicator: Rounds, relays: Sequence[Relay]) -> Round:
    for relay in relays:
        relay.reset()
    gc.collect()
    reset_peak()
    memory, cpu_s, began_s = memory_mb("VmRSS"), processor_s(), time.perf_counter()
    # Devices refuse to be compared while they read their databases for the first time.
    while await replicator.run_once():
        if time.perf_counter() - began_s > _TRIES_FOR_S:
            raise RuntimeError(f"comparisons came to nothing in {_TRIES_FOR_S} seconds: {kind}")
    return Round(
        kind=kind,
        seconds=time.perf_counter() - began_s,
        cpu_s=processor_s() - cpu_s,
        bytes=sum(relay.bytes for relay in relays[1:]),
        messages=sum(relay.messages for relay in relays[1:]),
        memory_bytes=max(0.0, memory_mb("VmHWM") - memory) * 1e6,
    )
