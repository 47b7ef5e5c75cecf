"""Compares the fragments of places: roots of many partitions in one question, then suffixes, then entries.

Fragments differ from place to place, and versions do not: set hashes have versions alone, so equal places have equal
hashes. Each partition is compared with the next place clockwise whose device answers and goes by the same ring; in the
papers' rings of replicas all places are equal once each is equal to its neighbour.

Fault model: as `swiftlet.sync.coded.peers`. What is compared may change meanwhile; then something is found that is no
difference any more, and the devices say so. Entries of a few suffixes at a time are in memory.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import structlog

from swiftlet.boundaries.coded import PLACES
from swiftlet.errors import SwiftletError
from swiftlet.model import Entry, Kind
from swiftlet.ring.model import Device
from swiftlet.sync.coded.layout import CodedRing, Spot, store_partition_of
from swiftlet.sync.coded.peers import NO_HASH, Peers
from swiftlet.sync.coded.report import CodedReport
from swiftlet.sync.session.compare import differing_suffixes, in_flight, is_due, pushes
from swiftlet.sync.session.effects import expect
from swiftlet.sync.session.messages import AskEntries, AskSuffixes, Compare, Entries, Equal, Roots, Suffixes
from swiftlet.sync.session.roots import over
from swiftlet.transport.wire import WireError

_ROOTS = 4096
"""Partitions in one question about roots."""
_SUFFIXES = 16
"""Suffixes whose entries are compared at a time."""

_log = structlog.get_logger("replicator")


@dataclass(frozen=True, slots=True)
class Pair:
    """A partition of a local device, and the place that it is compared with."""

    store_partition: int
    """The partition in the local store."""
    other: Spot

    @property
    def other_store_partition(self) -> int:
        """Return the partition in the other store."""
        return store_partition_of(self.store_partition // PLACES, self.other.place)


@dataclass(frozen=True, slots=True)
class Lack:
    """A fragment that one of two places shows newer than the other."""

    digest: bytes
    is_here: bool
    """Whether it is the local device that lacks it."""


class Comparing:
    """The comparisons of one policy in one round."""

    def __init__(
        self,
        coded: CodedRing,
        peers: Peers,
        report: CodedReport,
        now_s: Callable[[], float],
        forgotten_before_s: Callable[[], float],
    ) -> None:
        """`now_s` returns seconds since the epoch, and `forgotten_before_s` the time before which tombstones don't
        count any more.
        """
        self._coded = coded
        self._peers = peers
        self._report = report
        self._now_s = now_s
        self._forgotten_before_s = forgotten_before_s

    async def differing(self, own: Device, store_partitions: Sequence[int]) -> list[Pair]:
        """Return the partitions that the next place shows otherwise.

        Raises SwiftletError when the local device can't be read, or goes by another ring.
        """
        found: list[Pair] = []
        for start in range(0, len(store_partitions), _ROOTS):
            left = list(store_partitions[start : start + _ROOTS])
            roots = dict(zip(left, await self._roots(own, left) or (), strict=True))
            while left:
                by_peer: dict[int, list[Pair]] = {}
                for store_partition in left:
                    if (other := self._next(store_partition)) is None:
                        self._report.uncompared()
                    else:
                        by_peer.setdefault(other.device.id, []).append(Pair(store_partition, other))
                left = []
                for pairs in by_peer.values():
                    try:
                        found += await self._compare(pairs, roots)
                    except SwiftletError as error:
                        _log.info("a place can't be compared", device=pairs[0].other.device.name, error=str(error))
                        self._peers.leave_out(pairs[0].other.device)
                        left += [pair.store_partition for pair in pairs]
        return found

    def _next(self, store_partition: int) -> Spot | None:
        return next(
            (spot for spot in self._coded.clockwise(store_partition) if self._peers.is_usable(spot.device)), None
        )

    async def _compare(self, pairs: list[Pair], roots: Mapping[int, bytes]) -> list[Pair]:
        """Return those that differ, of pairs with one peer."""
        pairs = sorted(pairs, key=lambda pair: pair.other_store_partition)
        ours = [roots[pair.store_partition] for pair in pairs]
        theirs = (
            await self._roots(pairs[0].other.device, [pair.other_store_partition for pair in pairs], over(ours)) or ours
        )
        differ = [pair for pair, mine, other in zip(pairs, ours, theirs, strict=True) if mine != other]
        self._report.count(len(pairs), len(pairs) - len(differ))
        return differ

    async def _roots(
        self, device: Device, store_partitions: Sequence[int], hash_of_all: bytes = NO_HASH
    ) -> Sequence[bytes] | None:
        """Return the roots of a device's partitions, which have to ascend; None if this is the hash over them."""
        request = Compare(self._coded.policy, self._coded.ring.version, tuple(store_partitions), hash_of_all)
        reply = await self._peers.ask(device, request)
        if isinstance(reply, Equal):
            return None
        roots = expect(reply, Roots).roots
        if len(roots) != len(store_partitions):
            raise WireError(f"{device.name} answers with {len(roots)} roots for {len(store_partitions)} partitions")
        return roots

    async def lacking(self, own: Device, pair: Pair) -> AsyncIterator[Lack]:
        """Yield what either side of a pair lacks. Raises SwiftletError."""
        other = pair.other
        here, there = (
            await self.suffixes(own, pair.store_partition),
            await self.suffixes(other.device, pair.other_store_partition),
        )
        differ = differing_suffixes(here, there, both=True)
        for start in range(0, len(differ), _SUFFIXES):
            some = differ[start : start + _SUFFIXES]
            ours = await self.entries(own, pair.store_partition, some)
            theirs = await self.entries(other.device, pair.other_store_partition, some)
            for lack in self._lacks(ours, theirs):
                yield lack

    def _lacks(self, ours: Sequence[Entry], theirs: Sequence[Entry]) -> Iterator[Lack]:
        now_s, forgotten_s = self._now_s(), self._forgotten_before_s()
        for lacked, is_here in ((pushes(theirs, ours), True), (pushes(ours, theirs), False)):
            for push in lacked:
                if is_due(push, now_s, forgotten_s):
                    yield Lack(push.entry.digest, is_here)
        # Of two writes with one timestamp the higher generation counts, and only the devices know those.
        known = {entry.digest: entry for entry in theirs}
        for entry in ours:
            if known.get(entry.digest) == entry and entry.kind is Kind.DATA and not in_flight(entry, now_s):
                yield Lack(entry.digest, is_here=True)
                yield Lack(entry.digest, is_here=False)

    async def suffixes(self, device: Device, store_partition: int) -> Mapping[str, bytes]:
        """Return the set hashes of a device's partition by suffix. Raises SwiftletError."""
        request = AskSuffixes(self._coded.policy, self._coded.ring.version, (store_partition,))
        found = expect(await self._peers.ask(device, request), Suffixes).found
        if len(found) != 1 or found[0].partition != store_partition:
            raise WireError(f"{device.name} answers about other partitions than {store_partition}")
        return found[0].hashes

    async def entries(self, device: Device, store_partition: int, suffixes: Sequence[str]) -> list[Entry]:
        """Return all entries of these suffixes of a device's partition. Raises SwiftletError."""
        entries: list[Entry] = []
        more = True
        while more:
            after = entries[-1].digest if entries else None
            request = AskEntries(self._coded.policy, self._coded.ring.version, store_partition, tuple(suffixes), after)
            page = expect(await self._peers.ask(device, request), Entries)
            entries += page.entries
            more = page.more and bool(page.entries)
        return entries
