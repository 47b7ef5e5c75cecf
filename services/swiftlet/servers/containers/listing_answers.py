"""Answers questions of sync sessions about databases from one device's index: bytes in, bytes out.

Rows that native code has taken count once they are merged: by the clock, which is at the same moment for all replicas
(`swiftlet.listing.folding`). Merging them for a question would leave a busy database unequal at all times, since
replicas are asked one after the other.

Fault model: as `swiftlet.sync.session.responder`; a malformed question is a WireError, and changes nothing. A ring that
arrives between two questions is used for the second one.
"""

from __future__ import annotations

from functools import partial

from swiftlet_native import PairRoots

from swiftlet.model import DatabaseKind
from swiftlet.ring.holders import CurrentRing, IsLocal
from swiftlet.servers.containers.listing_index import ListingIndex
from swiftlet.servers.shared.sync_answers import PlacedBy, nowhere, placed_by
from swiftlet.sync.databases.entries import RINGS, kind_of
from swiftlet.sync.session.effects import Effect, ReadEntries, ReadPair, ReadRoots, ReadSuffixes
from swiftlet.sync.session.entries import slice_page, suffix_of
from swiftlet.sync.session.messages import Compare, decode_request, encode
from swiftlet.sync.session.pair_messages import ComparePair
from swiftlet.sync.session.responder import answer_by


def databases_placed_by(account: CurrentRing, container: CurrentRing, device: str, is_local: IsLocal) -> PlacedBy:
    """Return a function that tells what the rings of databases place on a server's `device`."""
    rings = {DatabaseKind.ACCOUNT: account, DatabaseKind.CONTAINER: container}
    return placed_by(lambda policy: rings[RINGS[policy]](), device, is_local)


async def answer_databases(index: ListingIndex, message: bytes, placed: PlacedBy = nowhere) -> bytes:
    """Return the answer to one question.

    Raises WireError for a malformed question, and Unavailable while the device is being read.
    """
    request = decode_request(message)
    kind = kind_of(request.policy)
    await index.ready(kind)
    if isinstance(request, Compare):
        await index.prepare(kind, request.partitions)
    here = placed(request.policy)
    pair = None
    if isinstance(request, ComparePair) and here.pairs is not None:
        pair = here.pairs.of(request.pair)
        await index.read_pair(kind, pair)
    return encode(answer_by(partial(_look, index, kind, pair), request, here.ring_version, here.is_primary))


def _look(index: ListingIndex, kind: DatabaseKind, pair: PairRoots | None, effect: Effect) -> object:
    if isinstance(effect, ReadPair):
        return pair
    if isinstance(effect, ReadRoots):
        return [index.root(kind, partition) for partition in effect.partitions]
    if isinstance(effect, ReadSuffixes):
        return index.suffix_hashes(kind, effect.partition)
    if isinstance(effect, ReadEntries):
        wanted = frozenset(effect.suffixes)
        entries = [entry for entry in index.entries(kind, effect.partition) if suffix_of(entry) in wanted]
        return slice_page(entries, effect.after, effect.limit)
    raise TypeError(f"{type(effect).__name__} can't occur while a question is answered")
