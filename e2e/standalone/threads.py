"""Work in threads until somebody says that it is over."""

from __future__ import annotations

import threading
from collections.abc import Callable


def repeated(step: Callable[[], None], over: threading.Event, pause_s: float = 0.0) -> None:
    """Repeat a step, with a pause before each, until `over` is set; set it when a step raises."""
    try:
        while not over.wait(pause_s):
            step()
    except BaseException:
        over.set()
        raise
