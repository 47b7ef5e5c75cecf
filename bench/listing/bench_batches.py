"""What a request with rows costs a container server: processor time of a server process, by the rows in a request.

    .venv/bin/python bench/listing/bench_batches.py [--rows 1 4 15 100] [--writers 4] [--directory /some/disk]

The server is a process of its own with one device, signatures and the access log as in production; so many writers
keep one request each under way, all to one container unless `--containers` says otherwise. Prints milliseconds of the
server's and of the client's processor time per request, and the server's per row.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from swiftlet.listing.pool import ListingStore
from swiftlet.model import ObjectRow
from swiftlet.names import HashPath
from swiftlet.ring.model import Device
from swiftlet.servers.containers.container_server import ContainerServer, add_container_routes
from swiftlet.sharding.sharded import ShardedReplicas
from swiftlet.timestamp import Timestamp
from swiftlet.transport.http_client import NodeClient
from swiftlet.transport.http_listing import HttpListingTransport
from swiftlet.transport.signing import ClusterKey
from swiftlet.web.app import create_base_app
from swiftlet.web.logs import configure_logging
from swiftlet.web.serve import ServeOptions, run

HASH_PATH = HashPath(b"bench")
KEY = ClusterKey(b"bench")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


def serve(root: Path, descriptor: int) -> None:
    """The server, until it is asked to end."""
    from aiohttp import web

    configure_logging("container")

    def create() -> web.Application:
        app = create_base_app("container", trust_request_ids=True)
        store = ListingStore(root / "d0", HASH_PATH)
        sharded = ShardedReplicas("d0", store, HttpListingTransport(NodeClient()), None, lambda _device: True)  # type: ignore[arg-type]
        add_container_routes(app, ContainerServer({"d0": store}, None, KEY, {"d0": sharded}))
        return app

    run(create, [socket.socket(fileno=descriptor)], ServeOptions(drain_s=1))


def used_s(pid: int) -> float:
    """Processor time of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


async def measure(
    pid: int, port: int, batches: list[int], how: str, writers: int, containers: int, seconds: float
) -> None:
    """Each size of batch for some seconds."""
    transport = HttpListingTransport(NodeClient(key=KEY))
    device = Device(0, "device-0", "127.0.0.1", port, "d0", "r", "z", "n", 1.0)
    names = [f"container-{number}" for number in range(containers or writers)]
    for name in names:
        await transport.put_container(device, 0, "AUTH_bench", name, Timestamp(1), {}, None, 0)
    count = 0
    for rows in batches:
        requests = 0
        ends = time.perf_counter() + seconds
        before, own = used_s(pid), time.process_time()

        async def write(number: int, rows: int = rows, ends: float = ends) -> None:
            nonlocal requests, count
            while time.perf_counter() < ends:
                batch = []
                for _ in range(rows):
                    count += 1
                    name = f"photos/{count % 1000:03}/{count:09}.jpg"
                    batch.append(ObjectRow(name, Timestamp(2), 10240, "0" * 32, "image/jpeg"))
                place = device, 0, "AUTH_bench", names[number % len(names)]
                if how == "http":
                    await transport.update_rows(*place, batch)
                else:
                    await transport.bring_rows(*place, batch, how == "later")
                requests += 1

        await asyncio.gather(*(write(number) for number in range(writers)))
        server, client = used_s(pid) - before, time.process_time() - own
        print(
            f"{rows:5} rows: {requests / seconds:7.0f} requests/s  server {server / requests * 1000:6.3f} ms each, "
            f"{server / requests / rows * 1e6:6.1f} us a row  client {client / requests * 1000:6.3f} ms each",
            flush=True,
        )
    await transport.close()


def main() -> None:
    """Start the server, measure, stop it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 15, 100, 1000])
    ways = ["http", "stream", "later"]
    parser.add_argument("--how", choices=ways, nargs="+", default=ways, help="later: not waiting for the sync")
    parser.add_argument("--writers", type=int, default=4)
    parser.add_argument("--containers", type=int, default=1, help="0: one for each writer")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--directory", type=Path)
    parser.add_argument("--serve", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(Path(arguments.serve[0]), int(arguments.serve[1]))
        return
    with tempfile.TemporaryDirectory(dir=arguments.directory) as root, socket.create_server(("127.0.0.1", 0)) as sock:
        command = [sys.executable, __file__, "--serve", root, str(sock.fileno())]
        with (Path(root) / "log").open("wb") as log:
            server = subprocess.Popen(command, pass_fds=[sock.fileno()], stderr=log)
        try:
            sizes = (arguments.writers, arguments.containers, arguments.seconds)
            print(f"server {server.pid}", file=sys.stderr)
            for how in arguments.how:
                print(how, flush=True)
                asyncio.run(measure(server.pid, sock.getsockname()[1], arguments.rows, how, *sizes))
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(10)


if __name__ == "__main__":
    main()
