"""What operations and rounds cost by workers, objects, devices, containers and part power, and a model beyond them.

    make bench-scale                                  # everything, some 20 minutes, 15 GB of disk and 4 GB of memory
    make bench-scale SCALE_ARGS='--only objects --objects 10000 100000 1000000'
    make bench-scale SCALE_ARGS='--only devices powers --devices 4 8 --powers 10 12 --out /tmp/scale'

Each part replaces what `results.json` has of it, and leaves the others; then RESULTS.md and its curves are written
anew. Native code fills stores, and databases are copied, so that nothing is stored over HTTP but what is measured so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import uvloop

from bench.micro import report
from bench.scale import containers, objects, page, rings, rounds, workers
from bench.scale.curves import REPLICAS, Point, read_curves
from swiftlet.bench.environment import facts
from swiftlet.bench.errors import BenchError
from swiftlet.main.garbage_collection import collect_garbage_seldom
from swiftlet.web.logs import configure_logging

HERE = Path(__file__).parent
PART_POWER = 14
FEW_DEVICES = 5
CHECKED = (16, 4000)
"""Part power and devices of the ring that the model is compared with."""


def of_objects(arguments: argparse.Namespace) -> Iterator[Point]:
    """Measure the engine and rounds with each number of objects on a device."""
    objects.build()
    yield from objects.points(arguments.objects, arguments.round_objects, arguments.directory)


def of_devices(arguments: argparse.Namespace) -> Iterator[Point]:
    """Measure rings and rounds with each number of devices."""
    for count in arguments.devices:
        yield _with_rounds(PART_POWER, count, arguments.directory)


def of_powers(arguments: argparse.Namespace) -> Iterator[Point]:
    """Measure rings and rounds of few devices with each part power."""
    for power in arguments.powers:
        if power <= arguments.round_power:
            yield _with_rounds(power, FEW_DEVICES, arguments.directory)
        else:
            yield rings.point(power, FEW_DEVICES)


def of_rings(arguments: argparse.Namespace) -> Iterator[Point]:
    """Measure rings of more devices than have servers here."""
    for count in arguments.ring_devices:
        yield rings.point(PART_POWER, count)


def of_check(arguments: argparse.Namespace) -> Iterator[Point]:
    """Measure a ring that the model is not fitted to."""
    yield rings.point(*CHECKED)


def of_containers(arguments: argparse.Namespace) -> Iterator[Point]:
    """Measure the listing store and rounds with each number of containers on a device."""

    most = arguments.round_containers
    yield from containers.points(arguments.containers, most, arguments.directory)


def of_workers(arguments: argparse.Namespace) -> Iterator[Point]:
    """Measure a store with each number of workers of the proxy."""
    yield from workers.points(arguments.workers, arguments.seconds, arguments.directory)


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[Point]]] = {
    "workers": of_workers,
    "objects": of_objects,
    "devices": of_devices,
    "containers": of_containers,
    "powers": of_powers,
    "rings": of_rings,
    "check": of_check,
}


def _with_rounds(part_power: int, devices: int, directory: Path) -> Point:
    point = rings.point(part_power, devices)
    replicas = min(REPLICAS, devices)
    partitions = replicas * 2.0**part_power / devices
    if devices == 1:
        return point.model_copy(update={"at": {**point.at, "partitions": partitions, "neighbours": 0.0}})
    turns, neighbours = _run(rounds.rounds(devices, replicas, part_power, directory))
    at = {**point.at, "partitions": partitions, "neighbours": neighbours}
    return point.model_copy(update={"at": at, "rounds": turns})


def _run(work: Coroutine[Any, Any, Any]) -> Any:
    return uvloop.run(work)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    found = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    found.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS), help="parts to measure")
    found.add_argument("--page", action="store_true", help="measure nothing, and write the page anew")
    found.add_argument("--out", type=Path, default=HERE, help="folder of results.json, RESULTS.md and its curves")
    found.add_argument("--directory", type=Path, help="where stores are (default: where temporary files are)")
    found.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    found.add_argument("--seconds", type=float, default=5.0, help="of each measurement over HTTP (default 5)")
    found.add_argument("--objects", type=int, nargs="+", default=[10_000, 100_000, 1_000_000, 10_000_000])
    found.add_argument("--round-objects", type=int, default=10_000_000, help="up to which rounds are measured")
    found.add_argument("--devices", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32, 64])
    found.add_argument("--containers", type=int, nargs="+", default=[1, 10, 100, 1_000, 10_000, 100_000])
    found.add_argument("--round-containers", type=int, default=100_000, help="up to which rounds are measured")
    found.add_argument("--powers", type=int, nargs="+", default=[10, 12, 14, 16, 18, 20, 22])
    found.add_argument("--round-power", type=int, default=22, help="part power up to which rounds are measured")
    found.add_argument("--ring-devices", type=int, nargs="+", default=[128, 256, 512, 1024])
    return found


def main() -> None:
    arguments = parser().parse_args()
    collect_garbage_seldom()
    configure_logging("bench", "error", "console")
    if arguments.directory is not None:
        arguments.directory.mkdir(parents=True, exist_ok=True)
    arguments.out.mkdir(parents=True, exist_ok=True)
    file = arguments.out / "results.json"
    try:
        curves = read_curves(file)
    except BenchError as error:
        raise SystemExit(f"error: {error}") from error
    for name in () if arguments.page else arguments.only:
        machine = {"began": datetime.now(UTC).isoformat(timespec="minutes"), **facts()}
        began, points = time.monotonic(), []
        for point in PARTS[name](arguments):
            points.append(point)
            print(f"{name}: {point.at}, {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
        curves = curves.with_part(name, points, machine)
        file.write_text(page.as_json(curves))
    page.write(curves, arguments.out)
    if arguments.out == HERE and not arguments.page:
        report("scale", list(page.reported(curves)))


if __name__ == "__main__":
    main()
