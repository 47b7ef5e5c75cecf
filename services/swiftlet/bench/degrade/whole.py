"""Whether a store is whole: what replicators and object servers say in their status reports, since a moment."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Mapping, Sequence
from typing import Any

MAX_REPORT_BYTES = 64 << 20
"""Of a status report, which has some hundred bytes for each device and ring."""

Report = Mapping[str, Any]


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


def status(url: str) -> dict[str, Any]:
    """Return the status report of the service with this management URL."""
    with urllib.request.urlopen(url + "/statusz", timeout=10) as answer:  # noqa: S310 - the address is its store's own
        found: dict[str, Any] = json.loads(answer.read(MAX_REPORT_BYTES))
    return found
