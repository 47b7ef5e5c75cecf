"""Who brings data over the link between two regions, so that they pass it once for each region that lacks them. Pure.

For each partition and region the first primary in ring order that is not away is the region's *delegate*. What a region
lacks its delegate fetches, from one peer after the other, and the region's other devices get it from the delegate. So
two things are left to somebody else, as long as that device gets on:

- data that devices in another region lack: to them, since they fetch them in rounds of their own;
- data that a device lacks and finds in another region, without being the delegate of its own: to the delegate.

Deletions and metadata are sent and fetched at once, by everybody: they are small, and a deletion must not be late.

Fault model: the replicator of a device may be away while its server answers, and devices may take different ones for
away, so that a partition has several delegates or none that works. Whoever leaves something to another device looks at
it in each round. When the same is lacking for too long, and neither the device nor its region gets on with anything
else, the next one in line takes its turn (`Far.patience_of`). So a region has everything in the end as long as one of
its devices, or one of another region, can bring it. What was left counts as lacking until it is there. What is known of
others is lost with the process, and with a round that does not find the partition differing; then the time begins anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from swiftlet.ring.model import Device
from swiftlet.sync.session.compare import Need, Push

PATIENCE_S = 90.0
"""Seconds for which a device in another region may lack the same objects before they are sent to it."""
DELEGATE_S = 300.0
"""Seconds for which the same objects may be lacking before the next device of a region fetches them. It sees of the
delegate only what concerns partitions that both have, and a large object takes its time.
"""
LONGEST_S = 4 * 3600.0
"""Seconds after which objects are brought even when the device that they were left to gets on elsewhere."""
REGION_S = 900.0
"""Seconds after which objects are brought when only other devices of that one's region get on: until then the link may
be busy with what those fetch.
"""


SOME = 16
"""Objects of a partition of which the names are kept, by which all are weighed."""


@dataclass(slots=True)
class ToFetch:
    """The objects of a partition that are left to a device: how many, the timestamp of the oldest, and some of them."""

    count: int = 0
    oldest: int = 0
    some: tuple[bytes, ...] = ()

    def add(self, timestamp: int, digest: bytes) -> None:
        """Count an object with this timestamp and digest."""
        self.oldest = min(self.oldest, timestamp) if self.count else timestamp
        self.count += 1
        if len(self.some) < SOME:
            self.some += (digest,)

    def join(self, other: ToFetch) -> None:
        """Count the objects of another page of the partition, too."""
        self.oldest = min(self.oldest, other.oldest) if self.count else other.oldest
        self.count += other.count
        self.some = (self.some + other.some)[:SOME]


@dataclass(frozen=True, slots=True)
class Left:
    """What is left to whom: the objects of a partition that a comparison with `peer` has shown.

    With `pull` the own device `device` lacks them, and else the peer. `fetcher` is the device that they are left to.
    """

    device: int
    policy: int
    peer: int
    partition: int
    pull: bool
    fetcher: int
    region: str
    """The region of the fetcher."""


@dataclass(frozen=True, slots=True)
class _Lack:
    """What was lacking when the fetcher last got on with it, when that was, when it was last seen, and for how long
    neither the fetcher had got on with anything by then, nor its region.
    """

    to_fetch: ToFetch
    since_s: float
    seen_s: float
    for_s: float = 0.0


_Fetcher = tuple[int, int, int | str]
"""The own device, the policy and the device to which something is left, or its region."""


class Fetching:
    """Remembers what one replicator has left to others in the last two rounds."""

    def __init__(self) -> None:
        self._before: Mapping[Left, _Lack] = {}
        self._now: dict[Left, _Lack] = {}
        self._got_on_s: dict[_Fetcher, float] = {}
        """When a fetcher was last seen to get on with anything."""

    def begin(self) -> None:
        """Begin a round: what the last one has not seen is forgotten.

        Where the last round has seen anything with the same peer, what it has not seen any more was brought.
        """
        seen = {(left.device, left.policy, left.peer): lack.seen_s for left, lack in self._now.items()}
        for left in self._before.keys() - self._now.keys():
            if (seen_s := seen.get((left.device, left.policy, left.peer))) is not None:
                self._gets_on(left, seen_s)
        fetchers = {fetcher for left in self._now for fetcher in _fetchers_of(left)}
        self._got_on_s = {fetcher: at_s for fetcher, at_s in self._got_on_s.items() if fetcher in fetchers}
        self._before, self._now = self._now, {}

    def sent_later(self, device: int, policy: int) -> list[tuple[Left, ToFetch]]:
        """Return what a device has left to devices in other regions in this round, which it could send them."""
        return [
            (left, lack.to_fetch)
            for left, lack in self._now.items()
            if (left.device, left.policy, left.pull) == (device, policy, False)
        ]

    def _gets_on(self, left: Left, at_s: float) -> None:
        for fetcher in _fetchers_of(left):
            self._got_on_s[fetcher] = max(at_s, self._got_on_s.get(fetcher, at_s))

    def waits(self, left: Left, patience_s: float) -> bool:
        """Return whether to leave something to its fetcher, by what the last round has seen: it may not get on for
        `patience_s`.
        """
        known = self._before.get(left)
        return known is None or known.for_s < patience_s

    def lacks(self, left: Left, to_fetch: ToFetch, now_s: float) -> None:
        """Note what is left to a fetcher."""
        known = self._before.get(left)
        if known is None:
            self._now[left] = _Lack(to_fetch, now_s, now_s)
        elif known.to_fetch.oldest != to_fetch.oldest or known.to_fetch.count > to_fetch.count:
            self._gets_on(left, now_s)
            self._now[left] = _Lack(to_fetch, now_s, now_s)
        else:
            for_s = now_s - known.since_s
            for fetcher, longest_s in zip(_fetchers_of(left), (LONGEST_S, REGION_S), strict=True):
                if for_s < longest_s:
                    for_s = min(for_s, now_s - self._got_on_s.get(fetcher, known.since_s))
            self._now[left] = _Lack(known.to_fetch, known.since_s, now_s, for_s)


def _fetchers_of(left: Left) -> tuple[_Fetcher, _Fetcher]:
    """Return the device that something is left to, and its region."""
    return (left.device, left.policy, left.fetcher), (left.device, left.policy, left.region)


def _place(line: list[int], device: int) -> int:
    """Return how many devices come before one in a line; all of them before one that is not in it."""
    return line.index(device) if device in line else len(line)


@dataclass(frozen=True, slots=True)
class Far:
    """The devices in other regions, as one own device's sessions about a policy see them.

    `regions` has the region of each device of the ring by its id, `primaries` returns those of a partition in ring
    order, and `is_away` tells of a device that its node is left out of rounds.
    """

    device: int
    policy: int
    regions: Mapping[int, str]
    primaries: Callable[[int], Sequence[Device]]
    is_away: Callable[[Device], bool]
    fetching: Fetching

    def is_far(self, peer: int) -> bool:
        """Whether a device is in another region than the own one."""
        return self.regions.get(peer) != self.regions.get(self.device)

    def line(self, partition: int, device: int, *, inside: bool = True) -> list[int]:
        """Return the primaries of a partition in the region of a device which are not away, the delegate first; those
        in all other regions with `inside` false.

        The device itself and the own one do not count as away.
        """
        region = self.regions.get(device)
        known = (device, self.device)
        return list(
            dict.fromkeys(
                one.id
                for one in self.primaries(partition)
                if (one.region == region) is inside and (one.id in known or not self.is_away(one))
            )
        )

    def to_pass(self) -> Iterator[tuple[str, int, ToFetch]]:
        """Yield what has to pass a link, as this round has seen it: the region that lacks it, the partition and the
        objects. Delegates tell it of each other, so that what several devices lack or have counts once.
        """
        for left, to_fetch in self.fetching.sent_later(self.device, self.policy):
            own, theirs = self.line(left.partition, self.device), self.line(left.partition, left.peer)
            if own[:1] == [self.device] and theirs[:1] == [left.peer]:
                yield left.region, left.partition, to_fetch

    def patience_of(self, peer: int, partition: int, pull: bool) -> tuple[int, float]:
        """Return whom data of a partition are left to, and for how many seconds that one may not get on.

        First the primaries of the region that lacks something fetch it, one after the other. Then those of the other
        regions send it, one after the other, first to the delegate. No seconds: it is the own device's turn.
        """
        if pull:
            own = self.line(partition, self.device)
            return (own[0] if own else self.device), _place(own, self.device) * DELEGATE_S
        takers, givers = self.line(partition, peer), self.line(partition, peer, inside=False)
        later = _place(givers, self.device) + _place(takers, peer)
        return peer, max(0, len(takers) - 1) * DELEGATE_S + (1 + later) * PATIENCE_S

    def split(
        self, peer: int, objects: Sequence[tuple[int, Push]], *, pull: bool = False
    ) -> tuple[Sequence[tuple[int, Push]], dict[int, ToFetch]]:
        """Return the objects to bring to a peer now, or with `pull` from it, and what is left to others of each
        partition.
        """
        if not self.is_far(peer):
            return objects, {}
        waits: dict[int, bool] = {}
        now: list[tuple[int, Push]] = []
        to_fetch: dict[int, ToFetch] = {}
        for partition, push in objects:
            if push.need is not Need.DATA:
                now.append((partition, push))
                continue
            if partition not in waits:
                left, patience_s = self._left(peer, partition, pull)
                waits[partition] = patience_s > 0 and self.fetching.waits(left, patience_s)
            if waits[partition]:
                to_fetch.setdefault(partition, ToFetch()).add(push.entry.timestamp.value, push.entry.digest)
            else:
                now.append((partition, push))
        return now, to_fetch

    def lacks(self, peer: int, to_fetch: Mapping[int, ToFetch], now_s: float, *, pull: bool = False) -> None:
        """Note what is left to others of whole partitions, after a comparison with a peer."""
        for partition, what in to_fetch.items():
            self.fetching.lacks(self._left(peer, partition, pull)[0], what, now_s)

    def _left(self, peer: int, partition: int, pull: bool) -> tuple[Left, float]:
        fetcher, patience_s = self.patience_of(peer, partition, pull)
        region = self.regions.get(fetcher, "")
        return Left(self.device, self.policy, peer, partition, pull, fetcher, region), patience_s
