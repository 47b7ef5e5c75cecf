"""Make a TUN device in this process's network namespace and give it to the router.

    python -m bench.wan.join SOCKET NAME ADDRESS/BITS

SOCKET is where the router takes commands. The device stays for as long as the router has it.
"""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import sys
from pathlib import Path

from bench.wan.control import ask

DEVICE = "wan0"
_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
"""Packets come without the kernel's header before them."""


def main() -> None:
    """Do it; the exit status is 1, with the reason on standard error, when the router refuses."""
    path, name, addresses = sys.argv[1:]
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), _IFF_TUN | _IFF_NO_PI))
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack("i", descriptor))]
    ask(Path(path), f"join {name} {addresses}", rights)


if __name__ == "__main__":
    main()
