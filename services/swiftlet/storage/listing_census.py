"""Which databases peers have that belong here and are not here: what fingerprints of our own can't show.

They come by themselves, in the peers' rounds; until they are here this device must not take itself for complete. Every
peer is asked again in each round while it has something that is lacking or did not answer, else every `AGAIN_S`.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from swiftlet.errors import SwiftletError
from swiftlet.model import DatabaseId, DatabaseKind
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.storage.local_devices import IsLocal, own_index
from swiftlet.transport.listing_sync import ListingSyncTransport
from swiftlet.web.logs import get_logger

AGAIN_S = 60.0
"""Seconds after which a peer that had nothing that is lacking here is asked again."""
_MAX_AT_ONCE = 4
_PAUSE_EVERY = 1024
_log = get_logger("listing_sync")


@dataclass(frozen=True, slots=True)
class Census:
    """What one round found out for one device and kind."""

    missing: int = 0
    """Databases that a peer has and that are not here, by the peer that has most."""
    unchecked: frozenset[int] = frozenset()
    """Partitions of which a peer could not be asked."""


class CensusTaker:
    """Asks peers; remembers for each when it had nothing new."""

    def __init__(
        self, transport: ListingSyncTransport, is_local: IsLocal, now_s: Callable[[], float] | None = None
    ) -> None:
        """`now_s` is the event loop's clock if None."""
        self._transport = transport
        self._is_local = is_local
        self._now_s = now_s or (lambda: asyncio.get_running_loop().time())
        self._satisfied: dict[tuple[str, DatabaseKind, int], tuple[Ring, float]] = {}
        self._shared: dict[tuple[str, DatabaseKind], tuple[Ring, Mapping[Device, Collection[int]]]] = {}
        self._slots = asyncio.Semaphore(_MAX_AT_ONCE)

    async def take(self, device: str, kind: DatabaseKind, ring: Ring, own: Collection[DatabaseId]) -> Census:
        """Ask those peers whose turn it is; `own` are the databases of that kind on `device`."""
        shared = await self._shared_with(device, kind, ring)
        answers = await asyncio.gather(
            *(self._ask(peer, device, kind, ring, partitions, own) for peer, partitions in shared.items())
        )
        unchecked = [shared[peer] for peer, answer in zip(shared, answers, strict=True) if answer is None]
        return Census(max((answer or 0 for answer in answers), default=0), frozenset[int]().union(*unchecked))

    async def _shared_with(self, device: str, kind: DatabaseKind, ring: Ring) -> Mapping[Device, Collection[int]]:
        """The partitions that this device shares with each peer; worked out once for a ring."""
        known = self._shared.get((device, kind))
        if known is not None and known[0] is ring:
            return known[1]
        shared: dict[Device, set[int]] = defaultdict(set)
        for partition in range(ring.partition_count):
            if partition % _PAUSE_EVERY == 0:
                await asyncio.sleep(0)
            holders = ring.primaries(partition)
            index = own_index(holders, device, self._is_local)
            if index is not None:
                for holder in (*holders[:index], *holders[index + 1 :]):
                    shared[holder].add(partition)
        self._shared[device, kind] = (ring, shared)
        return shared

    async def _ask(
        self,
        peer: Device,
        device: str,
        kind: DatabaseKind,
        ring: Ring,
        partitions: Collection[int],
        own: Collection[DatabaseId],
    ) -> int | None:
        """How many of the peer's databases in these partitions are not here; None when it can't be asked."""
        key, now_s = (device, kind, peer.id), self._now_s()
        known, satisfied_s = self._satisfied.get(key, (None, 0.0))
        if known is ring and now_s - satisfied_s < AGAIN_S:
            return 0
        missing, after, more = 0, None, True
        try:
            async with self._slots:
                while more:
                    found, more = await self._transport.databases(peer, kind, after)
                    missing += sum(id.partition in partitions and id not in own for id in found)
                    after = found[-1] if found else None
        except SwiftletError as error:
            self._satisfied.pop(key, None)
            _log.info("a peer does not say what it holds", peer=peer.name, error=str(error))
            return None
        if missing:
            self._satisfied.pop(key, None)
        else:
            self._satisfied[key] = (ring, now_s)
        return missing
