"""Decides which device keeps a write's row for which container replica.

Each of a write's slots keeps the row for its share of the container's replicas, so that together they keep it for all.
If a slot is lost (its device died in the middle of a streamed upload, or there was no spare left), no device keeps its
share. The rows are sent to all replicas from here (`swiftlet.placement.rows.row_delivery`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from swiftlet.boundaries.objects import ContainerUpdate
from swiftlet.model import ObjectKey, ObjectRow
from swiftlet.names import HashPath, Path
from swiftlet.placement.copies import WriteQuorums, majority
from swiftlet.placement.owed import share
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.placement.quorums import write_quorum
from swiftlet.placement.rings import Rings
from swiftlet.placement.rows.acknowledgements import Acknowledgements
from swiftlet.placement.rows.lagging import Lagging
from swiftlet.placement.rows.row_delivery import Acknowledge, Awaited, RowDelivery, RowWaits
from swiftlet.placement.rows.row_queues import RowQueues
from swiftlet.placement.write_plan import writes_near
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp


@dataclass(frozen=True, slots=True)
class StoredRows:
    """Objects of one container that their devices have stored, and whose rows are pending there."""

    account: str
    container: str
    rows: Sequence[ObjectRow]
    shares: Sequence[tuple[int, ...]]
    """The container replicas that the device in each slot keeps the row for."""
    written: Sequence[tuple[ObjectKey, Timestamp]]
    """The objects' places and versions, in the order of the rows."""
    devices: Sequence[Sequence[Device]]
    """The devices that stored each of the rows, by slot."""


class RowRouter:
    """Distributes writes' rows over their slots, and delivers them."""

    def __init__(
        self,
        rings: Rings,
        queues: RowQueues,
        acknowledgements: Acknowledgements,
        hash_path: HashPath,
        waits: RowWaits | None = None,
        lagging: Lagging | None = None,
        place: Place = ANYWHERE,
        quorums: WriteQuorums = majority,
    ) -> None:
        """`waits` bounds the time that a write spends on its row; replicas that take longer are noted in `lagging`.

        By the `quorums` of policies a write waits for all replicas, or for those in the region of `place`, if any.
        """
        self._rings = rings
        self._queues = queues
        self._acknowledgements = acknowledgements
        self._hash_path = hash_path
        self._waits = waits or RowWaits()
        self._lagging = lagging or Lagging()
        self._place = place
        self._quorums = quorums

    def delivery(
        self,
        path: Path,
        key: ObjectKey,
        timestamp: Timestamp,
        slots: int,
        key_at: Callable[[int], ObjectKey] | None = None,
    ) -> RowDelivery:
        """Return the delivery of the row of a write with so many slots; nothing is sent yet.

        `key_at` returns the key under which the device in a slot keeps the write; all keep it under `key` without it.
        """
        assert path.container is not None
        holders = self._holders(path.account, path.container)
        shares = [share(path, len(holders), index, slots) for index in range(slots)]

        def acknowledge(slot: int, device: Device | None) -> None:
            assert device is not None
            self._acknowledgements.add(device, key if key_at is None else key_at(slot), timestamp)

        return self._delivery(shares, holders, acknowledge, key.policy)

    def shares(self, path: Path, policy: int, slots: int) -> tuple[Sequence[tuple[int, ...]], Collection[int]]:
        """Return the container replicas that each slot of a write keeps the row for, and those that it waits for."""
        assert path.container is not None
        holders = self._holders(path.account, path.container)
        awaited = self._awaited(policy, holders)
        found = [share(path, len(holders), index, slots).replicas for index in range(slots)]
        return found, range(len(holders)) if awaited is None else awaited.replicas

    def _holders(self, account: str, container: str) -> Sequence[Device]:
        ring = self._rings.container()
        return ring.primaries(ring.partition_of(self._hash_path(account, container)))

    def _delivery(
        self, shares: Sequence[ContainerUpdate], holders: Sequence[Device], acknowledge: Acknowledge, policy: int
    ) -> RowDelivery:
        account, container = shares[0].account, shares[0].container

        def late(replicas: Collection[int]) -> None:
            self._lagging.missed(f"/{account}/{container}", [holders[replica] for replica in replicas])

        awaited = self._awaited(policy, holders)
        return RowDelivery(self._queues, acknowledge, self._waits, shares.__getitem__, len(holders), late, awaited)

    def _awaited(self, policy: int, holders: Sequence[Device]) -> Awaited | None:
        """Return which of a container's replicas a write waits for; None for all, of which most are enough."""
        quorum, near = self._quorums(policy), near_replicas(holders, self._place)
        is_local = quorum == "local" and writes_near(self._rings.objects(policy), self._place)
        if not is_local and len(near) in (0, len(holders)):
            return None
        # Listings are read from near replicas, so those in other regions cost the write no trip of its own.
        return Awaited(near, lambda said: len(said) >= write_quorum(len(near)), or_all=not is_local)

    async def bring(self, stored: StoredRows) -> bool:
        """Bring rows, and wait as a write waits for its own; return whether the container is missing.

        Acknowledgements that come later are sent as well.
        """
        holders = self._holders(stored.account, stored.container)
        shares = [ContainerUpdate(stored.account, stored.container, replicas) for replicas in stored.shares]

        def acknowledge(slot: int, _device: Device | None) -> None:
            told: dict[int, tuple[Device, list[tuple[ObjectKey, Timestamp]]]] = {}
            for devices, version in zip(stored.devices, stored.written, strict=True):
                device = devices[slot]
                told.setdefault(id(device), (device, []))[1].append(version)
            for device, versions in told.values():
                self._acknowledgements.add_all(device, versions)

        delivery = self._delivery(shares, holders, acknowledge, stored.written[0][0].policy)
        return await delivery.finish_all(stored.rows, len(shares))

    async def drain(self, timeout_s: float) -> None:
        """Let rows in progress finish at shutdown, and send their acknowledgements; then give up."""
        clock = asyncio.get_running_loop().time
        ends_s = clock() + timeout_s
        await self._queues.drain(timeout_s)
        await self._acknowledgements.drain(max(0.0, ends_s - clock()))


def near_replicas(holders: Sequence[Device], place: Place) -> frozenset[int]:
    """Return which of a container's replicas are in the region of a place."""
    return frozenset(number for number, device in enumerate(holders) if device.region == place.region)
