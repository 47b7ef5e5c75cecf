"""The part that one local device has in a round of repairs of one policy. See `swiftlet.sync.coded.repairer`."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeVar

import structlog

from swiftlet.boundaries.coded import COPIES, PLACES, CodedRepair
from swiftlet.boundaries.objects import SyncTransport
from swiftlet.errors import SwiftletError
from swiftlet.model import Entry, Kind
from swiftlet.ring.model import Device
from swiftlet.sync.coded.backlog import Backlog, Budget
from swiftlet.sync.coded.comparing import Comparing
from swiftlet.sync.coded.copies import Copies, Roots
from swiftlet.sync.coded.fates import Fates
from swiftlet.sync.coded.layout import CodedRing, HoldersAround, Surroundings
from swiftlet.sync.coded.mending import Mending
from swiftlet.sync.coded.peers import Peers
from swiftlet.sync.coded.redundancy import Tally
from swiftlet.sync.coded.report import CodedReport
from swiftlet.sync.coded.views import Clock, Found, Lack, View
from swiftlet.sync.planning.standing import Standing
from swiftlet.sync.session.compare import Need, Push, in_flight, is_due
from swiftlet.sync.session.roots import EMPTY_ROOT

_AT_ONCE = 64
"""Repairs that wait for their turn at a time."""
_SUFFIXES = 16
"""Suffixes of fragments for other devices that are read at a time."""

T = TypeVar("T")
_log = structlog.get_logger("replicator")


@dataclass(frozen=True, slots=True)
class Repair:
    """Something to bring to a place, and what brings it."""

    lack: Lack
    mending: Mending

    @property
    def key(self) -> tuple[int, int, bytes, int]:
        """Return what is brought where: the local devices next to a place may both find that it lacks something."""
        return self.mending.policy, self.lack.partition, self.lack.digest, self.lack.target.place

    async def bring(self) -> bool:
        """Return whether the place lacks nothing of it any more."""
        lack = self.lack
        return await self.mending.bring(lack.partition, lack.digest, lack.source, lack.target)


@dataclass(frozen=True, slots=True)
class Tools:
    """The parts of a round of one policy, which share what the round knows of devices."""

    coded: CodedRing
    transport: SyncTransport
    repair: CodedRepair
    peers: Peers
    report: CodedReport
    comparing: Comparing
    copies: Copies
    mending: Mending
    fates: Fates
    tally: Tally
    clock: Callable[[], Clock]
    concurrency: int


class DeviceRound:
    """The round of one local device."""

    def __init__(
        self,
        own: Device,
        standing: Standing,
        remembered: set[int],
        around: tuple[Surroundings, HoldersAround],
        ended: dict[int, Roots],
        tools: Tools,
        chosen: Collection[int] | None = None,
    ) -> None:
        """`standing` is told what the round finds.

        `remembered` are the partitions of other devices of which the last round has found nothing but the memory of
        what was deleted or returned; they change to those of this round. `around` are all partitions of the device, of
        fragments and of copies; `ended` is what `Copies.look` has found.
        Only `chosen` partitions of the ring are compared, if given; then the standing is not told of the round's end.
        """
        self._own = own
        self._standing = standing
        self._remembered = remembered
        self._tools = tools
        self._chosen = chosen
        self._around, self._around_copies = around
        self._ended = ended
        self._places = frozenset(self._around.own) | frozenset(self._around_copies.own)
        self._is_read = False

    @property
    def own(self) -> Device:
        """Return the local device."""
        return self._own

    @property
    def coded(self) -> CodedRing:
        """Return the policy and its ring."""
        return self._tools.coded

    async def look(self, backlog: Backlog[Repair]) -> None:
        """Have decided what is undecided for long enough; compare all places, and add to the backlog what is lacking.

        Raises SwiftletError when the device can't be read.
        """
        held = [partition for partition in await self._listed() if partition not in self._remembered]
        self._standing.begin(self._tools.coded.ring, held, len(self._strange(held)), self._places)
        await self._tools.fates.decide(self._own)
        await self._compare(self._chosen_around(), backlog)
        copies = self._around_copies
        if self._chosen is not None:
            copies = HoldersAround(self._tools.coded, self._own, self._chosen)
        await self._tools.copies.look(self._own, copies, self._standing, self._ended)
        self._is_read = self._chosen is None

    async def _compare(self, around: Surroundings, backlog: Backlog[Repair]) -> None:
        tools = self._tools
        compared = await tools.comparing.compare(self._own, around)
        strange = [at for at in range(len(around.own)) if not compared.is_alike(at)]
        # Nearly all are alike: they take no step each.
        self._standing.compared_all(self._places.difference(around.own[at] for at in strange), checked=True)
        tools.tally.add_whole(sum(compared.is_alike(at) and compared.roots[at] != EMPTY_ROOT for at in around.first))
        random.shuffle(strange)

        async def look(at: int) -> None:
            await self._look_at(tools.comparing.view(self._own, around, compared, at), backlog)

        await each(strange, look, tools.concurrency)

    async def _look_at(self, view: View, backlog: Backlog[Repair]) -> None:
        tools, found, is_read = self._tools, Found(), True
        if not view.is_equal:
            try:
                async for lack in tools.comparing.lacking(view, found):
                    if backlog.add(lack.shown_by, Repair(lack, tools.mending)):
                        tools.report.left += lack.is_certain
            except SwiftletError as error:
                is_read = tools.tally.is_complete = False
                tools.report.uncompared()
                _log.info("the places of a partition can't be compared", partition=view.partition, error=str(error))
        tools.tally.add(view, found)
        self._standing.compared(
            PLACES * view.partition + view.here.place,
            behind=found.behind,
            unsent=found.unsent,
            checked=is_read and view.reached == tools.coded.coding.fragments,
        )

    async def end(self, budget: Budget, began_s: float, is_current: Callable[[], bool]) -> None:
        """Return fragments to other devices, and settle what may be; then tell the standing what the device has.

        `is_current` tells whether the ring is still the one that services go by. Raises SwiftletError.
        """
        strange = self._only_chosen(self._strange(await self._listed()))
        returned: set[int] = set()

        async def give(store_partition: int) -> None:
            is_over = await self._return(store_partition, budget)
            if is_over:
                returned.add(store_partition)
            self._standing.compared(store_partition, checked=is_over)

        await each(strange, give, self._tools.concurrency)
        kept = await self._tools.fates.settle(self._own)
        self._remembered.clear()
        self._remembered.update(returned - kept)
        held = {*await self._listed(), *kept} - self._remembered
        if self._is_read and is_current():
            ring, now_s = self._tools.coded.ring, self._tools.clock().now_s
            strange_ones = self._strange(held)
            self._standing.end(ring, began_s, len(held), len(strange_ones), now_s)
            # Places are compared with all others at once, so what is left is not known by region.
            left = self._standing.left
            left.partitions.update(strange_ones)
            others = {shared.device.region for shared in self._around.others} - {self._own.region}
            self._standing.compared_regions(self._own.region, began_s, dict.fromkeys(others, left))

    def _chosen_around(self) -> Surroundings:
        if self._chosen is None:
            return self._around
        return Surroundings(self._tools.coded, self._only_chosen(self._around.own))

    def _only_chosen(self, store_partitions: Sequence[int]) -> list[int]:
        if self._chosen is None:
            return list(store_partitions)
        return [one for one in store_partitions if one // PLACES in self._chosen]

    def _strange(self, held: Collection[int]) -> list[int]:
        return sorted(set(held).difference(self._places))

    async def _listed(self) -> Sequence[int]:
        """Return the partitions of the store that show anything."""
        tools = self._tools
        return await tools.peers.calling(self._own, tools.transport.partitions(self._own, tools.coded.policy))

    async def _return(self, store_partition: int, budget: Budget) -> bool:
        """Return what the device keeps for another one; return whether nothing but the memory of it is left."""
        tools = self._tools
        if store_partition % PLACES == COPIES:
            return await self._return_copies(store_partition, budget)
        owner, comparing = tools.coded.owner(store_partition), tools.comparing
        if owner is None or not await tools.peers.is_ours(owner, store_partition // PLACES):
            return False
        is_over = True
        try:
            suffixes = sorted(await comparing.suffixes(self._own, store_partition))
            for start in range(0, len(suffixes), _SUFFIXES):
                entries = await comparing.entries(self._own, store_partition, suffixes[start : start + _SUFFIXES])
                due = [entry for entry in entries if self._is_due(entry)]
                is_over = is_over and not any(in_flight(entry, tools.clock().now_s) for entry in entries)
                for first in range(0, len(due), _AT_ONCE):
                    if budget.is_spent:
                        tools.report.unreturned += 1
                        return False
                    some = due[first : first + _AT_ONCE]
                    ended = await asyncio.gather(
                        *(tools.mending.hand_back(self._own, store_partition, entry, owner) for entry in some)
                    )
                    is_over = is_over and all(ended)
        except SwiftletError as error:
            tools.report.uncompared()
            _log.info("a partition of another device can't be read", device=self._own.name, error=str(error))
            return False
        return is_over

    async def _return_copies(self, store_partition: int, budget: Budget) -> bool:
        if budget.is_spent:
            self._tools.report.unreturned += 1
            return False
        try:
            return await self._tools.copies.give_back(self._own, store_partition)
        except SwiftletError as error:
            self._tools.report.uncompared()
            _log.info("copies for other devices can't be read", device=self._own.name, error=str(error))
            return False

    def _is_due(self, entry: Entry) -> bool:
        """Return whether a fragment for another device is to go there: devices may have forgotten an old deletion."""
        need = Need.TOMBSTONE if entry.kind is Kind.TOMBSTONE else Need.DATA
        clock = self._tools.clock()
        return is_due(Push(entry, need, fresh=True), clock.now_s, clock.forgotten_before_s)


async def each(items: Sequence[T], work: Callable[[T], Awaitable[None]], at_a_time: int) -> None:
    """Work on items, so many at a time."""
    left = iter(items)

    async def some() -> None:
        for item in left:
            await work(item)

    async with asyncio.TaskGroup() as group:
        for _ in range(min(at_a_time, len(items))):
            group.create_task(some())
