"""A service with a quick, a slow and a deadly route. Arguments: workers, port. Prints the port once it listens."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from typing import TYPE_CHECKING

from swiftlet.errors import SwiftletError
from swiftlet.web.logs import configure_logging
from swiftlet.web.shared_metrics import share_metrics

if TYPE_CHECKING:
    from aiohttp import web

    from swiftlet.web.serve import ServeOptions


def main(workers: int, port: int) -> int:
    configure_logging("small")
    if workers == 1:
        return serve_alone(port)
    with share_metrics():
        return serve_shared(workers, port)


def serve_alone(port: int) -> int:
    from swiftlet.web.serve import run
    from swiftlet.web.sockets import listen

    sock = listen("127.0.0.1", port)
    print(sock.getsockname()[1], flush=True)
    run(create_app, [sock], options())
    return 0


def serve_shared(workers: int, port: int) -> int:
    from swiftlet.web.serve import run
    from swiftlet.web.sockets import listen_shared
    from swiftlet.web.workers import Workers

    sockets = listen_shared("127.0.0.1", port, workers)
    print(sockets[0].getsockname()[1], flush=True)

    def work(sock: socket.socket) -> None:
        run(create_app, [sock], options())

    return Workers(sockets, work, stop_s=15.0).run()


def options() -> ServeOptions:
    from swiftlet.web.serve import ServeOptions

    return ServeOptions(drain_s=10.0)


def create_app() -> web.Application:
    from aiohttp import web

    from swiftlet.web.app import create_base_app

    async def pid(request: web.Request) -> web.Response:
        return web.Response(text=str(os.getpid()))

    async def slow(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b"begun ")
        await asyncio.sleep(float(request.query["s"]))
        await response.write(b"done")
        return response

    async def die(request: web.Request) -> web.Response:
        os._exit(7)

    app = create_base_app("small", trust_request_ids=False)
    app.router.add_get("/pid", pid)
    app.router.add_get("/slow", slow)
    app.router.add_get("/die", die)
    return app


if __name__ == "__main__":
    try:
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
    except SwiftletError as error:
        sys.exit(str(error))
