"""What is left to a device in another region to fetch by itself. Pure.

Data should pass a link between regions once. A device that lacks something fetches it in a round of its own, from one
peer after the other. Would those that have it send it as well, it would pass several times, since the rounds of all
regions begin together when a link is back. So data that a device in another region lacks are left to it as long as it
gets on. Deletions and metadata are sent at once: they are small, and a deletion must not be late.

Fault model: the replicator of that device may be away while its server answers. When it has lacked the same oldest
object of a partition for `PATIENCE_S`, and no fewer than before, the data are sent as within a region. What is known of
it is lost with the process, and with a round that does not find the partition differing; then the time begins anew.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from swiftlet.sync.session.compare import Need, Push

PATIENCE_S = 90.0
"""Seconds for which a device in another region may lack the same objects before they are sent to it."""


@dataclass(slots=True)
class ToFetch:
    """The objects of a partition that are left to a device: how many, and the timestamp of the oldest."""

    count: int = 0
    oldest: int = 0

    def add(self, timestamp: int) -> None:
        """Count an object with this timestamp."""
        self.oldest = min(self.oldest, timestamp) if self.count else timestamp
        self.count += 1

    def join(self, other: ToFetch) -> None:
        """Count the objects of another page of the partition, too."""
        self.oldest = min(self.oldest, other.oldest) if self.count else other.oldest
        self.count += other.count


@dataclass(frozen=True, slots=True)
class _Lack:
    """What a device lacked of a partition when it last got on, when that was, and for how long it was so at last."""

    to_fetch: ToFetch
    since_s: float
    for_s: float = 0.0


_Key = tuple[int, int, int, int]
"""The own device, the policy, the peer and the partition."""


class Fetching:
    """Remembers what devices in other regions lacked in the last two rounds of one replicator."""

    def __init__(self) -> None:
        self._before: Mapping[_Key, _Lack] = {}
        self._now: dict[_Key, _Lack] = {}

    def begin(self) -> None:
        """Begin a round: what the last one has not seen is forgotten."""
        self._before, self._now = self._now, {}

    def gets_on(self, key: _Key) -> bool:
        """Return whether the peer may be expected to fetch what it lacks, by what the last round has seen."""
        known = self._before.get(key)
        return known is None or known.for_s < PATIENCE_S

    def lacks(self, key: _Key, to_fetch: ToFetch, now_s: float) -> None:
        """Note what is left to a peer."""
        known = self._before.get(key)
        if known is not None and known.to_fetch.oldest == to_fetch.oldest and known.to_fetch.count <= to_fetch.count:
            self._now[key] = _Lack(known.to_fetch, known.since_s, now_s - known.since_s)
        else:
            self._now[key] = _Lack(to_fetch, now_s)


@dataclass(frozen=True, slots=True)
class Far:
    """The devices in other regions, as one own device's sessions about a policy see them."""

    device: int
    policy: int
    devices: Collection[int]
    fetching: Fetching

    def split(
        self, peer: int, objects: Sequence[tuple[int, Push]]
    ) -> tuple[Sequence[tuple[int, Push]], dict[int, ToFetch]]:
        """Return the objects to send to a peer now, and what is left to it of each partition."""
        if peer not in self.devices:
            return objects, {}
        sent: list[tuple[int, Push]] = []
        to_fetch: dict[int, ToFetch] = {}
        for partition, push in objects:
            if push.need is Need.DATA and self.fetching.gets_on(self._key(peer, partition)):
                to_fetch.setdefault(partition, ToFetch()).add(push.entry.timestamp.value)
            else:
                sent.append((partition, push))
        return sent, to_fetch

    def lacks(self, peer: int, to_fetch: Mapping[int, ToFetch], now_s: float) -> None:
        """Note what is left to a peer of whole partitions."""
        for partition, what in to_fetch.items():
            self.fetching.lacks(self._key(peer, partition), what, now_s)

    def _key(self, peer: int, partition: int) -> _Key:
        return self.device, self.policy, peer, partition
