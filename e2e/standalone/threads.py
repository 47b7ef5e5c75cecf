"""Work in threads until somebody says that it is over."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def at_work(steps: Sequence[Callable[[], None]], pause_s: float = 0.0) -> Iterator[threading.Event]:
    """Repeat each step in a thread of its own, with a pause before each time, until the block has ended.

    The block gets an event that is set as soon as a step raises; what it raised is raised at the end.
    """
    over = threading.Event()
    with ThreadPoolExecutor(len(steps)) as pool:
        work = [pool.submit(_repeated, step, over, pause_s) for step in steps]
        try:
            yield over
        finally:
            over.set()
        for one in work:
            one.result()


def _repeated(step: Callable[[], None], over: threading.Event, pause_s: float) -> None:
    """Repeat a step until `over` is set; set it when a step raises."""
    try:
        while not over.wait(pause_s):
            step()
    except BaseException:
        over.set()
        raise
