"""Writes rows to a container until it is killed; prints each batch's number once it is acknowledged.

Half of the batches do not wait for the sync: a kill must not take them either.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from swiftlet.listing.pool import ListingStore
from swiftlet.model import ObjectRow
from swiftlet.names import HashPath
from swiftlet.timestamp import Timestamp

BATCH = 7


def rows_of(number: int) -> list[ObjectRow]:
    """A batch; every third one removes what the one before wrote."""
    removed, stamp = number % 3 == 2, Timestamp(number + 10)
    base = number - 1 if removed else number
    return [ObjectRow(f"{base:06}-{i}", stamp, 0 if removed else i, "", "", removed) for i in range(BATCH)]


async def _write(store: ListingStore, number: int) -> None:
    await store.update_rows(0, "a", "c", rows_of(number), later=number % 2 == 0)
    print(number, flush=True)


async def main(root: Path, first: int) -> None:
    store = ListingStore(root, HashPath(b"x"))
    await store.put_container(0, "a", "c", Timestamp(1), {}, None, 0)
    number = first
    while True:
        await asyncio.gather(*(_write(store, n) for n in range(number, number + 6)))
        number += 6


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
