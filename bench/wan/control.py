"""Commands for the router of the lab (`native/crates/wan/src/command.rs` lists them)."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from pathlib import Path

_ANSWER_S = 10.0
_MOST_BYTES = 1 << 16


class Refused(Exception):
    """The router does not do what was asked; the message says why."""


def ask(router: Path, command: str, ancillary: Sequence[tuple[int, int, bytes]] = ()) -> str:
    """Return the router's answer; Refused with its reason, or when nobody takes commands at the socket `router`."""
    # A name of its own: several may ask at once, and names of sockets in memory end at a network namespace.
    own = router.with_name(f"ask-{os.getpid()}-{os.urandom(4).hex()}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(str(own))
        sock.settimeout(_ANSWER_S)
        try:
            sock.sendmsg([command.encode()], ancillary, 0, str(router))
            answer = sock.recv(_MOST_BYTES).decode()
        except OSError as error:
            raise Refused(f"{router}: {error or 'no answer'}; is the lab up?") from error
        finally:
            own.unlink()
    if answer.startswith("error: "):
        raise Refused(answer.removeprefix("error: "))
    return answer
