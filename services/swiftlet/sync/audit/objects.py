"""From objects to rows: every object on this replicator's devices is looked up in its container's replicas.

Each object is brought from its partition's first primary that this replicator works for; a row that a replica lacks, or
has older than the objects' devices, is brought to it as a write's row is.

Fault model: as `swiftlet.sync.audit.rows`. A container that most of its replicas do not know has been deleted: its
objects are counted and are not listed again. A replica that does not know it is given it by the rounds of databases.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from swiftlet.errors import NodeBusy, NodeTimeout, NodeUnreachable, NotFound, SwiftletError
from swiftlet.model import DatabaseId, DatabaseKind, Kind, ListingQuery, ObjectKey, ObjectRow
from swiftlet.names import HashPath, Path
from swiftlet.peers import ListingTransport, ObjectTransport
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.audit.looking import Objects
from swiftlet.sync.audit.metrics import LOOKED_AT, MENDED, ORPHANS, PASS_S, WRONG
from swiftlet.sync.audit.pace import AuditSettings
from swiftlet.sync.audit.verdict import Merge, Replace, Wrong, judge, newest
from swiftlet.transport.listing_sync import ListingSyncTransport
from swiftlet.web.logs import get_logger

_BATCH = 200
"""Objects whose rows are asked for together."""
_log = get_logger("listing-audit")


class ContainerRows(ListingSyncTransport, ListingTransport, Protocol):
    """The requests to container servers that this walk makes."""


class ObjectsAudit:
    """Walks the objects of some devices. Lives in one event loop."""

    def __init__(
        self,
        transport: ObjectTransport,
        listings: ContainerRows,
        objects: Objects,
        own: Callable[[Ring], Sequence[Device]],
        rings: Callable[[int], Ring],
        container_ring: Callable[[], Ring],
        hash_path: HashPath,
        settings: AuditSettings | None = None,
        now_s: Callable[[], float] = time.time,
    ) -> None:
        """`own` picks a ring's devices that are walked; the rings are the newest ones, or Unavailable."""
        self._transport = transport
        self._listings = listings
        self._objects = objects
        self._own = own
        self._rings = rings
        self._container_ring = container_ring
        self._hash_path = hash_path
        self._settings = settings or AuditSettings()
        self._now_s = now_s
        self._found = 0

    async def run_once(self, policies: Sequence[int]) -> int:
        """One pass over all objects of these policies; how many wrong rows were found. Unavailable without a ring."""
        self._found = 0
        whole = True
        for policy in policies:
            for device in self._own(self._rings(policy)):
                try:
                    await self._device(device, policy)
                except SwiftletError as error:
                    whole = False
                    _log.info("a device's objects can't be looked up now", device=device.name, error=str(error))
        if whole:
            PASS_S.labels("objects").set(self._now_s())
        return self._found

    async def _device(self, device: Device, policy: int) -> None:
        waiting: list[ObjectKey] = []
        horizon = self._now_s() - self._settings.settle_s
        for partition in await self._transport.partitions(device, policy):
            if self._walker(policy, partition) != device.id:
                continue
            for suffix in await self._transport.suffix_hashes(device, policy, partition):
                for entry in await self._transport.entries(device, policy, partition, suffix):
                    if entry.kind is Kind.DATA and max(entry.timestamp, entry.meta_timestamp).seconds <= horizon:
                        waiting.append(ObjectKey(policy, partition, entry.digest))
                    if len(waiting) >= _BATCH:
                        await self._batch(device, waiting)
                        waiting = []
        await self._batch(device, waiting)

    def _walker(self, policy: int, partition: int) -> int | None:
        """Which of a partition's primaries here walks it: each replicator looks at it once."""
        ring = self._rings(policy)
        own = {one.id for one in self._own(ring)}
        return next((one.id for one in ring.primaries(partition) if one.id in own), None)

    async def _batch(self, device: Device, keys: Sequence[ObjectKey]) -> None:
        begun = time.monotonic()
        containers: dict[tuple[str, str], list[tuple[ObjectKey, ObjectRow]]] = {}
        for answer in await asyncio.gather(*(self._stored(device, key) for key in keys)):
            if answer is not None:
                key, place, row = answer
                containers.setdefault(place, []).append((key, row))
        for (account, container), rows in containers.items():
            await self._container(Path(account, container), rows)
        LOOKED_AT.labels("objects").inc(len(keys))
        if self._settings.rows_per_s:
            await asyncio.sleep(max(0.0, len(keys) / self._settings.rows_per_s - (time.monotonic() - begun)))

    async def _stored(self, device: Device, key: ObjectKey) -> tuple[ObjectKey, tuple[str, str], ObjectRow] | None:
        try:
            info = await self._transport.head(device, key)
        except NotFound:
            return None
        except (NodeUnreachable, NodeTimeout, NodeBusy):
            raise
        except SwiftletError as error:
            _log.info("an object can't be read here, and is left to its other devices", key=key.hex, error=str(error))
            return None
        _, account, container, name = info.name.split("/", 3)
        return key, (account, container), ObjectRow.of(name, info)

    async def _container(self, path: Path, stored: Sequence[tuple[ObjectKey, ObjectRow]]) -> None:
        """Compare one container's objects with each of its replicas."""
        digest = self._hash_path.of(path)
        ring = self._container_ring()
        id = DatabaseId(DatabaseKind.CONTAINER, ring.partition_of(digest), digest)
        holders = ring.primaries(id.partition)
        unknown = 0
        wrong: dict[str, Wrong] = {}
        for holder in holders:
            try:
                wrong |= await self._replica(path, id, holder, stored)
            except NotFound:
                unknown += 1
            except SwiftletError as error:
                _log.info("rows can't be looked up now", container=str(path), device=holder.name, error=str(error))
        if 2 * unknown > len(holders):
            ORPHANS.inc(len(stored))
            return
        for name, kind in wrong.items():
            WRONG.labels(kind.value).inc()
            MENDED.labels(kind.value).inc()
            _log.warning("a listing was wrong", container=str(path), object=name, kind=kind.value)
        self._found += len(wrong)

    async def _replica(
        self, path: Path, id: DatabaseId, holder: Device, stored: Sequence[tuple[ObjectKey, ObjectRow]]
    ) -> dict[str, Wrong]:
        """Bring one replica what it lacks; which names it had wrong. NotFound without the container."""
        assert path.container is not None
        rows, point = await self._listings.find_rows(holder, id, [row.name for _, row in stored])
        listed = {row.name: row for row in rows}
        horizon = self._now_s() - self._settings.settle_s
        wrong: dict[str, Wrong] = {}
        for key, found in stored:
            row = listed.get(found.name)
            if point and found.name > point:
                row = await self._in_shard(path, id, holder, found.name)
            if row == found or not isinstance(judge(row, found, True), Merge | Replace):
                continue
            verdict, looked = await self._objects.judge(Path(path.account, path.container, found.name), key.policy, row)
            if not isinstance(verdict, Merge | Replace):
                continue
            if newest(row, looked.truth).seconds > horizon:
                continue
            if isinstance(verdict, Merge):
                await self._listings.update_rows(holder, id.partition, path.account, path.container, [verdict.row])
            elif not await self._listings.replace_rows(holder, id, [(verdict.seen, verdict.row)]):
                continue
            wrong[found.name] = verdict.wrong
        return wrong

    async def _in_shard(self, path: Path, id: DatabaseId, holder: Device, name: str) -> ObjectRow | None:
        query = ListingQuery(limit=1, prefix=name)
        _, page = await self._listings.list_objects(holder, id.partition, path.account, path.container or "", query)
        return next((row for row in page if isinstance(row, ObjectRow) and row.name == name), None)
