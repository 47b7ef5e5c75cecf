"""Moves rows of a container to its shards, from the highest name down, for one replica.

A handoff moves its own rows only: those in shards belong to the replica whose shards they are.

The process may end after any step; the next one goes on from there. Rows are put into the shard first; then, in one
transaction of the container's own database, they are removed from there and the shard serves them (`shards.cut`).
Between shards that transaction only records which of them serves the rows, and what is left behind is removed later.

Fault model: as in `swiftlet.sharding.sharded`; killed between any two steps nothing is lost, listed twice or counted
twice. A replica of a shard that is away stops the moves to it until it is back.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack

from swiftlet.errors import NotFound, SwiftletError
from swiftlet.listing import shards
from swiftlet.listing.container_db import ContainerDb
from swiftlet.listing.shards import Shard, shard_name
from swiftlet.model import DatabaseId, DatabaseName, ObjectRow, ShardLook
from swiftlet.sharding.sharded import ShardedReplicas
from swiftlet.timestamp import TimestampClock
from swiftlet.web.logs import get_logger

Step = Callable[[str], None]
"""A function that is called, with the name of the step, before each step that changes anything; tests stop there."""
_log = get_logger("sharding")


def _go_on(_step: str) -> None:
    """Do nothing; tests replace it to inject faults."""


class ShardMover:
    """Moves rows of one device's containers."""

    def __init__(
        self, replicas: ShardedReplicas, clock: TimestampClock, batch_rows: int = 1000, step: Step = _go_on
    ) -> None:
        """`batch_rows` is the number of rows that are moved at a time."""
        self._replicas = replicas
        self._clock = clock
        self._batch_rows = batch_rows
        self._step = step
        self._told: set[tuple[DatabaseId, str, str]] = set()

    async def move(self, id: DatabaseId, name: DatabaseName) -> bool:
        """Do one step; return False when all rows are where they belong. Raises errors of shards that can't
        be asked.
        """
        async with self._replicas.moving(id), AsyncExitStack() as locks:
            found = await self._replicas.layout(id)
            source = next((shard for shard in found.shards if not shard.moved), None)
            if source is None:
                return False
            assert source.end is not None
            if source.point and self._replicas.index(id) is None:
                await self._lower(id, source, source.end)
                return True
            if source.point:
                await self._tell(id, name, source)
                await locks.enter_async_context(self._replicas.lock(id, source.point))
            rows = await self._tail(id, name, source.point, source.end, source.upper, self._batch_rows + 1)
            if not rows:
                await self._found(id, name, source, found.opened(source, source.end))
                self._step("lower without rows")
                await self._lower(id, source, source.end)
                return True
            receiver = found.receiver(source, rows[0].name)
            await locks.enter_async_context(self._replicas.lock(id, receiver.point))
            assert receiver.start is not None
            floor = max(source.end, receiver.start)
            batch = [row for row in rows[: self._batch_rows] if row.name > floor]
            below = max(floor, rows[len(batch)].name) if len(batch) < len(rows) else floor
            await self._found(id, name, source, found.opened(source, below))
            self._step("put")
            await self._replicas.push(id, name, receiver.point, batch)
            self._step("hand over")
            if source.point:
                await self._between(id, name, source, batch, below, receiver.point)
            else:
                await self._replicas.store.write(
                    id, lambda database: shards.cut(database, batch, below, receiver.point), len(batch), grows=False
                )
            return True

    async def _lower(self, id: DatabaseId, source: Shard, upper: str) -> None:
        await self._replicas.store.write(
            id, lambda database: shards.set_upper(database, source.point, upper), grows=False
        )

    async def _found(self, id: DatabaseId, name: DatabaseName, source: Shard, points: list[str]) -> None:
        """Create this replica's replicas of shards that are about to serve; a handoff has none of its own.

        They are trusted only as far as the database that their rows come from.
        """
        if not points or self._replicas.index(id) is None:
            return
        look = await self._replicas.look(id, name, source.point) if source.point else None
        whole = not source.point or (look is not None and look.founded)
        for point in points:
            self._step("found")
            await self._replicas.found(id, name, point, whole)

    async def _between(
        self, id: DatabaseId, name: DatabaseName, source: Shard, batch: list[ObjectRow], below: str, point: str
    ) -> None:
        def hand_over(database: ContainerDb) -> None:
            shards.hand_over(database, source.point, batch, below, point, counted=False)

        await self._replicas.store.write(id, hand_over, grows=False)
        self._step("forget")
        await self._forget(id, name, source.point, batch)

    async def _forget(self, id: DatabaseId, name: DatabaseName, point: str, rows: list[ObjectRow]) -> None:
        if not point:
            await self._replicas.store.write(id, lambda database: shards.forget(database, rows), grows=False)
            return
        partition, holders = self._replicas.shard_holders(id, name, point)
        await self._replicas.transport.shard_forget(holders[0], partition, shard_name(name, point), rows)

    async def _tail(
        self, id: DatabaseId, name: DatabaseName, point: str, low: str, upto: str | None, limit: int
    ) -> list[ObjectRow]:
        if not point:
            return await self._replicas.store.read(id, lambda database: shards.tail(database, low, upto, limit))
        partition, holders = self._replicas.shard_holders(id, name, point)
        shard = shard_name(name, point)
        try:
            return list(await self._replicas.transport.shard_tail(holders[0], partition, shard, low, upto, limit))
        except NotFound:
            return []

    async def tell_ends(self, id: DatabaseId, name: DatabaseName, looks: dict[str, ShardLook | None]) -> None:
        """Tell shards their upper end if they do not know it."""
        for shard in (await self._replicas.layout(id)).shards[1:]:
            look = looks.get(shard.point)
            if shard.end is not None and look is not None and shard.end not in look.points:
                await self._tell(id, name, shard, again=True)

    async def _tell(self, id: DatabaseId, name: DatabaseName, shard: Shard, again: bool = False) -> None:
        assert shard.end is not None
        key = (id, shard.point, shard.end)
        if key in self._told and not again:
            return
        partition, holders = self._replicas.shard_holders(id, name, shard.point)
        for holder in holders:
            try:
                await self._replicas.transport.shard_points(
                    holder, partition, shard_name(name, shard.point), self._clock.next(), [shard.end], False
                )
            except SwiftletError as error:
                if holder is holders[0] and not again:
                    raise
                _log.info("a shard could not be told its upper end yet", holder=holder.name, error=str(error))
        self._told.add(key)

    async def sweep(self, id: DatabaseId, name: DatabaseName, looks: dict[str, ShardLook | None]) -> int:
        """Bring rows that lie above what their database serves to where they belong; return how many.

        A shard that is away does not stop the others; its error is raised in the end.
        """
        found = await self._replicas.layout(id)
        swept = 0
        errors: list[SwiftletError] = []
        for source in found.shards:
            look = looks.get(source.point)
            if source.point and (self._replicas.index(id) is None or not (look and look.beyond)):
                continue
            if source.upper is None or not source.is_final:
                continue
            if not await self._tail(id, name, source.point, source.upper, None, 1):
                continue
            for owner in found.shards:
                if owner.serves and (owner.upper is None or owner.upper > source.upper):
                    try:
                        swept += await self._move_home(id, name, source, owner)
                    except SwiftletError as error:
                        errors.append(error)
        if errors:
            raise errors[0]
        return swept

    async def _move_home(self, id: DatabaseId, name: DatabaseName, source: Shard, owner: Shard) -> int:
        """Move rows that `owner` serves from where they are to it; return how many."""
        assert source.upper is not None
        assert owner.start is not None
        async with self._replicas.lock(id, owner.point):
            low = max(source.upper, owner.start)
            rows = await self._tail(id, name, source.point, low, owner.upper, self._batch_rows)
            if rows:
                await self._replicas.send(id, name, owner.point, rows)
        if rows:
            await self._forget(id, name, source.point, rows)
        return len(rows)
