"""The ledger of a round: with which peers a device's partitions have to be compared, and the results. No I/O.

It keeps sets of partitions by peer, because a round is about thousands of partitions and each step about many of them.
A value for a single partition is kept only where something is left to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from swiftlet.sync.planning.device_partitions import DevicePartitions


@dataclass(frozen=True, slots=True)
class Found:
    """The result of the last comparison with a peer that did not prove equality.

    `done` tells that the comparison came to an end. `behind` counts objects that are still lacking here, `unsent` those
    that are still lacking at the peer.
    """

    done: bool = True
    proof: bool = True
    """Whether the comparison shows that the device has everything that the peer has."""
    behind: int = 0
    unsent: int = 0


NOT_DONE = Found(done=False, proof=False)
ALL_DONE = Found()


@dataclass(slots=True)
class _Peer:
    """The state of the comparisons with one peer.

    Each partition is in at most one of the first four collections, which are queues, and in at most one of the next
    three, which are results.
    """

    differing: set[int] = field(default_factory=set)
    """Partitions that have to be compared and are known to differ."""
    waiting: set[int] = field(default_factory=set)
    """Partitions that have to be compared."""
    differing_again: set[int] = field(default_factory=set)
    """Partitions that are compared once more after all peers, because they got objects that this peer lacks."""
    waiting_again: set[int] = field(default_factory=set)
    equal: set[int] = field(default_factory=set)
    repaired: set[int] = field(default_factory=set)
    """Partitions that differed and in which nothing is left to do."""
    other: dict[int, Found] = field(default_factory=dict)
    again: set[int] = field(default_factory=set)
    """Partitions that have been compared once more, or will be."""

    def found(self, partition: int) -> Found:
        """Return the result of the last comparison of a partition."""
        known = partition in self.equal or partition in self.repaired
        return ALL_DONE if known else self.other.get(partition, NOT_DONE)

    def forget(self, partitions: Collection[int]) -> None:
        """Remove the results of these partitions, before newer ones are entered."""
        self.equal.difference_update(partitions)
        self.repaired.difference_update(partitions)
        for partition in self.other.keys() & partitions:
            del self.other[partition]

    def queues(self) -> tuple[tuple[bool, set[int]], ...]:
        """Return the queues of first comparisons, each with whether its partitions are known to differ."""
        return (True, self.differing), (False, self.waiting)

    def queues_again(self) -> tuple[tuple[bool, set[int]], ...]:
        """Return the queues of repeated comparisons, each with whether its partitions are known to differ."""
        return (True, self.differing_again), (False, self.waiting_again)


class PartitionLedger:
    """The comparisons of one device in one ring: those that are left to do, and the results."""

    def __init__(self, own: DevicePartitions) -> None:
        self.own = own
        self.unproved: set[int] = set()
        """Partitions that could not be proved equal at all peers when the round began, or that were taken up since."""
        self.under_way: set[int] = set()
        """Partitions that are in a queue or a session."""
        self._peers: dict[int, _Peer] = {}
        """The state of each peer by its device id, in the order in which peers are compared."""

    def _peer(self, peer: int) -> _Peer:
        return self._peers.setdefault(peer, _Peer())

    def open(self, peer: int, partitions: Collection[int], *, differ: bool) -> None:
        """Record that partitions have to be compared with a peer; `differ` tells that they are known to differ."""
        found = self._peer(peer)
        (found.differing if differ else found.waiting).update(partitions)
        self.unproved.update(partitions)

    def note(self, peer: int, equal: Collection[int], not_done: Collection[int]) -> None:
        """Record without a session which of the unproved partitions are equal at a peer, and which could not be
        compared.
        """
        found = self._peer(peer)
        found.equal.update(self.unproved.intersection(equal))
        found.other.update(dict.fromkeys(self.unproved.intersection(not_done), NOT_DONE))

    def next_of(self, partitions: Iterable[int]) -> tuple[list[tuple[int, bool, list[int]]], set[int]]:
        """Move partitions on to their next peers.

        Returns the work for each peer: its device id, whether the partitions are known to differ, and the partitions;
        and the partitions that have no peer left. A partition is compared once more only after it was compared with all
        peers.
        """
        left = set(partitions)
        found: list[tuple[int, bool, list[int]]] = []
        for queues in (_Peer.queues, _Peer.queues_again):
            for peer, known in self._peers.items():
                for differ, queue in queues(known):
                    if some := left & queue:
                        left -= some
                        found.append((peer, differ, list(some)))
        self.under_way.difference_update(left)
        for _, _, some_more in found:
            self.under_way.update(some_more)
        return found, left

    def give_up(self, partitions: Collection[int]) -> None:
        """Take these partitions out of all queues."""
        for known in self._peers.values():
            self._take(known, partitions)
        self.under_way.difference_update(partitions)

    def _take(self, known: _Peer, partitions: Collection[int]) -> None:
        for queue in (known.differing, known.waiting, known.differing_again, known.waiting_again):
            queue.difference_update(partitions)

    def conclude(
        self,
        peer: int,
        *,
        equal: Collection[int] = (),
        repaired: Collection[int] = (),
        other: dict[int, Found] | None = None,
    ) -> None:
        """Record the results of comparisons with a peer.

        `equal` partitions are the same there, in `repaired` ones nothing is left to do, and `other` has all other
        results.
        """
        known, other = self._peer(peer), other or {}
        for partitions in (equal, repaired, other.keys()):
            self._take(known, partitions)
            known.forget(partitions)
        known.equal.update(equal)
        known.repaired.update(repaired)
        known.other.update(other)

    def compare_again(self, source: int, partitions: set[int]) -> None:
        """Queue partitions again that got objects from `source`: peers compared earlier may lack those objects.

        Peers still to be compared may have them already, so the partitions do not count as known to differ there.
        """
        for peer, known in self._peers.items():
            if differing := known.differing & partitions:
                known.differing -= differing
                known.waiting |= differing
            if differing := known.differing_again & partitions:
                known.differing_again -= differing
                known.waiting_again |= differing
            if peer == source:
                continue
            fresh = partitions - known.again
            equal = fresh & known.equal
            others = fresh & known.repaired
            others.update(p for p in fresh & known.other.keys() if known.other[p].done)
            known.differing_again |= equal
            known.waiting_again |= others
            known.again |= equal | others

    def is_again(self, peer: int, partitions: Collection[int]) -> set[int]:
        """Return which of these partitions are compared once more with a peer."""
        return self._peer(peer).again.intersection(partitions)

    def not_whole(self, partitions: Collection[int]) -> set[int]:
        """Return which of these partitions could not be compared with some peer."""
        return {
            partition
            for known in self._peers.values()
            for partition in known.other.keys() & partitions
            if not known.other[partition].done
        }

    def in_order(self, partitions: set[int]) -> set[int]:
        """Return the partitions that were compared with all other primaries and in which nothing is left to do."""
        found = set(partitions)
        for peer, shared in self.own.places.by_peer.items():
            known = self._peer(peer)
            found -= (found & shared) - known.equal - known.repaired
        return found

    def left(self, peer: int) -> tuple[set[int], int]:
        """Return the partitions in which something is left to do between the device and a peer, and how many objects
        are known to be lacking at either of them.
        """
        known = self._peer(peer)
        left = {at for at, one in known.other.items() if not (one.done and one.proof) or one.behind or one.unsent}
        left.update(known.differing, known.waiting, known.differing_again, known.waiting_again)
        return left, sum(one.behind + one.unsent for one in known.other.values())

    def found(self, partition: int) -> list[Found]:
        """Return the result of a partition for each of its other primaries."""
        return [self._peer(peer.id).found(partition) for peer in self.own.peers(partition)[0]]
