"""Rounds that compare every partition of the local devices with all of its other replicas, and make both sides equal.

This is the original, all-to-all way: the suffix hashes of a partition go to every peer. What is newer here is pushed,
what is newer there is pulled, so that a device that was away has everything after one round of its own. A
partition that is empty here is compared with those peers that say they hold it.

A device that is not among a partition's primaries holds it as a handoff: it pushes to all primaries, pulls nothing,
and forgets an object only after every primary has shown an entry that lacks nothing of it.

Fault model: any peer may be down, slow, or fail in the middle of a transfer. Its partition is counted as failed,
logged, and compared again in the next round; the round goes on. A node that can't be reached is left out
(`swiftlet.sync.failures`); when it is back, what was left out because of it comes next. An object that a device will
not have (it is damaged at its source, or the device is full) does not keep those behind it from going there. A new ring
ends the round of its policy; peers may have an older or a newer one (`swiftlet.sync.given`). A replicator may be killed
at any point: it keeps no state but a hint of what it need not do first (`swiftlet.sync.progress`).
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

import structlog

from swiftlet.errors import NodeTimeout, NodeUnreachable, SwiftletError, Unavailable
from swiftlet.peers import ObjectTransport
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.driver import Prover
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.pacing import Pace
from swiftlet.sync.partition import PartitionSync
from swiftlet.sync.progress import Progress
from swiftlet.sync.report import LAST_ROUND, ROUND_SECONDS, ROUNDS, RoundReport
from swiftlet.sync.share import Share
from swiftlet.sync.standing import Standings

_log = structlog.get_logger("replicator")

_LOOK_S = 0.05
"""Seconds between looks whether a worker that load has stopped may go on."""


async def probe(transport: ObjectTransport, device: Device, timeout_s: float = 2.0) -> bool:
    """Whether a device's node answers anything at all within that time."""
    try:
        async with asyncio.timeout(timeout_s):
            await transport.policies(device)
    except (NodeUnreachable, NodeTimeout, TimeoutError):
        return False
    except SwiftletError as error:
        _log.debug("a node answers, its device has trouble", device=device.name, error=str(error))
    return True


@dataclass(frozen=True, slots=True)
class Selection:
    """What a round is confined to: some partitions, and some peers; None for all."""

    partitions: frozenset[int] | None = None
    peers: Callable[[Device], bool] | None = None

    def of(self, share: Share, partitions: Iterable[int]) -> list[int]:
        """Those of the partitions that are selected."""
        return [
            partition
            for partition in partitions
            if (self.partitions is None or partition in self.partitions)
            and (self.peers is None or any(self.peers(peer) for peer in share.peers(partition)[0]))
        ]


EVERYTHING = Selection()


class Replicator:
    """Keeps the objects of some local devices equal with their other replicas."""

    def __init__(
        self,
        local: Callable[[Ring], Sequence[Device]],
        rings: Callable[[int], Ring],
        transport: ObjectTransport,
        reclaim_age_s: float = math.inf,
        now_s: Callable[[], float] = time.time,
        pace: Pace | None = None,
        neighbours: Neighbours | None = None,
        sessions: bool = False,
    ) -> None:
        """`local` picks the devices of a ring that this replicator works for; `rings` gives a policy's ring.

        `reclaim_age_s`: the age at which devices forget tombstones. `now_s` is the wall clock. `pace` and `neighbours`
        have defaults of their own. `sessions`: whether rounds begin by proving equality for many partitions at once.
        """
        self._local = local
        self._rings = rings
        self._transport = transport
        self._pace = pace or Pace()
        self.neighbours = neighbours or Neighbours(
            Observer("", ""), FailureTable(), lambda device: probe(transport, device)
        )
        """Who is left out."""
        self._prover = Prover(transport, self.neighbours, self._pace, now_s) if sessions else None
        self.progress = Progress(now_s=now_s)
        """Of the round that is going on."""
        self._reclaim_age_s = reclaim_age_s
        self._now_s = now_s
        self.standings = Standings()
        """How the local devices stand, for the status report."""

    async def is_served(self, policies: Sequence[int]) -> bool:
        """Whether a local device answers, so that a round makes sense."""
        for policy in policies:
            for device in self._local_devices(policy):
                try:
                    await self._transport.policies(device)
                except SwiftletError as error:
                    _log.debug("local device does not answer", device=device.name, error=str(error))
                else:
                    return True
        return False

    def _local_devices(self, policy: int) -> Sequence[Device]:
        try:
            return self._local(self._rings(policy))
        except Unavailable:
            return []

    async def run_round(self, policies: Sequence[int], selection: Selection = EVERYTHING) -> RoundReport:
        """Compare every partition of every local device once, in random order, those of returned nodes first."""
        began, began_s = time.monotonic(), self._now_s()
        report = RoundReport()
        shares: list[Share] = []
        work: list[tuple[Share, int]] = []
        for policy in policies:
            for share, held in await self._begin(policy, report):
                partitions = await self._look_ahead(share, held, selection)
                shares.append(share)
                work += ((share, partition) for partition in selection.of(share, partitions))
        random.shuffle(work)
        # What a former life did a moment ago comes last.
        work.sort(key=lambda item: self.progress.was_done(*item))
        queue = deque(work)
        self.progress.begin(work)
        sync = PartitionSync(
            self._transport,
            report,
            self._reclaim_age_s,
            self._now_s,
            self.neighbours,
            self._pace,
            selection.peers,
        )
        await self._put_back_first(queue, sync)
        await asyncio.gather(*(self._work(sync, queue, number) for number in range(self._pace.concurrency)))
        for share in shares:
            await self._end(share, began_s, report)
        report.seconds = time.monotonic() - began
        self.progress.end(report)
        ROUNDS.inc()
        ROUND_SECONDS.observe(report.seconds)
        LAST_ROUND.set_to_current_time()
        return report

    async def _work(self, sync: PartitionSync, queue: deque[tuple[Share, int]], number: int) -> None:
        """One of the workers, which ends when there is nothing left to do."""
        while True:
            if self.neighbours.somebody_is_back:
                await self._put_back_first(queue, sync)
            if not queue:
                return
            if number >= self._pace.allowed:
                await asyncio.sleep(_LOOK_S)
                continue
            share, partition = queue.popleft()
            whole = not self._outdated(share) and await sync.run(share, partition)
            self.progress.done(share, partition, whole)

    async def _put_back_first(self, queue: deque[tuple[Share, int]], sync: PartitionSync) -> None:
        """Move what is shared with nodes that are back to the head of the queue, with what was left out before."""
        back = self.neighbours.take_back()
        if not back:
            return

        def concerned(share: Share, partition: int) -> bool:
            return any(node_of(peer) in back for peer in share.peers(partition)[0])

        skipped = [item for node in back for item in sync.skipped.pop(node, [])]
        left_out = list({(id(share), partition): (share, partition) for share, partition in skipped}.values())
        await self._prove_again([*left_out, *(item for item in queue if concerned(*item))], back, sync)
        waiting = list(queue)
        queue.clear()
        queue.extend(left_out)
        queue.extend(item for item in waiting if concerned(*item))
        queue.extend(item for item in waiting if not concerned(*item))
        self.progress.again(len(left_out))

    async def _prove_again(
        self, items: Iterable[tuple[Share, int]], nodes: Collection[str], sync: PartitionSync
    ) -> None:
        """Find out what of these partitions is equal at nodes that are back."""
        if self._prover is None:
            return

        def picked(peer: Device) -> bool:
            return node_of(peer) in nodes and (sync.only_with is None or sync.only_with(peer))

        by_share: dict[int, tuple[Share, list[int]]] = {}
        for share, partition in items:
            if not share.peers(partition)[1] and not self._outdated(share):
                by_share.setdefault(id(share), (share, []))[1].append(partition)
        for share, partitions in by_share.values():
            await self._prover.prove(share, partitions, picked)

    def know(self, policy: int) -> None:
        """Make the nodes of a policy's ring known as neighbours, as rounds do when they begin."""
        try:
            self.neighbours.know(policy, self._rings(policy).devices)
        except Unavailable as error:
            _log.debug("no ring yet", policy=policy, reason=str(error))

    def _outdated(self, share: Share) -> bool:
        """Whether there is a newer ring."""
        return self._rings(share.policy) is not share.ring

    async def _begin(self, policy: int, report: RoundReport) -> list[tuple[Share, list[int]]]:
        """The local devices in a policy's ring, each with the partitions that have to be compared."""
        try:
            ring = self._rings(policy)
        except Unavailable as error:
            report.failed += 1
            _log.info("policy put off", policy=policy, reason=str(error))
            return []
        devices = self._local(ring)
        self.neighbours.know(policy, ring.devices)
        self.standings.keep(policy, {device.name for device in devices})
        begun = [await self._begin_device(device, policy, ring, report) for device in devices]
        return [found for found in begun if found is not None]

    async def _begin_device(
        self, device: Device, policy: int, ring: Ring, report: RoundReport
    ) -> tuple[Share, list[int]] | None:
        assigned = frozenset(partition for partition, _ in ring.partitions_of(device.id))
        try:
            held = await self._transport.partitions(device, policy)
        except SwiftletError as error:
            report.failed += 1
            self.standings.unreadable(device.name, policy, assigned)
            _log.warning("local device not readable", device=device.name, error=str(error))
            return None
        standing = self.standings.of(device.name, policy)
        share = Share(device, policy, ring, standing, assigned.difference(held))
        standing.begin(ring, held, share.misplaced(held), assigned)
        return share, held

    async def _look_ahead(self, share: Share, held: Sequence[int], selection: Selection) -> list[int]:
        """What has to be looked at: what is held, and of what is not, what peers have or may have."""
        if self._prover is not None:
            mine = [partition for partition in held if not share.peers(partition)[1]]
            asked = selection.of(share, [*mine, *share.bare])
            await self._prover.prove(share, asked, selection.peers)
        await self._ask_for_bare(share)
        work = list(held)
        for partition in share.bare:
            if any(share.asks(peer, partition) for peer in share.peers(partition)[0]):
                work.append(partition)
            else:
                share.standing.compared(partition)
        return work

    async def _ask_for_bare(self, share: Share) -> None:
        """Ask peers what they have of the partitions that are empty here: one question each, not thousands."""
        peers: dict[int, Device] = {}
        for partition in share.bare:
            for peer in share.peers(partition)[0]:
                if peer.id in share.shown:
                    continue
                if peer.id in share.proved:
                    # It has something of what is empty here, and was not shown to be so there.
                    share.shown[peer.id] = share.bare.difference(share.proved[peer.id])
                else:
                    peers[peer.id] = peer
        slots = asyncio.Semaphore(self._pace.concurrency)

        async def ask(peer: Device) -> None:
            async with slots:
                share.shown[peer.id] = None
                if self.neighbours.skips(node_of(peer)):
                    return
                try:
                    there = await self._transport.partitions(peer, share.policy)
                except SwiftletError as error:
                    if isinstance(error, NodeUnreachable | NodeTimeout):
                        self.neighbours.failed(node_of(peer))
                    _log.info("peer does not say what it holds", peer=peer.name, error=str(error))
                else:
                    share.shown[peer.id] = share.bare.intersection(there)

        await asyncio.gather(*(ask(peer) for peer in peers.values()))

    async def _end(self, share: Share, began_s: float, report: RoundReport) -> None:
        """Look once more at what the device holds, now that the round is over."""
        if self._outdated(share):
            report.whole = False
            return
        try:
            listed = await self._transport.partitions(share.device, share.policy)
            held = [partition for partition in listed if partition not in share.empty]
            for partition in share.empty.intersection(listed):
                if await self._transport.suffix_hashes(share.device, share.policy, partition):
                    held.append(partition)
        except SwiftletError as error:
            report.failed += 1
            _log.warning("local device not readable", device=share.device.name, error=str(error))
            return
        share.standing.end(share.ring, began_s, len(held), share.misplaced(held))
