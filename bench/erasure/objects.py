"""Objects of stores with erasure coding beside stores with three copies, ours and OpenStack Swift's, in turns.

    make bench-erasure                       # or, in a network namespace of its own:
    unshare --net .venv/bin/python -m bench.erasure.objects --scheme 6+3 --turns 3

Each turn starts each store anew: PUT and GET of several sizes by the load generator; reads by one client while all
devices are there and while as many are away as may be; bytes of disk for each byte that is stored; and how fast the
fragments (or copies) of a device that is replaced by an empty one come back. Prints markdown tables of medians.
"""

from __future__ import annotations

import argparse
import os
import random
import secrets
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

from bench.degrade.machine import is_own_network
from bench.erasure.stores import Scheme, Store, Stored, stores
from bench.micro import Measured, report
from bench.peers.turns import FIRST_PUTS, fixed
from swiftlet.bench.figures import BYTES_PER_S, keys, values
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario
from swiftlet.bench.target import Target

MIB = 1 << 20
_BUFFER = 4 * MIB
_READ = "read one after the other"
_AWAY = "the same, {} devices away"


@dataclass(frozen=True)
class Extent:
    """How much is measured."""

    seconds: float
    large: Sequence[int]
    """MiB of the objects that go in one stream."""
    read_mib: int
    """MiB of the objects that are read one after the other, and rebuilt."""
    reads: int
    """The number of these."""


@dataclass
class Found:
    """Values of all turns, by what was measured and by store: MB/s, or bytes for each byte."""

    rates: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    failed: list[str] = field(default_factory=list)

    def add(self, what: str, store: str, value: float) -> None:
        """Keep what one turn has measured of a store."""
        self.rates.setdefault(what, {}).setdefault(store, []).append(value)


def workloads(extent: Extent) -> Iterator[tuple[str, Scenario]]:
    """Return what the generator does."""
    yield fixed("PUT 1 MiB, 8 clients", "1 MiB", "create", [8], duration_s=extent.seconds)
    yield fixed("GET 1 MiB, 8 clients", "1 MiB", "read", [8], duration_s=extent.seconds, objects=24)
    for mib in extent.large:
        yield fixed(f"PUT {mib} MiB", f"{mib} MiB", "create", [1], count=2)
        yield fixed(f"GET {mib} MiB", f"{mib} MiB", "read", [1], count=2, objects=1)


class Objects:
    """Objects in one container, written and read by one client one after the other."""

    def __init__(self, target: Target, count: int, size: int) -> None:
        """Nothing is stored yet."""
        parts = urlsplit(target.storage_url)
        self._path = f"{parts.path}/erasure-{secrets.token_hex(4)}"
        self._host, self._port = parts.hostname or "", parts.port
        self._headers = {"X-Auth-Token": target.token}
        self._names = [f"{self._path}/{number}" for number in range(count)]
        self.size = size
        self.bytes = count * size

    def put(self) -> None:
        """Create the container, and store all objects in it, one after the other."""
        body = random.Random(self.size).randbytes(self.size)
        connection = HTTPConnection(self._host, self._port, timeout=300)
        self._ask(connection, "PUT", self._path)
        for name in self._names:
            self._ask(connection, "PUT", name, body)
        connection.close()

    def _ask(self, connection: HTTPConnection, method: str, path: str, body: bytes = b"") -> None:
        connection.request(method, path, body, self._headers)
        answer = connection.getresponse()
        if answer.status not in {201, 202, 204}:
            raise RuntimeError(f"{method} {path}: {answer.status} {answer.read(300)!r}")
        answer.read()

    def get(self) -> float:
        """Read all of them; return bytes in a second."""
        connection = HTTPConnection(self._host, self._port, timeout=300)
        buffer, began = memoryview(bytearray(_BUFFER)), time.monotonic()
        for name in self._names:
            connection.request("GET", name, headers=self._headers)
            answer = connection.getresponse()
            read = 0
            while count := answer.readinto(buffer):
                read += count
            if answer.status != 200 or read != self.size:
                raise RuntimeError(f"GET {name}: {answer.status}, {read} bytes")
        connection.close()
        return self.bytes / (time.monotonic() - began)


def turn(store: Store, stored: Stored, scheme: Scheme, extent: Extent, found: Found) -> None:
    """Let a store do everything once, after a few writes that do not count: some make files at the first."""
    _, first = fixed("first", "1 MiB", "create", [8], count=FIRST_PUTS)
    run(first, stored.running.target, Options(f"bench-{secrets.token_hex(4)}"))
    for title, scenario in workloads(extent):
        result = run(scenario, stored.running.target, Options(f"bench-{secrets.token_hex(4)}"))
        for key in keys(result):
            for value in values(result, key, BYTES_PER_S)[:1]:
                found.add(title, store.name, value / 1e6)
    before = stored.used()
    objects = Objects(stored.running.target, extent.reads, extent.read_mib * MIB)
    objects.put()
    found.add("bytes of disk for each byte", store.name, (stored.used() - before) / objects.bytes)
    what = f"{extent.reads} objects of {extent.read_mib} MiB"
    found.add(f"{what}, {_READ}", store.name, objects.get() / 1e6)
    stored.lose(scheme.parity)
    try:
        found.add(f"{what}, {_AWAY.format(scheme.parity)}", store.name, objects.get() / 1e6)
    finally:
        stored.restore()
    wanted = stored.used_of_first()
    stored.replace()
    seconds = stored.rebuild(wanted * 98 // 100)
    if seconds is None:
        found.failed.append(f"{store.name}: what the first device had was not there again in time")
    else:
        found.add("a device rebuilt", store.name, wanted / seconds / 1e6)


def table(found: Found, names: Sequence[str]) -> Iterator[str]:
    """Yield the lines of the table: a row for each thing that was measured."""
    yield f"| | {' | '.join(names)} |"
    yield f"|---|{'---|' * len(names)}"
    for what, by_store in found.rates.items():
        cells = [_cell(by_store.get(name, [])) for name in names]
        yield f"| {what} | {' | '.join(cells)} |"


def ratios(found: Found, known: Sequence[Store]) -> Iterator[str]:
    """Yield the lines of a table: our erasure coding as a multiple of our copies, and of OpenStack's erasure coding."""
    ours = next(store.name for store in known if store.is_ours and store.is_coded)
    others = [store.name for store in known if (store.is_ours, store.is_coded) in {(True, False), (False, True)}]
    yield f"| {ours} is | {' | '.join(f'times {name}' for name in others)} |"
    yield f"|---|{'---|' * len(others)}"
    for what, by_store in found.rates.items():
        own = by_store.get(ours)
        cells = [_ratio(own, by_store.get(name)) for name in others]
        yield f"| {what} | {' | '.join(cells)} |"


def _ratio(own: Sequence[float] | None, other: Sequence[float] | None) -> str:
    if not own or not other or not statistics.median(other):
        return "-"
    return f"{statistics.median(own) / statistics.median(other):.2f}"


def _cell(rates: Sequence[float]) -> str:
    if not rates:
        return "-"
    median = statistics.median(rates)
    spread = f" ({min(rates):,.3g} to {max(rates):,.3g})" if len(rates) > 1 else ""
    return f"{median:,.3g}{spread}"


def scheme_of(text: str) -> Scheme:
    """Return the scheme of a text such as 6+3."""
    data, _, parity = text.partition("+")
    return Scheme(int(data), int(parity))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheme", type=scheme_of, default=Scheme(6, 3), help="data and parity fragments (6+3)")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each workload of 1 MiB")
    parser.add_argument("--large", type=int, nargs="*", default=[100, 1024], help="MiB of objects in one stream")
    parser.add_argument("--read-mib", type=int, default=16, help="MiB of the objects that are read and rebuilt")
    parser.add_argument("--reads", type=int, default=24, help="the number of these")
    parser.add_argument("--directory", type=Path, default=Path(".cache/bench/erasure"), help="where stores are")
    arguments = parser.parse_args()
    if is_own_network():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    extent = Extent(arguments.seconds, arguments.large, arguments.read_mib, arguments.reads)
    found, known = Found(), stores(arguments.scheme)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n", flush=True)
    for number in range(arguments.turns):
        for store in known:
            directory = arguments.directory.absolute() / "store"
            shutil.rmtree(directory, ignore_errors=True)
            try:
                with store.start(directory) as stored:
                    turn(store, stored, arguments.scheme, extent, found)
            except Exception as error:
                # One store that fails doesn't take the others' numbers with it.
                found.failed.append(f"{store.name}, turn {number + 1}: {type(error).__name__}: {error}")
            finally:
                shutil.rmtree(directory, ignore_errors=True)
    for line in table(found, [store.name for store in known]):
        print(line)
    print()
    for line in ratios(found, known):
        print(line)
    units = {"bytes of disk for each byte": "bytes"}
    report(
        "erasure-stores",
        [
            Measured(f"{what}, {name}", units.get(what, "MB/s"), tuple(rates))
            for what, by_store in found.rates.items()
            for name, rates in by_store.items()
        ],
    )
    for failure in found.failed:
        print(f"\nFailed: {failure}")
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f}")
    raise SystemExit(bool(found.failed))


if __name__ == "__main__":
    main()
