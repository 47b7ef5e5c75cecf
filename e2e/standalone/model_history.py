"""What may be seen of an object, given the operations on it that clients began, and what they were answered. Pure.

An operation that was acknowledged counts from its answer on. One that failed, or was never answered, may count or not,
now or later. Of two operations the later one wins if it was begun after the other one had ended; of two that ran at the
same time either may. An operation that counts hides everything that it wins over. Data, content type and metadata are
hidden separately, as a POST replaces the metadata, and the content type only if it names one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum


@dataclass(frozen=True, slots=True)
class Version:
    """What an object shows of itself; `number` is its only item of metadata."""

    etag: str
    size: int
    content_type: str
    number: str


Versions = frozenset[Version | None]
"""What there may be; None is no object."""
ABSENT: Versions = frozenset({None})


class Outcome(Enum):
    """What is known of an operation."""

    MAYBE = "maybe"
    """The write is in progress, or it failed and may have taken effect all the same."""
    DONE = "done"
    NOTHING = "nothing"
    """The write was refused before anything was written."""


@dataclass(eq=False, slots=True)
class Operation:
    """One operation on one object, with the seconds of a monotonic clock between which it ran."""

    begun: float
    versions: Callable[[], Versions] | None = None
    """Returns the object that a PUT, COPY or DELETE makes; None for a POST."""
    number: str = ""
    """The metadata that a POST sets."""
    content_type: str | None = None
    """A POST's content type, if it names one."""
    ended: float = math.inf
    outcome: Outcome = Outcome.MAYBE

    def end(self, at: float, outcome: Outcome) -> None:
        """Record that the write was answered or failed."""
        self.ended, self.outcome = at, outcome


def always(*versions: Version | None) -> Callable[[], Versions]:
    """What an operation makes whose result is known before it begins."""
    found = frozenset(versions)
    return lambda: found


@dataclass(slots=True)
class History:
    """All operations on one object since it was last seen for certain."""

    operations: list[Operation] = field(default_factory=list)

    def __post_init__(self) -> None:
        """There is no object at first."""
        self.settle(None)

    def settle(self, version: Version | None) -> None:
        """All replicas were seen to show this, and nothing is under way: no earlier operation can count any more."""
        self.operations = [Operation(-math.inf, always(version), ended=-math.inf, outcome=Outcome.DONE)]

    def begin(self, operation: Operation) -> Operation:
        """Add an operation that has begun, and return it."""
        self.operations.append(operation)
        return operation

    def allowed(self, begun: float, ended: float) -> Versions:
        """What somebody may see who asks at `begun` and has the answer at `ended`."""
        seen = [one for one in self.operations if one.outcome is not Outcome.NOTHING and one.begun < ended]
        certain = [one for one in seen if one.outcome is Outcome.DONE and one.ended < begun]
        posts = [one for one in seen if one.versions is None]
        known_data = _latest(one for one in certain if one.versions is not None)
        known_posts = _latest(one for one in certain if one.versions is None)
        known_types = _latest(one for one in certain if one.content_type is not None)
        found: set[Version | None] = set()
        for data in seen:
            if data.versions is None or data.ended < known_data:
                continue
            later = [post for post in posts if post.ended >= data.begun]
            numbers = {post.number for post in later if post.ended >= known_posts}
            types = {post.content_type for post in later if post.ended >= known_types} - {None}
            for version in data.versions():
                if version is None:
                    found.add(None)
                    continue
                own_number = {version.number} if data.ended >= known_posts else set()
                own_type = {version.content_type} if data.ended >= known_types else set()
                for number, content_type in itertools.product(numbers | own_number, types | own_type):
                    found.add(replace(version, number=number, content_type=content_type or ""))
        return frozenset(found)

    def told(self) -> str:
        """All that is known, for whoever looks for what went wrong."""
        lines = []
        for one in self.operations:
            what = f"POST {one.number} {one.content_type}" if one.versions is None else f"{set(one.versions())}"
            lines.append(f"{one.begun:.4f} to {one.ended:.4f} {one.outcome.value}: {what}")
        return "\n  ".join(lines)


def _latest(operations: Iterable[Operation]) -> float:
    """When the last of them was begun: what had ended before has lost against it."""
    return max((one.begun for one in operations), default=-math.inf)
