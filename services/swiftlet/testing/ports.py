"""Ports for servers of tests.

Each is given once: no other process of the same run has it, and this one gives it again only after all others. So
nobody takes it between the moment when it is given and the one when somebody listens there. What is left are other
programs on the same machine; the walk of each process begins somewhere else, as another run may be one of them.
"""

from __future__ import annotations

import functools
import itertools
import os
import random
import re
import socket
from collections.abc import Iterator

_FIRST, _LAST = 20_000, 28_500
"""Below the ports that the kernel assigns to connections, from 32,768 on, so that none is taken between the check and
its use; ports that tests count from these, up to 4,000 above, are below them as well. Stores of end-to-end tests have
the ports below (`e2e.standalone.cluster`).
"""
_PROCESSES = 8
"""The number of test processes that never take each other's ports; it divides the offsets that tests use."""


def free_ports(count: int) -> list[int]:
    """Return so many ports on which nobody listens."""
    return list(itertools.islice(_free(0), count))


def object_ports(count: int, offset: int = 1000) -> list[int]:
    """Return free ports for object or container servers, whose native ports, `offset` higher, are free as well."""
    found: set[int] = set()
    ports = _free(offset)
    while len(found) < count:
        port = next(ports)
        taken = {one + more for one in found for more in (0, offset)}
        if not taken & {port, port + offset}:
            found.add(port)
    return sorted(found)


def _free(offset: int) -> Iterator[int]:
    """Ports that are free, and those so much above them."""
    return (port for port in _walk() if _is_free(port) and (not offset or _is_free(port + offset)))


@functools.cache
def _walk() -> Iterator[int]:
    """All ports of this process, in turns; each process of a run has those with a remainder of its own."""
    own = int(re.sub(r"\D", "", os.environ.get("PYTEST_XDIST_WORKER", "")) or 0) % _PROCESSES
    ports = range(_FIRST + own, _LAST, _PROCESSES)
    begin = random.Random(os.getpid()).randrange(len(ports))  # noqa: S311
    return itertools.cycle([*ports[begin:], *ports[:begin]])


def _is_free(port: int) -> bool:
    with socket.socket() as sock:
        try:
            sock.bind(("0.0.0.0", port))  # noqa: S104
        except OSError:
            return False
        return True
