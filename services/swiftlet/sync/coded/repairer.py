"""Rounds that repair the fragments of coded objects at local devices, and at the places that these are compared with.

A round does these things, each for all partitions of all local devices:

1. what became of writes whose proxy is gone is decided (`fates`);
2. their places are compared with all others (`comparing`);
3. what they and the next places clockwise lack is brought there, the least redundant first: deletions are told,
   fragments rebuilt from k others (`mending`). What is more than a round rebuilds is left to the next one;
   Copies of small objects are compared and brought among the places that have them (`copies`);
4. fragments and copies that devices keep for others go back to their places;
5. versions that enough places show are settled, so that older ones are dropped.

A round in which all places were compared and none lacked anything is the proof that a device's *standing* reports.

Fault model: any device may be away, slow, replaced by an empty one, or fail in the middle; rings change at any moment,
and devices learn of it at different times. Who can't be reached, or goes by another ring, is left out of the round, and
the place after it counts as the next one. What could not be done is counted, logged, and done in a later
round. A replicator may be killed at any point, and several may repair the same object at the same time: what devices
take is proved and ordered by version. It keeps no state but since when it has seen what is undecided. With more devices
lost than there are parity fragments nothing is rebuilt, and nothing is removed. A device that was away for longer than
`reclaim_age` may bring back what was deleted meanwhile, as with copies.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict
from functools import partial

import structlog

from swiftlet.boundaries.coded import CodedRepair
from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.errors import SwiftletError, Unavailable
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Coding, Device
from swiftlet.sync.asking.questions import Questions
from swiftlet.sync.coded.backlog import Backlog, Bounds, Budget
from swiftlet.sync.coded.comparing import Comparing
from swiftlet.sync.coded.copies import Copies, Roots
from swiftlet.sync.coded.device_round import DeviceRound, Repair, Tools, each
from swiftlet.sync.coded.fates import Fates, Watch
from swiftlet.sync.coded.layout import CodedRing, HoldersAround, Surroundings
from swiftlet.sync.coded.mending import Mending
from swiftlet.sync.coded.peers import Peers
from swiftlet.sync.coded.redundancy import Tally
from swiftlet.sync.coded.report import CodedReport
from swiftlet.sync.coded.traffic import NOWHERE, Traffic, Vicinity
from swiftlet.sync.coded.views import Clock
from swiftlet.sync.failures.neighbours import Neighbours
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.planning.standing import Standings
from swiftlet.sync.session.compare import forgotten_before

_log = structlog.get_logger("replicator")


class CodedRepairer:
    """Repairs the coded objects of some local devices."""

    def __init__(
        self,
        local: Callable[[Ring], Sequence[Device]],
        rings: Callable[[int], Ring],
        codings: Callable[[int], Coding | None],
        transport: ObjectTransport,
        repair: CodedRepair,
        neighbours: Neighbours,
        watch: Watch,
        bounds: Bounds,
        standings: Standings,
        pace: Pace | None = None,
        reclaim_age_s: float = math.inf,
        now_s: Callable[[], float] = time.time,
        names: Callable[[int], str] = str,
    ) -> None:
        """`local` selects the devices of a ring that are repaired; `rings`, `codings` and `names` return those of a
        policy.

        Questions are asked over `transport`; `repair` is what coded objects need besides. `bounds` limit a round;
        `standings` are told what it proves. `now_s` returns seconds since the epoch, and `reclaim_age_s` is the age at
        which devices forget tombstones.
        """
        self._local = local
        self._rings = rings
        self._codings = codings
        self._names = names
        self._transport = transport
        self._questions = Questions(transport)
        self._repair = repair
        self._neighbours = neighbours
        self._watch = watch
        self._bounds = bounds
        self._standings = standings
        self._pace = pace or Pace()
        self._reclaim_age_s = reclaim_age_s
        self._now_s = now_s
        self._last: dict[str, object] | None = None
        self._redundancy: dict[str, dict[str, object]] = {}
        self._surroundings: dict[tuple[int, int], tuple[Surroundings, HoldersAround]] = {}
        self._ended: dict[tuple[str, int], dict[int, Roots]] = {}
        self._remembered: dict[tuple[str, int], set[int]] = {}

    def status(self) -> dict[str, object] | None:
        """Return the last round for the status report; None before the first."""
        return self._last

    async def run_round(self, policies: Sequence[int], chosen: Collection[int] | None = None) -> CodedReport:
        """Repair objects of these policies at each local device once, in all partitions or in `chosen` ones."""
        began, began_s, report = time.monotonic(), self._now_s(), CodedReport()
        self._watch.begin()
        backlog, budget = Backlog[Repair](self._bounds.fragments), Budget(self._bounds)
        begun = [found for policy in policies for found in await self._look(policy, chosen, backlog, budget, report)]
        await self._mend(backlog, budget, report)
        for one in begun:
            try:
                await one.end(budget, began_s, partial(self._is_current, one.coded))
            except SwiftletError as error:
                report.uncompared()
                _log.warning("the coded objects of a device are not repaired", device=one.own.name, error=str(error))
        self._watch.end()
        report.is_bounded = budget.is_spent or backlog.dropped > 0
        report.end(time.monotonic() - began)
        self._last = {
            "endedAt": self._now_s(),
            "clean": report.clean,
            **asdict(report),
            "wholeAt": self._whole_at_s(report),
            "redundancy": dict(self._redundancy),
        }
        return report

    async def _look(
        self,
        policy: int,
        chosen: Collection[int] | None,
        backlog: Backlog[Repair],
        budget: Budget,
        report: CodedReport,
    ) -> list[DeviceRound]:
        """Look for what is to be done in one policy; return the rounds of its local devices."""
        try:
            ring, coding = self._rings(policy), self._codings(policy)
        except Unavailable as error:
            report.uncompared()
            _log.info("the repair of a policy is skipped", policy=policy, reason=str(error))
            return []
        if coding is None:
            return []
        devices = self._local(ring)
        # A replicator's devices are on one node.
        vicinity = Vicinity.of(ring, devices[0]) if devices else NOWHERE
        tools = self._tools(CodedRing(policy, ring, coding), vicinity, budget, report)
        self._standings.keep(policy, {device.name for device in devices})
        begun: list[DeviceRound] = []
        for device in devices:
            remembered = self._remembered.setdefault((device.name, policy), set())
            one = DeviceRound(
                device,
                self._standings.of(device.name, policy),
                remembered,
                self._around(device, tools.coded),
                self._ended.setdefault((device.name, policy), {}),
                tools,
                chosen,
            )
            begun.append(one)
            try:
                await one.look(backlog)
            except SwiftletError as error:
                tools.tally.is_complete = False
                self._standings.unreadable(device.name, policy, tools.coded.store_partitions(device))
                report.uncompared()
                _log.warning("the coded objects of a device are not compared", device=device.name, error=str(error))
        if tools.tally.is_complete and chosen is None:
            name = self._names(policy)
            self._redundancy[name] = {"seenAt": self._now_s(), **tools.tally.fields()}
            tools.tally.publish(name)
        return begun

    def _around(self, device: Device, coded: CodedRing) -> tuple[Surroundings, HoldersAround]:
        """Return where the other places of a device's partitions are, which is looked up once for each ring."""
        known = self._surroundings.get((device.id, coded.policy))
        if known is None or known[0].ring is not coded.ring:
            known = Surroundings(coded, coded.store_partitions(device)), HoldersAround(coded, device)
            self._surroundings[device.id, coded.policy] = known
        return known

    def _tools(self, coded: CodedRing, vicinity: Vicinity, budget: Budget, report: CodedReport) -> Tools:
        self._neighbours.know(coded.policy, coded.ring.devices)
        peers = Peers(self._questions, self._neighbours, coded)
        comparing, tally = Comparing(coded, peers, report, self._clock), Tally(coded.coding)
        traffic = Traffic(vicinity, self._pace)
        return Tools(
            coded,
            self._transport,
            self._repair,
            peers,
            report,
            comparing,
            Copies(coded, self._transport, self._repair, peers, comparing, report, tally, traffic, budget, self._clock),
            Mending(coded, self._repair, peers, report, traffic, budget, self._pace.concurrency),
            Fates(coded, self._repair, peers, report, self._watch),
            tally,
            self._clock,
            self._pace.concurrency,
        )

    async def _mend(self, backlog: Backlog[Repair], budget: Budget, report: CodedReport) -> None:
        """Do what is in the backlog, the least redundant first, until the round's bound is reached."""

        async def mend(repair: Repair) -> None:
            if not budget.is_spent and await repair.bring():
                report.left -= repair.lack.is_certain
                report.brought += repair.lack.is_certain

        await each(backlog.take_all(), mend, self._pace.concurrency)

    def _whole_at_s(self, report: CodedReport) -> float | None:
        """Return when nothing will be left if rounds go on like the last one, in seconds since the epoch."""
        if not (report.left and report.brought):
            return None
        return self._now_s() + report.left * report.seconds / report.brought

    def _is_current(self, coded: CodedRing) -> bool:
        try:
            return self._rings(coded.policy) is coded.ring
        except Unavailable:
            return False

    def _clock(self) -> Clock:
        now_s = self._now_s()
        return Clock(now_s, forgotten_before(now_s, self._reclaim_age_s))
