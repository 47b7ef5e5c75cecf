"""Run an application until it is asked to end, then end without breaking anybody's request.

On SIGTERM or SIGINT: readiness turns 503, the listeners close, idle connections close, requests in flight finish
within `drain_s`, what is left is cut, and the process exits with 0. A second signal cuts at once.

A handler is not cancelled when its client disconnects: a write that has begun on some replicas should reach the
others. Handlers that stream notice by the failing write.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import uvloop
from aiohttp import web

from swiftlet.web.access import access_log_for
from swiftlet.web.app import METRICS
from swiftlet.web.front import FRONT_DOOR, FrontDoor
from swiftlet.web.health import READINESS
from swiftlet.web.logs import get_logger, log_loop_errors
from swiftlet.web.malformed import answer_without_target
from swiftlet.web.management import MANAGEMENT
from swiftlet.web.raw_heads import take_raw_heads
from swiftlet.web.sockets import listen

_SIGNALS = (signal.SIGTERM, signal.SIGINT)

_log = get_logger("serve")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How connections are treated; sizes in bytes, times in seconds."""

    drain_s: float = 25.0
    max_line_size: int = 8192
    """Of the request line."""
    max_field_size: int = 8192
    """Of one header line."""
    max_headers: int = 256
    keepalive_s: float = 75.0
    """How long a connection may stay idle; longer than peers keep theirs, so that they close first."""
    read_buffer_bytes: int = 256 * 1024
    backlog: int = 1024
    tls: ssl.SSLContext | None = None
    """Speak HTTPS with it; plain HTTP when None."""
    management: tuple[str, int] | None = None
    """Host and port of the application under `MANAGEMENT`, which all workers share; it always speaks plain HTTP."""


class StopRequest:
    """How often the process was asked to end."""

    def __init__(self) -> None:
        """Not yet."""
        self.once = asyncio.Event()
        self.twice = asyncio.Event()

    def again(self) -> None:
        """Ask once more."""
        (self.twice if self.once.is_set() else self.once).set()


def run(create_app: Callable[[], web.Application], sockets: Sequence[socket.socket], options: ServeOptions) -> None:
    """Serve on uvloop until SIGTERM or SIGINT; returns once drained."""
    uvloop.run(_main(create_app, sockets, options))


async def _main(
    create_app: Callable[[], web.Application], sockets: Sequence[socket.socket], options: ServeOptions
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_errors(_log))
    asked = StopRequest()
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            continue  # Somebody above (the parent of workers, nohup) keeps this signal from us.
        loop.add_signal_handler(number, asked.again)
    await serve(create_app(), sockets, options, asked)


async def serve(
    app: web.Application, sockets: Sequence[socket.socket], options: ServeOptions, asked: StopRequest
) -> None:
    """Serve `app` on listening sockets until asked to end, then drain."""
    runner = web.AppRunner(
        app,
        access_log_class=access_log_for(app[METRICS]),
        shutdown_timeout=options.drain_s,
        handler_cancellation=False,
        keepalive_timeout=options.keepalive_s,
        max_line_size=options.max_line_size,
        max_field_size=options.max_field_size,
        max_headers=options.max_headers,
        read_bufsize=options.read_buffer_bytes,
        auto_decompress=False,
    )
    # A door reads requests as they come: TLS is the server's own.
    door = app.get(FRONT_DOOR) if options.tls is None else None
    management = await _manage(app, options)
    try:
        await runner.setup()
        assert runner.server is not None
        answer_without_target(runner.server)
        take_raw_heads(runner.server)
        if door is not None and not _opened(door, runner.server, sockets, options.keepalive_s):
            door = None
        if door is None:
            for sock in sockets:
                await web.SockSite(runner, sock, backlog=options.backlog, ssl_context=options.tls).start()
        names = [sock.getsockname() for sock in sockets]
        _log.info("serving", addresses=[f"{host}:{port}" for host, port, *_ in names], front_door=door is not None)
        await asked.once.wait()
        app[READINESS].draining = True
        _log.info("draining", drain_s=options.drain_s)
    finally:
        await _drain(runner, door, options.drain_s, asked)
        # It answers to the end, so that it can be seen what a draining process still does.
        if management is not None:
            await management.cleanup()
    _log.info("stopped")


async def _manage(app: web.Application, options: ServeOptions) -> web.AppRunner | None:
    """Serve the management application, where there is one; PortInUse when another user's process listens there."""
    management = app.get(MANAGEMENT)
    if management is None or options.management is None:
        return None
    runner = web.AppRunner(management, access_log_class=access_log_for(app[METRICS]), shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, listen(*options.management, share_port=True)).start()
    return runner


def _opened(door: FrontDoor, server: web.Server, sockets: Sequence[socket.socket], keepalive_s: float) -> bool:
    """Whether connections come through the door; without it the server accepts them, and all goes more slowly."""
    try:
        door.open(server, sockets, keepalive_s)
    except OSError as error:
        _log.warning("the front door does not open: the server accepts by itself", error=str(error))
        return False
    return True


async def _end(runner: web.AppRunner, door: FrontDoor | None, drain_s: float) -> None:
    ends_at = asyncio.get_running_loop().time() + drain_s
    if door is not None:
        await door.leave()
    try:
        await runner.cleanup()
    finally:
        if door is not None:
            await door.close(max(0.0, ends_at - asyncio.get_running_loop().time()))


async def _drain(runner: web.AppRunner, door: FrontDoor | None, drain_s: float, asked: StopRequest) -> None:
    cleanup = asyncio.ensure_future(_end(runner, door, drain_s))
    impatient = asyncio.ensure_future(asked.twice.wait())
    await asyncio.wait({cleanup, impatient}, return_when=asyncio.FIRST_COMPLETED)
    if not cleanup.done():
        _log.warning("asked again to stop: requests in flight are cut")
        cleanup.cancel()
    impatient.cancel()
    await asyncio.gather(cleanup, impatient, return_exceptions=True)
    if not cleanup.cancelled():
        cleanup.result()
