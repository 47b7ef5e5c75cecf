"""Runs a service's application on its port, in this process or in several."""

from __future__ import annotations

import socket
from collections.abc import Callable

from aiohttp import web

from swiftlet.web.serve import ServeOptions, run
from swiftlet.web.sockets import listen, listen_shared
from swiftlet.web.workers import Workers

_STOP_MARGIN_S = 5.0
"""Seconds that workers have in addition to their drain time before they are killed."""


def serve_app(
    create_app: Callable[[], web.Application], host: str, port: int, options: ServeOptions, workers: int = 1
) -> int:
    """Serve until asked to end; return the exit code. Raises PortInUse when another process listens there.

    All workers share the management port, so it is bound once without sharing, as `listen_shared` does.
    """
    if options.management is not None:
        listen(*options.management).close()
    if workers == 1:
        run(create_app, [listen(host, port, backlog=options.backlog)], options)
        return 0

    def work(sock: socket.socket) -> None:
        run(create_app, [sock], options)

    sockets = listen_shared(host, port, workers, backlog=options.backlog)
    return Workers(sockets, work, options.drain_s + _STOP_MARGIN_S).run()
