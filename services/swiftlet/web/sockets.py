"""Listening sockets, and a clear error when a port is taken."""

from __future__ import annotations

import errno
import socket

from swiftlet.errors import SettingsError


class PortInUse(SettingsError):
    """Another process listens on the port."""

    def __init__(self, host: str, port: int) -> None:
        """Make the message with the port and the fix."""
        super().__init__(
            f"port {port} on {host} is in use by another process; stop that one "
            f"(`ss -ltnp 'sport = :{port}'` shows it) or choose another port"
        )
        self.host = host
        self.port = port


def listen(host: str, port: int, *, backlog: int = 1024, share_port: bool = False) -> socket.socket:
    """Return a non-blocking listening TCP socket; port 0 stands for a free one.

    `share_port` lets further sockets of this user listen on the same port (SO_REUSEPORT). Raises PortInUse, or
    SettingsError when the address is not one of this host.
    """
    sock = _bound(host, port, share_port)
    sock.listen(backlog)
    sock.setblocking(False)
    return sock


def listen_shared(host: str, port: int, count: int, *, backlog: int = 1024) -> list[socket.socket]:
    """Return `count` listening sockets on one port, over which the kernel distributes connections.

    With SO_REUSEPORT alone a second instance could start beside a running one and take half of its connections, so the
    port is first bound without it.
    """
    probe = _bound(host, port, share_port=False)
    port = probe.getsockname()[1]
    probe.close()
    sockets: list[socket.socket] = []
    try:
        for _ in range(count):
            sockets.append(listen(host, port, backlog=backlog, share_port=True))
    except BaseException:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _bound(host: str, port: int, share_port: bool) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except socket.gaierror as error:
        raise SettingsError(f"can't listen on {host!r}: {error.strerror}") from error
    sock = socket.socket(family, kind, protocol)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        if share_port:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
    except OSError as error:
        sock.close()
        raise _explained(error, host, port) from error
    return sock


def _explained(error: OSError, host: str, port: int) -> SettingsError:
    if error.errno == errno.EADDRINUSE:
        return PortInUse(host, port)
    if error.errno == errno.EACCES:
        return SettingsError(f"listening on port {port} needs privileges; choose a port above 1023")
    return SettingsError(f"can't listen on {host} port {port}: {error.strerror}")
