"""The invariants, checked at every change and at the end; the first violation ends the history with a message.

Checked at every change: no device's version of an object gets older; nothing older is offered to a device that has
shown something newer; a handoff copy is dropped only when all primaries hold it; a tombstone is not forgotten before
its time, nor while a device that could long have received it still holds older data, unless all primaries have
something newer. Checked at the end: replicas are equal within their mode's number of rounds, nothing more is moved, no
acknowledged write is lost, nothing deleted has returned.

Known limits, which are counted and not reported as violations: a deletion may be undone by a device that was away for
about `reclaim_age` or longer with the old data (`exempt`); a POST newer than a deletion that reaches an object created
again in between may or may not count.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from swiftlet.model import Entry, Kind
from swiftlet.sync.session.compare import Push, forgotten_before, is_returned
from swiftlet.sync.session.effects import Drop
from swiftlet.testing.sim.client import Verb, Write
from swiftlet.testing.sim.network import TIMEOUT_S, Timeline
from swiftlet.testing.sim.node import EPOCH_S, Node, Witness, WorldTerms
from swiftlet.testing.sim.store import Parcel, Watch
from swiftlet.timestamp import ZERO, Timestamp


class Broken(Exception):
    """An invariant is violated; the text says which."""


@dataclass(slots=True)
class Counts:
    """How often each kind of event happened in a history."""

    writes: int = 0
    acknowledged: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    moved: int = 0
    crossed: int = 0
    """How often data went from one region to another."""
    crossed_again: int = 0
    """How often they went to a region to which the same had gone before."""
    dropped: int = 0
    reclaimed: int = 0
    exempt: int = 0
    rounds: int = 0
    messages: int = 0
    rows: int = 0
    """The number of changes of rows."""
    proved: int = 0
    """How many names had rows that matched their objects, without an audit."""
    unproved: int = 0
    """How many names needed an audit."""
    audited: int = 0
    """How many rows the last audit put right, all of names that needed one."""

    def fault(self, name: str) -> None:
        """Count one event of this kind."""
        self.faults[name] = self.faults.get(name, 0) + 1


class Checker(Witness):
    """Checks one world. `skew_s`: the largest difference of clocks; `well_s`: the time in which a healthy device
    receives every write.
    """

    def __init__(
        self, timeline: Timeline, world_terms: WorldTerms, skew_s: float, well_s: float, tracing: bool
    ) -> None:
        """Start with an empty history."""
        self.nodes: dict[int, Node] = {}
        self.writes: dict[bytes, list[Write]] = {}
        self.counts = Counts()
        self.trace: list[str] | None = [] if tracing else None
        self.exempt: set[bytes] = set()
        self.wiped_s: dict[int, float] = {}
        """When each device was last replaced by an empty one."""
        self.regions: dict[int, str] = {}
        """The region of each device."""
        self._crossed: set[tuple[str, bytes, Timestamp]] = set()
        self._forgotten: dict[tuple[int, bytes], Timestamp] = {}
        """The newest tombstone of an object that a device has forgotten."""
        self._timeline = timeline
        self._world_terms = world_terms
        self._skew_s = skew_s
        self._well_s = well_s
        self._moments: dict[Timestamp, float] = {}
        self._proved: tuple[Entry, ...] = ()

    # -- called by the others -------------------------------------------------------------------------------

    def say(self, text: str) -> None:
        """Add a line to the trace."""
        if self.trace is not None:
            self.trace.append(f"{self._timeline.now_s:9.3f}  {text}")

    def wrote(self, write: Write) -> None:
        """Record that a client begins a write."""
        self.counts.writes += 1
        self.writes.setdefault(write.digest, []).append(write)
        self._moments[write.timestamp] = write.moment_s
        self.say(f"client: {write.verb.value} {_short(write.digest)} in {write.partition} at {write.timestamp.normal}")

    def moved(self, count: int) -> None:
        """Record that objects were moved between devices."""
        self.counts.moved += count

    def crossed(self, source: Node, target: Node, push: Push) -> None:
        """Count data that went from one region to another."""
        regions = self.regions
        if regions.get(source.id) == regions.get(target.id):
            return
        self.counts.crossed += 1
        version = (regions[target.id], push.entry.digest, push.entry.timestamp)
        if version in self._crossed:
            self.counts.crossed_again += 1
        self._crossed.add(version)

    def watch(self, node: int) -> Watch:
        """Return the watch that a device tells of its changes."""

        def changed(partition: int, digest: bytes, old: Entry | None, new: Entry | None, why: str) -> None:
            if self.trace is not None:
                self.say(f"{node}: {_short(digest)} in {partition}: {_brief(old)} -> {_brief(new)} ({why})")
            if new is None:
                assert old is not None
                if why == "reclaim":
                    self._reclaimed(self.nodes[node], partition, old)
                elif why == "drop":
                    self.counts.dropped += 1
                    self._must(old in self._proved, f"device {node} drops {old}, which was not proved")
            elif old is not None and _went_back(old, new):
                self._must(False, f"{why}: device {node} went back from {old} to {new}")

        return changed

    def offered(self, node: Node, partition: int, parcel: Parcel, began_s: float) -> None:
        """Check that nothing is older than what was there before the session began, or close to being
        forgotten by all.
        """
        moment = parcel.data or parcel.tombstone
        held = node.store.held(partition, parcel.digest)
        if held is None and parcel.tombstone is not None:
            late_s = self.forgotten_s(-self._skew_s - 2 * TIMEOUT_S)
            self._must(parcel.tombstone.seconds >= late_s, f"{_short(parcel.digest)} is sent though it is forgotten")
        if moment is None or held is None or held.entry is None or held.changed_s >= began_s:
            return
        if moment < held.entry.timestamp:
            self._must(False, f"{moment} of {_short(parcel.digest)} is sent to device {node.id}: {held.entry}")

    def dropping(self, node: Node, effect: Drop, began_s: float) -> None:
        """Check that all primaries hold it, except those that lost their device or got a newer ring since the proof.

        A newer deletion counts as held, also one that has been forgotten since. The primaries consider themselves
        primaries, and the device that drops does not.
        """
        before_s = self.forgotten_s(self._skew_s)
        self._proved = effect.entries
        self._must(not node.is_primary(effect.partition), f"device {node.id}, a primary, drops {effect.partition}")
        for device in node.ring.primaries(effect.partition):
            there = self.nodes[device.id]
            if there.ring_since_s < began_s:
                takes = there.is_primary(effect.partition)
                self._must(takes, f"device {node.id} drops {effect.partition}, which device {device.id} gives away")
            if self.wiped_s.get(device.id, -1.0) >= began_s or there.ring.version > node.ring.version:
                continue
            for entry in effect.entries:
                held = there.store.held(effect.partition, entry.digest)
                home = is_returned(entry, held.entry if held else None, before_s)
                home = home or self._forgotten.get((device.id, entry.digest), ZERO) > entry.timestamp
                if not home:
                    self._must(False, f"device {node.id} drops {entry}, device {device.id} lacks it")

    def forgotten_s(self, ahead_s: float) -> float:
        """Return the age from which a clock that is so much ahead of the right one forgets tombstones."""
        now_s = EPOCH_S + self._timeline.now_s + ahead_s
        return forgotten_before(now_s, self._world_terms.reclaim_age_s, self._world_terms.reclaim_period_s)

    def _reclaimed(self, node: Node, partition: int, old: Entry) -> None:
        now_s = self._timeline.now_s
        age_s = now_s - self._moments[old.timestamp]
        least_s = self._world_terms.reclaim_age_s - 2 * self._skew_s
        self._must(age_s >= least_s, f"device {node.id} forgets {old} after {age_s:.0f} s")
        self.counts.reclaimed += 1
        spot = (node.id, old.digest)
        self._forgotten[spot] = max(old.timestamp, self._forgotten.get(spot, ZERO))
        for other in self.nodes.values():
            held = other.store.held(partition, old.digest)
            if held is None or held.entry is None or held.entry.kind is Kind.TOMBSTONE:
                continue
            if held.entry.timestamp < old.timestamp and not self._superseded(partition, old):
                well = all(n.ailments == 0 and now_s - n.well_since_s > self._well_s for n in (node, other))
                known = old.digest in self.exempt
                self._must(
                    known or not well, f"device {node.id} forgets {old}, device {other.id} still has {held.entry}"
                )
                self.exempt.add(old.digest)
                self.counts.exempt += 1

    def _superseded(self, partition: int, old: Entry) -> bool:
        """Return whether all primaries have something newer than a tombstone, so that it hides nothing from anybody."""
        ring = max((node.ring for node in self.nodes.values()), key=lambda ring: ring.version)
        there = [self.nodes[device.id].store.held(partition, old.digest) for device in ring.primaries(partition)]
        return all(held and held.entry and held.entry.timestamp > old.timestamp for held in there)

    # -- at the end ------------------------------------------------------------------------------------------

    def newest(self, live: Iterable[Node]) -> dict[bytes, Entry]:
        """Return the newest version of every object that any of these devices has."""
        found: dict[bytes, Entry] = {}
        for node in live:
            for _, held in node.store.all():
                entry = held.entry
                if entry is not None and (entry.digest not in found or _newer(entry, found[entry.digest])):
                    found[entry.digest] = entry
        return found

    def replicas(self, digest: bytes, live: frozenset[int]) -> list[Entry | None]:
        """Return what the live primaries have of an object, without forgotten tombstones."""
        before_s = self.forgotten_s(self._skew_s)
        partition = self.writes[digest][0].partition
        ring = max((self.nodes[id_].ring for id_ in live), key=lambda ring: ring.version)
        found: list[Entry | None] = []
        for device in ring.primaries(partition):
            if device.id in live:
                held = self.nodes[device.id].store.held(partition, digest)
                found.append(_remembered(held.entry if held else None, before_s))
        return found

    def equal(self, digest: bytes, newest: Entry, live: frozenset[int]) -> bool:
        """Return whether all live primaries have the same version, and none older than the newest, unless that is a
        deletion that may be undone.
        """
        found = self.replicas(digest, live)
        if any(entry != found[0] for entry in found):
            return False
        if newest.kind is Kind.TOMBSTONE and digest in self.exempt:
            return True
        if found[0] is None:
            return _remembered(newest, self.forgotten_s(self._skew_s)) is None
        return found[0].timestamp == newest.timestamp

    def history(self, live: frozenset[int]) -> None:
        """Check that no acknowledged write is lost, nothing deleted has returned, and replicas are equal by now."""
        for digest, writes in self.writes.items():
            (found, *_) = self.replicas(digest, live) or [None]
            acknowledged = [w for w in writes if w.acknowledged and w.verb is not Verb.POST]
            self.counts.acknowledged += len(acknowledged)
            if acknowledged and digest not in self.exempt:
                self._check_last(max(acknowledged, key=lambda w: w.timestamp), writes, found)
            if found is not None and found.kind is Kind.DATA and not any(w.verb is Verb.DELETE for w in writes):
                self._check_posts(writes, found)

    def _check_last(self, last: Write, writes: list[Write], found: Entry | None) -> None:
        """Check that the newest acknowledged write counts, or a newer one that was not acknowledged."""
        newer = [w for w in writes if w.timestamp >= last.timestamp and w.verb is not Verb.POST]
        if found is None:
            gone = any(w.verb is Verb.DELETE and w.timestamp.seconds < self.forgotten_s(self._skew_s) for w in newer)
            self._must(gone, f"acknowledged {last} is lost: no live device has anything of it")
            return
        kind = Verb.DELETE if found.kind is Kind.TOMBSTONE else Verb.PUT
        known = any(w.timestamp == found.timestamp and w.verb is kind for w in newer)
        lost = "came back" if last.verb is Verb.DELETE else "is lost"
        self._must(known, f"acknowledged {last} {lost}: {found} is what all have")

    def _check_posts(self, writes: list[Write], found: Entry) -> None:
        for write in writes:
            if write.verb is Verb.POST and write.acknowledged and write.timestamp > found.timestamp:
                self._must(found.meta_timestamp >= write.timestamp, f"acknowledged {write} is lost: {found}")
                if write.typed:
                    self._must(found.content_type_timestamp >= write.timestamp, f"type of {write} is lost: {found}")

    def must(self, holds: bool, text: str) -> None:
        """Raise Broken unless the condition holds."""
        self._must(holds, text)

    def _must(self, holds: bool, text: str) -> None:
        if not holds:
            self.say(f"BROKEN: {text}")
            raise Broken(text)


def _went_back(old: Entry, new: Entry) -> bool:
    if new.timestamp != old.timestamp:
        return new.timestamp < old.timestamp
    metadata = new.meta_timestamp < old.meta_timestamp or new.content_type_timestamp < old.content_type_timestamp
    return metadata and new.kind is old.kind


def _newer(one: Entry, other: Entry) -> bool:
    def place(entry: Entry) -> tuple[Timestamp, Timestamp, Timestamp]:
        return entry.timestamp, entry.meta_timestamp, entry.content_type_timestamp

    return place(one) > place(other)


def _remembered(entry: Entry | None, before_s: float) -> Entry | None:
    if entry is not None and entry.kind is Kind.TOMBSTONE and entry.timestamp.seconds < before_s:
        return None
    return entry


def _short(digest: bytes) -> str:
    return f"{digest.hex()[:4]}..{digest.hex()[-3:]}"


def _brief(entry: Entry | None) -> str:
    if entry is None:
        return "nothing"
    posted = f" +{entry.meta_timestamp.normal}" if entry.meta_timestamp.value else ""
    return f"{entry.kind.name.lower()} {entry.timestamp.internal}{posted}"
