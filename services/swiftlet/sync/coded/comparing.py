"""Compares the fragments of places: roots of many partitions in one question, then suffixes, then entries.

Fragments differ from place to place, and versions do not: set hashes have versions alone, so equal places have equal
hashes. The partitions of a device's places are compared with all other places: then equality is proved for the device
by its own replicator alone, and it is known how many places show an object.

Fault model: as `swiftlet.sync.coded.peers`. What is compared may change meanwhile; then something is found that is no
difference any more, and the devices say so. Entries of a few suffixes at a time are in memory, of each different place.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from swiftlet.boundaries.coded import PLACES
from swiftlet.errors import SwiftletError, Unavailable
from swiftlet.model import Entry
from swiftlet.ring.model import Device
from swiftlet.sync.coded.layout import Around, CodedRing, Shared, Spot, Surroundings, store_partition_of
from swiftlet.sync.coded.peers import NO_HASH, Peers
from swiftlet.sync.coded.report import CodedReport
from swiftlet.sync.coded.views import Clock, Found, Lack, View, lacks
from swiftlet.sync.session.compare import differing_suffixes
from swiftlet.sync.session.effects import expect
from swiftlet.sync.session.entries import suffix_of
from swiftlet.sync.session.messages import AskEntries, AskSuffixes, Compare, Entries, Equal, Roots, Suffixes
from swiftlet.sync.session.roots import EMPTY_ROOT, over
from swiftlet.transport.wire import WireError

_ROOTS = 4096
"""Partitions in one question about roots."""
_SUFFIXES = 16
"""Suffixes whose entries are compared at a time."""

_log = structlog.get_logger("replicator")


@dataclass(slots=True)
class Compared:
    """The roots of a device's own partitions, by their positions, and in what other places differ from them."""

    roots: Sequence[bytes]
    different: dict[int, dict[int, bytes]] = field(default_factory=dict)
    """Roots of other places that are not the device's, by the id of the device there."""
    away: dict[int, set[int]] = field(default_factory=dict)
    """The ids of devices that could not be asked."""

    def is_alike(self, at: int) -> bool:
        """Return whether all places could be asked, and show what the device does."""
        return at not in self.different and at not in self.away


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

    async def compare(self, own: Device, around: Around) -> Compared:
        """Compare all partitions of a device with their other places.

        Raises SwiftletError when the local device can't be read, or goes by another ring.
        """
        compared = Compared(await self.roots(own, around.own))
        for shared in around.others:
            for start in range(0, len(shared.own), _ROOTS):
                await self._compare(shared, slice(start, start + _ROOTS), compared)
        return compared

    async def roots(self, device: Device, store_partitions: Sequence[int]) -> list[bytes]:
        """Return the roots of a device's partitions, which have to ascend. Raises SwiftletError."""
        roots: list[bytes] = []
        for start in range(0, len(store_partitions), _ROOTS):
            roots += await self._roots(device, store_partitions[start : start + _ROOTS]) or ()
        return roots

    async def _compare(self, shared: Shared, part: slice, compared: Compared) -> None:
        """Compare a part of the partitions that another device shares."""
        own, theirs = shared.own[part], shared.theirs[part]
        ours = [compared.roots[at] for at in own]
        try:
            if not self._peers.is_usable(shared.device):
                raise Unavailable("it was left out")
            found = await self._roots(shared.device, theirs, over(ours))
        except SwiftletError as error:
            if self._peers.is_usable(shared.device):
                _log.info("a place can't be compared", device=shared.device.name, error=str(error))
                self._peers.leave_out(shared.device)
            for at in own:
                compared.away.setdefault(at, set()).add(shared.device.id)
            return
        if found is None:
            self._report.count(len(own), len(own))
            return
        differ = [number for number, root in enumerate(found) if root != ours[number]]
        self._report.count(len(own), len(own) - len(differ))
        for number in differ:
            compared.different.setdefault(own[number], {})[shared.device.id] = found[number]

    def view(self, own: Device, around: Surroundings, compared: Compared, at: int) -> View:
        """Return what the places of a partition show."""
        store_partition, root = around.own[at], compared.roots[at]
        partition, place = divmod(store_partition, PLACES)
        groups = {root: [Spot(own, place)]}
        different, away = compared.different.get(at, {}), compared.away.get(at, ())
        for other in self._coded.clockwise(store_partition):
            if other.device.id not in away:
                groups.setdefault(different.get(other.device.id, root), []).append(other)
        view = View(partition, list(groups.values()), root == EMPTY_ROOT)
        if view.reached == 1:
            self._report.uncompared()
        return view

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
