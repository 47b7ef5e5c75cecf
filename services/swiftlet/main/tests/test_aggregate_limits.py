"""Which objects share volume files: each policy's `aggregate_below` in an object server."""

from __future__ import annotations

import asyncio
import itertools
from pathlib import Path
from typing import Any

import yaml

from swiftlet.main.tests.test_native_transport import Place

PATIENCE_S = 30.0


def write(root: Path, **more: Any) -> None:
    (root / "policies.new").write_text(yaml.safe_dump([{"index": 0, "name": "gold", "default": True, **more}]))
    (root / "policies.new").replace(root / "policies.yaml")


def large(place: Place) -> int:
    """How many objects have a file of their own."""
    return len(list((place.root / "devices" / "d0").glob("large/*/*")))


async def test_the_policies_file_says_which_objects_share_files(tmp_path: Path) -> None:
    place, numbers = Place(tmp_path), itertools.count(1)
    settings: dict[str, Any] = {"policies_file": str(tmp_path / "policies.yaml"), "ring_check_interval_s": 0.02}
    write(tmp_path, aggregate_below=3)
    async with place.served(**settings), place.calling() as (caller, _):
        await place.put(caller, next(numbers))
        assert large(place) == 1, "it has 4 bytes"
        for more, in_file in (({"aggregate_below": 4}, 0), ({"aggregate_below": 0}, 1), ({}, 0)):
            write(tmp_path, **more)
            async with asyncio.timeout(PATIENCE_S):
                before = -1
                while large(place) - before != in_file:
                    await asyncio.sleep(0.02)
                    before = large(place)
                    await place.put(caller, next(numbers))
