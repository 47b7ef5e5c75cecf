"""Rates of a container's database: rows merged per second, and milliseconds per page of a large container.

    .venv/bin/python -m bench.listing.bench_listing [--rows 1000000] [--directory /some/disk]

Prints one line per measurement. The directory should be on the kind of disk that will be used: updates wait for
its syncs.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.micro import Measured, report
from swiftlet.listing.pool import ListingStore
from swiftlet.model import DatabaseName, ListingQuery, ObjectRow
from swiftlet.names import HashPath
from swiftlet.timestamp import Timestamp

PLACE = (0, "AUTH_bench", "container")
BATCH = 500


def row(number: int, stamp: int = 2) -> ObjectRow:
    """A row as objects leave them."""
    return ObjectRow(f"photos/{number % 1000:03}/{number:09}.jpg", Timestamp(stamp), 4096, "0" * 32, "image/jpeg")


async def timed(label: str, work: Callable[[], Awaitable[object]], repeat: int = 15) -> Measured:
    """Print the median and the worst duration; return all of them."""
    durations = []
    for _ in range(repeat):
        begun = time.perf_counter()
        await work()
        durations.append((time.perf_counter() - begun) * 1000)
    print(f"{label:58} median {statistics.median(durations):8.2f} ms  worst {max(durations):8.2f} ms")
    return Measured(label, "ms", tuple(durations))


async def fill(store: ListingStore, first: int, rows: int, batch: int, writers: int, label: str) -> Measured:
    """Write rows in batches from several writers at once; return their rate."""
    numbers = iter(range(first, first + rows, batch))
    begun = time.perf_counter()

    async def write() -> None:
        for start in numbers:
            await store.update_rows(*PLACE, [row(n) for n in range(start, min(start + batch, first + rows))])

    await asyncio.gather(*(write() for _ in range(writers)))
    rate = rows / (time.perf_counter() - begun)
    print(f"{label:58} {rate:10.0f} rows/s")
    return Measured(label, "rows/s", (rate,))


async def measure(root: Path, rows: int) -> list[Measured]:
    """Fill a container with `rows` rows, then measure updates and listings, and print and return the figures."""
    store = ListingStore(root / "device", HashPath(b"bench"))
    await store.put_container(*PLACE, Timestamp(1), {}, None, 0)
    found = [
        await fill(store, 0, rows, BATCH, 4, f"fill with {rows:,} rows, {BATCH} in an update, 4 at a time"),
        await fill(store, rows, 20_000, 1, 64, "single-row updates, 64 at a time"),
        await fill(store, rows + 20_000, 20_000, 50, 16, "updates of 50 rows, 16 at a time"),
        await fill(store, 0, 20_000, BATCH, 4, "rows that are there already"),
    ]
    middle = row(rows // 2).name

    def page(query: ListingQuery) -> Callable[[], Awaitable[object]]:
        return lambda: store.list_objects(*PLACE, query)

    found += [
        await timed("first page of 1,000", page(ListingQuery(limit=1000))),
        await timed("page of 1,000 from the middle", page(ListingQuery(limit=1000, marker=middle))),
        await timed("the same in reverse", page(ListingQuery(limit=1000, marker=middle, reverse=True))),
        await timed("page of 10,000", page(ListingQuery(limit=10_000, marker=middle))),
        await timed("1,000 common prefixes", page(ListingQuery(limit=1000, prefix="photos/", delimiter="/"))),
        await timed("one common prefix of everything", page(ListingQuery(delimiter="/"))),
        await timed("totals", lambda: store.container_info(*PLACE)),
    ]
    id = store.id_of(0, DatabaseName(*PLACE[1:]))
    found.append(await timed("verify (reads every row)", lambda: store.verify(id), repeat=1))
    await store.close()
    return found


def main() -> None:
    """Parse arguments and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as root:
        found = asyncio.run(measure(Path(root), arguments.rows))
    report("listing-database", found)


if __name__ == "__main__":
    main()
