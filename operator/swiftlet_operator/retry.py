"""Repeats a request until it is answered or the time is up, for commands that run once and then end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from swiftlet_operator.problems import KubeConflict, KubeError, KubeForbidden, KubeUnavailable

PAUSE_S = 1.0
_PASSING = (KubeConflict, KubeForbidden, KubeUnavailable)
"""Errors that may pass. A role takes effect some moments after it was made, so a refusal is among them."""
_Answer = TypeVar("_Answer")

_log = logging.getLogger(__name__)


async def until_answered(ask: Callable[[], Awaitable[_Answer]], within_s: float, pause_s: float = PAUSE_S) -> _Answer:
    """Return the first answer of `ask`. Raises the last KubeError when a passing error has not passed
    within the time.
    """
    deadline = time.monotonic() + within_s
    while True:
        try:
            return await ask()
        except KubeError as error:
            if not isinstance(error, _PASSING) or time.monotonic() + pause_s > deadline:
                raise
            _log.warning("a request to the API server failed and is repeated in %g s: %s", pause_s, error)
        await asyncio.sleep(pause_s)
