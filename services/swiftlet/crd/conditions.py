"""Conditions of a custom resource, by the Kubernetes conventions. Pure: time is passed in.

A `Fact` was found out just now. A `Condition` is a fact in a status, with the generation at which it was found and the
time at which its status last changed. Merging the same facts again changes nothing, so a reconcile that finds nothing
new writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal, get_args

from swiftlet.errors import SettingsError

Status = Literal["True", "False", "Unknown"]

MAX_MESSAGE_CHARS = 1024
"""The longest message, in characters; the CRDs allow no more."""
MAX_CONDITIONS = 32
"""The largest number of conditions of one resource; the CRDs allow no more."""
TYPE_PATTERN = r"^[A-Z][A-Za-z0-9]{0,62}$"
REASON_PATTERN = r"^[A-Z][A-Za-z0-9]{0,62}$"

_TYPE = re.compile(TYPE_PATTERN, re.ASCII)
_REASON = re.compile(REASON_PATTERN, re.ASCII)


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact about a resource: a type such as `Ready`, its status, a reason in CamelCase, and a message for
    administrators.
    """

    type: str
    status: Status
    reason: str
    message: str = ""

    def __post_init__(self) -> None:
        """Refuse values that the API server would refuse later, when it is harder to see where they come from."""
        if not _TYPE.fullmatch(self.type):
            raise ValueError(f"condition type {self.type!r} is not CamelCase")
        if self.status not in get_args(Status):
            raise ValueError(f"status {self.status!r} of condition {self.type} must be True, False or Unknown")
        if not _REASON.fullmatch(self.reason):
            raise ValueError(f"reason {self.reason!r} of condition {self.type} is not CamelCase")

    @property
    def is_true(self) -> bool:
        """Whether the status is True."""
        return self.status == "True"


@dataclass(frozen=True, slots=True)
class Condition:
    """A fact in a status: found at `observed_generation`, with its status since `last_transition_time` (RFC 3339)."""

    type: str
    status: Status
    reason: str
    message: str
    observed_generation: int
    last_transition_time: str

    @property
    def manifest(self) -> dict[str, Any]:
        """Return it in the form of `status.conditions`."""
        return {
            "type": self.type,
            "status": self.status,
            "reason": self.reason,
            "message": self.message,
            "observedGeneration": self.observed_generation,
            "lastTransitionTime": self.last_transition_time,
        }

    @property
    def is_true(self) -> bool:
        """Whether the status is True."""
        return self.status == "True"


def parse_conditions(manifest: Mapping[str, Any]) -> tuple[Condition, ...]:
    """Return the conditions in a resource's status; none without a status. Raises SettingsError when one is
    malformed.
    """
    entries = (manifest.get("status") or {}).get("conditions") or []
    try:
        return tuple(_parse(entry) for entry in entries)
    except (KeyError, TypeError, ValueError) as error:
        raise SettingsError(
            f"status.conditions: {error!r}; remove the damaged entry, and the operator writes it again"
        ) from error


def _parse(entry: Mapping[str, Any]) -> Condition:
    if entry["status"] not in get_args(Status):
        raise ValueError(f"status {entry['status']!r} is not True, False or Unknown")
    return Condition(
        type=str(entry["type"]),
        status=entry["status"],
        reason=str(entry.get("reason", "")),
        message=str(entry.get("message", "")),
        observed_generation=int(entry.get("observedGeneration", 0)),
        last_transition_time=str(entry["lastTransitionTime"]),
    )


def merge_conditions(
    current: Sequence[Condition], facts: Iterable[Fact], generation: int, now: datetime
) -> tuple[Condition, ...]:
    """Return the conditions of `current` with `facts` that were found at `generation`.

    A condition without a fact stays as it is. The order of `current` stays, and new types follow in the order of
    `facts`. The time of a condition changes only when its status does. Of two facts of one type the later one counts.
    """
    merged = {condition.type: condition for condition in current}
    for fact in facts:
        merged[fact.type] = _advance(merged.get(fact.type), fact, generation, now)
    if len(merged) > MAX_CONDITIONS:
        raise ValueError(f"a resource has {len(merged)} conditions; the limit is {MAX_CONDITIONS}")
    return tuple(merged.values())


def _advance(old: Condition | None, fact: Fact, generation: int, now: datetime) -> Condition:
    since = old.last_transition_time if old is not None and old.status == fact.status else rfc3339(now)
    return Condition(fact.type, fact.status, fact.reason, _shortened(fact.message), generation, since)


def rfc3339(moment: datetime) -> str:
    """Return a time with a zone as whole seconds in UTC, the way Kubernetes writes times."""
    if moment.tzinfo is None:
        raise ValueError("the time must have a time zone")
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _shortened(message: str) -> str:
    return message if len(message) <= MAX_MESSAGE_CHARS else message[: MAX_MESSAGE_CHARS - 3] + "..."
