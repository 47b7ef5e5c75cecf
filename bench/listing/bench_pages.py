"""Pages of a large container through a container server and the proxy's code: as rows, and as text.

    PYTHONPATH=services .venv/bin/python -m bench.listing.bench_pages [--rows 5000000] [--directory /some/disk]

The server is a process of its own; client and proxy code are in this one. "rows" is what pages with levels need:
rows over the wire, then JSON made by the API. Prints milliseconds by the clock and of both processes' processor time,
and reports them. The database is filled beside the store, so its set hash is not that of its rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from bench.listing.bench_batches import HASH_PATH, KEY, used_s
from bench.micro import Measured, report
from swiftlet.api.http.listings import json_row
from swiftlet.boundaries.listings import PageForm
from swiftlet.listing.layout import database_path
from swiftlet.listing.pool import ListingStore
from swiftlet.listing.schema import stored
from swiftlet.model import DatabaseName, ListingQuery
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_listing import HttpListingTransport

NAMES = ("AUTH_bench", "container")


def name(number: int, rows: int) -> str:
    """Names in order, in 1,000 folders."""
    return f"photos/{number * 1000 // rows:03}/{number:09}.jpg"


async def fill(root: Path, rows: int) -> None:
    """A container of so many rows."""
    store = ListingStore(root / "d0", HASH_PATH)
    await store.put_container(0, *NAMES, Timestamp(1), {}, None, 0)
    path = database_path(store.root, store.id_of(0, DatabaseName(*NAMES)))
    await store.close()
    connection = sqlite3.connect(path)
    first = Timestamp.at(1_700_000_000).value
    connection.executemany(
        "INSERT INTO live VALUES (?, ?, ?, ?, ?)",
        ((name(n, rows), stored(Timestamp(first + (n << 20))), 4096, f"{n:032x}", "image/jpeg") for n in range(rows)),
    )
    connection.execute("UPDATE info SET row_count = ?, object_count = ?, bytes_used = ?", (rows, rows, 4096 * rows))
    connection.commit()
    connection.close()


async def timed(label: str, pid: int, work: Callable[[], Awaitable[object]], repeat: int) -> list[Measured]:
    """Print the median and the worst duration, and the processor time of client and server together; return them."""
    await work()
    durations, before = [], time.process_time() + used_s(pid)
    for _ in range(repeat):
        begun = time.perf_counter()
        await work()
        durations.append((time.perf_counter() - begun) * 1000)
    cpu_ms = (time.process_time() + used_s(pid) - before) / repeat * 1000
    median, worst = statistics.median(durations), max(durations)
    print(f"{label:42} median {median:7.1f}  worst {worst:7.1f}  CPU {cpu_ms:7.1f} ms", flush=True)
    return [Measured(label, "ms", tuple(durations)), Measured(f"{label}, processor time", "ms", (cpu_ms,))]


async def measure(pid: int, port: int, rows: int, repeat: int) -> list[Measured]:
    """All pages, both ways in turns."""
    found: list[Measured] = []
    transport = HttpListingTransport(NodeClient(key=KEY))
    place = Device(0, "device-0", "127.0.0.1", port, "d0", "r", "z", "n", 1.0), 0, *NAMES

    async def as_rows(query: ListingQuery) -> str:
        _, page = await transport.list_objects(*place, query)
        return json.dumps([json_row(row) for row in page])

    async def as_text(query: ListingQuery) -> object:
        return (await transport.list_text(*place, query, PageForm.JSON))[1]

    middle = name(rows // 2, rows)
    for what, query in (
        ("1,000 rows, first", ListingQuery(limit=1000)),
        ("1,000 rows from the middle", ListingQuery(limit=1000, marker=middle)),
        ("1,000 rows in reverse", ListingQuery(limit=1000, marker=middle, reverse=True)),
        ("10,000 rows from the middle", ListingQuery(limit=10_000, marker=middle)),
        ("1,000 common prefixes", ListingQuery(limit=1000, prefix="photos/", delimiter="/")),
    ):
        found += await timed(f"{what}, as rows", pid, lambda q=query: as_rows(q), repeat)  # type: ignore[misc]
        if not query.delimiter:
            text = await as_text(query)
            assert isinstance(text, bytes)
            assert json.loads(text) == json.loads(await as_rows(query))
            found += await timed(f"{what}, as text", pid, lambda q=query: as_text(q), repeat)  # type: ignore[misc]
    await transport.close()
    return found


def main() -> None:
    """Fill, start the server, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=5_000_000)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--directory", type=Path)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.directory) as root, socket.create_server(("127.0.0.1", 0)) as sock:
        asyncio.run(fill(Path(root), arguments.rows))
        command = [sys.executable, "-m", "bench.listing.bench_batches", "--serve", root, str(sock.fileno())]
        with (Path(root) / "log").open("wb") as log:
            server = subprocess.Popen(command, pass_fds=[sock.fileno()], stderr=log)
        try:
            found = asyncio.run(measure(server.pid, sock.getsockname()[1], arguments.rows, arguments.repeat))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(10)
    report("listing", found)


if __name__ == "__main__":
    main()
