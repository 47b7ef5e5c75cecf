"""Expiring objects: which headers set the time, and that nobody sees an object whose time has passed.

https://docs.openstack.org/swift/latest/overview_expiring_objects.html. The time is kept in the object's metadata, so it
is replaced by POST and copied like all other metadata. Before a version with such a time is written, a task for the
expirer is queued (`expiry_changes`).

Fault model: a task that can't be queued refuses the write (503), so that none is forgotten. An upload may go on until
after its own time, when the expirer has already looked and found nothing: then the task is queued once more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from swiftlet.api.context.core import Call, SwiftApi
from swiftlet.api.http.problems import ApiError
from swiftlet.errors import NotFound
from swiftlet.expiry.tasks import DELETE_AT, LATEST, is_expired
from swiftlet.model import ObjectInfo
from swiftlet.names import Path

DELETE_AFTER = "X-Delete-After"
REMOVE = "X-Remove-Delete-At"
LATE_S = 60.0
"""An upload that ends later than so many seconds before its time is queued again: more than clocks may differ."""
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DIGITS = 18
"""The largest number of digits of a time; longer numbers are later, or earlier, than any time."""


def expiry_of(headers: Mapping[str, str], now_s: float) -> dict[str, str]:
    """Return the metadata item that a request's headers ask for, none if they don't; 400 unless the time is in the
    future.

    X-Delete-After overrides X-Delete-At; with X-Remove-Delete-At either is ignored.
    """
    if REMOVE in headers:
        return {}
    for name, base_s in ((DELETE_AFTER, now_s), (DELETE_AT, 0.0)):
        if name not in headers:
            continue
        text = headers[name].strip()
        if not _WHOLE.fullmatch(text):
            raise ApiError(400, f"Non-integer {name}")
        delete_at = int(base_s + _seconds(text))
        if delete_at <= now_s:
            raise ApiError(400, f"{name} in past")
        return {DELETE_AT: f"{min(delete_at, LATEST):010d}"}
    return {}


def _seconds(text: str) -> int:
    if len(text.lstrip("+-0")) > _DIGITS:
        return -LATEST if text.startswith("-") else LATEST
    return int(text)


def now_s(api: SwiftApi) -> float:
    """Return the time in seconds since the epoch."""
    return api.clock.now().seconds


def expiry_in(call: Call) -> dict[str, str]:
    """Return the expiration as `expiry_of` does, for a request."""
    return expiry_of(call.request.headers, now_s(call.api))


def set_expiry(call: Call, metadata: dict[str, str]) -> None:
    """Add the request's expiration to a PUT's metadata, after what a copy brings along."""
    asked = expiry_in(call)
    if REMOVE in call.request.headers:
        metadata.pop(DELETE_AT, None)
    metadata.update(asked)


def without_expiry(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return the metadata without the expiration."""
    return {name: value for name, value in metadata.items() if name != DELETE_AT}


def only_expiry(metadata: Mapping[str, str]) -> dict[str, str]:
    """Return only the expiration: that of a version is its link's, while the version itself stays among the others."""
    return {name: value for name, value in metadata.items() if name == DELETE_AT}


def check_not_expired(api: SwiftApi, path: Path, info: ObjectInfo) -> None:
    """Raise NotFound for an object whose time has passed."""
    if is_expired(info.metadata, now_s(api)):
        raise NotFound(f"{path} has expired")
