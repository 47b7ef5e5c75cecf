"""What clients of several regions were answered, held to what was acknowledged. Pure.

A client that alone writes an object must find what was acknowledged to it, whatever the policy and whichever link is
cut. Other regions may be behind, but show nothing that nobody wrote. When all links are back and all is settled, every
object is one that its whole history allows, in every region.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from e2e.standalone.model_history import History, Operation, Outcome, Version, always

SHARED = "shared"
"""Names begin with this if clients of all regions write the object."""
_WRITTEN = {"PUT": {201}, "DELETE": {204}}


@dataclass(frozen=True, slots=True)
class Done:
    """One operation as its client saw it; times are seconds of the machine's monotonic clock."""

    region: str
    policy: str
    name: str
    method: str
    begun: float
    ended: float
    status: int
    """0 without an answer."""
    etag: str
    """Of what was sent or received."""
    size: int
    reason: str
    """What came with an answer of 400 and above, or what was wrong with what was received."""

    @property
    def is_shared(self) -> bool:
        """Whether clients of all regions write the object."""
        return self.name.startswith(SHARED)

    @property
    def owner(self) -> str | None:
        """The region that alone writes the object; None for one of all regions."""
        return None if self.is_shared else self.name.partition("-")[0]

    @property
    def version(self) -> Version | None:
        """Return the version that the operation made or found; None for no object."""
        there = self.method == "PUT" or (self.method == "GET" and self.status == 200)
        return Version(self.etag, self.size, "", "") if there else None


class Judge:
    """The histories of all objects."""

    def __init__(self, operations: Iterable[Done]) -> None:
        """`operations` are those of all clients, in any order."""
        self.operations = sorted(operations, key=lambda one: one.begun)
        self._histories: defaultdict[tuple[str, str], History] = defaultdict(History)
        for one in self.operations:
            if one.method in _WRITTEN:
                write = self._histories[one.policy, one.name].begin(Operation(one.begun, always(one.version)))
                write.end(one.ended, Outcome.DONE if one.status in _WRITTEN[one.method] else Outcome.MAYBE)

    def wrong_answers(self) -> list[str]:
        """Return what no client should have been answered."""
        wrong = [f"{one}: {one.reason}" for one in self.operations if one.reason and one.status < 400 and one.status]
        for one in self.operations:
            is_read = one.method == "GET" and one.status == 200
            is_absent = one.method != "PUT" and one.status == 404
            if not is_read and not is_absent:
                continue
            if one.owner == one.region:
                allowed = self._histories[one.policy, one.name].allowed(one.begun, one.ended)
            elif is_read:
                allowed = self._ever(one)
            else:
                continue
            if one.version not in allowed:
                told = self._histories[one.policy, one.name].told()
                wrong.append(f"{one} shows {one.version}, allowed are {set(allowed)}:\n  {told}")
        return wrong

    def _ever(self, read: Done) -> frozenset[Version | None]:
        """Return all versions that somebody had begun to write before the end of a read."""
        begun = (one for one in self._histories[read.policy, read.name].operations if one.begun < read.ended)
        return frozenset(version for one in begun if one.versions is not None for version in one.versions())

    def wrong_ends(self, policy: str, found: Mapping[str, Version | None], at: float) -> list[str]:
        """Return which objects of a policy, as one region shows them at rest from the time `at` on, are not allowed."""
        wrong = []
        for (of, name), history in self._histories.items():
            if of != policy:
                continue
            allowed = history.allowed(at, at)
            if found.get(name) not in allowed:
                wrong.append(f"{policy}/{name} is {found.get(name)}, allowed are {set(allowed)}:\n  {history.told()}")
        return wrong

    def names(self, policy: str) -> list[str]:
        """Return the names of all objects of a policy that somebody has written."""
        return sorted(name for of, name in self._histories if of == policy)


@dataclass(frozen=True, slots=True)
class Summary:
    """The operations of one kind in some time: how many, which share was served, and how fast."""

    count: int
    served: float
    """Share of the operations whose answer was neither missing nor 5xx."""
    median_ms: float
    worst_ms: float
    """The longest time of all operations, refused ones included."""

    def __str__(self) -> str:
        """Return a cell of a table."""
        if not self.count:
            return "none"
        return f"{self.count}, {self.served:.1%}, {self.median_ms:.1f}, {self.worst_ms:.0f}"


def summary(operations: Sequence[Done], regions: Iterable[str], policy: str, is_write: bool) -> Summary:
    """Summarize operations that clients of some regions began on objects that they alone write."""
    wanted = set(regions)
    own = [one for one in operations if one.region in wanted and one.policy == policy and not one.is_shared]
    chosen = [one for one in own if (one.method in _WRITTEN) == is_write]
    if not chosen:
        return Summary(0, 0.0, 0.0, 0.0)
    times = [(one.ended - one.begun) * 1e3 for one in chosen]
    served = sum(0 < one.status < 500 for one in chosen) / len(chosen)
    return Summary(len(chosen), served, statistics.median(times), max(times))


def lacking_bytes(
    before: Mapping[str, Mapping[str, tuple[str, int] | None]], after: Mapping[str, tuple[str, int]]
) -> int:
    """Return the bytes of data that crossed no link yet: for each region what it did not hold of what all hold after.

    `before` says by region and object what the region held (timestamp, size), `after` what there is in the end.
    """
    return sum(
        size
        for held in before.values()
        for name, (timestamp, size) in after.items()
        if (held.get(name) or ("", 0))[0] != timestamp
    )
