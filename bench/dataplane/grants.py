"""Grants a second of one metadata server worker: `python -m bench.dataplane.grants [--clients N] [--seconds S]`.

The worker is a process of its own with the routes of `/v1/grants` and the facts of a proxy in memory, and logs a line
for each grant to a file, as in a cluster. Clients are in this process, on connections that stay open, and send what
clients send; the worker's processor time for each grant is measured beside the rate, since both share the machine. In
turns with it stand requests of the same size that the worker answers at once with bytes of the same size: what aiohttp
alone takes on this machine now.
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

ANSWER_BYTES = 1000
BODY = json.dumps({"account": ACCOUNT, "container": "c", "operations": ["get", "put"], "prefix": "2026/"}).encode()


def used_s() -> float:
    """Return the processor time of this process in seconds."""
    use = resource.getrusage(resource.RUSAGE_SELF)
    return use.ru_utime + use.ru_stime


async def nothing(request: web.Request) -> web.Response:
    """Read the request, and answer with as many bytes as a grant has."""
    await request.read()
    return web.Response(text="x" * ANSWER_BYTES)


async def serve(pipe: Connection) -> None:
    """Serve until the other side says so; tell it the port, the token, and the processor time at both ends."""
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        async with memory_cluster(root) as cluster, proxy_of(cluster, root) as proxy:
            await proxy.call("PUT", "c")
            app = web.Application()
            add_grant_routes(app, api_of(proxy, cluster))
            app.router.add_post("/nothing", nothing)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
            pipe.send((runner.addresses[0][1], proxy.token_of("test:tester", Role.ADMIN)["X-Auth-Token"]))
            while await asyncio.to_thread(pipe.recv):
                pipe.send(used_s())
            await runner.cleanup()


def worker(pipe: Connection) -> None:
    """Run the server, with its log in a file."""
    with open(os.devnull, "w") as log:
        sys.stderr = log
        configure_logging("metadata")
        uvloop.run(serve(pipe))


async def client(port: int, path: str, token: str, until: float) -> int:
    """Make requests one after another on one connection; return how many were answered."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = f"POST {path} HTTP/1.1\r\nHost: m\r\nX-Auth-Token: {token}\r\nContent-Length: {len(BODY)}\r\n\r\n"
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


async def measure(pipe: Connection, clients: int, seconds: float, rounds: int) -> None:
    """Measure in turns, and print a line for each."""
    port, token = pipe.recv()
    for _ in range(rounds):
        for path in ("/nothing", "/v1/grants"):
            await asyncio.gather(*(client(port, path, token, time.monotonic() + 0.3) for _ in range(clients)))
            pipe.send(True)
            before, begun = pipe.recv(), time.monotonic()
            counts = await asyncio.gather(*(client(port, path, token, begun + seconds) for _ in range(clients)))
            took = time.monotonic() - begun
            pipe.send(True)
            used, count = pipe.recv() - before, sum(counts)
            print(f"{path}: {count / took:.0f}/s, {used / count * 1e6:.0f} us of the worker's processor time each")
    pipe.send(False)


def main() -> None:
    """Parse the command line, and run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    process = multiprocessing.get_context("spawn").Process(target=worker, args=(theirs,))
    process.start()
    try:
        uvloop.run(measure(ours, given.clients, given.seconds, given.rounds))
    finally:
        process.join(10)
        process.terminate()


if __name__ == "__main__":
    main()
