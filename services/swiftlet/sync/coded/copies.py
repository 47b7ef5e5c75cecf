"""Copies of small objects, in a round of repairs: compared among the places that have them, brought, and handed back.

A device compares its copies with those of the other places that have them, and only these. What it lacks it fetches,
and it brings what the next of these places lacks. What an object was before in the other form is dead once more than
half of these places show the newer copy, or once a newer fragment counts: a device whose process was killed between is
told so here. Copies that a device keeps for others go back to all places that have them. What is in a pack where it is
brought from is brought as a reference. It is taken where the own fragment of the pack is, so packs come first, and what
lacks one is left to a later round.

Fault model: as `swiftlet.sync.coded.peers`. Devices refuse copies that are older than what they know of the object's
fragments, and show a tombstone then. What fails is counted, logged, and done in the next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence

import structlog

from swiftlet.boundaries.coded import PLACES, CodedRepair
from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.errors import NotFound, Superseded, SwiftletError
from swiftlet.model import Entry, Kind, ObjectKey
from swiftlet.ring.model import Device
from swiftlet.sync.coded.backlog import Budget
from swiftlet.sync.coded.comparing import Compared, Comparing
from swiftlet.sync.coded.layout import CodedRing, HoldersAround
from swiftlet.sync.coded.peers import Peers
from swiftlet.sync.coded.redundancy import Tally
from swiftlet.sync.coded.report import CodedReport
from swiftlet.sync.coded.traffic import Traffic
from swiftlet.sync.coded.views import Clock
from swiftlet.sync.moving.copies import bring
from swiftlet.sync.planning.standing import Standing
from swiftlet.sync.session.compare import Need, Push, differing_suffixes, in_flight, is_due, is_returned, need_of
from swiftlet.sync.session.roots import EMPTY_ROOT
from swiftlet.timestamp import Timestamp

_SUFFIXES = 16
"""Suffixes whose entries are compared at a time."""
_REFERENCES = 128
"""Objects about which a device is asked at a time whether they are in packs: what was posted to so many fits into an
answer of 4 MiB."""
_NO_OBJECT = bytes(16)
"""The digest in the key of a place, where no object is meant."""
_AT_ONCE = 16
"""Copies that a device brings back at a time."""

_log = structlog.get_logger("replicator")

Roots = tuple[bytes, bytes]
"""The roots of a partition's copies and of its fragments, at one device."""


class Copies:
    """The copies of one policy in one round."""

    def __init__(
        self,
        coded: CodedRing,
        transport: ObjectTransport,
        repair: CodedRepair,
        peers: Peers,
        comparing: Comparing,
        report: CodedReport,
        tally: Tally,
        traffic: Traffic,
        budget: Budget,
        clock: Callable[[], Clock],
    ) -> None:
        """`budget` is told what was brought, and `traffic` limits it. `clock` returns the moment of comparisons."""
        self._coded = coded
        self._transport = transport
        self._repair_calls = repair
        self._peers = peers
        self._comparing = comparing
        self._report = report
        self._tally = tally
        self._traffic = traffic
        self._budget = budget
        self._clock = clock

    async def look(self, own: Device, around: HoldersAround, standing: Standing, ended: dict[int, Roots]) -> None:
        """Compare the copies of a device, and bring what it and the next places lack.

        `ended` has the roots of the partitions in which nothing older was left of either form when they were looked at.
        Raises SwiftletError when the device can't be read.
        """
        compared = await self._comparing.compare(own, around)
        fragments = await self._comparing.roots(own, around.fragments)
        strange = [at for at in range(len(around.own)) if not compared.is_alike(at)]
        standing.compared_all(set(around.own).difference(around.own[at] for at in strange), checked=True)
        self._tally.add_whole(sum(compared.is_alike(at) and compared.roots[at] != EMPTY_ROOT for at in around.first))
        for at in strange:
            await self._repair(own, around, compared, at, standing)
        for at, store_partition in enumerate(around.own):
            roots = compared.roots[at], fragments[at]
            if EMPTY_ROOT in roots:
                ended.pop(store_partition, None)
            elif ended.get(store_partition) != roots and await self._end(own, around, compared, at):
                ended[store_partition] = roots

    async def _repair(
        self, own: Device, around: HoldersAround, compared: Compared, at: int, standing: Standing
    ) -> None:
        """Bring what places lack of a partition whose places differ, or of which some could not be asked."""
        store_partition = around.own[at]
        different, away = compared.different.get(at, {}), compared.away.get(at, set())
        others = [device for device in around.others_of(store_partition) if device.id not in away]
        behind = unsent = 0
        is_read = len(away) == 0
        shown_by: list[int] = []
        if not others:
            self._report.uncompared()
        differing = [device for device in others if device.id in different]
        try:
            if differing:
                behind, unsent, shown_by = await self._bring(own, store_partition, differing, len(others) + 1)
        except SwiftletError as error:
            is_read = self._tally.is_complete = False
            self._report.uncompared()
            _log.info("copies of a partition can't be compared", partition=store_partition // PLACES, error=str(error))
        if at in around.first and (shown_by or compared.roots[at] != EMPTY_ROOT):
            self._tally.add_copies(min([len(others) + 1, *shown_by]), shown_by)
        standing.compared(store_partition, behind=behind, unsent=unsent, checked=is_read)

    async def _bring(
        self, own: Device, store_partition: int, differing: Sequence[Device], reached: int
    ) -> tuple[int, int, list[int]]:
        """Return how many records are still lacking here, and how many at others; of each object that not all show, how
        many do.
        """
        behind = unsent = 0
        shown_by: list[int] = []
        following = next(iter(self._coded.holders_after(own, store_partition)), None)
        hashes = [await self._comparing.suffixes(device, store_partition) for device in (own, *differing)]
        found = {suffix for other in hashes[1:] for suffix in differing_suffixes(hashes[0], other, both=True)}
        suffixes = sorted(found)
        for start in range(0, len(suffixes), _SUFFIXES):
            some = suffixes[start : start + _SUFFIXES]
            mine, *theirs = [
                _by_digest(await self._comparing.entries(device, store_partition, some)) for device in (own, *differing)
            ]
            due: dict[tuple[int, int], list[Push]] = {}
            for digest in set(mine).union(*theirs):
                entries = [mine.get(digest), *(one.get(digest) for one in theirs)]
                newest = max((entry for entry in entries if entry is not None), key=_order)
                lacking = sum(entry is None or need_of(newest, entry) is not None for entry in entries)
                if newest.kind is Kind.DATA and lacking and not in_flight(newest, self._clock().now_s):
                    shown_by.append(reached - lacking)
                source = next(at for at, one in enumerate(entries) if one is not None and _order(one) == _order(newest))
                for target, entry in enumerate(entries):
                    push = self._lacks(newest, entry)
                    if push is not None and target != source:
                        due.setdefault((source, target), []).append(push)
            devices = own, *differing
            for (source, target), pushes in due.items():
                left = len(pushes)
                if devices[target] in (own, following):
                    left = await self._bring_some(own, devices[source], devices[target], store_partition, pushes)
                behind += left if target == 0 else 0
                unsent += left if target != 0 else 0
        return behind, unsent, shown_by

    def _lacks(self, newest: Entry, entry: Entry | None) -> Push | None:
        """Return what is to be brought where this is shown; None for nothing."""
        need, clock = need_of(newest, entry), self._clock()
        if need is None:
            return None
        push = Push(newest, need, fresh=entry is None)
        return push if is_due(push, clock.now_s, clock.forgotten_before_s) else None

    async def _bring_some(
        self, own: Device, source: Device, target: Device, store_partition: int, pushes: Sequence[Push]
    ) -> int:
        """Bring records; return of how many the target lacks something yet."""
        left = 0
        for start in range(0, len(pushes), _REFERENCES):
            some = pushes[start : start + _REFERENCES]
            referred = await self._refer(own, source, target, store_partition, some)
            for push in some:
                is_there = referred.get(push.entry.digest)
                if is_there is None:
                    key = self._coded.key(store_partition, push.entry.digest)
                    is_there = await self._bring_one(own, source, target, key, push)
                left += not is_there
        return left

    async def _refer(
        self, own: Device, source: Device, target: Device, store_partition: int, pushes: Sequence[Push]
    ) -> dict[bytes, bool]:
        """Bring the references of what the source has in packs; return which objects these are, and of which of them
        the target lacks nothing any more.
        """
        needs = {push.entry.digest: push.need for push in pushes if push.need is not Need.TOMBSTONE}
        if not needs or self._budget.is_spent or not (self._peers.is_usable(source) and self._peers.is_usable(target)):
            return {}
        other = source if target is own else target
        try:
            referred = await self._peers.calling(other, self._referred(source, target, store_partition, needs))
        except SwiftletError as error:
            self._report.left += len(needs)
            self._report.fail("refused")
            _log.warning("references can't be brought", device=target.name, error=str(error))
            return dict.fromkeys(needs, False)
        for is_there in referred.values():
            if is_there:
                self._report.repaired("copied")
            else:
                self._report.left += 1
        return referred

    async def _referred(
        self, source: Device, target: Device, store_partition: int, needs: Mapping[bytes, Need]
    ) -> dict[bytes, bool]:
        first = store_partition // PLACES * PLACES
        found = await self._repair_calls.references(source, self._coded.key(first, _NO_OBJECT), list(needs))
        if not found.digests:
            return {}
        holders = self._coded.holders(store_partition // PLACES)
        place = next(at for at, device in enumerate(holders) if device.id == target.id)
        lacking = {digest for digest in found.digests if needs.get(digest) is Need.DATA}
        taken = await self._repair_calls.refer(target, self._coded.key(first + place, _NO_OBJECT), found, lacking)
        there = taken | (found.digests - lacking)
        await self._repair_calls.post_referred(target, self._coded.key(store_partition, _NO_OBJECT), found, there)
        return {digest: digest in there for digest in found.digests}

    async def _bring_one(self, own: Device, source: Device, target: Device, key: ObjectKey, push: Push) -> bool:
        """Bring one record; return whether the target lacks nothing of it any more."""
        if self._budget.is_spent or not (self._peers.is_usable(source) and self._peers.is_usable(target)):
            self._report.left += 1
            return False
        other = source if target is own else target
        paced = lambda size: self._traffic.moved(size, [(source, size)], [(target, size)])  # noqa: E731
        try:
            bringing = bring(self._transport, source, target, key, push, paced)
            moved = await self._peers.calling(other, bringing)
        except (Superseded, NotFound):
            # One of them has something newer: the next round compares that.
            return False
        except SwiftletError as error:
            self._report.left += 1
            self._report.fail("refused")
            _log.warning("a copy can't be brought", device=target.name, object=key.digest.hex(), error=str(error))
            return False
        self._report.repaired("copied")
        self._budget.spend(moved)
        return True

    async def _end(self, own: Device, around: HoldersAround, compared: Compared, at: int) -> bool:
        """End what is older of one form at a device where it has the other one; return whether nothing is left to end.

        Fragments are dead once more than half of the places with copies show the newer copy.
        """
        store_partition = around.own[at]
        others = around.others_of(store_partition)
        missing = compared.different.get(at, {}).keys() | compared.away.get(at, set())
        equal = sum(device.id not in missing for device in others)
        has_majority = equal + 1 > (len(others) + 1) / 2
        is_over = True
        copies = await self._comparing.suffixes(own, store_partition)
        fragments = await self._comparing.suffixes(own, around.fragments[at])
        suffixes = sorted(copies.keys() & fragments.keys())
        for start in range(0, len(suffixes), _SUFFIXES):
            some = suffixes[start : start + _SUFFIXES]
            known = _by_digest(await self._comparing.entries(own, around.fragments[at], some))
            for copy in await self._comparing.entries(own, store_partition, some):
                fragment = known.get(copy.digest)
                if copy.kind is Kind.TOMBSTONE or fragment is None:
                    continue
                until = _until(fragment)
                if copy.timestamp <= until:
                    await self._delete(own, self._coded.key(store_partition, copy.digest), until)
                    is_over = False
                elif fragment.kind is Kind.DATA:
                    is_over = False
                    if has_majority and not in_flight(copy, self._clock().now_s):
                        await self._delete(own, self._coded.key(around.fragments[at], copy.digest), _before(copy))
        return is_over

    async def _delete(self, own: Device, key: ObjectKey, timestamp: Timestamp) -> None:
        try:
            await self._peers.calling(own, self._transport.delete(own, key, timestamp, "", None))
            self._report.repaired("told")
        except (Superseded, NotFound):
            pass  # it is past that

    async def give_back(self, own: Device, store_partition: int) -> bool:
        """Bring the copies that a device keeps for others to all places that have them, and drop them once they are
        there; return whether nothing is left. Raises SwiftletError.
        """
        partition = store_partition // PLACES
        if partition >= self._coded.ring.partition_count:
            return False
        holders = self._coded.holders(partition)
        if not all([await self._peers.is_ours(holder, partition) for holder in holders]):
            return False
        is_over = True
        suffixes = sorted(await self._comparing.suffixes(own, store_partition))
        for start in range(0, len(suffixes), _SUFFIXES):
            some = suffixes[start : start + _SUFFIXES]
            mine = await self._comparing.entries(own, store_partition, some)
            theirs = [_by_digest(await self._comparing.entries(one, store_partition, some)) for one in holders]
            for first in range(0, len(mine), _AT_ONCE):
                if self._budget.is_spent:
                    self._report.unreturned += 1
                    return False
                ended = await asyncio.gather(
                    *(
                        self._give_one(own, store_partition, entry, list(zip(holders, shown, strict=True)))
                        for entry in mine[first : first + _AT_ONCE]
                        for shown in [[one.get(entry.digest) for one in theirs]]
                    )
                )
                is_over = is_over and all(ended)
        return is_over

    async def _give_one(
        self, own: Device, store_partition: int, entry: Entry, shown: Sequence[tuple[Device, Entry | None]]
    ) -> bool:
        """Return whether the device has dropped a copy, which all places with copies have shown before."""
        key = self._coded.key(store_partition, entry.digest)
        if in_flight(entry, self._clock().now_s):
            return False
        forgotten = self._clock().forgotten_before_s
        lacking = [(holder, theirs) for holder, theirs in shown if not is_returned(entry, theirs, forgotten)]
        for holder, theirs in lacking:
            push = self._lacks(entry, theirs)
            if push is not None:
                await self._bring_some(own, own, holder, store_partition, [push])
        if lacking:
            # What they show is seen in the next round.
            return False
        if await self._peers.calling(own, self._transport.remove(own, key, entry)):
            self._report.repaired("handed_back")
            return True
        return False


def _by_digest(entries: Collection[Entry]) -> Mapping[bytes, Entry]:
    return {entry.digest: entry for entry in entries}


def _order(entry: Entry) -> tuple[Timestamp, bool, Timestamp, Timestamp]:
    return entry.timestamp, entry.kind is Kind.TOMBSTONE, entry.meta_timestamp, entry.content_type_timestamp


def _until(fragment: Entry) -> Timestamp:
    """Return up to when copies are dead by what is shown of fragments."""
    return fragment.timestamp if fragment.kind is Kind.TOMBSTONE else _before(fragment)


def _before(entry: Entry) -> Timestamp:
    """Return the time just before that of an entry, at which it ends the other form."""
    return Timestamp(entry.timestamp.value - 1)
