"""The ledger of a round: with which peers a device's partitions have to be compared, and what came of it. No I/O.

Sets of partitions by peer, as a round is about thousands of partitions and each step about many of them: nothing is
made for a single one but where something is left to do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from swiftlet.sync.planning.device_partitions import DevicePartitions


@dataclass(frozen=True, slots=True)
class Found:
    """The outcome of the last comparison with a peer, if it did not prove equality."""

    done: bool = True
    proof: bool = True
    """Whether it shows that nothing is lacking here that the peer has."""
    behind: int = 0
    unsent: int = 0


NOT_DONE = Found(done=False, proof=False)
ALL_DONE = Found()


@dataclass(slots=True)
class _Peer:
    """The state of one peer; each partition is in at most one of the first four sets, or of the next four."""

    differing: set[int] = field(default_factory=set)
    """To be compared, and known to differ."""
    waiting: set[int] = field(default_factory=set)
    """Partitions to be compared."""
    differing_again: set[int] = field(default_factory=set)
    """To be compared once more, when all peers were: what came from another one lacks there."""
    waiting_again: set[int] = field(default_factory=set)
    equal: set[int] = field(default_factory=set)
    repaired: set[int] = field(default_factory=set)
    """Differed, and nothing is left to do."""
    other: dict[int, Found] = field(default_factory=dict)
    again: set[int] = field(default_factory=set)
    """Partitions that have been compared once more, or will be."""

    def found(self, partition: int) -> Found:
        """Return the outcome of the last comparison."""
        known = partition in self.equal or partition in self.repaired
        return ALL_DONE if known else self.other.get(partition, NOT_DONE)

    def forget(self, partitions: Collection[int]) -> None:
        """They have been compared anew."""
        self.equal.difference_update(partitions)
        self.repaired.difference_update(partitions)
        for partition in self.other.keys() & partitions:
            del self.other[partition]

    def queues(self) -> tuple[tuple[bool, set[int]], ...]:
        """Return the partitions to be compared first, each queue with whether they are known to differ."""
        return (True, self.differing), (False, self.waiting)

    def queues_again(self) -> tuple[tuple[bool, set[int]], ...]:
        """Return the partitions to be compared at the end."""
        return (True, self.differing_again), (False, self.waiting_again)


class PartitionLedger:
    """The ledger of one device in one ring."""

    def __init__(self, own: DevicePartitions) -> None:
        """Nothing is known yet."""
        self.own = own
        self.unproved: set[int] = set()
        """Partitions that are, or were, not known to be equal everywhere."""
        self.under_way: set[int] = set()
        """Partitions that are in a queue or a session."""
        self._peers: dict[int, _Peer] = {}
        """In the order in which they are compared."""

    def _peer(self, peer: int) -> _Peer:
        return self._peers.setdefault(peer, _Peer())

    def open(self, peer: int, partitions: Collection[int], *, differ: bool) -> None:
        """Partitions have to be compared with a peer."""
        found = self._peer(peer)
        (found.differing if differ else found.waiting).update(partitions)
        self.unproved.update(partitions)

    def note(self, peer: int, equal: Collection[int], not_done: Collection[int]) -> None:
        """Note of unproved partitions, without a session, that a peer is equal or could not be compared."""
        found = self._peer(peer)
        found.equal.update(self.unproved.intersection(equal))
        found.other.update(dict.fromkeys(self.unproved.intersection(not_done), NOT_DONE))

    def next_of(self, partitions: Iterable[int]) -> tuple[list[tuple[int, bool, list[int]]], set[int]]:
        """On to each one's next peer: by peer and whether it is known to differ; and those that have none left.

        A partition is compared once more only when it was compared with all.
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
        """They are not compared any more."""
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
        """Record the outcome of a comparison with a peer: equality, nothing left to do, or something else."""
        known, other = self._peer(peer), other or {}
        for partitions in (equal, repaired, other.keys()):
            self._take(known, partitions)
            known.forget(partitions)
        known.equal.update(equal)
        known.repaired.update(repaired)
        known.other.update(other)

    def compare_again(self, source: int, partitions: set[int]) -> None:
        """Something came from a peer: others may have it as well, and those compared before may lack it."""
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
        """Return the partitions that are compared once more with a peer."""
        return self._peer(peer).again.intersection(partitions)

    def not_whole(self, partitions: Collection[int]) -> set[int]:
        """Return the partitions for which some peer could not be compared."""
        return {
            partition
            for known in self._peers.values()
            for partition in known.other.keys() & partitions
            if not known.other[partition].done
        }

    def in_order(self, partitions: set[int]) -> set[int]:
        """Return the partitions for which all other primaries were compared and nothing is left to do."""
        found = set(partitions)
        for peer, shared in self.own.places.by_peer.items():
            known = self._peer(peer)
            found -= (found & shared) - known.equal - known.repaired
        return found

    def found(self, partition: int) -> list[Found]:
        """Return the outcome for each of the other primaries."""
        return [self._peer(peer.id).found(partition) for peer in self.own.peers(partition)[0]]
