"""A port that takes connections with TLS and without: the first byte shows which of the two a client speaks.

So peers can use either while a cluster changes from one to the other, and Kubernetes and Prometheus need no certificate
for `/healthz` and `/metrics`. The application decides what else may be requested without TLS.

Fault model: anybody may connect and send nothing, or fail the handshake: such a connection is closed after
`_PATIENCE_S`, and at most `MAX_SILENT` of them are open. When there are no descriptors left, accepting pauses for a
moment.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from swiftlet.web.logs import get_logger


@dataclass(frozen=True, slots=True)
class Contexts:
    """Provides the TLS contexts of an application's connections."""

    current: Callable[[], ssl.SSLContext]
    """A function that returns the context for new connections."""


PEER_TLS = web.AppKey("peer_tls", Contexts)
"""An application that has it is served by a `TlsOrPlainSite`."""
MAX_SILENT = 1024
"""The largest number of connections that have sent nothing yet."""
_PATIENCE_S = 10.0
"""Seconds until the first byte, and for the handshake."""
_PAUSE_S = 1.0
_TURN = 64
"""The number of connections that are accepted in one turn of the loop."""
_HANDSHAKE = b"\x16"
"""The first byte of TLS; no method of HTTP begins with it."""

_log = get_logger("serve")


class TlsOrPlainSite(web.BaseSite):
    """Serves a listening socket."""

    def __init__(self, runner: web.BaseRunner, sock: socket.socket, tls: Contexts) -> None:
        """The socket is closed at the end."""
        super().__init__(runner)
        self._sock = sock
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._silent: dict[socket.socket, asyncio.TimerHandle] = {}
        self._handshakes: set[asyncio.Task[None]] = set()
        self._pause: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        """Return the address that it listens on, as a URL."""
        host, port = self._sock.getsockname()[:2]
        return f"http(s)://{host}:{port}"

    async def start(self) -> None:
        """Accept connections in turns of the event loop, until `stop`."""
        await super().start()
        self._loop.add_reader(self._sock, self._accept)

    async def stop(self) -> None:
        """Stop accepting connections; open ones stay."""
        self._loop.remove_reader(self._sock)
        if self._pause is not None:
            self._pause.cancel()
        self._sock.close()
        for sock in list(self._silent):
            self._forget(sock).close()
        for handshake in self._handshakes:
            handshake.cancel()
        await asyncio.gather(*self._handshakes, return_exceptions=True)
        await super().stop()

    def _accept(self) -> None:
        for _ in range(_TURN):
            try:
                sock, _address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                _log.error("connections can't be accepted", error=str(error))
                self._loop.remove_reader(self._sock)
                self._pause = self._loop.call_later(_PAUSE_S, self._loop.add_reader, self._sock, self._accept)
                return
            if len(self._silent) >= MAX_SILENT:
                sock.close()
                continue
            sock.setblocking(False)
            self._silent[sock] = self._loop.call_later(_PATIENCE_S, self._give_up, sock)
            self._loop.add_reader(sock, self._look, sock)

    def _forget(self, sock: socket.socket) -> socket.socket:
        self._silent.pop(sock).cancel()
        self._loop.remove_reader(sock)
        return sock

    def _give_up(self, sock: socket.socket) -> None:
        self._forget(sock).close()

    def _look(self, sock: socket.socket) -> None:
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        self._forget(sock)
        if not first:
            sock.close()
            return
        task = self._loop.create_task(self._serve(sock, self._tls.current() if first == _HANDSHAKE else None))
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _serve(self, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        server = self._runner.server
        patience = None if tls is None else _PATIENCE_S
        try:
            if server is not None:
                await self._loop.connect_accepted_socket(server, sock, ssl=tls, ssl_handshake_timeout=patience)
                return
        except (OSError, TimeoutError) as error:
            # ssl.SSLError is an OSError too. The client is unknown, and its messages could fill the log.
            _log.debug("a connection failed before its first request", error=str(error) or type(error).__name__)
        with contextlib.suppress(OSError):
            sock.close()
