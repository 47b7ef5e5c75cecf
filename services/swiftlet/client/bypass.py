"""Long bodies of answers from a connection's socket straight to who reads them, past the HTTP library's parser.

The parser copies each byte once more, and its reader another time. Here what the socket brings is the object that the
reader gets. The HTTP library sends requests and parses the heads of answers, and has the connection again when the body
is over.

A duplicate of the socket is read, since an event loop lets nobody else wait for one that a transport of it has. It is
closed before the connection goes back, or is closed.

Fault model: the peer may close the connection, or send nothing, at any byte; the reader may stop. A connection of which
a part of a body was read is not used for anything else. TLS, bodies whose length is not announced, short ones, and
event loops whose transports have no socket, are left to the HTTP library. So are all bodies when its connections lack
what this module uses of them: other people choose its version.
"""

from __future__ import annotations

import asyncio
import os
import socket
from contextlib import suppress
from typing import Any

import aiohttp

LEAST_BYTES = 256 << 10
"""Shorter bodies, or what is left of them, are not worth it."""
READ_BYTES = 256 << 10
"""Bytes that are asked for at a time. Memory for more would come from the system anew each time."""
AT_ONCE = 4
"""Reads in a row that need not wait, after which others have their turn in the event loop."""
FIELDS = ("_parser", "_reading_paused", "upgraded", "pause_reading")
"""What this module uses of the library's connections, beside `_buffer_paused`, which they have from aiohttp 3.14 on."""


def _duplicate(transport: asyncio.BaseTransport | None) -> socket.socket | None:
    """Return another descriptor for the socket of a transport; None when it has none, or its bytes are encrypted."""
    if transport is None or transport.is_closing() or transport.get_extra_info("sslcontext") is not None:
        return None
    found: Any = transport.get_extra_info("socket")
    # Proactors, which other systems have, tie a socket to themselves.
    if found is None or not hasattr(found, "dup") or os.name != "posix":
        return None
    duplicate: socket.socket = found.dup()
    duplicate.setblocking(False)
    return duplicate


class Receiving:
    """The body of an answer; `begin` makes it."""

    def __init__(self, answer: aiohttp.ClientResponse, protocol: Any, duplicate: socket.socket, left: int) -> None:
        """Read `left` bytes by the duplicate of the connection's socket."""
        self._answer = answer
        self._protocol = protocol
        self._socket = duplicate
        self._left = left
        self._at_once = 0

    @classmethod
    def begin(cls, answer: aiohttp.ClientResponse) -> tuple[bytes, Receiving] | None:
        """Return what has arrived of a body, and the rest of it; None when the HTTP library has to read it."""
        connection, content, size = answer.connection, answer.content, answer.content_length
        protocol: Any = None if connection is None else connection.protocol
        if protocol is None or size is None or type(content) is not aiohttp.StreamReader:
            return None
        if not all(hasattr(protocol, name) for name in FIELDS):
            return None
        held = protocol._reading_paused or getattr(protocol, "_buffer_paused", False) or protocol.upgraded
        if held or content.is_eof() or content.exception() is not None:
            return None
        left = size - content.total_bytes
        duplicate = _duplicate(protocol.transport) if left >= LEAST_BYTES else None
        if duplicate is None:
            return None
        # Reading what is there would end the pause. With it the library's timer for silence stops, too.
        come = content.read_nowait()
        protocol.pause_reading()
        return come, cls(answer, protocol, duplicate, left)

    async def read(self, timeout_s: float | None) -> bytes:
        """Return the next bytes; none at the end. Raises errors of connections as the HTTP library does."""
        if not self._left:
            return b""
        size = min(READ_BYTES, self._left)
        try:
            data = await self._come(size, timeout_s)
        except TimeoutError:
            raise aiohttp.SocketTimeoutError("Timeout on reading data from socket") from None
        except OSError as error:
            raise aiohttp.ClientOSError(*error.args) from error
        if not data:
            raise aiohttp.ClientPayloadError(f"the answer ended {self._left} bytes early")
        self._left -= len(data)
        if not self._left:
            self._give_back()
        return data

    async def _come(self, size: int, timeout_s: float | None) -> bytes:
        """Return up to so many bytes, waiting for some if there are none."""
        if self._at_once < AT_ONCE:
            self._at_once += 1
            with suppress(BlockingIOError):
                return self._socket.recv(size)
        else:
            await asyncio.sleep(0)
        self._at_once = 0
        async with asyncio.timeout(timeout_s):
            return await asyncio.get_running_loop().sock_recv(self._socket, size)

    def _give_back(self) -> None:
        """Give the connection back after the last byte of the body."""
        self._socket.close()
        # The parser has not seen the body's end. The next request gets a new one, and a connection on which something
        # comes before that is not used again.
        self._protocol._parser = None
        self._answer.content.feed_eof()

    def close(self) -> None:
        """Let go of the socket; of no consequence after the end."""
        self._socket.close()
