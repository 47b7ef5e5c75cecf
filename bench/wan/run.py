"""The wide-area lab: bring up three regions with a store over them, or measure one.

python -m bench.wan.run up [--congestion bbr]
python -m bench.wan.run measure [--rounds 20] [--mib 100] [--threads 1]
python -m bench.wan.run cut [--minutes 10] [--away il]
python -m bench.wan.run control 'cut il ga'
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.micro import Measured, report
from bench.wan.clients import POLICIES
from bench.wan.control import Refused, ask
from bench.wan.cut import Cut, page
from bench.wan.lab import ROOT, Lab, inside
from bench.wan.links import DRIVER, LINKS, REGIONS
from bench.wan.store import USER, Store
from e2e.standalone.cluster import environment

PLACE = ROOT / "build" / "wan"
"""The folder in which `up` keeps the files of the lab."""


def up(congestion: str) -> None:
    """Bring up the lab and a store, say how to use them, and keep them until a signal comes."""
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir(parents=True)
    with Lab(PLACE, REGIONS, LINKS, congestion) as lab:
        store = Store(lab, PLACE / "store")
        store.start()
        enter = " ".join(inside(DRIVER))
        print(f"Three regions are up, with a store over them: {', '.join(REGIONS)}.\n")
        for region in REGIONS:
            print(f"  {region}  {store.endpoint(region)}")
        print(f"\n  user {USER}\n  key  {store.key}\n\nA client in {DRIVER}:")
        print(f"  {enter} .venv/bin/swift -A {store.endpoint(DRIVER)}/auth/v1.0 -U {USER} -K {store.key} stat")
        print("\nLinks, from another terminal:")
        for command in ("stats", "cut il ga", "heal il ga", "link il ga delay_ms=50 loss_percent=1"):
            print(f"  hack/wan control '{command}'")
        print("\nCtrl-C ends it.", flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        try:
            signal.pause()
        except KeyboardInterrupt:
            print()


def measure(rounds: int, mib: int, threads: int, congestion: str) -> None:
    """Print what a client in `DRIVER` gets from a store over all regions, in its region alone, and in another one."""
    print(f"client in {DRIVER}, {threads} at a time for large objects, congestion control {congestion}\n")
    measured: list[Measured] = []
    for name, where, proxy, write_quorum in (
        ("three regions, majority", REGIONS, DRIVER, "majority"),
        ("three regions, each-region", REGIONS, DRIVER, "each-region"),
        ("three regions, local", REGIONS, DRIVER, "local"),
        ("its own region", (DRIVER,), DRIVER, "majority"),
        ("another region", ("il",), "il", "majority"),
    ):
        with (
            tempfile.TemporaryDirectory(dir=_memory()) as directory,
            Lab(Path(directory), REGIONS, LINKS, congestion) as lab,
        ):
            store = Store(lab, Path(directory) / "store", where, [write_quorum])
            store.start()
            store.prove()
            found = _drive(store.endpoint(proxy), store.key, rounds, mib, threads)
            _print(name, found)
            measured += reported(name, found)
    report("wan", measured)


def reported(name: str, found: dict[str, dict[str, Any]]) -> Iterator[Measured]:
    """What is told of a store on the page of all measurements: the least and the median time, and rates."""
    for operation, times in found["small_ms"].items():
        yield Measured(f"{name}, {operation}", "ms", (times["median"],))
        yield Measured(f"{name}, {operation}, the least", "ms", (times["least"],))
    for operation, rate in found["large_mib_s"].items():
        yield Measured(f"{name}, {operation}", "MiB/s", (rate,))


def cut(minutes: float, away: str, congestion: str) -> None:
    """Cut a region off under load, and print what clients noticed; the exit status is 1 when any answer was wrong."""
    with (
        tempfile.TemporaryDirectory(dir=_memory()) as directory,
        Lab(Path(directory), REGIONS, LINKS, congestion) as lab,
    ):
        store = Store(lab, Path(directory) / "store", REGIONS, POLICIES)
        store.start()
        store.prove()
        result = Cut(lab, store, Path(directory), away, "1").run(minutes * 60)
    print(f"{away} is cut off for {minutes:g} minutes\n\n{page(result, away, REGIONS)}")
    report(
        "wan-cut",
        [
            Measured("until all regions were equal again", "s", (result.equal_s,)),
            Measured("rounds of the region's replicator that ended meanwhile", "rounds", (result.rounds,)),
            Measured("bytes lacking", "MB", (result.lacking / 1e6,)),
            Measured("bytes over all links, by those lacking", "times", (result.link_bytes / max(1, result.lacking),)),
            Measured("wrong answers and ends", "answers", (len(result.wrong),)),
            Measured("operations", "operations", (len(result.operations),)),
        ],
    )
    if result.wrong:
        sys.exit("\n".join(result.wrong[:20]))


def _drive(endpoint: str, key: str, rounds: int, mib: int, threads: int) -> dict[str, dict[str, Any]]:
    arguments = [endpoint, USER, key, str(rounds), str(mib), str(threads)]
    command = [*inside(DRIVER), sys.executable, "-m", "bench.wan.driver", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(), cwd=ROOT)
    if done.returncode != 0:
        raise RuntimeError(f"the client has failed:\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)  # type: ignore[no-any-return]


def _print(name: str, found: dict[str, dict[str, Any]]) -> None:
    print(f"| store in {name} | first ms | least | median | most |\n|---|---|---|---|---|")
    for operation, times in found["small_ms"].items():
        print(
            f"| {operation} | " + " | ".join(f"{times[key]:.1f}" for key in ("first", "least", "median", "most")) + " |"
        )
    for operation, rate in found["large_mib_s"].items():
        print(f"| {operation} | {rate:.1f} MiB/s | | | |")
    print(flush=True)


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def main(arguments: Sequence[str] | None = None) -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(
        prog="hack/wan", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("up", "measure"):
        command = commands.add_parser(name)
        command.add_argument("--congestion", default="cubic", help="congestion control of TCP in all regions")
    command.add_argument("--rounds", type=int, default=20, help="small operations of each kind")
    command.add_argument("--mib", type=int, default=100, help="size of a large object")
    command.add_argument("--threads", type=int, default=1, help="large objects at a time")
    command = commands.add_parser("cut")
    command.add_argument("--congestion", default="cubic", help="congestion control of TCP in all regions")
    command.add_argument("--minutes", type=float, default=10.0, help="how long the region is cut off")
    command.add_argument("--away", choices=REGIONS, default=REGIONS[0], help="the region to cut off")
    commands.add_parser("control").add_argument("what", help="a command for the router, such as 'cut il ga'")
    options = parser.parse_args(arguments)
    try:
        if options.command == "up":
            up(options.congestion)
        elif options.command == "measure":
            measure(options.rounds, options.mib, options.threads, options.congestion)
        elif options.command == "cut":
            cut(options.minutes, options.away, options.congestion)
        else:
            print(ask(PLACE / "router", options.what), end="")
    except (Refused, RuntimeError) as error:
        sys.exit(f"error: {error}")


if __name__ == "__main__":
    main()
