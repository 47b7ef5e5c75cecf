"""Where the objects of policies with erasure coding stand, added up from what replicators report. Pure.

A replicator reports the partitions that it counts, of its last complete round: so many have so many fragments of their
least redundant object at their places. The sums are the store's when all replicators have reported. Reports are
untrusted, as in `swiftlet_operator.reports`: what is no report is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from swiftlet_operator.durations import roughly
from swiftlet_operator.untrusted import count_of, moment_of

SHORT = "short"
"""The number of fragments of what has fewer than a read takes."""
_MOST_POLICIES = 100
_LONGEST_NAME = 64
_MOST = 2**53


@dataclass(frozen=True, slots=True)
class Standing:
    """The partitions of a policy's objects by the fragments of their least redundant object."""

    data: int
    parity: int
    partitions: Mapping[str, int]
    seen_at_s: float
    """When the round ended; of several the first."""

    @property
    def whole(self) -> int:
        """Return the number of partitions with all fragments of all objects."""
        return self.partitions.get(str(self.data + self.parity), 0)

    @property
    def least(self) -> int:
        """Return the smallest number of fragments that an object has; `data` - 1 stands for all below what a read
        takes.
        """
        if self.partitions.get(SHORT):
            return self.data - 1
        numbers = range(self.data, self.data + self.parity)
        return next((number for number in numbers if self.partitions.get(str(number))), self.data + self.parity)


@dataclass(frozen=True, slots=True)
class Repairs:
    """The repairs that replicators report."""

    policies: Mapping[str, Standing] = field(default_factory=dict)
    left: int = 0
    """Records known to be lacking at a place."""
    whole_at_s: float | None = None
    """When nothing will be left at the present rate; None when that is not known."""


def parsed(fields: object) -> Repairs | None:
    """Return what is in the field `repairs` of a status report; None before the first round and for what is none."""
    if not isinstance(fields, dict):
        return None
    found = fields.get("redundancy")
    named = list(found.items())[:_MOST_POLICIES] if isinstance(found, dict) else []
    policies = {str(name)[:_LONGEST_NAME]: standing for name, one in named if (standing := _standing(one)) is not None}
    return Repairs(policies, _count(fields.get("left")) or 0, moment_of(fields.get("wholeAt")))


def together(reports: Iterable[Repairs]) -> Repairs:
    """Return the sum of reports. It is whole when the last replicator is, and not known when one doesn't know."""
    policies: dict[str, Standing] = {}
    left, moments = 0, []
    for report in reports:
        left += report.left
        if report.left:
            moments.append(report.whole_at_s)
        for name, one in report.policies.items():
            policies[name] = _added(policies[name], one) if name in policies else one
    known = [moment for moment in moments if moment is not None]
    return Repairs(policies, left, max(known) if known and len(known) == len(moments) else None)


def said(standing: Standing) -> str:
    """Return where the partitions stand in words: `12 partitions have 6 of 6 fragments of each object, 4 have 5`."""
    total = standing.data + standing.parity
    parts = []
    for number in range(total, standing.data - 1, -1):
        if count := standing.partitions.get(str(number), 0):
            parts.append((count, str(number)))
    if count := standing.partitions.get(SHORT, 0):
        parts.append((count, f"fewer than {standing.data}"))
    if not parts:
        return "it has no objects"
    (first, most), *others = parts
    begin = f"{first} {'partition has' if first == 1 else 'partitions have'} {most} of {total} fragments of each object"
    return ", ".join([begin, *(f"{count} {'has' if count == 1 else 'have'} {which}" for count, which in others)])


def left_said(repairs: Repairs, now_s: float) -> str:
    """Return what is left to repair in words, and for how long; nothing when nothing is."""
    if not repairs.left:
        return ""
    until = "" if repairs.whole_at_s is None else f", for about {roughly(repairs.whole_at_s - now_s)}"
    return f"{repairs.left} records are left to repair{until}"


def _added(one: Standing, other: Standing) -> Standing:
    counts = Counter(one.partitions)
    counts.update(other.partitions)
    return Standing(one.data, one.parity, dict(counts), min(one.seen_at_s, other.seen_at_s))


def _standing(fields: object) -> Standing | None:
    if not isinstance(fields, dict):
        return None
    data, parity, seen_at_s = _count(fields.get("data")), _count(fields.get("parity")), moment_of(fields.get("seenAt"))
    found = fields.get("partitions")
    if not data or not parity or data + parity > 32 or seen_at_s is None or not isinstance(found, dict):
        return None
    names = (*map(str, range(data, data + parity + 1)), SHORT)
    return Standing(data, parity, {name: _count(found.get(name)) or 0 for name in names}, seen_at_s)


def _count(value: object) -> int | None:
    found = count_of(value)
    return None if found is None else min(found, _MOST)
