"""Until when a local device and the devices of each other region have the same. No I/O.

The time that counts is that of a round's begin: versions that were older than `IN_FLIGHT_S` by then were compared with
all devices of that region which share a partition with the local one, and nothing was left to do. What was written
since may be missing on either side; so the lag of two regions is the age of the oldest such time of their devices.

Fault model: a region that can't be reached proves nothing, and its time stands still. A replicator that was started
again knows no time until its first whole round has ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from swiftlet.sync.session.compare import IN_FLIGHT_S


@dataclass(slots=True)
class LeftToDo:
    """What a round has left to do between a local device and the devices of another region."""

    partitions: set[int] = field(default_factory=set)
    objects: int = 0
    """Records that are known to be lacking on either side; of partitions that could not be compared none are known."""
    size_bytes: int = 0
    """About how many bytes of objects have to pass the link to that region, as far as they are known."""


@dataclass(frozen=True, slots=True)
class RegionStanding:
    """What a local device and the devices of another region have in common."""

    equal_at_s: float | None = None
    """What was written before this time is on both sides, in seconds since the epoch; None before it is known."""
    partitions: int = 0
    """Partitions in which the last round has left something to do, or which it could not compare."""
    objects: int = 0
    """Records that are known to be lacking on either side."""
    size_bytes: int = 0
    """About how many bytes of objects have to pass the link to that region, as far as they are known."""

    def fields(self) -> dict[str, object]:
        """Return the fields of the status report."""
        return {
            "equalAt": self.equal_at_s,
            "partitions": self.partitions,
            "objects": self.objects,
            "bytes": self.size_bytes,
        }


def compared(
    before: Mapping[str, RegionStanding], left: Mapping[str, LeftToDo], began_s: float
) -> dict[str, RegionStanding]:
    """Return the standings after a whole round that began at `began_s`, by region; `left` has all other regions."""
    found: dict[str, RegionStanding] = {}
    for region, what in left.items():
        equal_at_s = before.get(region, RegionStanding()).equal_at_s
        if not what.partitions:
            equal_at_s = began_s - IN_FLIGHT_S
        found[region] = RegionStanding(equal_at_s, len(what.partitions), what.objects, what.size_bytes)
    return found


def together(standings: Iterable[RegionStanding]) -> RegionStanding:
    """Return what is true of several devices of one region and another region."""
    known = list(standings)
    times = [one.equal_at_s for one in known]
    equal_at_s = None if None in times else min((time for time in times if time is not None), default=None)
    return RegionStanding(
        equal_at_s,
        sum(one.partitions for one in known),
        sum(one.objects for one in known),
        sum(one.size_bytes for one in known),
    )
