"""Brings what one place shows to another one: told, rebuilt from k others, or moved from a device that stood in.

Fault model: any device may fail at any moment. Nothing is kept of a fragment that is not proved to be the one that was
lost, and a device drops what it has for a place only by what that place shows after it has made it durable. What fails
is counted, logged, and done in the next round. At most as many fragments are rebuilt at a time as the pace allows; each
holds a few MiB.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from swiftlet.boundaries.coded import PLACES, CodedRepair, Said, ShownFragment
from swiftlet.errors import SwiftletError
from swiftlet.model import Entry, Kind
from swiftlet.ring.model import Device
from swiftlet.sync.coded.backlog import Budget
from swiftlet.sync.coded.layout import CodedRing, Spot, store_partition_of
from swiftlet.sync.coded.peers import Peers
from swiftlet.sync.coded.report import CodedReport, Why
from swiftlet.sync.coded.traffic import Traffic

_LEARNS = 3
"""What a device is told at most about one version: that it counts, that it is settled, and then whether it lacks it."""

MOST_WARNED = 16
"""Failures with single fragments that a round logs as warnings."""
_WHY: Mapping[str, Why] = {"too-few": "too_few", "unproved": "unproved"}

_log = structlog.get_logger("replicator")


class Mending:
    """The repairs of one policy in one round."""

    def __init__(
        self,
        coded: CodedRing,
        repair: CodedRepair,
        peers: Peers,
        report: CodedReport,
        traffic: Traffic,
        budget: Budget,
        concurrency: int,
    ) -> None:
        """At most `concurrency` fragments are repaired at a time. `traffic` limits the bytes that are read and sent,
        and says what is near; `budget` is told what was rebuilt.
        """
        self._coded = coded
        self._repair = repair
        self._peers = peers
        self._report = report
        self._traffic = traffic
        self._budget = budget
        self._slots = asyncio.Semaphore(concurrency)

    @property
    def policy(self) -> int:
        """Return the policy's index."""
        return self._coded.policy

    async def bring(self, partition: int, digest: bytes, source: Spot, target: Spot) -> bool:
        """Bring the version that `source` shows of an object to `target`, unless that has it or something newer.

        Return whether `target` lacks nothing of it any more.
        """
        async with self._slots:
            if not (self._peers.is_usable(source.device) and self._peers.is_usable(target.device)):
                return False
            try:
                shown = await self.show(source.device, store_partition_of(partition, source.place), digest)
                if shown is None:
                    return True
                is_there = await self._bring(partition, digest, shown, target)
                # Nothing that was posted counts on top of a deletion.
                if not shown.is_deletion:
                    await self._bring_metadata(partition, digest, source, target)
                return is_there
            except SwiftletError as error:
                self._failed("a fragment can't be repaired", partition, digest, target, str(error))
                return False

    async def show(self, device: Device, store_partition: int, digest: bytes) -> ShownFragment | None:
        """Return what a device shows of a fragment. Raises SwiftletError."""
        return await self._peers.calling(device, self._repair.show(device, self._coded.key(store_partition, digest)))

    async def _bring(self, partition: int, digest: bytes, shown: ShownFragment, target: Spot) -> bool:
        # Nothing follows from a deletion that is durable.
        most = 1 if shown.is_deletion else _LEARNS
        if await self._learn(partition, digest, shown, target, most) != "missing":
            return True
        if not await self._rebuild(partition, digest, shown, target):
            return False
        if shown.settled:
            # It counts already.
            await self._learn(partition, digest, shown, target, 1)
        return True

    async def _bring_metadata(self, partition: int, digest: bytes, source: Spot, target: Spot) -> None:
        """Bring what was posted to an object, which counts for every version that is older."""
        own, theirs = (self._coded.key(store_partition_of(partition, spot.place), digest) for spot in (source, target))
        told = await self._peers.calling(source.device, self._repair.posted(source.device, own))
        if told is not None:
            await self._peers.calling(target.device, self._repair.post(target.device, theirs, told))
            self._report.repaired("told")

    async def _learn(self, partition: int, digest: bytes, shown: ShownFragment, target: Spot, most: int) -> Said:
        """Tell a device what is shown until nothing follows, at most `most` times; return what it says at last."""
        key = self._coded.key(store_partition_of(partition, target.place), digest)
        said: Said = "done"
        for _ in range(most):
            said = await self._peers.calling(target.device, self._repair.learn(target.device, key, shown))
            if said != "done":
                break
            self._report.repaired("told")
        return said

    async def _rebuild(self, partition: int, digest: bytes, shown: ShownFragment, target: Spot) -> bool:
        """Have a device keep the fragment of its place; return whether it has it, or something newer."""
        places, distances = self._coded.places(partition, digest), self._traffic.vicinity.distances
        rebuilt = await self._repair.rebuild(places, target.place, shown.version, distances)
        # Also what was read in vain has passed.
        size_bytes = sum(read for _, read in rebuilt.read) + rebuilt.made
        await self._traffic.moved(size_bytes, rebuilt.read, [(target.device, rebuilt.made)])
        if rebuilt.end in ("done", "superseded"):
            self._report.repaired("rebuilt", rebuilt.made)
            self._budget.spend(rebuilt.made)
            return True
        if rebuilt.end in ("failed", "busy"):
            self._peers.failed(target.device)
        ailments = "; ".join(f"{device.name}: {error}" for device, error in rebuilt.refused)
        error = f"{rebuilt.end}; {ailments or 'no device has refused'}"
        self._failed("a fragment can't be rebuilt", partition, digest, target, error, _WHY.get(rebuilt.end, "refused"))
        return False

    async def hand_back(self, own: Device, store_partition: int, entry: Entry, owner: Device) -> bool:
        """Bring a fragment that a local device keeps for another one to that one, and drop it here once it is there.

        Return whether it was dropped. A deletion is told and stays, until it is forgotten; then: whether it was told.
        """
        partition, place = divmod(store_partition, PLACES)
        target = Spot(owner, place)
        brought = await self.bring(partition, entry.digest, Spot(own, place), target)
        if not self._peers.is_usable(owner):
            return False
        try:
            theirs = await self.show(owner, store_partition, entry.digest)
            if theirs is None:
                return False
            key = self._coded.key(store_partition, entry.digest)
            is_dropped = await self._peers.calling(own, self._repair.hand_back(own, key, theirs))
        except SwiftletError as error:
            self._failed("a fragment can't be handed back", partition, entry.digest, target, str(error))
            return False
        if is_dropped:
            self._report.repaired("handed_back")
        return is_dropped or (entry.kind is Kind.TOMBSTONE and brought)

    def _failed(self, what: str, partition: int, digest: bytes, target: Spot, error: str, why: Why = "refused") -> None:
        self._report.fail(why)
        # The others are in the numbers of the round.
        write = _log.warning if self._report.failed <= MOST_WARNED else _log.debug
        about = {"partition": partition, "object": digest.hex(), "place": target.place}
        write(what, device=target.device.name, **about, error=error)
