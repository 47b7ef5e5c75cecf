"""Grants a second of one metadata server worker: `python -m bench.dataplane.grants [--clients N] [--seconds S]`.

The worker is a process of its own with the routes of `/v1/grants` and the facts of a proxy in memory, and logs a line
for each grant to a file, as in a cluster. Clients are in this process, on connections that stay open, and send what
clients send; the worker's processor time for each grant is measured beside the rate, since both share the machine.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import resource
import sys
import tempfile
import time
from multiprocessing.connection import Connection
from pathlib import Path

import uvloop
from aiohttp import web

from swiftlet.api.requests.grants import add_grant_routes
from swiftlet.api.tests.proxy import proxy_of
from swiftlet.api.tests.test_grants import api_of
from swiftlet.auth.identity import Role
from swiftlet.placement.tests.cluster import ACCOUNT, memory_cluster
from swiftlet.web.logs import configure_logging

BODY = json.dumps({"account": ACCOUNT, "container": "c", "operations": ["get", "put"], "prefix": "2026/"}).encode()


def used_s() -> float:
    """Return the processor time of this process in seconds."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


async def serve(pipe: Connection) -> None:
    """Serve until the other side says so; tell it the port, the token, and the processor time at both ends."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        async with memory_cluster(root) as cluster, proxy_of(cluster, root) as proxy:
            await proxy.call("PUT", "c")
            app = web.Application()
            add_grant_routes(app, api_of(proxy, cluster))
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            pipe.send((runner.addresses[0][1], proxy.token_of("test:tester", Role.ADMIN)["X-Auth-Token"]))
            for _ in range(2):
                await asyncio.to_thread(pipe.recv)
                pipe.send(used_s())
            await runner.cleanup()


def worker(pipe: Connection) -> None:
    """Run the server, with its log in a file."""
    with open(os.devnull, "w") as log:
        sys.stderr = log
        configure_logging("metadata")
        uvloop.run(serve(pipe))


async def client(port: int, token: str, until: float) -> int:
    """Ask for grants one after another on one connection; return how many came."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST /v1/grants HTTP/1.1\r\nHost: m\r\nX-Auth-Token: {token}\r\nContent-Length: {len(BODY)}\r\n\r\n"
    request, count = head.encode() + BODY, 0
    while time.monotonic() < until:
        writer.write(request)
        answer = await reader.readuntil(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 200"), answer
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await reader.readexactly(length)
        count += 1
    writer.close()
    return count


async def measure(pipe: Connection, clients: int, seconds: float) -> None:
    """Measure, and print a line."""
    port, token = pipe.recv()
    await asyncio.gather(*(client(port, token, time.monotonic() + 0.5) for _ in range(clients)))
    pipe.send("begin")
    before, begun = pipe.recv(), time.monotonic()
    counts = await asyncio.gather(*(client(port, token, begun + seconds) for _ in range(clients)))
    took = time.monotonic() - begun
    pipe.send("end")
    used = pipe.recv() - before
    count = sum(counts)
    print(f"{count / took:.0f} grants/s, {used / count * 1e6:.0f} us of the worker's processor time each")


def main() -> None:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    given = parser.parse_args()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=worker, args=(theirs,))
    process.start()
    try:
        uvloop.run(measure(ours, given.clients, given.seconds))
    finally:
        process.join(10)
        process.terminate()


if __name__ == "__main__":
    main()
