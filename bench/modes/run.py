"""PUTs and GETs through the proxies (M1) and directly (M2), by the same client, in turns within one run.

    .venv/bin/python -m bench.modes.run [--rounds 5] [--seconds 1.5]

Starts a store of its own with one API process and its native front, and moves objects of several sizes by one request
at a time and by eight at a time, in both modes in turns, so that what else the machine does falls on both alike. Both
have logged in, and have grants, rings and connections. With `--near` M2 shares memory with the object servers, as the
proxy does on one machine; otherwise it has sockets. Prints a markdown table: the ratios of rates are the measure,
beside them processor time, of the client's process and of all of the store's, for each object.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import os
import random
import resource
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from swiftlet_native import ObjectWire

from bench.micro import Measured as Reported
from bench.micro import report
from e2e.standalone.cluster import Cluster, start_cluster
from swiftlet.client import V1, AsyncClient, Options
from swiftlet.client.direct.grants import Kind
from swiftlet.client.direct.way import DirectWay
from swiftlet.native_values import place
from swiftlet.transport.native_replicas import made

CONTAINER = "modes"
SIZES = (10 << 10, 1 << 20, 10 << 20)
AT_ONCE = (1, 8)
COPIES = 3
BATCH = 256
"""Names that are given at once: 64 go in a message."""
NAMES = 16
"""Objects that are written over and read, in turn."""
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
Work = Callable[[AsyncClient, str], Coroutine[None, None, object]]


@dataclass
class Measured:
    """Rounds of one mode: objects a second, and processor seconds for each object."""

    rates: list[float] = field(default_factory=list)
    client_s: list[float] = field(default_factory=list)
    store_s: list[float] = field(default_factory=list)

    def row(self) -> str:
        """Return the medians as cells of a table."""
        client_ms, store_ms = (1e3 * statistics.median(one) for one in (self.client_s, self.store_s))
        return f"{statistics.median(self.rates):,.0f} | {client_ms:.2f} | {store_ms:.2f}"


class Bench:
    """A store, and a client for each mode."""

    def __init__(
        self, cluster: Cluster, seconds: float, sizes: Sequence[int], whole_bytes: int, sockets: str | None
    ) -> None:
        """With `sockets` M2 finds object servers of this machine there."""
        login = V1(auth_url=cluster.auth_url, user=cluster.user, key=cluster.key)
        options = {"hedge": False}
        self.cluster = cluster
        self.seconds = seconds
        self.sizes = sizes
        self.whole_bytes = whole_bytes
        self.reported: list[Reported] = []
        self.modes = {
            "M1": AsyncClient(login, Options(**options)),  # type: ignore[arg-type]
            "M2": AsyncClient(
                login,
                Options(**options, metadata_url=cluster.url("metadata"), socket_directory=sockets),  # type: ignore[arg-type]
            ),
        }

    def _store_s(self) -> float:
        total = 0
        for pid in self.cluster.pids.values():
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += int(fields[11]) + int(fields[12])
        return total * _TICK_S

    async def round(self, client: AsyncClient, work: Work, at_once: int, into: Measured, objects: int = 1) -> None:
        """Work for the time of a round, each time with so many objects, and note what came of it."""
        done = 0
        gc.collect()
        began, store_s, client_s = time.monotonic(), self._store_s(), _own_s()

        async def one(number: int) -> None:
            nonlocal done
            at = number
            while time.monotonic() < began + self.seconds:
                await work(client, f"object-{at % NAMES}")
                at += at_once
                done += objects

        await asyncio.gather(*(one(number) for number in range(at_once)))
        into.rates.append(done / (time.monotonic() - began))
        into.client_s.append((_own_s() - client_s) / done)
        into.store_s.append((self._store_s() - store_s) / done)

    async def run(self, rounds: int) -> None:
        """Measure everything, and print it."""
        await self.modes["M1"].create_container(CONTAINER)
        # Grants that rest on what was known before the container was made count from then on.
        await asyncio.sleep(3)
        cells = " | ".join(f"{mode}: objects/s | client, ms | store, ms" for mode in self.modes)
        _say(f"| size | | at once | {cells} | M2/M1 |")
        _say("|---|---|---|---|---|---|---|---|---|---|")
        for size in self.sizes:
            body = random.Random(size).randbytes(size)

            async def put(client: AsyncClient, name: str, body: bytes = body) -> object:
                return await client.put(CONTAINER, name, body)

            async def get(client: AsyncClient, name: str) -> object:
                return await client.get(CONTAINER, name)

            for number in range(NAMES):
                for client in self.modes.values():
                    await put(client, f"object-{number}")
            for what, work in (("PUT", put), ("GET", get)):
                for at_once in AT_ONCE:
                    measured = {mode: Measured() for mode in self.modes}
                    for number in range(rounds):
                        for mode in list(self.modes)[:: 1 if number % 2 else -1]:
                            await self.round(self.modes[mode], work, at_once, measured[mode])
                    one, two = measured["M1"], measured["M2"]
                    ratio = statistics.median(two.rates) / statistics.median(one.rates)
                    _say(f"| {size >> 10:,} KiB | {what} | {at_once} | {one.row()} | {two.row()} | {ratio:.2f} |")
                    self._report(f"{what} of {size >> 10:,} KiB, {at_once} at once", measured)
        await self._batches(rounds)
        if self.whole_bytes:
            await self.whole(self.whole_bytes, rounds)
        for client in self.modes.values():
            await client.close()

    async def whole(self, size: int, rounds: int) -> None:
        """Measure one large plain object, read as programs do, beside what the transport alone brings of it."""
        client, block = self.modes["M2"], random.Random(size).randbytes(1 << 20)
        body = block * (size >> 20)
        once = AsyncClient(client.credentials, replace(client.options, segments_above_bytes=1 << 40))
        async with once:
            await once.put(CONTAINER, "whole", body)
        del body

        async def stream(client: AsyncClient, name: str) -> object:
            async with client.open(CONTAINER, name) as reading:
                return sum([len(data) async for data in reading])

        async def alone(client: AsyncClient, name: str) -> object:
            return await transported(client, CONTAINER, name)

        # Bodies of this size are written past the page cache, and each device is read by somebody first.
        for number in range(COPIES):
            await transported(client, CONTAINER, "whole", number)
        found: dict[str, Measured] = {}
        kinds = (("M1", "M1", stream), ("M2", "M2", stream), ("the transport alone", "M2", alone))
        _say(f"\n| GET of {size >> 20:,} MiB | MiB/s | client, ms | store, ms | part of the transport alone | each |")
        _say("|---|---|---|---|---|---|")
        for _ in range(rounds):
            for name, mode, work in kinds:
                began, store_s, client_s = time.monotonic(), self._store_s(), _own_s()
                if await work(self.modes[mode], "whole") != size:
                    raise RuntimeError(f"{name}: not all bytes came")
                into = found.setdefault(name, Measured())
                into.rates.append((size >> 20) / (time.monotonic() - began))
                into.client_s.append(_own_s() - client_s)
                into.store_s.append(self._store_s() - store_s)
        best = statistics.median(found["the transport alone"].rates)
        for name, measured in found.items():
            each = ", ".join(f"{rate:,.0f}" for rate in measured.rates)
            _say(f"| {name} | {measured.row()} | {statistics.median(measured.rates) / best:.2f} | {each} |")
            self.reported.append(Reported(f"GET of {size >> 20:,} MiB, {name}", "MiB/s", tuple(measured.rates)))
        await self.modes["M1"].delete(CONTAINER, "whole")

    async def _batches(self, rounds: int) -> None:
        """Measure many small objects at a time, beside single ones: M2 in messages, M1 by eight requests at a time."""
        body = random.Random(1).randbytes(SIZES[0])
        names = [(CONTAINER, f"object-{number}") for number in range(BATCH)]

        async def put(client: AsyncClient, _: str) -> object:
            return [outcome async for _, outcome in client.put_many((name, body) for name in names)]

        async def get(client: AsyncClient, _: str) -> object:
            return [outcome async for _, outcome in client.get_many(names)]

        for client in self.modes.values():
            await put(client, "")
        for what, work in (("PUT of many", put), ("GET of many", get)):
            measured = {mode: Measured() for mode in self.modes}
            for number in range(rounds):
                for mode in list(self.modes)[:: 1 if number % 2 else -1]:
                    await self.round(self.modes[mode], work, 1, measured[mode], BATCH)
            one, two = measured["M1"], measured["M2"]
            ratio = statistics.median(two.rates) / statistics.median(one.rates)
            _say(f"| {SIZES[0] >> 10:,} KiB | {what} | {BATCH} | {one.row()} | {two.row()} | {ratio:.2f} |")
            self._report(f"{what} of {SIZES[0] >> 10:,} KiB, {BATCH} at once", measured)

    def _report(self, what: str, measured: dict[str, Measured]) -> None:
        """Keep what is told on the page of all measurements: rates of both, and their ratio in each round."""
        one, two = measured["M1"].rates, measured["M2"].rates
        self.reported.append(Reported(f"{what}, through proxies", "objects/s", tuple(one)))
        self.reported.append(Reported(f"{what}, directly", "objects/s", tuple(two)))
        ratios = tuple(b / a for a, b in zip(one, two, strict=True))
        self.reported.append(Reported(f"{what}, directly by through proxies", "times", ratios))


async def transported(client: AsyncClient, container: str, name: str, number: int = 0) -> int:
    """Read an object from one of its devices by the transport's calls, look at nothing, and return its size."""
    way = client._objects.way
    assert isinstance(way, DirectWay)
    parts = way._parts.here()
    rights = (await parts.granted(container, Kind.READ, None)).rights
    key = parts.objects(rights, container, name).key(parts.path(rights, container, name), rights.policy)
    device = parts.rings.objects(rights.policy).primaries(key.partition)[number]
    message = made(device, ObjectWire.get, place(key), 0, 2**64 - 1, False)
    reading = await parts.calls(rights, name).read(device, message)
    size = 0
    while (piece := await reading.piece()) is not None:
        size += len(piece)
    return size


def _own_s() -> float:
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Start a store, measure, and stop it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--sizes", type=int, nargs="*", default=SIZES, help="in bytes")
    parser.add_argument("--whole", type=int, default=1024, help="MiB of the object that is read at once; 0: none")
    parser.add_argument("--near", action="store_true", help="M2 shares memory with the object servers")
    parser.add_argument("--small", action="store_true", help="report it as that of small objects")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    sockets = folder / "s"
    sockets.mkdir()
    settings = {
        "SWIFTLET_CLUSTER__DIRECT_ACCESS": "true",
        "SWIFTLET_CLUSTER__NATIVE_SOCKET_DIRECTORY": str(sockets),
    }
    cluster = start_cluster(folder / "store", "--workers", "1", settings=settings)
    try:
        _say(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors\n")
        near = str(sockets) if arguments.near else None
        bench = Bench(cluster, arguments.seconds, arguments.sizes, arguments.whole << 20, near)
        asyncio.run(bench.run(arguments.rounds))
        if arguments.small:
            report("modes-small", bench.reported)
        else:
            report("modes", bench.reported)
        _say(f"\nload {os.getloadavg()[0]:.1f}")
    finally:
        cluster.stop()
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
