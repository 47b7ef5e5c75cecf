"""Messages to object servers about their devices over HTTP: paths and JSON forms in both directions."""

from __future__ import annotations

from typing import Any

from swiftlet.boundaries.objects import MAX_PLACES, PendingDoubt, Verdict
from swiftlet.transport.wire import WireError, array, flag, number

PREFIX = "/v1/objects"
"""The path of the object server's routes."""
JUDGE = "judge"
"""`POST <prefix>/<device>/judge` says what a device has missed and what is proved."""
MAX_SYNC_MESSAGE = 1 << 20
"""The largest size in bytes of a sync session's question, and of its answer."""


def judge_path(device: str) -> str:
    """Return the path of a request that informs a device about its partitions."""
    return f"{PREFIX}/{device}/{JUDGE}"


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Encode a verdict on the partitions of a device."""
    return {
        "doubted": [list(place) for place in verdict.doubted],
        "proved": [list(place) for place in verdict.proved],
        "epoch": verdict.epoch,
        "whole": verdict.whole,
    }


def verdict_from(fields: dict[str, Any]) -> Verdict:
    """Decode what `verdict_json` encodes."""
    doubted, proved = _places(fields, "doubted"), _places(fields, "proved")
    if len(doubted) + len(proved) > MAX_PLACES:
        raise WireError(f"more than {MAX_PLACES} partitions at a time")
    return Verdict(doubted, proved, number(fields, "epoch"), flag(fields, "whole"))


def _places(fields: dict[str, Any], name: str) -> list[tuple[int, int]]:
    found = array(fields, name)
    for place in found:
        whole = isinstance(place, list) and len(place) == 2 and all(type(part) is int for part in place)
        if not whole or not (0 <= place[0] < 1 << 16 and 0 <= place[1] < 1 << 32):
            raise WireError(f"field {name!r} is not a list of policies and partitions")
    return [(place[0], place[1]) for place in found]


def doubt_json(pending: tuple[int, float] | None) -> dict[str, Any]:
    """Encode the doubts of a device."""
    return {} if pending is None else {"epoch": pending[0], "age_ms": round(1000 * pending[1])}


def doubt_from(fields: dict[str, Any]) -> PendingDoubt | None:
    """Decode what `doubt_json` encodes."""
    return PendingDoubt(number(fields, "epoch"), number(fields, "age_ms") / 1000) if fields else None
