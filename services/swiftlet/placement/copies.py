"""Which copy of an object is read: the first good one, the newest one, and where they are looked for.

Readers in one of several regions ask the primaries of their own region first. When these lack the object, all devices
that may have it are asked at the same time, and the newest copy counts: that takes one trip, not one for each of them.
When these can't be asked, or may have missed something, those of other regions are read.

Of a policy whose writes are `local` an object may be in one region alone for a while, on devices that stand in for the
primaries of other regions. What stands in may be older than what is elsewhere. So all devices are compared as well
where something stands in for a primary that gives no copy, and where one may have missed something.

Fault model: that of the fan-out. A region may be out of reach: then the newest copy within reach counts, and an object
that the reader's own region should have and does not is said not to exist.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from swiftlet.boundaries.objects import ReplicaTransport
from swiftlet.errors import GuestRefused, NotFound, Superseded, SwiftletError, Unavailable, Unproved
from swiftlet.model import ObjectInfo, ObjectKey
from swiftlet.names import Path
from swiftlet.placement.fanout import Outcome, read_each
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.hedges import Hedged, Hedges
from swiftlet.placement.plan import ANYWHERE, Place, ReadPlan, ids_of, plan_read
from swiftlet.placement.quorums import Quorum, by_region
from swiftlet.placement.rings import ObjectRings
from swiftlet.placement.write_plan import near_devices, writes_near
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device, WriteQuorum
from swiftlet.timestamp import ZERO, Timestamp

T = TypeVar("T")
Operation = Callable[[Device, bool], Awaitable[T]]
"""Reads from a device; with True only what the device knows to be no older than what was acknowledged."""
WriteQuorums = Callable[[int], WriteQuorum]
"""Returns what acknowledges the writes of a policy, by its index."""


async def _nothing(_result: object) -> None:
    """Discard something that needs no ending."""


def majority(_policy: int) -> WriteQuorum:
    """Return `majority` for every policy."""
    return "majority"


@dataclass(slots=True)
class Bound:
    """The oldest version that a read may return: the newest version known, and any deletion that it finds
    on its way.
    """

    newest: tuple[Timestamp, Timestamp] = (ZERO, ZERO)
    deleted: Timestamp = ZERO

    def met(self, absence: NotFound) -> None:
        """Note that a device does not have the object."""
        if absence.timestamp is not None:
            self.deleted = max(self.deleted, absence.timestamp)

    def check(self, info: ObjectInfo, version: Timestamp | None = None) -> None:
        """Raise NotFound or OtherVersion unless this version may be returned."""
        if info.timestamp <= self.deleted:
            raise NotFound(f"{info.name} was deleted at {self.deleted}", self.deleted)
        if age(info) < self.newest or version not in (None, info.timestamp):
            raise OtherVersion(f"the device has version {info.modified} of the object, not the requested one")


class OtherVersion(SwiftletError):
    """A device has another version of the object than the requested one, which may exist all the same."""


class MissedWrites(Protocol):
    """What devices have missed of writes that were acknowledged without them."""

    def note(self, device: Device, policy: int, partition: int) -> None:
        """Note that a write of the partition was acknowledged, or may be, without this device."""
        ...

    def behind(self, policy: int, partition: int) -> frozenset[int]:
        """Return the ids of devices that missed something of a partition and do not know it yet."""
        ...

    def waits(self, device: Device) -> bool:
        """Return whether a device has missed something and does not know it yet."""
        ...


@dataclass(slots=True)
class Versions:
    """What devices have of an object: the versions found, the deletions, and who answered at all."""

    found: list[tuple[ObjectInfo, Device]] = field(default_factory=list)
    gone: list[tuple[Timestamp, Device]] = field(default_factory=list)
    answered: list[Device] = field(default_factory=list)

    @property
    def deleted(self) -> Timestamp:
        """The time of the newest deletion that any of them knows, ZERO for none."""
        return max((timestamp for timestamp, _ in self.gone), default=ZERO)

    def newest(self) -> tuple[ObjectInfo, list[Device]] | None:
        """Return the newest version, and the devices that have it; None when there is none, or it was deleted."""
        there = [(info, device) for info, device in self.found if info.timestamp > self.deleted]
        if not there:
            return None
        newest = max((info for info, _ in there), key=age)
        return newest, [device for info, device in there if age(info) == age(newest)]


class Copies:
    """Finds copies of objects for one reader."""

    def __init__(
        self,
        rings: ObjectRings,
        transport: ReplicaTransport,
        health: NodeHealth,
        missed: MissedWrites,
        place: Place = ANYWHERE,
        quorums: WriteQuorums = majority,
        compared: Callable[[], None] = lambda: None,
        hedges: Hedges | None = None,
    ) -> None:
        """Copies near `place` are read first. `compared` is called when versions are compared because no device is left
        that can't have missed anything. `hedges` tells when the next device is asked beside one that is late.
        """
        self._rings = rings
        self._transport = transport
        self._health = health
        self._missed = missed
        self._place = place
        self._quorums = quorums
        self._compared = compared
        self._hedges = hedges

    def first_reader(self, key: ObjectKey) -> Device | None:
        """Return the device that is asked first; None when that one may have missed something."""
        first = self._plan(key).first
        if not first or first[0].id in self._missed.behind(key.policy, key.partition):
            return None
        # Of local writes other regions may have something older, and know nothing of that.
        is_local = self._quorums(key.policy) == "local" and writes_near(self._rings.objects(key.policy), self._place)
        return None if is_local and first[0].region != self._place.region else first[0]

    async def first(
        self,
        path: Path,
        key: ObjectKey,
        operation: Operation[T],
        bound: Bound,
        discard: Callable[[T], Awaitable[None]] = _nothing,
    ) -> T:
        """Return what the operation returns on the first device with a good copy. Raises NotFound and Unavailable.

        `discard` gets what it returns on another device that has been asked, too.
        """
        ring = self._rings.objects(key.policy)
        if self._quorums(key.policy) == "local" or (len(ring.regions) > 1 and writes_near(ring, self._place)):
            return await self._first_by_region(path, key, operation, bound, discard)
        plan = self._plan(key)
        outcome = await self._read(plan, key, operation, bound, hedged=self._hedged(plan.first, discard))
        if outcome.replies:
            return outcome.replies[0][2]
        absent = outcome.refused_by(NotFound)
        if len(absent) >= plan.quorum.count:
            raise NotFound(f"{path} does not exist", _newest_deletion(absent))
        if outcome.unproved:
            self._compared()
            return await self._newest_copy(path, key, operation, bound)
        raise outcome.unavailable(str(path), plan.quorum)

    async def _first_by_region(
        self,
        path: Path,
        key: ObjectKey,
        operation: Operation[T],
        bound: Bound,
        discard: Callable[[T], Awaitable[None]],
    ) -> T:
        plan, is_local = self._plan(key), self._quorums(key.policy) == "local"
        near = near_devices(self._rings.objects(key.policy), key.partition, self._place)
        order = [device for device in plan.first if device in near.primaries]
        # Of local writes other regions may have something older.
        hedged = self._hedged(order if is_local else plan.first, discard)
        outcome = await self._read(ReadPlan(order, plan.quorum), key, operation, bound, hedged=hedged)
        if outcome.replies:
            return outcome.replies[0][2]
        absent = [device for device, error in outcome.refusals if isinstance(error, NotFound)]
        beside = await self._versions(key, near.standing) if is_local else Versions()
        may_be_newer = is_local and bool(outcome.unproved or beside.found or beside.gone)
        if not absent and not may_be_newer:
            # Those who should have it here could not be asked, and nothing was written beside them.
            rest = [device for device in plan.first if device not in near.primaries]
            outcome = await self._read(ReadPlan(rest, plan.quorum), key, operation, bound, until_absent=True)
            if outcome.replies:
                return outcome.replies[0][2]
        if outcome.unproved:
            self._compared()
        try:
            return await self._newest_copy(path, key, operation, bound)
        except Unavailable as unavailable:
            if not is_local or not near.proves_absence(absent, [*absent, *beside.answered]):
                raise
            raise NotFound(
                f"{path} does not exist in region {self._place.region}, and other regions can't be asked"
            ) from unavailable

    def _plan(self, key: ObjectKey) -> ReadPlan:
        behind = self._health.behind() | self._missed.behind(key.policy, key.partition)
        ring = self._rings.objects(key.policy)
        return plan_read(ring, key.partition, self._health.suppressed, behind=behind, place=self._place)

    async def _read(
        self,
        plan: ReadPlan,
        key: ObjectKey,
        operation: Operation[T],
        bound: Bound,
        until_absent: bool = False,
        hedged: Hedged[T] | None = None,
    ) -> Outcome[T]:
        """Ask one device after the other for a copy that is no older than what was acknowledged; with `until_absent`
        no more after one that has none.
        """

        async def bounded(device: Device) -> T:
            if device.id in self._missed.behind(key.policy, key.partition):
                raise Unproved(f"{device.name} has missed a write of the partition")
            try:
                return await operation(device, True)
            except NotFound as absence:
                bound.met(absence)
                raise

        def enough(outcome: Outcome[T]) -> bool:
            return bool(outcome.replies) or (until_absent and bool(outcome.refusals))

        return await read_each(plan, bounded, self._health, enough, hedged)

    def _hedged(self, others: Sequence[Device], discard: Callable[[T], Awaitable[None]]) -> Hedged[T] | None:
        return None if self._hedges is None else Hedged(self._hedges, others, discard)

    async def _one_of(self, devices: Sequence[Device], operation: Operation[T]) -> Outcome[T]:
        """Read on the nearest of devices that have the newest version."""
        order = sorted(devices, key=self._place.distance)
        plan = ReadPlan(order, Quorum(1))
        return await read_each(plan, lambda device: operation(device, False), self._health, lambda o: bool(o.replies))

    async def _newest_copy(self, path: Path, key: ObjectKey, operation: Operation[T], bound: Bound) -> T:
        """Run a read on a device with the newest version of all that can be asked."""
        info, devices = await self.newest(path, key, strict=False)
        bound.newest = max(bound.newest, age(info))
        outcome = await self._one_of(devices, operation)
        if not outcome.replies:
            raise outcome.unavailable(str(path), Quorum(1))
        return outcome.replies[0][2]

    async def newest(self, path: Path, key: ObjectKey, strict: bool = True) -> tuple[ObjectInfo, list[Device]]:
        """Return the newest version that any replica has, and the devices that have it.

        A quorum of the primaries must answer. Handoffs are asked too, as an acknowledged write may be mostly there; but
        a handoff may be older than all primaries, so it can't stand in for one. Where writes are `local`, so few
        devices may be silent in each region that the others have what was acknowledged there. Unless `strict`, any
        device that has the object is believed, and tombstones of handoffs count as well, except for `local` writes,
        which may have left them there before something newer came.
        """
        ring = self._rings.objects(key.policy)
        primaries, devices = ring.primaries(key.partition), self._holders(ring, key)
        quorum = Quorum.of(primaries)
        versions = await self._versions(key, devices)
        answered = [device for device in versions.answered if device in primaries]
        if strict:
            self._require(path, key, devices, versions.answered)
        buried = [device for _, device in versions.gone if device not in primaries]
        if strict or self._quorums(key.policy) == "local":
            buried = []
        newest = versions.newest()
        if not quorum.met([*answered, *buried]) and (strict or newest is None):
            raise Unavailable(
                f"{path}: {len(answered)} of {len(primaries)} replicas answered, too few to know the newest version"
            )
        if newest is None:
            raise NotFound(f"{path} does not exist", versions.deleted or None)
        return newest

    def _holders(self, ring: Ring, key: ObjectKey) -> Sequence[Device]:
        """Return the devices that may have an acknowledged version: primaries first."""
        if self._quorums(key.policy) == "local":
            return ring.may_hold(key.partition)
        return plan_read(ring, key.partition).devices

    def _require(self, path: Path, key: ObjectKey, devices: Sequence[Device], answered: Sequence[Device]) -> None:
        """Raise Unavailable when what was acknowledged in some region may be on silent devices alone."""
        if self._quorums(key.policy) != "local":
            return
        quorum = Quorum.of(self._rings.objects(key.policy).primaries(key.partition))
        asked, heard = by_region(devices), by_region(answered)
        for region, count in asked.items():
            if count - heard[region] >= quorum.count:
                raise Unavailable(
                    f"{path}: in region {region} {heard[region]} of {count} devices answered, too few to know the "
                    "newest version"
                )

    async def _versions(self, key: ObjectKey, devices: Sequence[Device]) -> Versions:
        """Ask devices for their versions, all at the same time; those in trouble are left out."""
        answers = await asyncio.gather(
            *(self._transport.head(device, key) for device in devices), return_exceptions=True
        )
        versions = Versions()
        for answer, device in zip(answers, devices, strict=True):
            if isinstance(answer, ObjectInfo):
                versions.found.append((answer, device))
            elif isinstance(answer, NotFound):
                if answer.timestamp is not None:
                    versions.gone.append((answer.timestamp, device))
            # A refusal of a guest is about the request, not about what a device has.
            elif isinstance(answer, GuestRefused) or not isinstance(answer, SwiftletError):
                raise answer
            else:
                continue
            versions.answered.append(device)
        return versions

    async def existed(self, path: Path, key: ObjectKey, before: Timestamp, without: Sequence[Device]) -> bool:
        """Return whether any device but these, which did not have it, may have something that a deletion at this time
        deletes. Raises Superseded when one has something newer.

        It matters where writes are `local` only: others have asked all devices that may have it.
        """
        if self._quorums(key.policy) != "local":
            return False
        ring = self._rings.objects(key.policy)
        versions = await self._versions(key, [device for device in self._holders(ring, key) if device not in without])
        newest = versions.newest()
        if newest is not None and newest[0].timestamp > before:
            raise Superseded(f"{path} is already at {newest[0].timestamp}", newest[0].timestamp)
        if newest is not None:
            return True
        primaries, answered = ring.primaries(key.partition), [*without, *versions.answered]
        near = near_devices(ring, key.partition, self._place)
        is_known = Quorum.of(primaries).met([device for device in primaries if device in answered])
        return not is_known and not near.proves_absence(without, answered)

    def others(self, key: ObjectKey, without: Collection[int]) -> ReadPlan:
        """Return the plan of a read on devices with other ids than these."""
        ring = self._rings.objects(key.policy)
        plan = plan_read(ring, key.partition, self._health.suppressed, place=self._place)
        devices = plan.devices
        if self._quorums(key.policy) == "local":
            devices = tuple(sorted(ring.may_hold(key.partition), key=self._place.distance))
        handoffs = ids_of(devices) - ids_of(ring.primaries(key.partition))
        rest = tuple(device for device in devices if device.id not in without)
        return ReadPlan((), plan.quorum, lambda: (rest, handoffs))


def _newest_deletion(absent: Iterable[NotFound]) -> Timestamp | None:
    return max((error.timestamp for error in absent if error.timestamp), default=None)


def age(info: ObjectInfo) -> tuple[Timestamp, Timestamp]:
    """Return the key by which a newer replica sorts after an older one: its data first, then its metadata."""
    return info.timestamp, info.meta_timestamp
