"""Measures what operations and rounds cost by the number of objects on a device. Native code fills the stores."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import uvloop

from bench.scale.curves import REPLICAS, Operation, Point, Round
from bench.scale.rounds import rounds
from swiftlet.store.native import NativeStore
from swiftlet.store.protocol import Store

_REPOSITORY = Path(__file__).parents[2]
_PROGRAM = _REPOSITORY / "native/target/release/examples/store_bench"
PART_POWER = 14
_FULL_BYTES = (1 << 30) - (1 << 20)
"""The size of a volume above which a store has begun another one."""


def build() -> None:
    """Build the program that fills and measures native stores."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", "native/Cargo.toml"]
    subprocess.run([*command, "-p", "swiftlet-store", "--example", "store_bench"], check=True, cwd=_REPOSITORY)


def points(counts: Sequence[int], most_in_rounds: int, directory: Path) -> Iterator[Point]:
    """Measure the engine by itself and rounds with each of these numbers of objects, in one store that grows.

    Rounds are measured up to `most_in_rounds` objects, with copies of the store, while nothing else runs.
    """
    with tempfile.TemporaryDirectory(dir=directory, prefix="scale-objects-") as root:
        store, reached = Path(root) / "d", 0
        for count in sorted(counts):
            found = _told("scale", store, PART_POWER, reached, count)
            started = _told("start", store)
            point = _point(found, started)
            turns = uvloop.run(of_rounds(store, Path(root))) if count <= most_in_rounds else ()
            reached = count
            yield point.model_copy(update={"rounds": turns})


def _told(what: str, store: Path, *arguments: int) -> dict[str, Any]:
    """Return what the program tells of a store."""
    command = [str(_PROGRAM), str(store), what, *map(str, arguments)]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    return found


def _point(found: dict[str, Any], started: dict[str, float]) -> Point:
    kinds, objects = found.pop("operations"), found.pop("objects")
    return Point(
        at={"objects": objects},
        operations=tuple(Operation.model_validate(one) for one in kinds),
        amounts={f"store_{name}": value for name, value in (found | started).items()},
    )


async def of_rounds(store: Path, parent: Path) -> tuple[Round, ...]:
    """Measure rounds among three devices that hold the same objects as this store, which nobody has open."""

    def filled(place: Path, _partitions: Iterable[int]) -> Store:
        shutil.copytree(store, place, dirs_exist_ok=True, copy_function=_copied)
        return NativeStore(place)

    found, _ = await rounds(REPLICAS, REPLICAS, PART_POWER, parent, filled)
    return found


def _copied(source: str, target: str) -> str:
    """Copy a file of a store; a volume that is full is not written to any more, so all may have the same."""
    if Path(source).parent.name != "volumes" or Path(source).stat().st_size < _FULL_BYTES:
        return shutil.copyfile(source, target)
    os.link(source, target)
    return target
