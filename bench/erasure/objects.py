"""Objects of stores with erasure coding beside stores with three copies, ours and OpenStack Swift's, in turns.

    make bench-erasure                       # or, in a network namespace of its own:
    unshare --net .venv/bin/python -m bench.erasure.objects --scheme 6+3 --turns 3

Each turn starts each store anew: PUT and GET of several sizes by the load generator; reads by one client while all
devices are there and while as many are away as may be; bytes of disk for each byte that is stored; and how fast the
fragments (or copies) of a device that is replaced by an empty one come back. In one more store of ours, what processes
spend on large objects of both policies. Prints markdown tables of medians.

While a device is rebuilt, one client reads small objects twenty times a second. The disk's cache is emptied before, so
that the bytes read of the disk for each byte rebuilt are what the rebuild has asked for, with what the kernel reads
ahead.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.degrade.machine import is_own_network
from bench.erasure import processors
from bench.erasure.client import MIB, Objects
from bench.erasure.meanwhile import Reader, forget_cached, read_bytes
from bench.erasure.stores import Scheme, Store, Stored, stores
from bench.micro import Measured, report
from bench.peers.turns import FIRST_PUTS, fixed
from swiftlet.bench.figures import BYTES_PER_S, keys, values
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario

_READ = "read one after the other"
_AWAY = "the same, {} devices away"
REBUILT = "a device rebuilt"
READ_FOR_EACH = "bytes read of the disk for each byte rebuilt"
USUAL_P99 = "p99 of a GET of 64 KiB, ms"
REBUILDING_P99 = "the same while a device is rebuilt, ms"
_USUAL_S = 5.0


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
    """Values of all turns, by what was measured and by store: MB/s, bytes for each byte, or milliseconds."""

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
    objects.create()
    objects.put()
    found.add("bytes of disk for each byte", store.name, (stored.used() - before) / objects.bytes)
    what = f"{extent.reads} objects of {extent.read_mib} MiB"
    found.add(f"{what}, {_READ}", store.name, objects.get() / 1e6)
    stored.lose(scheme.parity)
    try:
        found.add(f"{what}, {_AWAY.format(scheme.parity)}", store.name, objects.get() / 1e6)
    finally:
        stored.restore()
    rebuilt(store, stored, found)


def rebuilt(store: Store, stored: Stored, found: Found) -> None:
    """Let a store rebuild its first device under few reads, and measure both."""
    reader = Reader(stored.running.target)
    with reader.reading() as usual:
        time.sleep(_USUAL_S)
    wanted = stored.used_of_first()
    stored.replace()
    forget_cached()
    reader.warm()
    left, read = stored.used_of_first(), read_bytes(stored.devices)
    with reader.reading() as meanwhile:
        seconds = stored.rebuild(wanted * 98 // 100)
    back = stored.used_of_first() - left
    if left + back < wanted * 98 // 100:
        found.failed.append(
            f"{store.name}: after {seconds:.0f} s the first device had {back / 1e6:.0f} of {wanted / 1e6:.0f} MB "
            "again; its rate is that of these"
        )
    found.add(REBUILT, store.name, back / seconds / 1e6)
    if read is not None and back:
        found.add(READ_FOR_EACH, store.name, ((read_bytes(stored.devices) or read) - read) / back)
    for what, readings in ((USUAL_P99, usual), (REBUILDING_P99, meanwhile)):
        p99 = readings.p99()
        if p99 is not None:
            found.add(what, store.name, p99 * 1e3)


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


def told(found: Found, known: Sequence[Store]) -> None:
    """Print the tables, and report what they have."""
    for line in table(found, [store.name for store in known]):
        print(line)
    print()
    for line in ratios(found, known):
        print(line)
    units = {
        "bytes of disk for each byte": "bytes",
        READ_FOR_EACH: "bytes",
        USUAL_P99: "ms",
        REBUILDING_P99: "ms",
    }
    report(
        "erasure-stores",
        [
            Measured(f"{what}, {name}", units.get(what, "MB/s"), tuple(rates))
            for what, by_store in found.rates.items()
            for name, rates in by_store.items()
        ],
    )


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
    parser.add_argument("--turns", type=int, default=3, help="of each store; 0 for none (default 3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each workload of 1 MiB")
    parser.add_argument("--large", type=int, nargs="*", default=[100, 1024], help="MiB of objects in one stream")
    parser.add_argument("--read-mib", type=int, default=16, help="MiB of the objects that are read and rebuilt")
    parser.add_argument("--reads", type=int, default=24, help="the number of these")
    parser.add_argument("--times-turns", type=int, default=3, help="of what processes spend; 0 for none (default 3)")
    parser.add_argument("--times-mib", type=int, default=100, help="MiB of the objects of that (default 100)")
    parser.add_argument("--directory", type=Path, default=Path(".cache/bench/erasure"), help="where stores are")
    arguments = parser.parse_args()
    if is_own_network():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    extent = Extent(arguments.seconds, arguments.large, arguments.read_mib, arguments.reads)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n", flush=True)
    found, known = Found(), stores(arguments.scheme)
    directory = arguments.directory.absolute() / "store"
    for number in range(arguments.turns):
        for store in known:
            shutil.rmtree(directory, ignore_errors=True)
            try:
                with store.start(directory) as stored:
                    turn(store, stored, arguments.scheme, extent, found)
            except Exception as error:
                # One store that fails doesn't take the others' numbers with it.
                found.failed.append(f"{store.name}, turn {number + 1}: {type(error).__name__}: {error}")
            finally:
                shutil.rmtree(directory, ignore_errors=True)
    if found.rates:
        told(found, known)
    for failure in found.failed:
        print(f"\nFailed: {failure}")
    if arguments.times_turns:
        try:
            times = processors.measure(directory, arguments.scheme, arguments.times_turns, arguments.times_mib)
            report("erasure-time", list(processors.reported(times, arguments.scheme, arguments.times_mib)))
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    print(f"\nload of the machine: {os.getloadavg()[0]:.1f}")
    raise SystemExit(bool(found.failed))


if __name__ == "__main__":
    main()
