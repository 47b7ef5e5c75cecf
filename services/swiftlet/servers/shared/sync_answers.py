"""Answers questions of sync sessions from one store: bytes in, bytes out, in one call on one of the device's threads.

A native store answers questions about many partitions by itself, from its index. All others are answered here, in the
same way; roots are then computed from the store's suffix hashes at each question. Questions about a pair are answered
here for every store, from roots that are kept between questions (`swiftlet.servers.shared.pairs`). The server's own
ring of the policy tells whether the device is a primary. A server that has no ring, or whose ring does not have the
device at this address, says so by the ring's version; then `primary` means nothing, and the asking side goes by its own
ring.

Fault model: as `swiftlet.sync.session.responder`; a malformed question is a WireError, and changes nothing. A ring that
arrives between two questions is used for the second one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from swiftlet_native import PairRoots

from swiftlet.errors import Unavailable
from swiftlet.model import Entry
from swiftlet.ring.holders import IsLocal
from swiftlet.ring.lookup import Ring
from swiftlet.servers.shared.pairs import PairTable
from swiftlet.store import sethash
from swiftlet.store.native import NativeStore
from swiftlet.store.protocol import Store
from swiftlet.sync.session.effects import Effect, ReadEntries, ReadPair, ReadRoots, ReadSuffixes
from swiftlet.sync.session.entries import slice_page
from swiftlet.sync.session.messages import UNKNOWN_RING, decode_request, encode, policy_of
from swiftlet.sync.session.responder import answer_by


@dataclass(frozen=True, slots=True)
class Placed:
    """The partitions that a ring puts on a device.

    It has the ring's version, and a byte for each partition, which is not 0 for those on the device.
    """

    ring_version: int
    belongs: bytes
    pairs: PairTable | None = field(default=None, compare=False)
    """The partitions that the device shares with others, and their roots; None while there is no ring."""

    def is_primary(self, partition: int) -> bool:
        """Return whether a partition belongs on the device."""
        return partition < len(self.belongs) and self.belongs[partition] != 0


PlacedBy = Callable[[int], Placed]
"""A function that returns where the ring of a policy puts a device."""

NOWHERE = Placed(UNKNOWN_RING, b"")
"""The placement of a device that no ring has."""


def placed_by(rings: Callable[[int], Ring], device: str, is_local: IsLocal) -> PlacedBy:
    """Return a function that tells where the rings put a server's `device`.

    `rings` returns a policy's newest ring, or raises Unavailable. The partitions of a device are looked up once per
    ring, as each answer is about thousands of them.
    """
    known: dict[int, tuple[Ring, Placed]] = {}

    def placed(policy: int) -> Placed:
        try:
            ring = rings(policy)
        except Unavailable:
            return NOWHERE
        newest = known.get(policy)
        if newest is None or newest[0] is not ring:
            newest = known[policy] = ring, _placed_in(ring, device, is_local)
        return newest[1]

    return placed


def _placed_in(ring: Ring, device: str, is_local: IsLocal) -> Placed:
    own = [found for found in ring.devices if found is not None and found.device == device and is_local(found)]
    if not own:
        return NOWHERE
    belongs = bytearray(ring.partition_count)
    for one in own:
        for partition, _ in ring.partitions_of(one.id):
            belongs[partition] = 1
    return Placed(ring.version, bytes(belongs), PairTable(ring, sum(belongs)))


def nowhere(policy: int) -> Placed:
    """Return the placement of a device that no ring has."""
    return NOWHERE


def answer_sync(store: Store, message: bytes, placed: PlacedBy = nowhere) -> bytes:
    """Return the answer to one question. Raises WireError for a malformed one. Blocks as the store does."""
    if isinstance(store, NativeStore):
        here = placed(policy_of(message))
        found = store.sync_answer(message, here.ring_version, here.belongs)
        if found is not None:
            return found
    return answer_by_values(store, message, placed)


def answer_by_values(store: Store, message: bytes, placed: PlacedBy = nowhere) -> bytes:
    """Return the answer of any store, from its entries and suffix hashes."""
    request = decode_request(message)
    here = placed(request.policy)
    look = partial(_look, store, request.policy, here.pairs)
    return encode(answer_by(look, request, here.ring_version, here.is_primary))


def _look(store: Store, policy: int, pairs: PairTable | None, effect: Effect) -> object:
    if isinstance(effect, ReadPair):
        return None if pairs is None else _roots_of(store, policy, pairs.of(effect.pair))
    if isinstance(effect, ReadRoots):
        return [sethash.root(store.suffix_hashes(policy, partition)) for partition in effect.partitions]
    if isinstance(effect, ReadSuffixes):
        return store.suffix_hashes(policy, effect.partition)
    if isinstance(effect, ReadEntries):
        entries: list[Entry] = []
        for suffix in effect.suffixes:
            entries += store.entries(policy, effect.partition, suffix)
        return slice_page(entries, effect.after, effect.limit)
    raise TypeError(f"{type(effect).__name__} can't occur while a question is answered")


def _roots_of(store: Store, policy: int, pair: PairRoots) -> PairRoots:
    """Return a pair's partitions with the roots that the store has now."""
    if isinstance(store, NativeStore):
        store.read_pair(policy, pair)
        return pair
    for partition in pair.members:
        pair.put(partition, sethash.root(store.suffix_hashes(policy, partition)))
    return pair
