"""From objects to rows: every object on this replicator's devices is looked up in its container's replicas.

The first primary of an object's partition that belongs to this replicator brings the object; of an object with erasure
coding, the devices of the first places do, one more than there are parity fragments. If a replica lacks the
row, or has an older one than the object's devices imply, the row is brought to it as that of a write is. Names above a
container's split points are looked up in the replicas of their shards.

Fault model: as `swiftlet.sync.audit.rows`. A container that most of its replicas do not know has been deleted: its
objects are counted and not listed again. A single replica that does not know it gets it by the rounds of databases.
"""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from swiftlet.boundaries.listing_sync import ListingSyncTransport
from swiftlet.boundaries.listings import ListingTransport
from swiftlet.boundaries.objects import ObjectTransport
from swiftlet.errors import NodeBusy, NodeTimeout, NodeUnreachable, NotFound, SwiftletError, Unavailable
from swiftlet.listing.shards import shard_name
from swiftlet.model import DatabaseId, DatabaseKind, DatabaseName, DatabaseState, Kind, ObjectKey, ObjectRow
from swiftlet.names import HashPath, Path
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.sync.audit.looking import Objects
from swiftlet.sync.audit.metrics import LOOKED_AT, MENDED, ORPHANS, PASS_S, WRONG
from swiftlet.sync.audit.moves import InForce, always, move_of
from swiftlet.sync.audit.pace import AuditSettings, Pacer
from swiftlet.sync.audit.verdict import Merge, NoRepair, Replace, Verdict, Wrong, judge, newest
from swiftlet.sync.databases.exchange import split_points
from swiftlet.web.logs import get_logger

_BATCH = 200
"""The number of objects whose rows are requested together."""
_Stored: TypeAlias = tuple[ObjectKey, ObjectRow]
"""An object on a device, and the row that it stands for."""
_log = get_logger("listing-audit")


@dataclass(frozen=True, slots=True)
class _Seen:
    """The rows that one replica of a database has."""

    point: str
    """The first split point of the replica; "" when it has none."""
    beyond: set[str]
    """Names above that point of which the replica still has rows."""
    wrong: dict[str, Wrong]
    """Names whose rows were wrong and have been corrected."""


class ContainerRows(ListingSyncTransport, ListingTransport, Protocol):
    """The requests to container servers that this walk makes."""


class ObjectsAudit:
    """Compares the objects of some devices with the rows that list them; runs in one event loop."""

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
        in_force: InForce = always,
    ) -> None:
        """`own` selects the devices of a ring to walk; the rings are functions that return the newest one, or raise
        Unavailable. `in_force` returns a container's move if both its policies may have objects.
        """
        self._in_force = in_force
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
        self._pacer = Pacer(self._settings)

    async def run_once(self, policies: Sequence[int]) -> int:
        """Do a pass over all objects of these policies; return the number of wrong rows. Raises Unavailable without a
        ring.
        """
        self._found = 0
        self._pacer.begin()
        whole = True
        for policy in policies:
            for device in self._own(self._rings(policy)):
                try:
                    await self._device(device, policy)
                except SwiftletError as error:
                    whole = False
                    _log.info("the objects of a device can't be audited now", device=device.name, error=str(error))
        if whole:
            PASS_S.labels("objects").set(self._now_s())
        return self._found

    async def _device(self, device: Device, policy: int) -> None:
        waiting: list[ObjectKey] = []
        horizon, look = self._horizon_s, self._objects.looks(policy)
        for partition in await self._transport.partitions(device, policy):
            own = {one.id for one in self._own(self._rings(policy))}
            if look.walker(policy, partition, own) != device.id:
                continue
            for suffix in await self._transport.suffix_hashes(device, policy, partition):
                for entry in await self._transport.entries(device, policy, partition, suffix):
                    if entry.kind is Kind.DATA and max(entry.timestamp, entry.meta_timestamp).seconds <= horizon:
                        waiting.append(ObjectKey(policy, partition, entry.digest))
                    if len(waiting) >= _BATCH:
                        await self._batch(device, waiting)
                        waiting = []
            await self._pacer.rest()
        await self._batch(device, waiting)

    async def _batch(self, device: Device, keys: Sequence[ObjectKey]) -> None:
        containers: dict[tuple[str, str], list[_Stored]] = {}
        for answer in await asyncio.gather(*(self._stored(device, key) for key in keys)):
            if answer is not None:
                key, place, row = answer
                containers.setdefault(place, []).append((key, row))
        for (account, container), rows in containers.items():
            await self._container(Path(account, container), rows)
        LOOKED_AT.labels("objects").inc(len(keys))
        await self._pacer.rest(len(keys))

    async def _stored(self, device: Device, key: ObjectKey) -> tuple[ObjectKey, tuple[str, str], ObjectRow] | None:
        try:
            info = await self._objects.looks(key.policy).stored(device, key)
        except NotFound:
            return None
        except (NodeUnreachable, NodeTimeout, NodeBusy):
            raise
        except SwiftletError as error:
            _log.info(
                "an object can't be read now; the audits of its other devices check it",
                key=key.hex,
                error=str(error),
            )
            return None
        _, account, container, name = info.name.split("/", 3)
        return key, (account, container), ObjectRow.of(name, info)

    async def _container(self, path: Path, stored: Sequence[_Stored]) -> None:
        """Compare the objects of one container with the rows in each of its replicas, and in those of its shards."""
        name = DatabaseName(path.account, path.container)
        id = self._database(name)
        holders = self._container_ring().primaries(id.partition)
        seen: list[_Seen] = []
        unknown = 0
        for holder in holders:
            try:
                seen.append(await self._replica(name, name, id, holder, stored))
            except NotFound:
                unknown += 1
            except SwiftletError as error:
                _log.info(
                    "the rows of a container can't be read now",
                    container=str(path),
                    device=holder.name,
                    error=str(error),
                )
        if 2 * unknown > len(holders):
            ORPHANS.inc(len(stored))
            return
        if len(seen) == len(holders) and any(one.point for one in seen):
            try:
                seen += await self._shards(name, id, seen, stored)
            except SwiftletError as error:
                _log.info("the rows of a container's shards can't be read now", container=str(path), error=str(error))
        wrong = {object_name: kind for one in seen for object_name, kind in one.wrong.items()}
        for object_name, kind in wrong.items():
            WRONG.labels(kind.value).inc()
            MENDED.labels(kind.value).inc()
            _log.warning(
                "the audit found a listing that does not match the objects",
                container=str(path),
                object=object_name,
                kind=kind.value,
            )
        self._found += len(wrong)

    def _database(self, name: DatabaseName) -> DatabaseId:
        digest = self._hash_path(name.account, name.container)
        return DatabaseId(DatabaseKind.CONTAINER, self._container_ring().partition_of(digest), digest)

    async def _shards(
        self, name: DatabaseName, id: DatabaseId, seen: Sequence[_Seen], stored: Sequence[_Stored]
    ) -> list[_Seen]:
        """Compare the names above the split points with the replicas of their shards.

        Names of which a replica of the container itself still has a row are on their way to the shard, and are left
        alone.
        """
        moving = {object_name for one in seen for object_name in one.beyond}
        low = min(one.point for one in seen if one.point)
        above = [one for one in stored if low < one[1].name and one[1].name not in moving]
        if not above:
            return []
        points = await self._points(name, id)
        groups: dict[str, list[_Stored]] = {}
        for one in above:
            groups.setdefault(points[bisect_left(points, one[1].name) - 1], []).append(one)
        found: list[_Seen] = []
        for point, group in groups.items():
            shard = shard_name(name, point)
            shard_id = self._database(shard)
            for holder in self._container_ring().primaries(shard_id.partition):
                try:
                    found.append(await self._replica(name, shard, shard_id, holder, group))
                except SwiftletError as error:
                    _log.info(
                        "the rows of a container can't be read now",
                        shard=str(shard),
                        device=holder.name,
                        error=str(error),
                    )
        return found

    async def _points(self, name: DatabaseName, id: DatabaseId) -> list[str]:
        """Return all split points of a container in order. Raises Unavailable while its replicas do not agree about
        them.
        """
        holders = self._container_ring().primaries(id.partition)
        states = [await self._listings.database_state(holder, id) for holder in holders]
        points = split_points(states[0])
        if not points or any(split_points(state) != points for state in states):
            raise Unavailable(f"the replicas of {name} do not agree about its split points")
        return points

    async def _replica(
        self, name: DatabaseName, database: DatabaseName, id: DatabaseId, holder: Device, stored: Sequence[_Stored]
    ) -> _Seen:
        """Bring one replica of `database` the rows that it lacks; return what it had. Raises NotFound.

        `database` is the container `name` or a shard of it.
        """
        rows, point = await self._listings.find_rows(holder, id, [row.name for _, row in stored])
        listed = {row.name: row for row in rows}
        own = [one for one in stored if not point or one[1].name <= point]
        verdicts = await asyncio.gather(*(self._judge(name, *one, listed.get(one[1].name)) for one in own))
        merges = [verdict for verdict in verdicts if isinstance(verdict, Merge)]
        replaces = [verdict for verdict in verdicts if isinstance(verdict, Replace)]
        beyond = {row.name for row in rows if point and row.name > point}
        if (merges or replaces) and await self._moves(name):
            return _Seen(point, beyond, {})
        await self._merge(name, database, id, holder, [merge.row for merge in merges])
        wrong: dict[str, Wrong] = {merge.row.name: merge.wrong for merge in merges}
        changes = [(replace.seen, replace.row) for replace in replaces]
        if changes and await self._listings.replace_rows(holder, id, changes):
            wrong |= {replace.row.name: replace.wrong for replace in replaces}
        return _Seen(point, beyond, wrong)

    async def _moves(self, name: DatabaseName) -> bool:
        """Return whether a container moves to another policy, in which its rows are right; as any of its replicas says
        that answers. Raises the error of one if none does.
        """
        id = self._database(name)
        holders = self._container_ring().primaries(id.partition)
        asked = [self._listings.database_state(holder, id) for holder in holders]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        states = [answer for answer in answers if isinstance(answer, DatabaseState)]
        errors = [answer for answer in answers if isinstance(answer, BaseException)]
        if odd := [error for error in errors if not isinstance(error, SwiftletError)] or (not states and errors):
            raise odd[0]
        return any(self._in_force(move_of(state)) is not None for state in states)

    async def _judge(self, name: DatabaseName, key: ObjectKey, found: ObjectRow, row: ObjectRow | None) -> Verdict:
        """Return the verdict on a replica's row of an object that was found; young rows are skipped."""
        if row == found or not isinstance(judge(row, found, True), Merge | Replace):
            return NoRepair.FINE
        verdict, looked = await self._objects.judge(Path(name.account, name.container, found.name), key.policy, row)
        if isinstance(verdict, Merge | Replace) and newest(row, looked.truth).seconds > self._horizon_s:
            return NoRepair.UNDECIDED
        return verdict

    async def _merge(
        self, name: DatabaseName, database: DatabaseName, id: DatabaseId, holder: Device, rows: Sequence[ObjectRow]
    ) -> None:
        if rows and database == name:
            assert name.container is not None
            await self._listings.update_rows(holder, id.partition, name.account, name.container, rows)
        elif rows:
            await self._listings.merge_rows(holder, id, database, rows)

    @property
    def _horizon_s(self) -> float:
        return self._now_s() - self._settings.min_age_s
