"""Measures what operations and rounds cost by the number of objects on a device. Native code fills the stores."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from bench.scale.curves import REPLICAS, Operation, Point, Round
from bench.scale.rounds import rounds
from swiftlet.store.native import NativeStore
from swiftlet.store.protocol import Store

_REPOSITORY = Path(__file__).parents[2]
_PROGRAM = _REPOSITORY / "native/target/release/examples/store_bench"
PART_POWER = 14


def build() -> None:
    """Build the program that fills and measures native stores."""
    command = ["cargo", "build", "--quiet", "--release", "--locked", "--manifest-path", "native/Cargo.toml"]
    subprocess.run([*command, "-p", "swiftlet-store", "--example", "store_bench"], check=True, cwd=_REPOSITORY)


def operations(counts: Sequence[int], directory: Path) -> Iterator[Point]:
    """Measure the engine by itself, with one store that grows."""
    with tempfile.TemporaryDirectory(dir=directory, prefix="scale-objects-") as root:
        command = [str(_PROGRAM), f"{root}/d", "scale", *map(str, sorted(counts))]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            yield from (_point(json.loads(line)) for line in process.stdout)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)


def _point(found: dict[str, float]) -> Point:
    kinds: Iterable[dict[str, float]] = found.pop("operations")  # type: ignore[assignment]
    objects = found.pop("objects")
    return Point(
        at={"objects": objects},
        operations=tuple(Operation.model_validate(one) for one in kinds),
        amounts={f"store_{name}": value for name, value in found.items()},
    )


async def of_rounds(count: int, directory: Path) -> tuple[Round, ...]:
    """Measure rounds among three devices that hold the same so many objects."""
    with tempfile.TemporaryDirectory(dir=directory, prefix="scale-rounds-") as root:
        template = Path(root) / "filled"
        _populate(template, count)

        def filled(place: Path, _partitions: Iterable[int]) -> Store:
            shutil.copytree(template, place, dirs_exist_ok=True)
            return NativeStore(place)

        found, _ = await rounds(REPLICAS, REPLICAS, PART_POWER, Path(root), filled)
        return found


def _populate(place: Path, count: int) -> None:
    subprocess.run([str(_PROGRAM), str(place), "populate", str(count), str(PART_POWER)], check=True)
