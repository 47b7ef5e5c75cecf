"""One partition of one local device: compared with its other replicas, brought into agreement, or sent home.

The order is that of the original: suffix hashes, entries of the suffixes that differ, objects. See
`swiftlet.sync.replicator` for the faults that this stands.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import structlog

from swiftlet.errors import (
    DeviceFailed,
    NodeError,
    NodeTimeout,
    NodeUnreachable,
    NotFound,
    Superseded,
    SwiftletError,
)
from swiftlet.model import Entry, ObjectKey
from swiftlet.peers import ObjectTransport
from swiftlet.ring.model import Device
from swiftlet.sync.compare import Push, differing_suffixes, forgotten_before, is_due, is_home, pushes
from swiftlet.sync.copies import bring
from swiftlet.sync.failures.neighbours import Neighbours, node_of
from swiftlet.sync.pacing import Pace
from swiftlet.sync.report import COMPARED, PULLED, PULLED_BYTES, PUSHED, PUSHED_BYTES, REMOVED, RoundReport
from swiftlet.sync.share import Share

T = TypeVar("T")

_log = structlog.get_logger("replicator")


class _Fate(Enum):
    """What became of an object on its way."""

    MOVED = "moved"
    OVERTAKEN = "overtaken"
    """It changed meanwhile, on either side; the next round compares anew."""
    REFUSED = "refused"


@dataclass(slots=True)
class _Found:
    """What the comparison with one peer came to; `done` unless the peer failed. Counts are of objects."""

    done: bool = False
    pulled: int = 0
    behind: int = 0
    """Newer there, and still not here."""
    unsent: int = 0
    """Newer here, and still not there."""
    withheld: int = 0
    """Those of the unsent that the peer had already; see `swiftlet.sync.given`."""


class PartitionSync:
    """Works on partitions for one round."""

    def __init__(
        self,
        transport: ObjectTransport,
        report: RoundReport,
        reclaim_age_s: float,
        now_s: Callable[[], float],
        neighbours: Neighbours,
        pace: Pace,
        only_with: Callable[[Device], bool] | None = None,
    ) -> None:
        """What is done is counted in `report`; `reclaim_age_s` may be infinite; `now_s` is the wall clock.

        `only_with` picks the peers; without it partitions are compared with all of theirs, and handoffs go home.
        """
        self._transport = transport
        self._report = report
        self._reclaim_age_s = reclaim_age_s
        self._now_s = now_s
        self._neighbours = neighbours
        self._pace = pace
        self.only_with = only_with
        """Which peers; None for all."""
        self.skipped: dict[str, list[tuple[Share, int]]] = {}
        """By node, what was not compared because it is out of reach."""

    async def run(self, on: Share, partition: int) -> bool:
        """Compare with every peer, complete both sides, and forget a handoff that all primaries have.

        Whether all peers were compared.
        """
        peers, handoff = on.peers(partition)
        if self.only_with is not None:
            peers = [peer for peer in peers if self.only_with(peer)]
        results: list[_Found] = []
        if not handoff and peers and all(self._known(on, partition, peer) for peer in peers):
            known = [self._with_known(on, partition, peer) for peer in peers]
            checked = all(result.done for result in known)
            if self.only_with is None:
                on.standing.compared(partition, checked=checked)
            return checked
        try:
            mine = await self._hashes(on, partition)
            if not mine:
                peers = [] if handoff else [peer for peer in peers if on.asks(peer, partition)]
                if partition not in on.bare:
                    on.empty.add(partition)
            pulled = False
            for peer in sorted(peers, key=lambda peer: on.proved_at(peer, partition) is not None):
                # What came from one peer may be new to another that held the same before.
                if not handoff and not pulled and on.proved_at(peer, partition) is not None:
                    results.append(self._shown_equal(on, partition, peer))
                    continue
                results.append(await self._with_peer(on, partition, handoff, mine, peer))
                pulled |= results[-1].pulled > 0
                if results[-1].pulled and len(results) < len(peers):
                    mine = await self._hashes(on, partition)
        except SwiftletError as error:
            self._report.failed += 1
            on.standing.compared(partition, checked=False)
            _log.warning("local device not readable", device=on.device.name, error=str(error))
            return False
        checked = all(result.done for result in results)
        if self.only_with is not None:
            return checked
        # Two peers mostly have the same objects, so what is lacking is what one of them has, not the sum.
        behind = max((result.behind for result in results), default=0)
        unsent = sum(result.unsent for result in results)
        on.standing.compared(partition, behind=behind, unsent=unsent, checked=checked)
        if handoff and peers and checked:
            await self._go_home(on, partition, list(mine), peers)
        return checked

    def _known(self, on: Share, partition: int, peer: Device) -> bool:
        """Whether nothing has to be read here for the sake of a peer: it holds the same, or is left out."""
        return on.proved_at(peer, partition) is not None or self._neighbours.skips(node_of(peer))

    def _with_known(self, on: Share, partition: int, peer: Device) -> _Found:
        if on.proved_at(peer, partition) is not None:
            return self._shown_equal(on, partition, peer)
        return self._left_out(on, partition, peer)

    def _left_out(self, on: Share, partition: int, peer: Device) -> _Found:
        """What it comes to with a peer whose node is out of reach."""
        self._report.compared += 1
        self.skipped.setdefault(node_of(peer), []).append((on, partition))
        self._count("skipped")
        return _Found()

    def _shown_equal(self, on: Share, partition: int, peer: Device) -> _Found:
        """What it comes to with a peer that a session has shown to hold the same."""
        if partition not in on.bare:
            self._report.compared += 1
            self._count("equal")
        on.standing.given.compared(peer.id, partition, on.proved_at(peer, partition) or 0.0, False)
        return _Found(done=True)

    async def _hashes(self, on: Share, partition: int) -> Mapping[str, bytes]:
        return await self._transport.suffix_hashes(on.device, on.policy, partition)

    async def _with_peer(
        self, on: Share, partition: int, handoff: bool, mine: Mapping[str, bytes], peer: Device
    ) -> _Found:
        if self._neighbours.skips(node_of(peer)):
            return self._left_out(on, partition, peer)
        self._report.compared += 1
        found = _Found()
        began_s = self._now_s()
        try:
            theirs = await self._ask(peer, self._transport.suffix_hashes(peer, on.policy, partition))
            differing = differing_suffixes(mine, theirs)
            if not handoff:
                differing += sorted(theirs.keys() - mine.keys())
            for suffix in differing:
                await self._suffix(on, partition, suffix, handoff, peer, found)
        except SwiftletError as error:
            self._count("failed")
            _log.info("peer skipped", peer=peer.name, partition=partition, error=str(error))
            return found
        found.done = True
        if found.unsent == found.withheld:
            on.standing.given.compared(peer.id, partition, began_s, found.withheld > 0)
        if found.behind or found.unsent:
            self._count("failed")
        else:
            self._count("differs" if differing else "equal")
        return found

    def _count(self, result: str) -> None:
        self._report.failed += result == "failed"
        self._report.skipped += result == "skipped"
        self._report.in_sync += result == "equal"
        COMPARED.labels(result).inc()

    async def _ask(self, peer: Device, answer: Awaitable[T]) -> T:
        """An answer of a peer, whose node is known by it to be in reach, or not."""
        began = time.monotonic()
        try:
            found = await answer
        except (NodeUnreachable, NodeTimeout):
            self._neighbours.failed(node_of(peer))
            raise
        except SwiftletError:
            self._neighbours.succeeded(node_of(peer))
            raise
        self._pace.answered(time.monotonic() - began)
        self._neighbours.succeeded(node_of(peer))
        return found

    async def _suffix(self, on: Share, partition: int, suffix: str, handoff: bool, peer: Device, found: _Found) -> None:
        """Send what the peer lacks of a suffix, then fetch what is lacking here."""
        mine = await self._transport.entries(on.device, on.policy, partition, suffix)
        theirs = await self._ask(peer, self._transport.entries(peer, on.policy, partition, suffix))
        now_s = self._now_s()
        forgotten_s = forgotten_before(now_s, self._reclaim_age_s)
        for push in pushes(mine, theirs):
            if not is_due(push, now_s, forgotten_s):
                continue
            if on.standing.given.withholds(peer.id, partition, push, now_s):
                found.withheld += 1
                found.unsent += 1
            elif await self._push(on, partition, peer, push) is _Fate.REFUSED:
                found.unsent += 1
        if handoff:
            return
        pulls = [pull for pull in pushes(theirs, mine) if is_due(pull, now_s, forgotten_s)]
        found.behind += len(pulls)
        for pull in pulls:
            on.standing.lacks(partition, found.behind)
            fate = await self._pull(on, partition, peer, pull)
            found.pulled += fate is _Fate.MOVED
            found.behind -= fate is not _Fate.REFUSED

    async def _push(self, on: Share, partition: int, peer: Device, push: Push) -> _Fate:
        fate, moved_bytes = await self._bring(on.device, peer, peer, on.policy, partition, push)
        if fate is _Fate.MOVED:
            self._report.pushed += 1
            PUSHED.labels(push.need.value).inc()
            PUSHED_BYTES.inc(moved_bytes)
        return fate

    async def _pull(self, on: Share, partition: int, peer: Device, pull: Push) -> _Fate:
        fate, moved_bytes = await self._bring(peer, on.device, peer, on.policy, partition, pull)
        if fate is _Fate.MOVED:
            self._report.pulled += 1
            PULLED.labels(pull.need.value).inc()
            PULLED_BYTES.inc(moved_bytes)
        return fate

    async def _bring(
        self, source: Device, target: Device, peer: Device, policy: int, partition: int, push: Push
    ) -> tuple[_Fate, int]:
        key = ObjectKey(policy, partition, push.entry.digest)
        try:
            return _Fate.MOVED, await bring(self._transport, source, target, key, push, self._pace.moved)
        except (Superseded, NotFound) as error:
            _log.debug("overtaken", source=source.name, target=target.name, key=key.hex, reason=str(error))
            return _Fate.OVERTAKEN, 0
        except (NodeUnreachable, NodeTimeout):
            # It may be this side's own device that is away.
            self._neighbours.suspect(node_of(peer))
            raise
        except (NodeError, DeviceFailed):
            raise
        except SwiftletError as error:
            _log.warning("object refused", source=source.name, target=target.name, key=key.hex, error=str(error))
            return _Fate.REFUSED, 0

    async def _go_home(self, on: Share, partition: int, suffixes: list[str], primaries: list[Device]) -> None:
        """Forget handoff copies that every primary has shown to hold, or has forgotten itself."""
        forgotten_s = forgotten_before(self._now_s(), self._reclaim_age_s)
        for suffix in suffixes:
            try:
                mine = await self._transport.entries(on.device, on.policy, partition, suffix)
                shown = [
                    {e.digest: e for e in await self._transport.entries(device, on.policy, partition, suffix)}
                    for device in primaries
                ]
                for entry in mine:
                    if all(is_home(entry, there.get(entry.digest), forgotten_s) for there in shown):
                        await self._forget(on, partition, entry)
            except SwiftletError as error:
                self._report.failed += 1
                _log.info("handoff kept", partition=partition, error=str(error))
                return

    async def _forget(self, on: Share, partition: int, entry: Entry) -> None:
        if await self._transport.remove(on.device, ObjectKey(on.policy, partition, entry.digest), entry):
            self._report.removed += 1
            REMOVED.inc()
