"""Named points in a store's writes where a crash test may strike. Does nothing unless told to.

A test process calls `arm(name)` or sets `SWIFTLET_FAILPOINT=name[:n]` before it starts: the n-th time (1 when not
given) that the point is reached, the process kills itself the hard way (SIGKILL), as a power cut would. `observe`
calls a function instead, for tests that want to act at a point within one process.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

ENVIRONMENT = "SWIFTLET_FAILPOINT"
"""Variable read when a point is first reached."""

_armed: dict[str, Callable[[], None]] = {}
_read_environment = False


def reach(name: str) -> None:
    """Mark a point; the armed one strikes."""
    if not _read_environment:
        _from_environment()
    if _armed and (action := _armed.get(name)) is not None:
        action()


def arm(name: str, nth: int = 1) -> None:
    """Kill this process the n-th time that `name` is reached."""
    left = nth

    def strike() -> None:
        nonlocal left
        left -= 1
        if left <= 0:
            os.kill(os.getpid(), signal.SIGKILL)

    _armed[name] = strike


def observe(name: str, action: Callable[[], None]) -> None:
    """Call `action` whenever `name` is reached; what it raises is raised there."""
    _armed[name] = action


def disarm() -> None:
    """Back to doing nothing."""
    _armed.clear()


def _from_environment() -> None:
    global _read_environment
    _read_environment = True
    setting = os.environ.get(ENVIRONMENT, "")
    if setting:
        name, _, nth = setting.partition(":")
        arm(name, int(nth or "1"))
