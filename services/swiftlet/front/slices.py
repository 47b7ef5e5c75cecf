"""Slices of room for PUTs of the front: what is still held for each at the replicas of its database.

A slice is a claim (`swiftlet.placement.claims`) for many PUTs at once. It only ever gets smaller: by what PUTs have
stored, once that counts as rows, and by what no PUT has taken. In precise mode the replicas are told so one by one,
since a claim ends at a replica when this replica lists the row. Otherwise the memory of this process holds it
(`swiftlet.quota.usage`).

Fault model: a part whose PUT has an unknown outcome is never let go of; it ends with the slice, `LIFE_S` after the
replicas were last told of it. A replica that is away is told with the next change, or holds too much until then. What a
message says is the whole amount that is left, and amounts only get smaller, so that a message that is repeated or comes
late holds too much, and never too little.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from swiftlet.model import Amounts, Bounds, Claim, DatabaseName, Excess
from swiftlet.placement.claims import ClusterClaims
from swiftlet.quota import QuotaFile
from swiftlet.quota.excess import total
from swiftlet.quota.usage import RememberedUsage

LIFE_S = 60
"""Seconds for which replicas hold a slice that they hear nothing of: longer than devices wait with a row that nobody
has delivered.
"""
NOTHING = Amounts()


def minus(some: Amounts, less: Amounts) -> Amounts:
    """Return what is left of some amounts without others, of each kind; negative where these are larger."""
    return Amounts(some.containers - less.containers, some.objects - less.objects, some.bytes - less.bytes)


@dataclass(slots=True, eq=False)
class Slice:
    """Room that is held for PUTs."""

    number: int
    """The front's name for it."""
    claim: Claim
    name: DatabaseName
    precise: bool
    listed: Amounts = NOTHING
    """The parts whose objects count as rows at all replicas."""
    listed_at: dict[int, Amounts] = field(default_factory=dict)
    """What does at a device alone, by the device's id."""
    unused: Amounts = NOTHING
    """What nothing was stored of."""
    ended: bool = False
    """Whether the front takes nothing more of it."""
    changed: bool = False
    """Whether those that hold it do not know the last change."""
    expires: float = 0.0
    """When nobody holds it any more, in monotonic seconds."""

    def list(self, amounts: Amounts) -> None:
        """Let go of parts that count as rows at all replicas."""
        self.listed, self.changed = total([self.listed, amounts]), True

    def list_at(self, device: int, amounts: Amounts) -> None:
        """Let go of parts at one device."""
        self.listed_at[device], self.changed = total([self.listed_at.get(device, NOTHING), amounts]), True

    def give_back(self, amounts: Amounts) -> None:
        """Let go of parts of which nothing is stored."""
        self.unused, self.changed = total([self.unused, amounts]), True

    @property
    def rest(self) -> Amounts:
        """What has to be held, wherever nothing more is known to be listed."""
        return minus(self.claim.asked, total([self.listed, self.unused]))

    def rest_at(self, device: int) -> Amounts:
        """What has to be held at a device."""
        return minus(self.rest, self.listed_at.get(device, NOTHING))


class Reserve(Protocol):
    """Holds slices, in one of the two modes of quotas."""

    async def used(self, name: DatabaseName, max_age_s: float) -> Amounts | None:
        """Return what rows take, without claims; None when nobody knows."""
        ...

    async def take(self, slice: Slice, bounds: Bounds) -> Excess | None:
        """Hold a slice; return the reason when it does not fit. Raises NotFound and Unavailable."""
        ...

    async def tell(self, slice: Slice) -> None:
        """Hold only what is left of it."""
        ...

    def forget(self, slice: Slice) -> None:
        """Hold nothing of a slice whose time is over."""
        ...


class PreciseReserve:
    """Holds slices at the replicas of their databases."""

    def __init__(self, claims: ClusterClaims, usage: RememberedUsage) -> None:
        """`usage` only tells how large slices may be: the replicas decide."""
        self._claims = claims
        self._usage = usage

    async def used(self, name: DatabaseName, max_age_s: float) -> Amounts | None:
        """Return what rows take, as the database said at most so many seconds ago."""
        return await self._usage.used(name, max_age_s)

    async def take(self, slice: Slice, bounds: Bounds) -> Excess | None:
        """Behaves as `Reserve.take` requires: all replicas that answer grant it, a quorum at least."""
        return await self._claims.take(slice.name, slice.claim, bounds, LIFE_S)

    async def tell(self, slice: Slice) -> None:
        """Behaves as `Reserve.tell` requires."""
        await self._claims.lower(slice.name, slice.claim.id, slice.rest_at, LIFE_S)

    def forget(self, slice: Slice) -> None:
        """Do nothing: the replicas know when its time is over."""


class RememberedReserve:
    """Holds slices in the memory of this process."""

    def __init__(self, usage: RememberedUsage, quotas: QuotaFile) -> None:
        """`quotas` say for how long usage is remembered."""
        self._usage = usage
        self._quotas = quotas
        self._told: dict[str, Amounts] = {}

    async def used(self, name: DatabaseName, max_age_s: float) -> Amounts | None:
        """Return what rows take, and what this process has stored since they were counted."""
        return await self._usage.used(name, max(max_age_s, self._quotas.quotas.cache_s))

    async def take(self, slice: Slice, bounds: Bounds) -> Excess | None:
        """Behaves as `Reserve.take` requires."""
        return await self._usage.take(slice.name, slice.claim, bounds, self._quotas.quotas.cache_s)

    async def tell(self, slice: Slice) -> None:
        """Behaves as `Reserve.tell` requires; what is listed counts as stored until usage is read again."""
        id, listed = slice.claim.id, slice.listed
        more = minus(listed, self._told.get(id, NOTHING))
        self._usage.lower(slice.name, id, slice.rest, more)
        if slice.rest == NOTHING:
            self._told.pop(id, None)
        else:
            self._told[id] = listed

    def forget(self, slice: Slice) -> None:
        """Count what was not returned as stored until usage is read again."""
        self._told.pop(slice.claim.id, None)
        self._usage.end(slice.name, slice.claim.id, stored=True)
