"""Asking again until an answer counts or the time is up, for commands that run once and then end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from swiftlet_operator.problems import KubeConflict, KubeError, KubeForbidden, KubeUnavailable

PAUSE_S = 1.0
_PASSING = (KubeConflict, KubeForbidden, KubeUnavailable)
"""A role counts some moments after it was made, so that a refusal may pass too."""
_Answer = TypeVar("_Answer")

_log = logging.getLogger(__name__)


async def until_answered(ask: Callable[[], Awaitable[_Answer]], within_s: float, pause_s: float = PAUSE_S) -> _Answer:
    """The first answer of `ask`; the last KubeError when what may pass by itself has not passed within the time."""
    deadline = time.monotonic() + within_s
    while True:
        try:
            return await ask()
        except KubeError as error:
            if not isinstance(error, _PASSING) or time.monotonic() + pause_s > deadline:
                raise
            _log.warning("asking again in %g s: %s", pause_s, error)
        await asyncio.sleep(pause_s)
