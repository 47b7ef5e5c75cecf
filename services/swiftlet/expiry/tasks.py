"""The time at which objects expire, and the names under which that is queued. Pure.

A task is one row in a container of a hidden account. The number of containers is fixed, so that none gets all writes
and no time far ahead creates another one. The row's name begins with the time, so that due tasks come first, and ends
with the object's version, so that a task of one version can be removed without those of others. A task only says where
to look and when: the object's own `X-Delete-At` decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote
from zlib import crc32

from swiftlet.names import Path
from swiftlet.timestamp import Timestamp

DELETE_AT = "X-Delete-At"
"""The metadata of an object with the time at which it expires, in whole seconds since the epoch."""
ACCOUNT = ".expiring_objects"
"""The queue's account. No user's account begins with a point."""
LATEST = 9_999_999_999
"""The last second that a queue can name, in the year 2286."""
PARTS = 64
"""The number of containers over which all tasks are spread."""
CONTAINERS = tuple(f"{part:02x}" for part in range(PARTS))
"""The containers of the hidden account."""
_DIGITS = 10


def delete_at_of(metadata: Mapping[str, str]) -> int | None:
    """Return when an object with this metadata expires; None for one that does not."""
    text = metadata.get(DELETE_AT, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _DIGITS else None


def is_expired(metadata: Mapping[str, str], now_s: float) -> bool:
    """Return whether the object counts as deleted already."""
    delete_at = delete_at_of(metadata)
    return delete_at is not None and delete_at <= now_s


@dataclass(frozen=True, slots=True)
class Task:
    """A task to look at `path` at `delete_at`, and to delete the object if it still expires then."""

    delete_at: int
    path: Path
    policy: int
    queued: Timestamp
    """The version of the object that expires then, or the time when it was queued again."""

    @property
    def container(self) -> str:
        """Return the container of the hidden account that has the task."""
        return CONTAINERS[crc32(str(self.path).encode()) % PARTS]

    @property
    def name(self) -> str:
        """Return the name of the task's row, percent-encoded so that any name fits and sorts after its time."""
        return f"{self.delete_at:0{_DIGITS}d}-{self.path.quoted}?{self.queued.value}"


def task_of(name: str, policy: int, queued: Timestamp) -> Task | None:
    """Return the task that a row stands for; None for other rows."""
    moment, dash, rest = name.partition("-")
    rest, mark, version = rest.rpartition("?")
    pieces = rest.split("/", 3)
    if not (dash and mark and version == str(queued.value)) or len(pieces) != 4:
        return None
    if len(moment) != _DIGITS or not (moment.isascii() and moment.isdigit()):
        return None
    try:
        empty, account, container, obj = (unquote(piece, errors="strict") for piece in pieces)
    except UnicodeDecodeError:
        return None
    path = Path(account, container, obj)
    if empty or not (account and container and obj) or path.quoted != rest:
        return None
    return Task(int(moment), path, policy, queued)


def due_before(now_s: float) -> str:
    """Return a name that sorts behind the names of all due tasks, and before those of all others."""
    return f"{max(0, min(int(now_s), LATEST)):0{_DIGITS}d}."
