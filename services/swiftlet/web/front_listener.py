"""The boundary of a front, which may stand between a service's listening sockets and its HTTP server."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from typing import Protocol

from aiohttp import web


class FrontListener(Protocol):
    """Takes connections and gives those that it does not answer itself to the server."""

    def open(self, server: web.Server, sockets: Sequence[socket.socket], keepalive_s: float) -> None:
        """Accept connections from now on. The sockets stay the caller's to close; OSError when it can't, and then it
        has done nothing with them."""
        ...

    async def leave(self) -> None:
        """Accept no more, and give the server all connections on which it is not just answering a request."""
        ...

    def is_busy(self) -> bool:
        """Whether it still has connections."""
        ...

    async def close(self, patience_s: float) -> None:
        """Finish within that time what it itself answers, and cut what is left."""
        ...


FRONT_LISTENER = web.AppKey("front_listener", FrontListener)
"""In applications whose plain-HTTP connections come through one."""
