"""Ports for servers of tests."""

from __future__ import annotations

import os
import random
import re
import socket

_FIRST, _LAST = 20_000, 28_500
"""Below the ports that the kernel assigns to connections, from 32,768 on, so that none is taken between the check and
its use; ports that tests count from these, up to 4,000 above, are below them as well. Stores of end-to-end tests have
the ports below (`e2e.standalone.cluster`).
"""
_PROCESSES = 8
"""The number of test processes that never take each other's ports; it divides the offsets that tests use."""


def object_ports(count: int, offset: int = 1000) -> list[int]:
    """Return free ports for object or container servers, whose native ports, `offset` higher, are free as well.

    Another process of the same run is not given them before somebody listens: each has the ports with a remainder of
    its own.
    """
    found: set[int] = set()
    own = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0) % _PROCESSES
    while len(found) < count:
        port = random.randrange(_FIRST + own, _LAST, _PROCESSES)  # noqa: S311
        taken = {one + more for one in found for more in (0, offset)}
        if not taken & {port, port + offset} and _is_free(port) and _is_free(port + offset):
            found.add(port)
    return sorted(found)


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("0.0.0.0", port))  # noqa: S104
        except OSError:
            return False
        return True
