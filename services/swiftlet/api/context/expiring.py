"""Objects that go by themselves: what requests say of it, and that nobody sees an object whose time has passed.

https://docs.openstack.org/swift/latest/overview_expiring_objects.html. The time is kept in the object's metadata, so it
is replaced by POST and goes along with copies like all others. Before a version with such a time is written, a task
for the expirer is queued (`expiry_changes`).

Fault model: a task that can't be queued refuses the write (503), so that none is forgotten. An upload may go on until
after its own time, when the expirer has been by and found nothing: then it is queued once more.
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
"""Seconds before its time from which on a finished upload is queued again: more than clocks may differ."""
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DIGITS = 18
"""Numbers with more of them are later, or earlier, than any time."""


def expiry_of(headers: Mapping[str, str], now_s: float) -> dict[str, str]:
    """The item of metadata that a request's headers ask for, none if they don't; 400 for no time in the future.

    X-Delete-After counts before X-Delete-At; any with X-Remove-Delete-At asks for nothing.
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
    """The time, in seconds since the epoch."""
    return api.clock.now().seconds


def expiry_in(call: Call) -> dict[str, str]:
    """Return the expiration as `expiry_of` does, for a request."""
    return expiry_of(call.request.headers, now_s(call.api))


def set_expiry(call: Call, metadata: dict[str, str]) -> None:
    """For a PUT, behind what a copy brings along: what the request says of the object's time."""
    asked = expiry_in(call)
    if REMOVE in call.request.headers:
        metadata.pop(DELETE_AT, None)
    metadata.update(asked)


def without_expiry(metadata: Mapping[str, str]) -> dict[str, str]:
    """The same metadata of an object that stays."""
    return {name: value for name, value in metadata.items() if name != DELETE_AT}


def only_expiry(metadata: Mapping[str, str]) -> dict[str, str]:
    """Nothing but when it goes: of a version, that is its link's, while the version itself stays among the others."""
    return {name: value for name, value in metadata.items() if name == DELETE_AT}


def check_not_expired(api: SwiftApi, path: Path, info: ObjectInfo) -> None:
    """NotFound for an object whose time has passed."""
    if is_expired(info.metadata, now_s(api)):
        raise NotFound(f"{path} has expired")
