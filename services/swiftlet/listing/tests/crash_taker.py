"""Has rows taken natively for a container until it is killed; prints each batch's number once it was taken.

Meanwhile rows are merged into the database, and the journal is shortened, as often as possible.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from swiftlet_native import UpdateTable

from swiftlet.listing import folding
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.schema import OFFSET
from swiftlet.listing.updates import Place
from swiftlet.model import ObjectRow
from swiftlet.names import HashPath
from swiftlet.timestamp import Timestamp

BATCH = 7
PLACE: Place = (0, "a", "c")
Row = tuple[str, int, int, str, str, None, None, int]


def rows_of(number: int) -> list[Row]:
    """A batch; every third one removes what the one before wrote."""
    removed, stamp = number % 3 == 2, number + 10 - OFFSET
    base = number - 1 if removed else number
    return [(f"{base:06}-{i}", stamp, 0 if removed else i, "", "", None, None, int(removed)) for i in range(BATCH)]


async def main(root: Path, first: int) -> None:
    tables: list[UpdateTable] = []

    def make_table(directory: Path) -> UpdateTable:
        tables.append(UpdateTable(directory, "d"))
        return tables[0]

    store = ListingStore(root, HashPath(b"x"), make_table=make_table, fold_after_s=0.005)
    folding = asyncio.create_task(store.run_folding())
    await store.put_container(*PLACE, Timestamp(1), {}, None, 0)
    await store.update_rows(*PLACE, [ObjectRow("first", Timestamp(2), 1)])
    number = first
    while not folding.done():
        if await asyncio.to_thread(tables[0].take, *PLACE, rows_of(number)):
            print(number, flush=True)
            number += 1


if __name__ == "__main__":
    folding.SWEEP_S = 0.01
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
