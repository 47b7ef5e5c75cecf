"""The builder: devices and settings that change over time, and the rebalance that turns them into a ring.

A builder is plain state without a clock: the hour is passed in. All its changes take effect on the ring with the
next `rebalance`; `encode_builder` and friends (`swiftlet.ring.codec`) keep it between two of them.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, replace
from random import Random

from swiftlet.ring.balance import RingReport, report
from swiftlet.ring.deal import deal
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import (
    MAX_DEVICES,
    NOBODY,
    Device,
    RingError,
    check_shape,
    check_weight,
    replica_classes,
    row_lengths,
)
from swiftlet.ring.plan import Plan, make_plan
from swiftlet.ring.rebalance import Assignment, Progress
from swiftlet.ring.topology import Topology

NEVER = 0
"""The hour of the last move of a partition that was never moved."""
_MAX_HOUR = 0xFFFFFFFF
_FIRST_ROUNDS = 3
"""How many times a first layout is brought nearer to its quotas."""


@dataclass(frozen=True, slots=True)
class RebalanceResult:
    """The outcome of one rebalance.

    `version` is the new ring's. `moved` counts replicas that went from one device to another, and `moved_partitions`
    partitions with such a replica. `assigned` counts replicas that exist for the first time (first layout, more
    replicas), `dropped` replicas that no longer exist. `surplus` counts replicas that are still on devices with more
    than their quota, because their partition may not move yet or no move helps: rebalance again after `min_part_hours`.
    `report` has the new ring's quality, with `balance` and `dispersion` repeated here.
    """

    version: int
    moved: int
    moved_partitions: int
    assigned: int
    dropped: int
    surplus: int
    balance: float
    dispersion: float
    report: RingReport


class RingBuilder:
    """Devices, settings and the current assignment of one ring.

    Ids of removed devices are never given to another device. All methods raise RingError, naming the field and
    the fix, and change nothing when they do.
    """

    def __init__(
        self, part_power: int, replicas: float, min_part_hours: int, overload: float = 0.0, seed: int = 0
    ) -> None:
        """Create a builder for a ring of 2^part_power partitions.

        `min_part_hours` is the number of hours that must pass between two moves of replicas of one partition, so that
        the first has been copied before the second begins. `overload` is how far devices may exceed their weighted
        share to keep replicas apart, 0.1 = 10 %. Rings with different `seed`s differ even if they have the same
        devices.
        """
        check_shape(part_power, replicas)
        self.part_power = part_power
        self.replicas = float(replicas)
        self.min_part_hours = _min_part_hours(min_part_hours)
        self.overload = _overload(overload)
        self.seed = seed
        self.version = 0
        self._devices: list[Device | None] = []
        self._rows: list[array[int]] = []
        self._moved_at: array[int] = array("I")
        self._ring: Ring | None = None

    @classmethod
    def restore(
        cls,
        *,
        part_power: int,
        replicas: float,
        min_part_hours: int,
        overload: float,
        seed: int,
        version: int,
        devices: Iterable[Device | None],
        moved_at: array[int],
        ring: Ring | None,
    ) -> RingBuilder:
        """Return a builder from saved state; `ring` is that of the last rebalance. Raises RingError when parts don't
        fit.
        """
        builder = cls(part_power, replicas, min_part_hours, overload, seed)
        builder.version = version
        builder._devices = list(devices)
        if any(device is not None and device.id != index for index, device in enumerate(builder._devices)):
            raise RingError("the builder's devices are not in order of their ids")
        if ring is not None:
            if ring.part_power != part_power or ring.version != version or len(moved_at) != ring.partition_count:
                raise RingError("the builder's tables do not match its settings")
            if len(ring.devices) > len(builder._devices):
                raise RingError("the ring has devices that the builder does not know")
            builder._rows, builder._moved_at, builder._ring = list(ring.rows), moved_at, ring
        elif version or moved_at:
            raise RingError("the builder has been rebalanced but its ring is missing")
        return builder

    @property
    def devices(self) -> tuple[Device | None, ...]:
        """The devices by their ids; None for removed ones."""
        return tuple(self._devices)

    @property
    def moved_at(self) -> array[int]:
        """The hour of the last move of each partition (`NEVER` if there was none); not to be changed."""
        return self._moved_at

    @property
    def ring(self) -> Ring:
        """The ring of the last rebalance; later changes to devices don't show in it."""
        if self._ring is None:
            raise RingError("the ring has not been built yet; rebalance first")
        return self._ring

    @property
    def has_ring(self) -> bool:
        """Whether there was a rebalance."""
        return self._ring is not None

    def device(self, device_id: int) -> Device:
        """Return the device with this id. Raises RingError when there is none."""
        found = self._devices[device_id] if 0 <= device_id < len(self._devices) else None
        if found is None:
            raise RingError(f"there is no device with id {device_id}")
        return found

    def add_device(
        self,
        *,
        host: str,
        port: int,
        device: str,
        region: str,
        zone: str,
        weight: float,
        node: str | None = None,
        name: str | None = None,
    ) -> Device:
        """Add a device; `node` is the host unless given, `name` is `host:port/device` unless given."""
        if len(self._devices) >= MAX_DEVICES:
            raise RingError(f"a ring can have at most {MAX_DEVICES} devices, including those removed; build a new ring")
        added = Device(
            id=len(self._devices),
            name=f"{host}:{port}/{device}" if name is None else name,
            host=host,
            port=port,
            device=device,
            region=region,
            zone=zone,
            node=host if node is None else node,
            weight=float(weight),
        )
        self._check_unique(added)
        self._devices.append(added)
        return added

    def remove_device(self, device_id: int) -> Device:
        """Remove a device: the next rebalance gives its replicas to others, whatever `min_part_hours` says.

        To drain a healthy device without losing a replica for the time of copying, set its weight to 0 first.
        """
        removed = self.device(device_id)
        self._devices[device_id] = None
        return removed

    def set_weight(self, device_id: int, weight: float) -> Device:
        """Change a device's weight; 0 drains it."""
        check_weight(weight, self.device(device_id).name)
        return self._update(replace(self.device(device_id), weight=float(weight)))

    def update_device(
        self,
        device_id: int,
        *,
        name: str | None = None,
        host: str | None = None,
        port: int | None = None,
        device: str | None = None,
        region: str | None = None,
        zone: str | None = None,
        node: str | None = None,
    ) -> Device:
        """Change the given fields of a device.

        New addresses show in the ring at the next rebalance without moving anything; a new place in the topology moves
        replicas as far as dispersion needs it.
        """
        old = self.device(device_id)
        return self._update(
            replace(
                old,
                name=old.name if name is None else name,
                host=old.host if host is None else host,
                port=old.port if port is None else port,
                device=old.device if device is None else device,
                region=old.region if region is None else region,
                zone=old.zone if zone is None else zone,
                node=old.node if node is None else node,
            )
        )

    def set_replicas(self, replicas: float) -> None:
        """Change the number of replicas; the next rebalance adds or drops them."""
        check_shape(self.part_power, replicas)
        self.replicas = float(replicas)

    def set_overload(self, overload: float) -> None:
        """Change how far devices may exceed their weighted share, 0.1 = 10 %."""
        self.overload = _overload(overload)

    def set_min_part_hours(self, hours: int) -> None:
        """Change the hours between two moves of one partition."""
        self.min_part_hours = _min_part_hours(hours)

    def rebalance(
        self, now_hours: int, *, ignore_min_part_hours: bool = False, progress: Progress | None = None
    ) -> RebalanceResult:
        """Assign partitions to the devices as they are now, moving as little as possible.

        `now_hours`: hours since the epoch. `ignore_min_part_hours` treats the waiting time of all partitions as
        over (only when the replicators are known to be done). At most one replica of a partition moves, except
        that every replica on a removed device is replaced; see `swiftlet.ring.rebalance` for the rules. The
        result depends on the devices, the previous ring, the settings and the seed alone.
        """
        if not 0 < now_hours <= _MAX_HOUR:
            raise RingError(f"now_hours {now_hours} is not a number of hours since the epoch")
        devices = [device for device in self._devices if device is not None]
        lengths = row_lengths(self.part_power, self.replicas)
        position = {device.id: index for index, device in enumerate(devices)}
        topology = Topology(devices) if devices else None
        classes = replica_classes(lengths)
        if topology is None or topology.capacity[0] < len(lengths):
            usable = sum(1 for device in devices if device.weight > 0)
            raise RingError(
                f"replicas: {self.replicas:g} replicas need {len(lengths)} devices with a weight above 0, there are "
                f"{usable}; add devices or lower the number of replicas"
            )
        rng = Random(f"{self.seed}:{self.version}")  # noqa: S311 - spreads replicas, protects nothing
        rows, dropped = self._table(lengths, position)
        held = _held_by_class(rows, classes, len(devices))
        plans = [
            make_plan(topology, end - start, replicas, self.overload, current)
            for (start, end, replicas), current in zip(classes, held, strict=True)
        ]
        if self._rows:
            moved, touched, assignment = self._change(
                topology, plans, rows, now_hours, ignore_min_part_hours, rng, progress
            )
            assigned = assignment.assigned
        else:
            assignment = _first_layout(topology, plans, classes, lengths, rng, progress)
            moved, assigned, touched = 0, sum(lengths), bytearray(b"\1") * lengths[0]
        moved_partitions = self._adopt(assignment.rows, devices, touched, now_hours)
        quality = report(self.ring)
        return RebalanceResult(
            version=self.version,
            moved=moved,
            moved_partitions=moved_partitions,
            assigned=assigned,
            dropped=dropped,
            surplus=sum(-need for need in assignment.needs if need < 0),
            balance=quality.balance,
            dispersion=quality.dispersion,
            report=quality,
        )

    def _table(self, lengths: list[int], position: dict[int, int]) -> tuple[list[array[int]], int]:
        """Return the current assignment by device position in its new size, and how many replicas fall away."""
        names = [position.get(id_, NOBODY) for id_ in range(len(self._devices))]
        dropped = 0
        rows: list[array[int]] = []
        for replica, length in enumerate(lengths):
            old = self._rows[replica] if replica < len(self._rows) else array("H")
            dropped += max(0, len(old) - length)
            row = array("H", [names[id_] for id_ in old[:length]])
            row.extend([NOBODY] * (length - len(row)))
            rows.append(row)
        return rows, dropped + sum(len(row) for row in self._rows[len(lengths) :])

    def _change(
        self,
        topology: Topology,
        plans: list[Plan],
        rows: list[array[int]],
        now_hours: int,
        ignore_min_part_hours: bool,
        rng: Random,
        progress: Progress | None,
    ) -> tuple[int, bytearray, Assignment]:
        limit = _MAX_HOUR if ignore_min_part_hours else now_hours - self.min_part_hours
        movable = bytearray([hour <= limit for hour in self._moved_at])
        assignment = Assignment(topology, plans, rows, movable, rng, progress)
        known = [len(row) for row in self._rows] + [0] * len(rows)
        assignment.place(known)
        assignment.disperse()
        assignment.shed()
        assignment.finished()
        return assignment.moved, assignment.touched, assignment

    def _adopt(self, rows: list[array[int]], devices: list[Device], touched: bytearray, now_hours: int) -> int:
        """Make a finished table the builder's; return the number of partitions with a moved replica."""
        ids = [device.id for device in devices]
        new = [array("H", [ids[index] for index in row]) for row in rows]
        changed = bytearray(len(touched))
        for old_row, new_row in zip(self._rows, new, strict=False):
            for partition, (old, now) in enumerate(zip(old_row, new_row, strict=False)):
                if old != now:
                    changed[partition] = 1
        if not self._moved_at:
            self._moved_at = array("I", [NEVER]) * len(touched)
        for partition, flag in enumerate(touched):
            if flag:
                self._moved_at[partition] = now_hours
        self.version += 1
        self._rows = new
        self._ring = Ring(self.version, self.part_power, self.replicas, self._devices, new)
        return sum(changed)

    def _update(self, changed: Device) -> Device:
        self._check_unique(changed)
        self._devices[changed.id] = changed
        return changed

    def _check_unique(self, candidate: Device) -> None:
        address = (candidate.port, candidate.host, candidate.device)
        for device in self._devices:
            if device is None or device.id == candidate.id:
                continue
            if device.name == candidate.name:
                raise RingError(f"name {candidate.name!r} is taken by device {device.id}; names must be unique")
            if (device.port, device.host, device.device) == address:
                raise RingError(
                    f"device {device.id} already has {candidate.address}; at least one of host, port and "
                    "device must differ"
                )


def _first_layout(
    topology: Topology,
    plans: list[Plan],
    classes: list[tuple[int, int, int]],
    lengths: list[int],
    rng: Random,
    progress: Progress | None,
) -> Assignment:
    rows: list[array[int]] = [array("H") for _ in lengths]
    for plan in plans:
        for row, dealt in zip(rows, deal(topology, plan, rng), strict=False):
            row.extend(dealt)
    movable = bytearray(b"\1") * lengths[0]
    assignment = Assignment(topology, plans, rows, movable, rng, progress)
    for _ in range(_FIRST_ROUNDS):
        assignment.shed()
        assignment.touched = bytearray(lengths[0])  # there is no data yet that could move twice
    assignment.smooth()
    assignment.finished()
    return assignment


def _held_by_class(rows: list[array[int]], classes: list[tuple[int, int, int]], size: int) -> list[list[int]]:
    result = []
    for start, end, replicas in classes:
        held = [0] * size
        for row in rows[:replicas]:
            for index in row[start:end]:
                if index != NOBODY:
                    held[index] += 1
        result.append(held)
    return result


def _overload(overload: float) -> float:
    if not (math.isfinite(overload) and overload >= 0):
        raise RingError(f"overload {overload} must be 0 or more; 0.1 allows 10 % above the weighted share")
    return float(overload)


def _min_part_hours(hours: int) -> int:
    if not 0 <= hours <= _MAX_HOUR:
        raise RingError(f"min_part_hours {hours} must be 0 or more hours")
    return hours
