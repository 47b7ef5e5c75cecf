"""Rounds that compare the partitions of the local devices with their other replicas, and make both sides equal.

A round is sessions (`swiftlet.sync.session`) with the neighbours that its mode names (`swiftlet.sync.rounds`). In
`batched` these are all other primaries. It pushes what is newer here and pulls what is newer there, so that a device
that was away has everything after one round of its own. The other modes only push.

A device that is not among a partition's primaries holds it as a handoff: it pushes to all primaries, and drops an
object only after every primary has shown that it holds it.

Fault model: any peer may be down, slow, or fail in the middle of a transfer. Its partitions are counted as failed,
logged, and compared again in the next round; the round goes on. A node that can't be reached is left out
(`swiftlet.sync.failures`); when it is back, what was left out because of it comes next. An object that a device does
not take, because it is damaged at its source or the device is full, does not stop those behind it. A new ring ends the
round of its policy. Peers may have an older or a newer ring, and say by it of what they are primaries. A replicator may
be killed at any point: it keeps no state but a hint of what it need not do first (`swiftlet.sync.planning.progress`).
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import structlog

from swiftlet.boundaries.objects import ObjectTransport, SyncTransport
from swiftlet.errors import NodeTimeout, NodeUnreachable, SwiftletError, Unavailable
from swiftlet.model import ObjectKey
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.asking.driver import Driver
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.failures.opinions import Observer
from swiftlet.sync.failures.table import FailureTable
from swiftlet.sync.moving.pacing import Pace
from swiftlet.sync.moving.replica_kind import ReplicaKind, object_replicas
from swiftlet.sync.planning.device_partitions import DevicePartitions, Places
from swiftlet.sync.planning.progress import Progress
from swiftlet.sync.planning.proving import Proving
from swiftlet.sync.planning.regions import LeftToDo
from swiftlet.sync.planning.report import LAST_ROUND, ROUND_SECONDS, ROUNDS, RoundReport
from swiftlet.sync.planning.standing import Standings
from swiftlet.sync.planning.tasks import EVERYTHING, Selection
from swiftlet.sync.rounds.executor import Executor
from swiftlet.sync.rounds.planner import Planner
from swiftlet.sync.rounds.state import RoundState
from swiftlet.sync.session.effects import Terms
from swiftlet.sync.session.far import Far, Fetching
from swiftlet.sync.session.topology import THOROUGH, Mode

_WEIGHED = 64
"""Objects at most whose sizes are asked for in a round, for each other region that lacks something."""
_log = structlog.get_logger("replicator")


async def probe(transport: SyncTransport, device: Device, timeout_s: float = 2.0) -> bool:
    """Return whether a device's node gives any answer within that time."""
    try:
        async with asyncio.timeout(timeout_s):
            await transport.policies(device)
    except (NodeUnreachable, NodeTimeout, TimeoutError):
        return False
    except SwiftletError as error:
        _log.debug("a node answers, but its device has failed", device=device.name, error=str(error))
    return True


class Replicator:
    """Keeps the objects of some local devices equal with their other replicas."""

    def __init__(
        self,
        local: Callable[[Ring], Sequence[Device]],
        rings: Callable[[int], Ring],
        replica_kind: ObjectTransport | ReplicaKind,
        reclaim_age_s: float = math.inf,
        now_s: Callable[[], float] = time.time,
        pace: Pace | None = None,
        neighbours: Neighbours | None = None,
        mode: Mode = THOROUGH,
        proving: Proving | None = None,
        fetching: Fetching | None = None,
    ) -> None:
        """`local` selects the devices of a ring that this replicator works for; `rings` returns a policy's ring.

        `replica_kind` says what is compared and how; a transport of objects stands for the kind *objects*.
        `reclaim_age_s` is the age at which devices forget tombstones. `now_s` returns seconds since the epoch. `pace`
        and `neighbours` have defaults. `mode` is the way of doing rounds. `proving`, if given, is told what rounds
        prove. With `fetching`, data pass between regions by delegates (`swiftlet.sync.session.far`).
        """
        self._local = local
        self._rings = rings
        self._replica_kind = replica_kind if isinstance(replica_kind, ReplicaKind) else object_replicas(replica_kind)
        self._transport = transport = self._replica_kind.transport
        self._pace = pace or Pace()
        self.neighbours = neighbours or Neighbours(
            Observer("", ""), FailureTable(), lambda device: probe(transport, device)
        )
        """The other nodes, of which some are left out of rounds."""
        self._mode = mode
        self._places: dict[tuple[int, int], Places] = {}
        self.progress = Progress(now_s=now_s)
        """The progress of the current round."""
        self._proving = proving
        self._fetching = fetching
        self._reclaim_age_s = reclaim_age_s
        self._now_s = now_s
        self.standings = Standings()
        """The standing of the local devices in their rings, for the status report."""

    async def is_served(self, policies: Sequence[int]) -> bool:
        """Return whether a local device answers, so that a round makes sense."""
        for policy in policies:
            for device in self._local_devices(policy):
                try:
                    await self._transport.policies(device)
                except SwiftletError as error:
                    _log.debug("a local device does not answer", device=device.name, error=str(error))
                else:
                    return True
        return False

    async def proof_is_due(self, policies: Sequence[int]) -> bool:
        """Return whether a round should begin now because a local device is in doubt."""
        if self._proving is None:
            return False
        return await self._proving.is_due(device for policy in policies for device in self._local_devices(policy))

    def _has_ring(self, policy: int) -> bool:
        try:
            self._rings(policy)
        except Unavailable:
            return False
        return True

    def _local_devices(self, policy: int) -> Sequence[Device]:
        try:
            return self._local(self._rings(policy))
        except Unavailable:
            return []

    async def run_round(self, policies: Sequence[int], selection: Selection = EVERYTHING) -> RoundReport:
        """Compare every partition of every local device once, in random order, those of returned nodes first."""
        began, began_s = time.monotonic(), self._now_s()
        report = RoundReport()
        self._replica_kind.begin()
        if self._fetching is not None:
            self._fetching.begin()
        if self._proving is not None:
            await self._proving.begin(device for policy in policies for device in self._local_devices(policy))
        begun = [found for policy in policies for found in await self._begin(policy, report)]
        driver = Driver(self._replica_kind, report, self._now_s, self.neighbours, self._pace, self._outdated)
        planner = Planner(driver, self._terms, report, self.neighbours, self._pace.concurrency, selection)
        planned = await planner.plan(begun)
        state = RoundState(planned, self._terms, report, self.neighbours, self.progress, self._outdated)
        executor = Executor(state, driver, self._terms, self.neighbours, self._pace)
        await self._work(executor, [own for own, _ in begun])
        for own, _ in begun:
            # Only rounds of all partitions with all other primaries show what regions have in common.
            is_whole = self._mode is THOROUGH and selection is EVERYTHING
            left = state.left_by_region(own) if is_whole else None
            if left:
                await self._weigh(own, left)
            await self._end(own, began_s, report, left)
        if self._proving is not None:
            complete = report.whole and selection is EVERYTHING and all(map(self._has_ring, policies))
            await self._proving.end([own for own, _ in begun], began, complete)
        report.seconds = time.monotonic() - began
        self.progress.end(report)
        ROUNDS.inc()
        ROUND_SECONDS.observe(report.seconds)
        LAST_ROUND.set_to_current_time()
        return report

    async def _work(self, executor: Executor, own_devices: Sequence[DevicePartitions]) -> None:
        """Hold the round's sessions, and tell the servers meanwhile what they prove."""
        telling = None if self._proving is None else asyncio.create_task(self._proving.telling(own_devices))
        try:
            await executor.work()
        finally:
            if telling is not None:
                telling.cancel()
                await asyncio.gather(telling, return_exceptions=True)

    def _terms(self, own: DevicePartitions) -> Terms:
        return Terms(
            own.policy,
            own.ring.version,
            self._mode,
            self._reclaim_age_s,
            transfer_rules=self._replica_kind.transfer_rules,
            far=self._far(own),
        )

    def _far(self, own: DevicePartitions) -> Far | None:
        # In modes that only push nobody fetches anything.
        if self._fetching is None or not self._mode.pull or not own.places.has_far:
            return None
        return Far(
            own.device.id,
            own.policy,
            own.places.regions,
            own.ring.primaries,
            lambda device: self.neighbours.skips(node_of(device)),
            self._fetching,
        )

    async def _weigh(self, own: DevicePartitions, left: Mapping[str, LeftToDo]) -> None:
        """Tell how many bytes have to pass the links to other regions, by the sizes of some objects of each."""
        far, size = self._far(own), self._replica_kind.size
        if far is None or size is None:
            return
        counts: Counter[str] = Counter()
        some: dict[str, list[ObjectKey]] = {}
        for region, partition, to_fetch in far.to_pass():
            counts[region] += to_fetch.count
            some.setdefault(region, []).extend(ObjectKey(own.policy, partition, digest) for digest in to_fetch.some)
        for region, keys in some.items():
            sizes: list[int] = []
            for key in random.sample(keys, min(len(keys), _WEIGHED)):
                # An object that is gone by now, or can't be read, has no part in the mean.
                with suppress(SwiftletError):
                    sizes.append(await size(own.device, key))
            if region in left and sizes:
                left[region].size_bytes = round(counts[region] * sum(sizes) / len(sizes))

    def know(self, policy: int) -> None:
        """Make the nodes of a policy's ring known as neighbours, as rounds do when they begin."""
        try:
            self.neighbours.know(policy, self._rings(policy).devices)
        except Unavailable as error:
            _log.debug("a policy has no ring yet", policy=policy, reason=str(error))

    def _outdated(self, own: DevicePartitions) -> bool:
        """Return whether there is a newer ring, or none any more because the policy was retired."""
        try:
            return self._rings(own.policy) is not own.ring
        except Unavailable:
            return True

    async def _begin(self, policy: int, report: RoundReport) -> list[tuple[DevicePartitions, list[int]]]:
        """Return the local devices in a policy's ring, each with the partitions that have to be compared."""
        try:
            ring = self._rings(policy)
        except Unavailable as error:
            report.failed += 1
            _log.info("the round of a policy is skipped", policy=policy, reason=str(error))
            return []
        devices = self._local(ring)
        self.neighbours.know(policy, ring.devices)
        ids = {device.id for device in devices}
        self._places = {key: kept for key, kept in self._places.items() if key[1] != policy or key[0] in ids}
        self.standings.keep(policy, {device.name for device in devices})
        begun = [await self._begin_device(device, policy, ring, report) for device in devices]
        return [found for found in begun if found is not None]

    async def _begin_device(
        self, device: Device, policy: int, ring: Ring, report: RoundReport
    ) -> tuple[DevicePartitions, list[int]] | None:
        assigned = self._places_of(device, policy, ring).assigned
        try:
            held = await self._transport.partitions(device, policy)
        except SwiftletError as error:
            report.failed += 1
            self.standings.unreadable(device.name, policy, assigned)
            _log.warning("a local device can't be read", device=device.name, error=str(error))
            return None
        standing = self.standings.of(device.name, policy)
        own = DevicePartitions(
            device, policy, self._places_of(device, policy, ring), standing, assigned.difference(held)
        )
        standing.begin(ring, held, own.misplaced(held), assigned)
        return own, held

    def _places_of(self, device: Device, policy: int, ring: Ring) -> Places:
        places = self._places.get((device.id, policy))
        if places is None or places.ring is not ring:
            places = self._places[device.id, policy] = Places(ring, device)
        return places

    async def _end(
        self, own: DevicePartitions, began_s: float, report: RoundReport, left: Mapping[str, LeftToDo] | None
    ) -> None:
        """Look once more at what the device holds, now that the round is over, of which `left` is what it has left to
        do with other regions; None where it was not about everything.
        """
        if self._outdated(own):
            report.whole = False
            return
        try:
            listed = await self._transport.partitions(own.device, own.policy)
            held = [partition for partition in listed if partition not in own.empty]
            for partition in own.empty.intersection(listed):
                if await self._transport.suffix_hashes(own.device, own.policy, partition):
                    held.append(partition)
        except SwiftletError as error:
            report.failed += 1
            own.standing.empty_since_s = None
            _log.warning("a local device can't be read", device=own.device.name, error=str(error))
            return
        own.standing.end(own.ring, began_s, len(held), own.misplaced(held), self._now_s())
        if left is not None:
            own.standing.compared_regions(own.device.region, began_s, left)
