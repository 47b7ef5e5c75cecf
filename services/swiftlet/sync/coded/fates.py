"""Versions that are not settled: what became of a write whose proxy is gone, and whether older versions are dead.

A version that nobody at a device knows the fate of is left to its proxy for a while, counted from when it was first
seen here: no clock but this process's own has part in it, and none at all in what is right. Then the devices that the
proxy chose decide. A version that counts is settled once enough other places show it under the same ring.

Fault model: as `swiftlet.sync.coded.peers`. Several replicators may have the same write decided at the same time; the
one with the higher ballot decides, and the others try again. What is remembered has a limit: versions beyond it wait.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

import structlog

from swiftlet.boundaries.coded import PLACES, CodedRepair, CodedVersion, UnsettledFragment
from swiftlet.errors import SwiftletError
from swiftlet.model import ObjectKey
from swiftlet.ring.model import Device
from swiftlet.sync.coded.layout import CodedRing, store_partition_of
from swiftlet.sync.coded.peers import Peers
from swiftlet.sync.coded.report import CodedReport

MOST_WATCHED = 16_384
"""Undecided versions that are remembered; others wait until there is room."""

_log = structlog.get_logger("replicator")


@dataclass(slots=True)
class _Seen:
    first_s: float
    """When it was first seen, on this process's clock."""
    last_turn: int
    round: int = 1
    """The round of the next ballot."""

    def again(self, turn: int) -> None:
        """It was seen once more."""
        self.last_turn = turn


class Watch:
    """Undecided versions of all devices and policies from round to round."""

    def __init__(self, recover_after_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Versions are left to their proxy for `recover_after_s` seconds after they were first seen."""
        self._recover_after_s = recover_after_s
        self._clock = clock
        self._turn = 0
        self._seen: dict[tuple[str, ObjectKey, CodedVersion], _Seen] = {}

    def begin(self) -> None:
        """Count what is seen from now on as seen in another round."""
        self._turn += 1

    def end(self) -> None:
        """A round has ended: forget what was not seen in it."""
        self._seen = {which: seen for which, seen in self._seen.items() if seen.last_turn == self._turn}

    def is_due(self, device: Device, found: UnsettledFragment) -> bool:
        """Note that a version is undecided at a device; return whether it has been for long enough."""
        which = device.name, found.key, found.version
        seen = self._seen.get(which)
        if seen is None:
            if len(self._seen) >= MOST_WATCHED:
                return False
            seen = self._seen[which] = _Seen(self._clock(), self._turn)
        seen.again(self._turn)
        return self._clock() - seen.first_s >= self._recover_after_s

    def round_of(self, device: Device, found: UnsettledFragment) -> int:
        """Return the round of the next ballot about a version that is due."""
        return self._seen[device.name, found.key, found.version].round

    def try_above(self, device: Device, found: UnsettledFragment, heard: int) -> None:
        """Try again with a round above one that was heard of."""
        self._seen[device.name, found.key, found.version].round = heard + 1


class Fates:
    """The versions of one policy that are not settled, in one round."""

    def __init__(self, coded: CodedRing, repair: CodedRepair, peers: Peers, report: CodedReport, watch: Watch) -> None:
        """`watch` is that of all rounds."""
        self._coded = coded
        self._repair = repair
        self._peers = peers
        self._report = report
        self._watch = watch

    async def decide(self, own: Device) -> None:
        """Have decided what has been undecided at a local device for long enough. Raises SwiftletError."""
        async for found in self._unsettled(own):
            if found.certain:
                continue
            self._report.undecided += 1
            if self._watch.is_due(own, found):
                await self._decide(own, found)

    async def _decide(self, own: Device, found: UnsettledFragment) -> None:
        if self._coded.owner(found.key.partition) is None:
            return
        places = self._coded.places(found.key.partition // PLACES, found.key.digest)
        try:
            if len(found.chosen) != self._coded.coding.fragments:
                raise SwiftletError("it is not known any more which devices were chosen")
            number = self._watch.round_of(own, found)
            recovered = await self._repair.recover(places, found.version, found.chosen, number)
        except SwiftletError as error:
            self._report.fail("refused")
            _log.warning("a write can't be decided", device=own.name, object=found.key.digest.hex(), error=str(error))
            return
        self._report.decided(recovered.end)
        if recovered.end == "later":
            self._watch.try_above(own, found, recovered.round)
            _log.info(
                "too few devices decide about a write",
                device=own.name,
                object=found.key.digest.hex(),
                refused="; ".join(f"{device.name}: {error}" for device, error in recovered.refused),
            )
        else:
            self._report.undecided -= 1

    async def settle(self, own: Device) -> set[int]:
        """Settle what counts at a local device's own places and is shown by enough others.

        Return the partitions of other devices' places in which it has versions that are not settled. Raises
        SwiftletError.
        """
        strange: set[int] = set()
        async for found in self._unsettled(own):
            if self._coded.owner(found.key.partition) != own:
                strange.add(found.key.partition)
            elif found.certain:
                try:
                    await self._settle(own, found)
                except SwiftletError as error:
                    self._report.fail("refused")
                    _log.warning(
                        "a version can't be settled", device=own.name, object=found.key.digest.hex(), error=str(error)
                    )
        return strange

    async def _settle(self, own: Device, found: UnsettledFragment) -> None:
        partition = found.key.partition // PLACES
        equal = 0
        for other in self._coded.clockwise(found.key.partition):
            if not await self._peers.is_ours(other.device, partition):
                continue
            key = self._coded.key(store_partition_of(partition, other.place), found.key.digest)
            try:
                shown = await self._peers.calling(other.device, self._repair.show(other.device, key))
            except SwiftletError as error:
                _log.info("a place does not show what it has", device=other.device.name, error=str(error))
                continue
            if shown is None or shown.version != found.version:
                continue
            equal += 1
            if shown.settled or self._repair.is_settled(self._coded.coding, equal):
                await self._peers.calling(own, self._repair.settle(own, found.key, found.version))
                self._report.repaired("settled")
                return

    async def _unsettled(self, own: Device) -> AsyncIterator[UnsettledFragment]:
        """Yield all versions of a local device that are not settled."""
        after: ObjectKey | None = None
        more = True
        while more:
            found, more = await self._peers.calling(own, self._repair.unsettled(own, self._coded.policy, after))
            for one in found:
                yield one
            more = more and bool(found)
            after = found[-1].key if found else None
