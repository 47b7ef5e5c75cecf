"""What happens to a ring, from the devices it should have and the last builder. Pure.

A device enters once its place is known, with a part of its weight, and gains the same part with every rebalance; the
first layout takes full weights, as there is nothing to move yet. A device that should not be there is drained: its
weight becomes 0, and it leaves when no partition is assigned to it and it is known to be empty. While fewer devices
would stay than there are replicas, nothing is drained at all. A device that is now in another zone is a change as well:
its replicas may share that zone with others.

There is at most one rebalance per `min_part_hours`, and none before all devices are known to be in sync with the ring
of the last one, so that what was moved has been copied before more is; each moves at most one replica of a partition. A
rebalance that could not move enough is followed by another.

A builder is kept in pieces with a digest over the whole. If they can't be read but the ring can, a builder is made from
the ring, all of whose partitions count as just moved.
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import zip_longest

from swiftlet.ring import Device, Ring, RingBuilder, RingError, codec, report
from swiftlet.ring.model import Coding
from swiftlet_operator.manifests import named as named
from swiftlet_operator.problems import BrokenState

STEPS = 4
"""How many rebalances a new device takes until it has its full weight."""
BUILDER_PIECE_BYTES = 900_000
"""The largest size of a piece of a builder: a ConfigMap holds 1 MiB."""
_HOUR_S = 3600
GATE_S = 15.0
"""Seconds until devices are asked again while a rebalance waits for them."""
_REMEMBERED = 8
"""For how many rings measures are kept; those of one ring take some hundred kilobytes."""


@dataclass(frozen=True, slots=True)
class Shape:
    """The settings of a ring. `coding` is its policy's, None of one with copies."""

    part_power: int
    replicas: float
    min_part_hours: int
    overload: float
    coding: Coding | None = None

    @property
    def described(self) -> str:
        """The replicas in words."""
        return f"{self.replicas:g} replicas" if self.coding is None else f"{self.coding} fragments"

    @property
    def spare(self) -> int:
        """How many replicas of a partition may be away while the others acknowledge writes by themselves."""
        return spare(math.ceil(self.replicas), self.coding)

    @property
    def losable(self) -> int:
        """How many replicas of a partition may be lost while all of its objects can be read."""
        return math.floor(self.replicas) - 1 if self.coding is None else self.coding.parity


def spare(replicas: int, coding: Coding | None) -> int:
    """Return how many of so many replicas may be away while there is a quorum."""
    return (replicas - 1) // 2 if coding is None else coding.fragments - coding.quorum


@dataclass(frozen=True, slots=True)
class Wanted:
    """A device that should take part; `zone` and `node` are None while its place is unknown.

    `full`: it is so full that its weight must not rise.
    """

    name: str
    host: str
    port: int
    device: str
    region: str
    weight: float
    zone: str | None
    node: str | None
    full: bool = False


@dataclass(frozen=True, slots=True)
class Task:
    """A ring as it should be.

    `empty`: names of devices that hold nothing any more, so that they may leave. `behind`: names of devices that a
    rebalance waits for. `hold`: why there is no rebalance at all for now. `hurry`: whether a first layout may do
    without the devices whose place is unknown. `foreign`: names of devices of other members of a federation.
    """

    ring: str
    shape: Shape
    wanted: tuple[Wanted, ...]
    empty: frozenset[str] = frozenset()
    behind: tuple[str, ...] = ()
    hold: str = ""
    hurry: bool = False
    foreign: frozenset[str] = frozenset()

    @property
    def own(self) -> tuple[Wanted, ...]:
        """The devices that are of this cluster."""
        return tuple(one for one in self.wanted if one.name not in self.foreign)


@dataclass(frozen=True, slots=True)
class Saved:
    """What is kept of a ring between two looks: its builder, the time of the last rebalance, and what is left to do.

    `moved` and `surplus` are those of the last rebalance; see `swiftlet.ring.RebalanceResult`.
    """

    builder: bytes
    rebalanced_at_s: int
    moved: int
    surplus: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for a ring.

    `saved` is None before the first layout, and the very object that was given when nothing changed. `waiting` says why
    there is more to do but not now, `refused` what is not done at all (reason, message); `again_in_s` when to look
    again. `present`: the names of all devices in the builder; `zones`: their zones. `content`: a digest of who has
    which partition, which is the same however the ring is packed.
    """

    ring: str
    saved: Saved | None
    chunks: tuple[bytes, ...] = ()
    version: int = 0
    devices: int = 0
    balance: float = 0.0
    dispersion: float = 0.0
    present: frozenset[str] = frozenset()
    zones: frozenset[str] = frozenset()
    draining: frozenset[str] = frozenset()
    drained: frozenset[str] = frozenset()
    waiting: str = ""
    refused: tuple[str, str] | None = None
    again_in_s: float | None = None
    content: str = ""


@dataclass(frozen=True, slots=True)
class Known:
    """What a saved builder says: version, part power, zone and node of each device by name, who has partitions, and the
    replicas and devices themselves.
    """

    version: int
    part_power: int
    zones: Mapping[str, str]
    nodes: Mapping[str, str]
    assigned: frozenset[str]
    replicas: float = 0.0
    devices: tuple[Device, ...] = ()


@dataclass(frozen=True, slots=True)
class Rebalance:
    """A rebalance, or a first layout, that is due: the part that may take long on the processor.

    `builder` is `saved` as it was changed for `task`; `changed` says whether it was.
    """

    task: Task
    builder: RingBuilder
    saved: Saved | None
    changed: bool
    now_s: int

    def run(self) -> Outcome:
        """Run the rebalance, which must be done only once."""
        return _rebalance(self.task, self.builder, self.saved, self.changed, self.now_s)


Rebalancer = Callable[[Rebalance], Outcome | None]
"""Returns the result of a rebalance; None when it is not known yet."""
AT_WORK = "it is being laid out"


def known(ring: str, saved: Saved) -> Known:
    """Return what a saved builder says. Raises BrokenState when it can't be read."""
    return _known(ring, saved.builder)


@lru_cache(maxsize=_REMEMBERED)
def _known(ring: str, data: bytes) -> Known:
    builder = _decode(ring, data)
    devices = [device for device in builder.devices if device is not None]
    held = _held(builder)
    return Known(
        version=builder.version,
        part_power=builder.part_power,
        zones={device.name: device.zone for device in devices},
        nodes={device.name: device.node for device in devices},
        assigned=frozenset(device.name for device in devices if held.get(device.id)),
        replicas=builder.replicas,
        devices=tuple(devices),
    )


@lru_cache(maxsize=_REMEMBERED)
def combinations(ring: str, data: bytes) -> Mapping[tuple[str, ...], int]:
    """Return how many partitions have their replicas on the same devices, by the devices' names. Raises BrokenState."""
    table = _decode(ring, data).ring
    names = {device.id: device.name for device in table.devices if device is not None}
    ids = Counter(zip_longest(*table.rows))
    return {tuple(names[one] for one in held if one is not None): count for held, count in ids.items()}


def look(task: Task, saved: Saved | None) -> Outcome:
    """Return the ring as it is, unchanged. Raises BrokenState when the saved builder can't be read."""
    return _outcome(task, _decode(task.ring, saved.builder), saved) if saved else Outcome(task.ring, None)


def advance(task: Task, saved: Saved | None, now_s: int, rebalance: Rebalancer = Rebalance.run) -> Outcome:
    """Take one step towards the ring as it should be. Raises BrokenState when the saved builder can't be read."""
    if saved is None:
        return _first(task, now_s, rebalance)
    builder = _decode(task.ring, saved.builder)
    refused = _refusal(task, builder)
    if refused is not None:
        return _outcome(task, builder, saved, refused=refused)
    changed = _change(builder, task)
    if not changed and saved.surplus == 0:
        return _outcome(task, builder, saved)
    waiting, again_in_s = _not_now(task, saved, now_s)
    if waiting:
        # The changed builder is not kept: the next look makes the same change again.
        kept = _decode(task.ring, saved.builder)
        return _outcome(task, kept, saved, waiting=waiting, again_in_s=again_in_s)
    outcome = rebalance(Rebalance(task, builder, saved, changed, now_s))
    if outcome is not None:
        return outcome
    return _outcome(task, _decode(task.ring, saved.builder), saved, waiting=AT_WORK, again_in_s=GATE_S)


def _not_now(task: Task, saved: Saved, now_s: int) -> tuple[str, float | None]:
    """Return why a rebalance has to wait, and when to look again; empty when it need not."""
    if task.hold:
        return task.hold, None
    due_s = saved.rebalanced_at_s + task.shape.min_part_hours * _HOUR_S
    if now_s < due_s:
        return f"the next rebalance is due {task.shape.min_part_hours} h after the last one", float(due_s - now_s)
    if task.behind:
        return f"the next rebalance waits until {named(task.behind)} are in sync with the last one", GATE_S
    return "", None


def _first(task: Task, now_s: int, rebalance: Rebalancer) -> Outcome:
    if task.hold:
        return Outcome(task.ring, None, waiting=task.hold)
    located = [one for one in task.wanted if one.zone is not None]
    missing = len(task.wanted) - len(located)
    if missing and not task.hurry:
        return Outcome(task.ring, None, waiting=f"{missing} of {len(task.wanted)} devices have not been scheduled yet")
    needed = math.ceil(task.shape.replicas)
    usable = sum(1 for one in located if one.weight > 0)
    if usable < needed:
        message = (
            f"ring {task.ring} needs {needed} devices for its {task.shape.described}, there are "
            f"{usable}; add pods to its pools{_or_fewer(task.shape)}"
        )
        return Outcome(task.ring, None, refused=("TooFewDevices", message))
    shape = task.shape
    builder = RingBuilder(shape.part_power, shape.replicas, shape.min_part_hours, shape.overload)
    for one in located:
        _add(builder, one, one.weight)
    outcome = rebalance(Rebalance(task, builder, None, True, now_s))
    return outcome if outcome is not None else Outcome(task.ring, None, waiting=AT_WORK, again_in_s=GATE_S)


def _rebalance(task: Task, builder: RingBuilder, saved: Saved | None, changed: bool, now_s: int) -> Outcome:
    before = _facts(builder.ring) if builder.has_ring else None
    try:
        result = builder.rebalance(now_s // _HOUR_S)
    except RingError as error:
        kept = _decode(task.ring, saved.builder) if saved is not None else None
        refused = ("RebalanceFailed", f"ring {task.ring}: {error}")
        return _outcome(task, kept, saved, refused=refused) if kept else Outcome(task.ring, None, refused=refused)
    surplus = result.surplus if result.moved else 0
    if not changed and before == _facts(builder.ring):
        # Another rebalance would not help: remember that, and publish no new version of the same ring.
        assert saved is not None
        done = replace(saved, surplus=0)
        return _outcome(task, _decode(task.ring, saved.builder), done)
    made = Saved(codec.encode_builder(builder), now_s, result.moved, surplus)
    more = surplus > 0 or any(_step(device, one) for device, one in _pairs(builder, task))
    hours = task.shape.min_part_hours
    return _outcome(
        task,
        builder,
        made,
        waiting=f"the next rebalance is due {hours} h after this one" if more else "",
        again_in_s=float(max(hours * _HOUR_S, 1)) if more else None,
    )


def _or_fewer(shape: Shape) -> str:
    return "" if shape.coding is not None else ", or lower the replicas"


def _facts(ring: Ring) -> tuple[object, ...]:
    return ring.devices, tuple(bytes(row) for row in ring.rows)


def _refusal(task: Task, builder: RingBuilder) -> tuple[str, str] | None:
    if builder.part_power != task.shape.part_power:
        return "PartPowerChanged", (
            f"ring {task.ring} was made with partPower {builder.part_power}, which is for its life, and its Ring "
            f"object says {task.shape.part_power}: delete the Ring object, and it is made again with "
            f"{builder.part_power}"
        )
    members = {device.name for device in builder.devices if device is not None}
    staying = [one for one in task.wanted if one.weight > 0 and (one.name in members or one.zone is not None)]
    needed = math.ceil(task.shape.replicas)
    if len(staying) < needed:
        return "TooFewDevices", (
            f"ring {task.ring} would be left with {len(staying)} devices for its {task.shape.described}; nothing is "
            f"drained: add pods to its pools{_or_fewer(task.shape)} first"
        )
    return None


def _change(builder: RingBuilder, task: Task) -> bool:
    """Give the builder the devices and settings that it should have next; return whether anything changed."""
    before = (builder.devices, builder.replicas, builder.overload)
    minimum = builder.min_part_hours
    builder.set_replicas(task.shape.replicas)
    builder.set_overload(task.shape.overload)
    if minimum != task.shape.min_part_hours:
        builder.set_min_part_hours(task.shape.min_part_hours)
    members = {device.name: device for device in builder.devices if device is not None}
    expected = {one.name for one in task.wanted}
    leaving = [device for device in members.values() if device.name not in expected]
    held = _held(builder) if leaving else {}
    for device in leaving:
        if device.weight > 0:
            builder.set_weight(device.id, 0)
        elif device.name in task.empty and not held.get(device.id):
            builder.remove_device(device.id)
    for one in task.wanted:
        if one.name in members:
            # Telling a builder of a device makes it go through all others.
            if _step(members[one.name], one):
                builder.set_weight(members[one.name].id, _next_weight(members[one.name].weight, one))
        elif one.zone is not None:
            _add(builder, one, one.weight / STEPS)
    moved = any(
        one.zone is not None and (one.region, one.zone) != (device.region, device.zone)
        for device, one in _pairs(builder, task)
    )
    if (builder.devices, builder.replicas, builder.overload) == before and not moved:
        return False
    _relocate(builder, task)
    return True


def _relocate(builder: RingBuilder, task: Task) -> None:
    """Take over the present places of devices. A pod that moves alone to another node of its zone moves no data."""
    for device, one in _pairs(builder, task):
        if one.zone is not None and one.node is not None:
            builder.update_device(
                device.id, host=one.host, port=one.port, region=one.region, zone=one.zone, node=one.node
            )


def _pairs(builder: RingBuilder, task: Task) -> list[tuple[Device, Wanted]]:
    wanted = {one.name: one for one in task.wanted}
    return [(d, wanted[d.name]) for d in builder.devices if d is not None and d.name in wanted]


def _step(device: Device, one: Wanted) -> bool:
    return _next_weight(device.weight, one) != device.weight


def _next_weight(now: float, one: Wanted) -> float:
    """Return the weight plus a quarter of the goal unless the device is full, or the goal at once when that is less."""
    goal = min(one.weight, now) if one.full else one.weight
    return min(goal, now + goal / STEPS) if now < goal else goal


def _add(builder: RingBuilder, one: Wanted, weight: float) -> None:
    assert one.zone is not None
    builder.add_device(
        host=one.host,
        port=one.port,
        device=one.device,
        region=one.region,
        zone=one.zone,
        weight=weight,
        node=one.node or one.host,
        name=one.name,
    )


def _held(builder: RingBuilder) -> Mapping[int, int]:
    """Return the replicas per device id in the ring of the last rebalance."""
    held: dict[int, int] = {}
    if builder.has_ring:
        for row in builder.ring.rows:
            for id_, count in Counter(row).items():
                held[id_] = held.get(id_, 0) + count
    return held


def _outcome(
    task: Task,
    builder: RingBuilder,
    saved: Saved | None,
    *,
    waiting: str = "",
    refused: tuple[str, str] | None = None,
    again_in_s: float | None = None,
) -> Outcome:
    devices = [device for device in builder.devices if device is not None]
    expected = {one.name for one in task.wanted}
    leaving = [device for device in devices if device.name not in expected]
    held = _held(builder) if leaving else {}
    published = _published(codec.encode(builder.ring))
    return Outcome(
        ring=task.ring,
        saved=saved,
        chunks=published.chunks,
        version=builder.version,
        devices=len(devices),
        balance=published.balance,
        dispersion=published.dispersion,
        present=frozenset(device.name for device in devices),
        zones=frozenset(device.zone for device in devices),
        draining=frozenset(device.name for device in leaving),
        drained=frozenset(d.name for d in leaving if d.weight == 0 and not held.get(d.id)),
        waiting=waiting,
        refused=refused,
        again_in_s=again_in_s,
        content=published.content,
    )


@dataclass(frozen=True, slots=True)
class _Published:
    chunks: tuple[bytes, ...]
    balance: float
    dispersion: float
    content: str


@lru_cache(maxsize=_REMEMBERED)
def _published(data: bytes) -> _Published:
    """Return what follows from a ring alone; kept, as a cluster at rest is looked at often and measuring takes long."""
    ring = codec.decode(data)
    quality = report(ring)
    return _Published(tuple(codec.chunks(ring)), quality.balance, quality.dispersion, content_of(ring))


def content_of(ring: Ring) -> str:
    """Return a digest of who has which partition of a ring."""
    found = hashlib.sha256()
    names = [device.name if device is not None else "" for device in ring.devices]
    found.update(repr((ring.version, ring.part_power, names)).encode())
    for row in ring.rows:
        found.update(bytes(row))
    return found.hexdigest()


def _decode(ring: str, data: bytes) -> RingBuilder:
    try:
        return codec.decode_builder(data)
    except RingError as error:
        raise BrokenState(f"the builder of ring {ring} can't be used: {error}") from error


def split(data: bytes) -> list[bytes]:
    """Return a builder's bytes in pieces that fit ConfigMaps, each after the digest of the whole."""
    digest = hashlib.sha256(data).digest()
    room = BUILDER_PIECE_BYTES - len(digest)
    return [digest + data[start : start + room] for start in range(0, len(data), room)]


def unite(pieces: Sequence[bytes]) -> bytes | None:
    """Return the bytes that were `split`; None when pieces are missing, damaged or of different builders."""
    digest = hashlib.sha256().digest_size
    data = b"".join(piece[digest:] for piece in pieces)
    whole = hashlib.sha256(data).digest()
    return data if pieces and all(piece[:digest] == whole for piece in pieces) else None


def rebuilt(ring: Ring, shape: Shape, now_s: int) -> Saved:
    """Return a builder made from the ring alone: all of its partitions count as moved right now."""
    hours = now_s // _HOUR_S
    builder = RingBuilder.restore(
        part_power=ring.part_power,
        replicas=ring.replica_count,
        min_part_hours=shape.min_part_hours,
        overload=shape.overload,
        seed=0,
        version=ring.version,
        devices=ring.devices,
        moved_at=array("I", [hours]) * ring.partition_count,
        ring=ring,
    )
    return Saved(codec.encode_builder(builder), now_s, 0, 0)


def ring_of(chunks: Sequence[bytes]) -> Ring | None:
    """Return the ring that chunks make, None when they don't make one."""
    try:
        return codec.join(chunks)
    except RingError:
        return None
