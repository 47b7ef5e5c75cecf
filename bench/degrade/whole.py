"""Whether a store is whole: what replicators and object servers say in their status reports, since a moment."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from typing import Any

WHOLE_WITHIN_S = 180.0
POLL_S = 0.25

Report = Mapping[str, Any]


def until_whole(urls: Mapping[str, str], over: threading.Event) -> float | None:
    """The seconds from now until every device has been compared since, with nothing left to do; None: not in time.

    `urls` are the management URLs of services by their names.
    """
    began, clock = time.time(), time.monotonic()
    while not over.is_set() and time.monotonic() - clock < WHOLE_WITHIN_S:
        if stands(urls, began):
            return time.monotonic() - clock
        time.sleep(POLL_S)
    return None


def stands(urls: Mapping[str, str], since: float, versions: Mapping[str, int] | None = None) -> bool:
    """Whether those of these services that tell of devices say that all is whole; False when one doesn't answer."""
    try:
        reports = [status(url) for name, url in urls.items() if "replicator" in name]
        servers = [status(url) for name, url in urls.items() if name.startswith("object-")]
    except (OSError, ValueError):
        return False
    doubts = [[device["unproved"] for device in server["devices"].values()] for server in servers]
    return is_whole(reports, doubts, since, versions)


def is_whole(
    reports: Sequence[Report],
    doubts: Sequence[Sequence[object]],
    since: float,
    versions: Mapping[str, int] | None = None,
) -> bool:
    """Whether replicators' reports say that each device was compared since then, and that nothing is left to do.

    With `versions` the last comparison in each of these rings has to be one by this version of it, or a newer one.
    """
    rings = [one for report in reports for device in report["devices"].values() for one in device["rings"].items()]
    left = sum(ring[name] for _, ring in rings for name in ("misplaced", "behind", "unchecked"))
    is_compared = all((ring["syncedAt"] or 0) >= since for _, ring in rings)
    is_current = all(
        ring["ringVersion"] >= version for name, ring in rings for version in [(versions or {}).get(name, 0)]
    )
    return bool(rings) and left == 0 and is_compared and is_current and all(one == [None] for one in doubts)


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


def status(url: str) -> dict[str, Any]:
    """Return the status report of the service with this management URL."""
    with urllib.request.urlopen(url + "/statusz", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found
