"""Rounds that repair the fragments of coded objects at local devices, and at the places that these are compared with.

A round of a device does five things, each for all of its partitions:

1. what became of writes whose proxy is gone is decided (`fates`);
2. its places are compared with the next ones clockwise (`comparing`);
3. what either side lacks is brought to it: deletions are told, fragments rebuilt from k others (`mending`);
4. fragments that it keeps for other devices go back to their places;
5. versions that enough places show are settled, so that older ones are dropped.

Fault model: any device may be away, slow, replaced by an empty one, or fail in the middle; rings change at any moment,
and devices learn of it at different times. Who can't be reached, or goes by another ring, is left out of the round, and
its place in the comparison is taken by the next one. What could not be done is counted, logged, and done in a later
round. A replicator may be killed at any point, and several may repair the same object at the same time: what devices
take is proved and ordered by version. It keeps no state but since when it has seen what is undecided. With more devices
lost than there are parity fragments nothing is rebuilt, and nothing is removed. A device that was away for longer than
`reclaim_age` may bring back what was deleted meanwhile, as with copies.
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import structlog

from swiftlet.boundaries.coded import PLACES, CodedRepair
from swiftlet.boundaries.objects import SyncTransport
from swiftlet.errors import SwiftletError, Unavailable
from swiftlet.model import Entry, Kind
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Coding, Device
from swiftlet.sync.asking.questions import Questions
from swiftlet.sync.coded.comparing import Comparing, Lack, Pair
from swiftlet.sync.coded.fates import Fates, Watch
from swiftlet.sync.coded.layout import CodedRing, Spot
from swiftlet.sync.coded.mending import Mending
from swiftlet.sync.coded.peers import Peers
from swiftlet.sync.coded.report import CodedReport
from swiftlet.sync.failures.neighbours import Neighbours
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.session.compare import Need, Push, forgotten_before, is_due

_AT_ONCE = 64
"""Repairs that wait for their turn at a time."""
_SUFFIXES = 16
"""Suffixes of fragments for other devices that are read at a time."""

T = TypeVar("T")
_log = structlog.get_logger("replicator")


class CodedRepairer:
    """Repairs the coded objects of some local devices."""

    def __init__(
        self,
        local: Callable[[Ring], Sequence[Device]],
        rings: Callable[[int], Ring],
        codings: Callable[[int], Coding | None],
        transport: SyncTransport,
        repair: CodedRepair,
        neighbours: Neighbours,
        watch: Watch,
        pace: Pace | None = None,
        reclaim_age_s: float = math.inf,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`local` selects the devices of a ring that are repaired; `rings` and `codings` return those of a policy.

        Questions are asked over `transport`; `repair` is what coded objects need besides. `now_s` returns seconds since
        the epoch, and `reclaim_age_s` is the age at which devices forget tombstones.
        """
        self._local = local
        self._rings = rings
        self._codings = codings
        self._transport = transport
        self._questions = Questions(transport)
        self._repair = repair
        self._neighbours = neighbours
        self._watch = watch
        self._pace = pace or Pace()
        self._reclaim_age_s = reclaim_age_s
        self._now_s = now_s
        self._last: dict[str, object] | None = None

    def status(self) -> dict[str, object] | None:
        """Return the last round for the status report; None before the first."""
        return self._last

    async def run_round(self, policies: Sequence[int]) -> CodedReport:
        """Repair the objects of these policies at every local device once."""
        began, report = time.monotonic(), CodedReport()
        self._watch.begin()
        for policy in policies:
            try:
                await self._repair_policy(policy, report)
            except Unavailable as error:
                report.uncompared()
                _log.info("the repair of a policy is skipped", policy=policy, reason=str(error))
        self._watch.end()
        report.end(time.monotonic() - began)
        self._last = {"endedAt": self._now_s(), "clean": report.clean, **asdict(report)}
        return report

    async def _repair_policy(self, policy: int, report: CodedReport) -> None:
        ring, coding = self._rings(policy), self._codings(policy)
        if coding is None:
            return
        coded = CodedRing(policy, ring, coding)
        self._neighbours.know(policy, ring.devices)
        peers = Peers(self._questions, self._neighbours, coded)
        tools = _Tools(
            coded,
            peers,
            report,
            Comparing(coded, peers, report, self._now_s, self._forgotten_before_s),
            Mending(coded, self._repair, peers, report, self._pace),
            Fates(coded, self._repair, peers, report, self._watch),
        )
        for device in self._local(ring):
            try:
                await self._repair_device(device, tools)
            except SwiftletError as error:
                report.uncompared()
                _log.warning("the coded objects of a device are not repaired", device=device.name, error=str(error))

    async def _repair_device(self, own: Device, tools: _Tools) -> None:
        own_store_partitions = tools.coded.store_partitions(own)
        await tools.fates.decide(own)
        # In random order, so that the replicators of two places seldom make the same fragment at the same time.
        pairs = await tools.comparing.differing(own, own_store_partitions)
        random.shuffle(pairs)
        await self._each(pairs, lambda pair: self._mend(own, pair, tools))
        held = await tools.peers.calling(own, self._transport.partitions(own, tools.coded.policy))
        strange = sorted(set(held).difference(own_store_partitions))
        await self._each(strange, lambda store_partition: self._hand_back(own, store_partition, tools))
        await tools.fates.settle(own)

    async def _each(self, items: Sequence[T], work: Callable[[T], Awaitable[None]]) -> None:
        """Work on items, as many at a time as the pace allows."""
        left = iter(items)

        async def some() -> None:
            for item in left:
                await work(item)

        async with asyncio.TaskGroup() as group:
            for _ in range(min(self._pace.concurrency, len(items))):
                group.create_task(some())

    async def _mend(self, own: Device, pair: Pair, tools: _Tools) -> None:
        partition, place = divmod(pair.store_partition, PLACES)
        here = Spot(own, place)
        lacks: list[Lack] = []

        async def mend() -> None:
            ends = [(pair.other, here) if lack.is_here else (here, pair.other) for lack in lacks]
            brought = (tools.mending.bring(partition, lack.digest, *end) for lack, end in zip(lacks, ends, strict=True))
            await asyncio.gather(*brought)
            lacks.clear()

        try:
            async for lack in tools.comparing.lacking(own, pair):
                lacks.append(lack)
                if len(lacks) >= _AT_ONCE:
                    await mend()
        except SwiftletError as error:
            tools.report.uncompared()
            _log.info("a place can't be compared", device=pair.other.device.name, error=str(error))
        await mend()

    async def _hand_back(self, own: Device, store_partition: int, tools: _Tools) -> None:
        """Return what a device keeps for another one."""
        owner, comparing = tools.coded.owner(store_partition), tools.comparing
        if owner is None or not await tools.peers.is_ours(owner, store_partition // PLACES):
            return
        try:
            suffixes = sorted(await comparing.suffixes(own, store_partition))
            for start in range(0, len(suffixes), _SUFFIXES):
                entries = await comparing.entries(own, store_partition, suffixes[start : start + _SUFFIXES])
                due = [entry.digest for entry in entries if self._is_due(entry)]
                for first in range(0, len(due), _AT_ONCE):
                    some = due[first : first + _AT_ONCE]
                    await asyncio.gather(
                        *(tools.mending.hand_back(own, store_partition, digest, owner) for digest in some)
                    )
        except SwiftletError as error:
            tools.report.uncompared()
            _log.info("a partition of another device can't be read", device=own.name, error=str(error))

    def _is_due(self, entry: Entry) -> bool:
        """Return whether a fragment for another device is to go there: devices may have forgotten an old deletion."""
        need = Need.TOMBSTONE if entry.kind is Kind.TOMBSTONE else Need.DATA
        return is_due(Push(entry, need, fresh=True), self._now_s(), self._forgotten_before_s())

    def _forgotten_before_s(self) -> float:
        return forgotten_before(self._now_s(), self._reclaim_age_s)


@dataclass(frozen=True, slots=True)
class _Tools:
    """The parts of a round of one policy, which share what the round knows of devices."""

    coded: CodedRing
    peers: Peers
    report: CodedReport
    comparing: Comparing
    mending: Mending
    fates: Fates
