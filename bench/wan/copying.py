"""Copies a large file to a store and back as `swiftlet cp` does: in several streams.

    python -m bench.wan.copying <PLAN

It runs in the client's region, and prints what `bench.wan.load` prints for a write and a read. PLAN is JSON: the
target, the object's size, and a folder for files.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench.wan.bodies import body
from bench.wan.load import Cell, Counter, Outcome
from swiftlet.client.client import AsyncClient
from swiftlet.client.credentials import V1
from swiftlet.client.options import Options
from swiftlet.client.progress import Progress

GROUP = "single"


async def _measured(work: Callable[[Progress], Awaitable[object]], size: int) -> Outcome:
    counter, moved = Counter(has_samples=True), 0

    def note(so_far: int, _total: int | None) -> None:
        nonlocal moved
        counter.add(so_far - moved)
        moved = so_far

    began = time.perf_counter()
    await work(note)
    taken_s = time.perf_counter() - began
    return Outcome([taken_s], size, taken_s, busy_rates=[size / taken_s], samples=counter.samples)


async def run(plan: dict[str, Any]) -> None:
    """Measure it, and print what came of it."""
    target, size, folder = plan["target"], plan["size"], Path(plan["folder"])
    source, copy, container = folder / "source", folder / "copy", "copied"
    with source.open("wb") as out:
        for piece in body(1, size):
            out.write(piece)
    credentials = V1(auth_url=f"{target['endpoint']}/auth/v1.0", user=target["user"], key=target["key"])
    async with AsyncClient(credentials, Options()) as client:
        await client.create_container(container, policy=target["policy"] or None)
        for kind, work in (
            ("write", lambda note: client.put(container, "object", source, progress=note)),
            ("read", lambda note: client.download(container, "object", copy, progress=note)),
        ):
            outcome = await _measured(work, size)
            cell = Cell(f"{GROUP} {kind}", kind, GROUP, size, 1, 1, 0.0, has_samples=True, is_anew=True)
            print(json.dumps({"cell": asdict(cell), "outcome": asdict(outcome)}), flush=True)
        await client.delete(container, "object", with_segments=True)


if __name__ == "__main__":
    asyncio.run(run(json.load(sys.stdin)))
