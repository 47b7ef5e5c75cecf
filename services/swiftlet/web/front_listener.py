"""The boundary of a front, which may stand between a service's listening sockets and its HTTP server."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Sequence
from typing import Protocol

from aiohttp import web


class FrontListener(Protocol):
    """Accepts connections, and gives those that it does not answer itself to the server."""

    @property
    def tls(self) -> ssl.SSLContext | None:
        """Return the context of the TLS that it speaks with clients; None for plain HTTP."""
        ...

    def open(self, server: web.Server, sockets: Sequence[socket.socket], keepalive_s: float) -> None:
        """Accept connections from now on; the caller closes the sockets.

        Raises OSError when it can't, and has done nothing with them then.
        """
        ...

    async def leave(self) -> None:
        """Accept no more, and give the server all connections on which it is not answering a request."""
        ...

    def is_busy(self) -> bool:
        """Return whether it still has connections."""
        ...

    async def close(self, patience_s: float) -> None:
        """Finish its own requests within that time, and cut the rest."""
        ...


class BegunByFront:
    """The handler of a connection whose current request a front may have begun to carry out."""

    deleted = False
    """Whether devices may have carried out the DELETE that is being answered, so that its object existed."""
    stored: int | None = None
    """The version that devices may have stored of the PUT that is being answered."""
    apart = 0
    """How many bytes of its body were read from the connection by others than the handler."""


def may_have_deleted(request: web.BaseRequest) -> bool:
    """Return whether a front may have deleted the object of this DELETE: then it existed, even if it is not found."""
    handler = request.protocol
    return isinstance(handler, BegunByFront) and handler.deleted


def may_have_stored(request: web.BaseRequest) -> int | None:
    """Return the timestamp of the version that a front may have stored of this PUT: no other request has made it."""
    handler = request.protocol
    return handler.stored if isinstance(handler, BegunByFront) else None


FRONT_LISTENER = web.AppKey("front_listener", FrontListener)
"""The front of applications whose connections come through one."""
