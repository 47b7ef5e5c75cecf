"""Runs an application until it is asked to end, then ends without breaking anybody's request.

On SIGTERM or SIGINT readiness turns 503, and each answer says that it is its connection's last. For `idle_s` new
connections are still accepted, and kept ones stay open for the request that may be on its way. Then the listeners and
the idle connections close (`swiftlet.web.connection_drain`). Requests in progress have to finish within `drain_s`,
counted from the signal; then the rest is cut, and the process exits with 0. A second signal cuts at once.

A handler is not cancelled when its client disconnects: a write that has begun on some replicas should reach the others.
Handlers that stream notice by the failing write.
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
from swiftlet.web.connection_drain import LINGER_S, ConnectionDrain
from swiftlet.web.front_listener import FRONT_LISTENER, FrontListener
from swiftlet.web.health import READINESS
from swiftlet.web.logs import get_logger, log_loop_errors
from swiftlet.web.malformed import answered_without_target
from swiftlet.web.management import MANAGEMENT
from swiftlet.web.raw_heads import RawServer
from swiftlet.web.sockets import listen
from swiftlet.web.tls_or_plain import PEER_TLS, TlsOrPlainSite

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_LOOK_S = 0.01

_log = get_logger("serve")


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """How connections are handled; sizes in bytes, times in seconds."""

    drain_s: float = 25.0
    idle_s: float = 0.0
    """The part of `drain_s` for which persistent connections stay open for one more request.

    Without such connections the process does not wait.
    """
    max_line_size: int = 8192
    """The largest size in bytes of the request line."""
    max_field_size: int = 8192
    """The largest size in bytes of one header line."""
    max_headers: int = 256
    keepalive_s: float = 75.0
    """How long a connection may stay idle; longer than peers keep theirs, so that they close first."""
    read_buffer_bytes: int = 256 * 1024
    backlog: int = 1024
    tls: ssl.SSLContext | None = None
    """The TLS context for HTTPS; plain HTTP when None."""
    management: tuple[str, int] | None = None
    """Host and port of the application under `MANAGEMENT`, which all workers share; it always speaks plain HTTP."""


class StopRequest:
    """How often the process was asked to end."""

    def __init__(self) -> None:
        """Start without a request to end."""
        self.once = asyncio.Event()
        self.twice = asyncio.Event()

    def again(self) -> None:
        """Record one more request to end."""
        (self.twice if self.once.is_set() else self.once).set()


def run(create_app: Callable[[], web.Application], sockets: Sequence[socket.socket], options: ServeOptions) -> None:
    """Serve on uvloop until SIGTERM or SIGINT, and return once drained."""
    uvloop.run(_main(create_app, sockets, options))


async def _main(
    create_app: Callable[[], web.Application], sockets: Sequence[socket.socket], options: ServeOptions
) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(log_loop_errors(_log))
    asked = StopRequest()
    for number in _SIGNALS:
        if signal.getsignal(number) is signal.SIG_IGN:
            continue  # A parent process (of the workers, or nohup) handles this signal for us.
        loop.add_signal_handler(number, asked.again)
    await serve(create_app(), sockets, options, asked)


async def serve(
    app: web.Application, sockets: Sequence[socket.socket], options: ServeOptions, asked: StopRequest
) -> None:
    """Serve `app` on listening sockets until asked to end, then drain."""
    runner = ServiceRunner(
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
    front = app.get(FRONT_LISTENER)
    if front is not None and front.tls is not options.tls:
        front = None  # It would speak with clients in another way than they expect.
    management = await _manage(app, options)
    try:
        await runner.setup()
        assert runner.server is not None
        if front is not None and not _opened(front, runner.server, sockets, options.keepalive_s):
            front = None
        if front is None:
            peer_tls = app.get(PEER_TLS)
            for sock in sockets:
                if peer_tls is not None:
                    await TlsOrPlainSite(runner, sock, peer_tls).start()
                    continue
                await web.SockSite(runner, sock, backlog=options.backlog, ssl_context=options.tls).start()
        names = [sock.getsockname() for sock in sockets]
        _log.info(
            "the service accepts requests",
            addresses=[f"{host}:{port}" for host, port, *_ in names],
            front_listener=front is not None,
        )
        await asked.once.wait()
        app[READINESS].draining = True
        _log.info("the service is draining", drain_s=options.drain_s)
    finally:
        await _drain(_Ending(runner, front, sockets, options), asked)
        # The management pages are answered to the end, so that they show what a draining process still does.
        if management is not None:
            await management.cleanup()
    _log.info("the service has stopped")


async def _manage(app: web.Application, options: ServeOptions) -> web.AppRunner | None:
    """Serve the management application, if there is one. Raises PortInUse when another user's process listens there."""
    management = app.get(MANAGEMENT)
    if management is None or options.management is None:
        return None
    runner = web.AppRunner(management, access_log_class=access_log_for(app[METRICS]), shutdown_timeout=1.0)
    await runner.setup()
    await web.SockSite(runner, listen(*options.management, share_port=True)).start()
    return runner


def _opened(front: FrontListener, server: web.Server, sockets: Sequence[socket.socket], keepalive_s: float) -> bool:
    """Return whether connections come through the front; otherwise the server accepts them, and everything
    is slower.
    """
    try:
        front.open(server, sockets, keepalive_s)
    except OSError as error:
        _log.warning("the native front can't start; the Python server accepts connections instead", error=str(error))
        return False
    return True


class ServiceRunner(web.AppRunner):
    """Runs an application on a server that takes raw heads and answers requests without a target.

    `Application.on_shutdown` is sent by the code that ends it, before that waits for requests in progress.
    """

    async def _make_server(self) -> web.Server:
        made = await super()._make_server()
        return RawServer(
            made.request_handler,
            request_factory=answered_without_target(made.request_factory),
            handler_cancellation=made.handler_cancellation,
            loop=made._loop,
            **made._kwargs,
        )

    async def shutdown(self) -> None:
        """Do nothing: the site is already stopped by then."""


@dataclass(frozen=True, slots=True)
class _Ending:
    """The end of a server: what is being stopped, and how."""

    runner: web.AppRunner
    front: FrontListener | None
    sockets: Sequence[socket.socket]
    options: ServeOptions

    async def run(self) -> None:
        """Answer all requests in progress, then close the remaining connections."""
        loop = asyncio.get_running_loop()
        ends_at = loop.time() + self.options.drain_s
        server = self.runner.server
        try:
            if isinstance(server, RawServer):
                drain = ConnectionDrain(server)
                if self.front is not None:
                    await self._take_over(self.front)
                await self.runner.app.shutdown()
                await self._drain_connections(drain, ends_at)
                await self.runner.cleanup()
                await drain.linger(min(ends_at, loop.time() + LINGER_S))
            else:
                await self.runner.cleanup()
        finally:
            await self._accept_no_more()
            if self.front is not None:
                await self.front.close(max(0.0, ends_at - loop.time()))

    async def _take_over(self, front: FrontListener) -> None:
        """Let the server itself accept all connections from now on."""
        await front.leave()
        for sock in self.sockets:
            options = self.options
            await web.SockSite(self.runner, sock, backlog=options.backlog, ssl_context=options.tls).start()

    async def _drain_connections(self, drain: ConnectionDrain, ends_at: float) -> None:
        """Wait until no connection is left, or the time is over."""
        loop = asyncio.get_running_loop()
        idle_until = min(ends_at, loop.time() + self.options.idle_s)
        while loop.time() < ends_at:
            is_over = drain.is_over and (self.front is None or not self.front.is_busy())
            if is_over or loop.time() >= idle_until:
                await self._accept_no_more()
                drain.end_idle()
            if is_over and drain.is_over:
                break
            await asyncio.sleep(_LOOK_S)

    async def _accept_no_more(self) -> None:
        for site in self.runner.sites:
            await site.stop()


async def _drain(ending: _Ending, asked: StopRequest) -> None:
    cleanup = asyncio.ensure_future(ending.run())
    impatient = asyncio.ensure_future(asked.twice.wait())
    await asyncio.wait({cleanup, impatient}, return_when=asyncio.FIRST_COMPLETED)
    if not cleanup.done():
        _log.warning("the service was asked again to stop: requests in progress are cut off")
        cleanup.cancel()
    impatient.cancel()
    await asyncio.gather(cleanup, impatient, return_exceptions=True)
    if not cleanup.cancelled():
        cleanup.result()
