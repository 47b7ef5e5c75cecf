"""How far regions are behind each other, from what replicators report. Pure.

The replicator of a device says for each other region until when both have the same. The time of a pair of regions is
the oldest one that the devices of one side report; when both sides report all, the newer of the two, since either has
compared everything. Reports are untrusted, as in `swiftlet_operator.reports`: what is no report is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from swiftlet_operator.untrusted import count_of, moment_of

_MOST_REGIONS = 64
_LONGEST_NAME = 64
_MOST = 2**53


@dataclass(frozen=True, slots=True)
class OtherRegion:
    """What a device and those of another region have in common: `equal_at_s` in seconds since the epoch, None before
    it is known; `objects` known to be lacking on either side, and about how many bytes have to pass the link from here.
    """

    equal_at_s: float | None = None
    objects: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Told:
    """A device's region, and what its replicator reports about the others in a ring."""

    ring: str
    region: str
    others: Mapping[str, OtherRegion]


@dataclass(frozen=True, slots=True)
class Lag:
    """How far two regions are behind each other, in the ring in which they are furthest.

    What was written before `equal_at_s` is in both; None when that is not known. `objects` are known to be lacking,
    and about `size_bytes` have to pass the link.
    """

    regions: tuple[str, str]
    ring: str
    equal_at_s: float | None
    objects: int
    size_bytes: int = 0

    @property
    def named(self) -> str:
        """Return both regions in words."""
        return " and ".join(self.regions)


def parsed(fields: object) -> Mapping[str, OtherRegion]:
    """Return what is in the field `regions` of a standing."""
    if not isinstance(fields, dict):
        return {}
    named = [(name, one) for name, one in fields.items() if isinstance(one, dict) and len(name) <= _LONGEST_NAME]
    return {name: _other(one) for name, one in named[:_MOST_REGIONS]}


def lags(told: Iterable[Told]) -> list[Lag]:
    """Return the lag of each pair of regions, in order."""
    sides: dict[tuple[tuple[str, str], str], dict[str, list[OtherRegion]]] = {}
    for one in told:
        for other, found in one.others.items():
            first, second = sorted((one.region, other))
            if one.region and first != second:
                sides.setdefault(((first, second), one.ring), {}).setdefault(one.region, []).append(found)
    worst: dict[tuple[str, str], Lag] = {}
    for (regions, ring), by_side in sorted(sides.items()):
        lag = _lag(regions, ring, by_side.values())
        if regions not in worst or _age_first(lag) < _age_first(worst[regions]):
            worst[regions] = lag
    return list(worst.values())


def _lag(regions: tuple[str, str], ring: str, sides: Iterable[list[OtherRegion]]) -> Lag:
    moments: list[float] = []
    objects = size_bytes = 0
    for side in sides:
        known = [one.equal_at_s for one in side if one.equal_at_s is not None]
        if len(known) == len(side):
            moments.append(min(known))
        objects = max(objects, sum(one.objects for one in side))
        # Each side tells what it has and the other one lacks.
        size_bytes += sum(one.size_bytes for one in side)
    return Lag(regions, ring, max(moments, default=None), objects, size_bytes)


def _age_first(lag: Lag) -> float:
    return float("-inf") if lag.equal_at_s is None else lag.equal_at_s


def _other(fields: Mapping[str, Any]) -> OtherRegion:
    objects, size_bytes = (min(count_of(fields.get(name)) or 0, _MOST) for name in ("objects", "bytes"))
    return OtherRegion(moment_of(fields.get("equalAt")), objects, size_bytes)
