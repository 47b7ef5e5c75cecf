"""Objects of stores with erasure coding beside stores with three copies, ours and OpenStack Swift's, in turns.

    make bench-erasure                       # or, in a network namespace of its own:
    unshare --net .venv/bin/python -m bench.erasure.objects --scheme 6+3 --turns 3

Each turn starts each store anew, once the disk has discarded what others have left: PUT and GET of several sizes by the
load generator; reads by one client while all devices are there and while as many are away as may be; bytes of disk for
each byte that is stored, and what devices have reserved besides; and how fast the fragments (or copies) of a device
that is replaced by an empty one come back. In one more store of ours, what processes spend on large objects of both
policies. Prints markdown tables of medians; `--only` chooses stores, and leaves the page of all results as it is.

A rebuild ends when our store has proved that no device lacks anything, and when OpenStack Swift's device has 98 % of
the bytes that it had before. Its rate is that of all bytes that have come but the first and the last fiftieth, from
when the store could begin; what was reserved is not among them. Meanwhile one client reads small objects twenty times a
second. The disk's cache is emptied before, so that the bytes read of the disk for each byte rebuilt are what the
rebuild has asked for, with what the kernel reads ahead.
"""

from __future__ import annotations

import argparse
import os
import secrets
import shutil
import statistics
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from bench.degrade.machine import is_own_network
from bench.erasure import processors
from bench.erasure.client import MIB, Objects
from bench.erasure.disk import forget_cached, read_bytes, wait_until_quiet
from bench.erasure.meanwhile import Reader, Readings
from bench.erasure.progress import EDGE, Sample, looking, span
from bench.erasure.space import Space
from bench.erasure.stores import Scheme, Store, Stored, stores
from bench.micro import Measured, report
from bench.peers.turns import COMPARED, FIRST_PUTS, fixed
from swiftlet.bench.figures import BYTES_PER_S, keys, values
from swiftlet.bench.runner import Options, run
from swiftlet.bench.scenario import Scenario

_READ = "read one after the other"
_AWAY = "the same, {} devices away"
FOR_EACH = "bytes of disk for each byte"
RESERVED = "MiB reserved ahead on each device"
REBUILT = "a device rebuilt"
READ_FOR_EACH = "bytes read of the disk for each byte rebuilt"
USUAL_P99 = "p99 of a GET of 64 KiB, ms"
REBUILDING_P99 = "the same while a device is rebuilt, ms"
_USUAL_S = 5.0
_STEADY_S, _STEADY_WITHIN_S, _STEADY_BYTES = 3.0, 60.0, 256 << 10
"""What is stored is steady when it changes by less than so many bytes for so long; at most so long is waited for it."""


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
    is_rebuilt: bool = True


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
    yield fixed("GET 1 MiB, 8 clients", "1 MiB", "read", [8], duration_s=extent.seconds, objects=24, verify=COMPARED)
    for mib in extent.large:
        yield fixed(f"PUT {mib} MiB", f"{mib} MiB", "create", [1], count=2)
        yield fixed(f"GET {mib} MiB", f"{mib} MiB", "read", [1], count=2, objects=1, verify=COMPARED)


def turn(store: Store, stored: Stored, scheme: Scheme, extent: Extent, found: Found) -> None:
    """Let a store do everything once, after a few writes that do not count: some make files at the first."""
    _, first = fixed("first", "1 MiB", "create", [8], count=FIRST_PUTS)
    run(first, stored.running.target, Options(f"bench-{secrets.token_hex(4)}"))
    for title, scenario in workloads(extent):
        result = run(scenario, stored.running.target, Options(f"bench-{secrets.token_hex(4)}"))
        for key in keys(result):
            for value in values(result, key, BYTES_PER_S)[:1]:
                found.add(title, store.name, value / 1e6)
    before = steady(stored.space)
    objects = Objects(stored.running.target, extent.reads, extent.read_mib * MIB)
    objects.create()
    objects.put()
    after = steady(stored.space)
    found.add(FOR_EACH, store.name, (after.stored - before.stored) / objects.bytes)
    found.add(RESERVED, store.name, after.reserved / stored.count / MIB)
    what = f"{extent.reads} objects of {extent.read_mib} MiB"
    found.add(f"{what}, {_READ}", store.name, objects.get() / 1e6)
    stored.lose(scheme.parity)
    try:
        found.add(f"{what}, {_AWAY.format(scheme.parity)}", store.name, objects.get() / 1e6)
    finally:
        stored.restore()
    if extent.is_rebuilt:
        rebuilt(store, stored, found)


def steady(space: Callable[[], Space]) -> Space:
    """Return what is stored once little has changed for a while: what was deleted goes by itself, and not at once."""
    found, since = space(), time.monotonic()
    end = since + _STEADY_WITHIN_S
    while time.monotonic() - since < _STEADY_S and time.monotonic() < end:
        time.sleep(0.2)
        now = space()
        if abs(now.stored - found.stored) >= _STEADY_BYTES:
            found, since = now, time.monotonic()
    return space()


def rebuilt(store: Store, stored: Stored, found: Found) -> None:
    """Let a store rebuild its first device under few reads, and measure both."""
    reader = Reader(stored.running.target)
    with reader.reading() as usual:
        time.sleep(_USUAL_S)
    had = stored.space_of_first().stored
    stored.replace()
    forget_cached()
    reader.warm()
    meanwhile = Readings()

    def look(at_s: float) -> Sample:
        return Sample(at_s, stored.space_of_first().stored, read_bytes(stored.devices), len(meanwhile.seconds))

    with reader.reading(meanwhile), looking(look) as samples:
        stored.begin()
        began_s = time.monotonic()
        is_whole = stored.rebuild(round(had * (1 - EDGE)))
    if not is_whole:
        found.failed.append(
            f"{store.name}: after {time.monotonic() - began_s:.0f} s the first device had "
            f"{samples[-1].stored / 1e6:.0f} MB, and {had / 1e6:.0f} MB before it was lost, but was not whole; nothing "
            "is told of its rebuild"
        )
        return
    came = span(samples, began_s)
    if came is None:
        found.failed.append(f"{store.name}: the first device is said to be whole, and has got nothing")
        return
    begin, end = came
    back = end.stored - begin.stored
    found.add(REBUILT, store.name, back / (end.at_s - begin.at_s) / 1e6)
    if begin.read is not None and end.read is not None:
        found.add(READ_FOR_EACH, store.name, (end.read - begin.read) / back)
    for what, readings in ((USUAL_P99, usual), (REBUILDING_P99, Readings(meanwhile.seconds[begin.reads : end.reads]))):
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


def told(found: Found, known: Sequence[Store], chosen: Sequence[Store]) -> None:
    """Print the tables, and report what they have if it is of all stores."""
    for line in table(found, [store.name for store in chosen]):
        print(line)
    print()
    if len(chosen) < len(known):
        return
    for line in ratios(found, known):
        print(line)
    units = {
        FOR_EACH: "bytes",
        RESERVED: "MiB",
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


def chosen_of(known: Sequence[Store], texts: Sequence[str]) -> list[Store]:
    """Return the stores whose names have one of these texts in them, upper or lower case; all of them without a text.

    Raises ValueError when a text is in no name.
    """
    for text in texts:
        if not any(text.lower() in store.name.lower() for store in known):
            raise ValueError(f"no store is called {text!r}; there are {[store.name for store in known]}")
    return [store for store in known if not texts or any(text.lower() in store.name.lower() for text in texts)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scheme", type=scheme_of, default=Scheme(6, 3), help="data and parity fragments (6+3)")
    parser.add_argument("--turns", type=int, default=3, help="of each store; 0 for none (default 3)")
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="stores with this in their names")
    parser.add_argument("--no-rebuild", action="store_true", help="don't lose a device: OpenStack Swift takes minutes")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each workload of 1 MiB")
    parser.add_argument("--large", type=int, nargs="*", default=[100, 1024], help="MiB of objects in one stream")
    parser.add_argument("--read-mib", type=int, default=16, help="MiB of the objects that are read and rebuilt")
    parser.add_argument("--reads", type=int, default=24, help="the number of these")
    parser.add_argument("--times-turns", type=int, default=3, help="of what processes spend; 0 for none (default 3)")
    parser.add_argument("--times-mib", type=int, default=100, help="MiB of the objects of that (default 100)")
    parser.add_argument("--directory", type=Path, default=Path(".cache/bench/erasure"), help="where stores are")
    arguments = parser.parse_args()
    known = stores(arguments.scheme)
    try:
        chosen = chosen_of(known, arguments.only)
    except ValueError as error:
        parser.error(f"--only: {error}")
    if is_own_network():
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    extent = Extent(arguments.seconds, arguments.large, arguments.read_mib, arguments.reads, not arguments.no_rebuild)
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors\n", flush=True)
    found = Found()
    arguments.directory.mkdir(parents=True, exist_ok=True)
    directory = arguments.directory.absolute() / "store"
    for number in range(arguments.turns):
        for store in chosen:
            shutil.rmtree(directory, ignore_errors=True)
            if not wait_until_quiet(arguments.directory):
                print(f"{store.name}, turn {number + 1}: begun while the disk was busy with other work", flush=True)
            try:
                with store.start(directory) as stored:
                    turn(store, stored, arguments.scheme, extent, found)
            except Exception as error:
                # One store that fails doesn't take the others' numbers with it.
                found.failed.append(f"{store.name}, turn {number + 1}: {type(error).__name__}: {error}")
            finally:
                shutil.rmtree(directory, ignore_errors=True)
    if found.rates:
        told(found, known, chosen)
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
