"""The addresses that servers listen on."""

from __future__ import annotations

import ipaddress
import socket


def numeric_address(host: str) -> str:
    """Return the address to listen on. Raises OSError for a name without one."""
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])
