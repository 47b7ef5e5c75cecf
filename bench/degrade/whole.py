"""Waits until a store on this machine is whole, or uses a new ring."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence

from swiftlet.bench.degrade.whole import Report, stands

WHOLE_WITHIN_S = 180.0
POLL_S = 0.25


def until_whole(urls: Mapping[str, str], over: threading.Event) -> bool:
    """Wait until every device has been compared since now, with nothing left to do; False: it wasn't so in time.

    `urls` are the management URLs of services by their names.
    """
    began, clock = time.time(), time.monotonic()
    while not over.is_set() and time.monotonic() - clock < WHOLE_WITHIN_S:
        if stands(urls, began):
            return True
        time.sleep(POLL_S)
    return False


def uses(reports: Sequence[Report], versions: Mapping[str, int]) -> bool:
    """Whether services use these versions of rings, or newer ones, as far as they use these rings at all."""
    used = [(version, report["rings"].get(name, version)) for report in reports for name, version in versions.items()]
    return all(found is not None and found >= wanted for wanted, found in used)


def wait_until(is_so: Callable[[], bool], what: str) -> None:
    """Wait until it is so. AssertionError when that takes longer than the store may need to be whole."""
    deadline = time.monotonic() + WHOLE_WITHIN_S
    while not is_so():
        assert time.monotonic() < deadline, f"waited {WHOLE_WITHIN_S:g} s for {what}"
        time.sleep(POLL_S)
