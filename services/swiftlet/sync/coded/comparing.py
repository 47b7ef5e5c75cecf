"""Compares the fragments of places: roots of many partitions in one question, then suffixes, then entries.

Fragments differ from place to place, and versions do not: set hashes have versions alone, so equal places have equal
hashes. The partitions of a device's places are compared with all other places: then equality is proved for the device
by its own replicator alone, and it is known how many places show an object.

Fault model: as `swiftlet.sync.coded.peers`. What is compared may change meanwhile; then something is found that is no
difference any more, and the devices say so. Entries of a few suffixes at a time are in memory, of each different place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass

import structlog

from swiftlet.boundaries.coded import PLACES
from swiftlet.errors import SwiftletError
from swiftlet.model import Entry
from swiftlet.ring.model import Device
from swiftlet.sync.coded.layout import CodedRing, Spot, store_partition_of
from swiftlet.sync.coded.peers import NO_HASH, Peers
from swiftlet.sync.coded.report import CodedReport
from swiftlet.sync.coded.views import Clock, Found, Lack, View, lacks
from swiftlet.sync.session.compare import differing_suffixes
from swiftlet.sync.session.effects import expect
from swiftlet.sync.session.entries import suffix_of
from swiftlet.sync.session.messages import AskEntries, AskSuffixes, Compare, Entries, Equal, Roots, Suffixes
from swiftlet.sync.session.roots import EMPTY_ROOT, over
from swiftlet.transport.wire import WireError

ROOTS = 4096
"""Partitions in one question about roots."""
_SUFFIXES = 16
"""Suffixes whose entries are compared at a time."""

_log = structlog.get_logger("replicator")


@dataclass(frozen=True, slots=True)
class Pair:
    """A partition of a local device, and another place of it."""

    store_partition: int
    """The partition in the local store."""
    other: Spot

    @property
    def other_store_partition(self) -> int:
        """Return the partition in the other store."""
        return store_partition_of(self.store_partition // PLACES, self.other.place)


class Comparing:
    """The comparisons of one policy in one round."""

    def __init__(
        self,
        coded: CodedRing,
        peers: Peers,
        report: CodedReport,
        clock: Callable[[], Clock],
    ) -> None:
        """`clock` returns the moment for which entries are compared."""
        self._coded = coded
        self._peers = peers
        self._report = report
        self._clock = clock

    async def views(self, own: Device, store_partitions: Sequence[int]) -> list[View]:
        """Return what the places of up to `ROOTS` partitions show.

        Raises SwiftletError when the local device can't be read, or goes by another ring.
        """
        roots = dict(zip(store_partitions, await self._roots(own, store_partitions) or (), strict=True))
        by_peer: dict[int, list[Pair]] = {}
        for store_partition in store_partitions:
            for other in self._coded.clockwise(store_partition):
                by_peer.setdefault(other.device.id, []).append(Pair(store_partition, other))
        shown: dict[int, dict[Spot, bytes]] = {store_partition: {} for store_partition in store_partitions}
        for pairs in by_peer.values():
            await self._compare(sorted(pairs, key=lambda pair: pair.other_store_partition), roots, shown)
        return [
            self._view(own, store_partition, roots[store_partition], shown[store_partition])
            for store_partition in shown
        ]

    async def _compare(
        self, pairs: Sequence[Pair], roots: Mapping[int, bytes], shown: Mapping[int, dict[Spot, bytes]]
    ) -> None:
        """Add to `shown` the roots of one peer's places, unless it can't be asked."""
        device = pairs[0].other.device
        for start in range(0, len(pairs), ROOTS):
            some = pairs[start : start + ROOTS]
            if not self._peers.is_usable(device):
                return
            ours = [roots[pair.store_partition] for pair in some]
            try:
                theirs = await self._roots(device, [pair.other_store_partition for pair in some], over(ours)) or ours
            except SwiftletError as error:
                _log.info("a place can't be compared", device=device.name, error=str(error))
                self._peers.leave_out(device)
                return
            self._report.count(len(some), sum(map(bytes.__eq__, ours, theirs)))
            for pair, root in zip(some, theirs, strict=True):
                shown[pair.store_partition][pair.other] = root

    def _view(self, own: Device, store_partition: int, root: bytes, shown: Mapping[Spot, bytes]) -> View:
        partition, place = divmod(store_partition, PLACES)
        groups = {root: [Spot(own, place)]}
        for other in self._coded.clockwise(store_partition):
            if other in shown:
                groups.setdefault(shown[other], []).append(other)
        if not shown:
            self._report.uncompared()
        return View(partition, list(groups.values()), root == EMPTY_ROOT)

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

    async def lacking(self, view: View, found: Found) -> AsyncIterator[Lack]:
        """Yield what the local place and the next one lack of a partition, and count what is found in it.

        Raises SwiftletError.
        """
        places = [(group[0].device, store_partition_of(view.partition, group[0].place)) for group in view.groups]
        hashes = [await self.suffixes(*place) for place in places]
        differ = _differing(hashes)
        for start in range(0, len(differ), _SUFFIXES):
            some = differ[start : start + _SUFFIXES]
            shown = [_by_suffix(await self.entries(*place, some)) for place in places]
            for suffix in some:
                entries = [one.get(suffix, {}) for one in shown]
                for lack in lacks(view, entries, self._coded.coding.fragments, self._clock(), found):
                    yield lack

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


def _differing(hashes: Sequence[Mapping[str, bytes]]) -> list[str]:
    """Return the suffixes that not all have with the same hash, in order."""
    first = hashes[0]
    return sorted({suffix for other in hashes[1:] for suffix in differing_suffixes(first, other, both=True)})


def _by_suffix(entries: Sequence[Entry]) -> dict[str, dict[bytes, Entry]]:
    found: dict[str, dict[bytes, Entry]] = {}
    for entry in entries:
        found.setdefault(suffix_of(entry), {})[entry.digest] = entry
    return found
