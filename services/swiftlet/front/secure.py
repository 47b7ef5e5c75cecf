"""TLS in the front: the certificate that it uses, and what aiohttp sees of a connection.

The front ends TLS. aiohttp has one end of a local pair of sockets, and is told what it would ask a connection with TLS
of its own: that it has TLS, and the addresses of both sides.

Fault model: a renewed certificate may be unusable for the front: then it keeps the last one, and so does Python.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import NamedTuple, Protocol


class CertificateInUse(Protocol):
    """The certificate of a port."""

    context: ssl.SSLContext
    """The context with which Python itself serves the port."""
    ticket_secret: bytes
    """The secret of session tickets, the same for all processes of a service."""
    pem: tuple[bytes, bytes]
    """The certificate with its chain, and its key."""

    def follow(self, use: Callable[[bytes, bytes], None] | None) -> None:
        """Call `use` with the pair in use, and with each renewed one, in any thread, before it is in use.

        It raises ValueError to refuse the pair.
        """
        ...


class Secured(NamedTuple):
    """What is known of a connection with TLS."""

    token: int
    """The number by which the front knows it."""
    remote: tuple[str, int]
    """The host and port from which the client has connected."""
    local: tuple[str, int]
    """The host and port that the client has connected to."""


class SeenWithTls:
    """The properties by which aiohttp knows a connection; for connections that are one end of a pair."""

    context: ssl.SSLContext
    secured: Secured

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """Return the context, which shows that the connection has TLS."""
        return self.context

    @property
    def peername(self) -> tuple[str, int]:
        """Return the client's address."""
        return self.secured.remote

    @property
    def sockname(self) -> tuple[str, int]:
        """Return the address that the client has connected to."""
        return self.secured.local
