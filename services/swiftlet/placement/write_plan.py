"""Write plans: which devices get a write, who stands in for one in trouble, and when it is acknowledged. Pure.

A write goes to the partition's primaries; a primary in trouble is replaced by the next handoff, so that the number of
copies is right from the first moment. Devices that failed lately are asked last: skipped while others can answer, but
used when they are all that is left.

What acknowledges a write is its policy's `WriteQuorum`. With `each-region` only a device of the same region stands in
for another one. With `local` all copies are made in the writer's region, where handoffs stand in for the primaries of
other regions; replicators bring them there. Only what the region has too few devices for goes to primaries elsewhere.
A writer that does not know its region, or is in none of the ring's, writes as `majority`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from swiftlet.placement.plan import ANYWHERE, LazyPlan, Place, Rest, Suppressed, ids_of, never, nobody, standing_in
from swiftlet.placement.quorums import Quorum, by_region, write_quorum
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device, WriteQuorum


class WritePlan(LazyPlan):
    """One write: `slots[i]` is replica i's first choice, `spares` replace devices in trouble, in order."""

    __slots__ = ("hopeless", "slots")

    def __init__(
        self,
        slots: tuple[Device, ...],
        quorum: Quorum,
        find: Callable[[], Rest] = nobody,
        hopeless: str | None = None,
    ):
        """`find` is as of `LazyPlan`. `hopeless` is why the quorum can't be reached unless devices answer that failed
        lately; None when it can.
        """
        super().__init__(quorum, find)
        self.slots = slots
        self.hopeless = hopeless

    @property
    def spares(self) -> tuple[Device, ...]:
        """The devices that replace those in trouble."""
        return self.rest

    def stands_in(self, spare: Device, device: Device) -> bool:
        """Return whether a spare may replace a device."""
        return not self.quorum.regions or spare.region == device.region


def plan_write(
    ring: Ring,
    partition: int,
    suppressed: Suppressed = never,
    quorum: WriteQuorum = "majority",
    place: Place = ANYWHERE,
) -> WritePlan:
    """Return the plan of a write at a place.

    Suppressed devices change places with spares that are not suppressed.
    """
    primaries = ring.primaries(partition)
    if quorum == "each-region":
        return _in_each_region(ring, partition, primaries, suppressed)
    if quorum == "local" and writes_near(ring, place):
        return _near(ring, partition, suppressed, place)
    return _arranged(primaries, lambda: standing_in(ring, partition, len(primaries)), suppressed, Quorum.of(primaries))


def writes_near(ring: Ring, place: Place) -> bool:
    """Return whether a `local` write at a place stays in its region: the ring has devices there."""
    return place.region is not None and place.region in ring.regions


def slots_of(ring: Ring, quorum: WriteQuorum, place: Place) -> int:
    """Return how many copies a write at a place makes when no device is in trouble."""
    replicas = int(ring.replica_count)
    if quorum == "local" and writes_near(ring, place):
        return min(replicas, sum(device is not None and device.region == place.region for device in ring.devices))
    return replicas


@dataclass(frozen=True, slots=True)
class Near:
    """The devices of a partition's `local` writes in one region: the primaries there, and the handoffs that stand in
    for those elsewhere, as many as the partition has replicas.
    """

    primaries: Sequence[Device]
    standing: Sequence[Device]
    quorum: Quorum

    def proves_absence(self, absent: Collection[Device], answered: Collection[Device]) -> bool:
        """Return whether nothing that was acknowledged in the region, or has been brought there, is out of sight.

        `absent` are devices that have missed nothing and do not have it, `answered` those that have said anything.
        """
        lacking = sum(device in absent for device in self.primaries)
        silent = sum(device not in answered for device in (*self.primaries, *self.standing))
        return bool(self.primaries) and lacking >= write_quorum(len(self.primaries)) and silent < self.quorum.count


def near_devices(ring: Ring, partition: int, place: Place) -> Near:
    """Return the devices of `local` writes at a place; none when the ring has no device in its region."""
    primaries = ring.primaries(partition)
    quorum = Quorum.of(primaries)
    if not writes_near(ring, place):
        return Near((), (), quorum)
    near = [device for device in primaries if device.region == place.region]
    return Near(near, standing_in(ring, partition, len(primaries), place.region), quorum)


def _near(ring: Ring, partition: int, suppressed: Suppressed, place: Place) -> WritePlan:
    near = near_devices(ring, partition, place)
    here = (*near.primaries, *near.standing)
    far = [device for device in ring.primaries(partition) if device.region != place.region]
    sound = [device for device in here if not suppressed(device)]
    late = [device for device in here if suppressed(device)]
    order = [*sound, *(device for device in far if not suppressed(device)), *late, *filter(suppressed, far)]
    # What the region has enough devices for does not wait for others.
    count = min(len(near.primaries) + len(far), max(len(sound), near.quorum.count))
    rest = tuple(order[count:]), ids_of(near.standing)
    return WritePlan(tuple(order[:count]), near.quorum, lambda: rest)


def _in_each_region(ring: Ring, partition: int, primaries: Sequence[Device], suppressed: Suppressed) -> WritePlan:
    quorum = Quorum.in_each_region(primaries)

    def find() -> list[Device]:
        spares: list[Device] = []
        wanted = by_region(primaries)
        for device in ring.handoffs(partition):
            if wanted[device.region]:
                wanted[device.region] -= 1
                spares.append(device)
            if not wanted.total():
                break
        return spares

    plan = _arranged(primaries, find, suppressed, quorum)
    if any(suppressed(device) for device in plan.slots):
        sound = by_region(device for device in plan.slots if not suppressed(device))
        lost = [region for region, needed in quorum.regions if sound[region] < needed]
        if lost:
            plan.hopeless = (
                f"too few devices in region {', '.join(lost)} have answered lately, and a write of this storage policy "
                "needs most of its replicas in each region"
            )
    return plan


def _arranged(
    primaries: Sequence[Device], find: Callable[[], list[Device]], suppressed: Suppressed, quorum: Quorum
) -> WritePlan:
    """Return the plan in which suppressed primaries have changed places with sound spares that may replace them; `find`
    returns the spares.
    """
    if not any(suppressed(device) for device in primaries):

        def later() -> Rest:
            spares = find()
            return tuple(sorted(spares, key=suppressed)), ids_of(spares)

        return WritePlan(tuple(primaries), quorum, later)
    spares = find()
    plan = WritePlan(tuple(primaries), quorum)
    sound = [device for device in spares if not suppressed(device)]
    slots: list[Device] = []
    last: list[Device] = []
    for device in primaries:
        spare = next((one for one in sound if plan.stands_in(one, device)), None) if suppressed(device) else None
        if spare is None:
            slots.append(device)
        else:
            sound.remove(spare)
            last.append(device)
            slots.append(spare)
    last.extend(device for device in spares if suppressed(device))
    rest = (*sound, *last), ids_of(spares)
    return WritePlan(tuple(slots), quorum, lambda: rest)
