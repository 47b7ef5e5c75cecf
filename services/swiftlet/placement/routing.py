"""Objects as their containers have them: in one policy, or in two while a container moves between them.

Callers name the policy that they take for the container's, as of `ClusterObjects`. Where the container moves, its state
counts in place of that.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

from swiftlet.model import ObjectInfo, ObjectKey, PostRecord, PutFooter, PutRecord
from swiftlet.names import Path
from swiftlet.placement.cluster_objects import ClusterObjects
from swiftlet.placement.moving import Move, MovingObjects
from swiftlet.placement.outcomes import Written
from swiftlet.placement.runs import ClusterRuns
from swiftlet.placement.transfers import Download, Upload
from swiftlet.policy_moves import PolicyMove
from swiftlet.timestamp import Timestamp

MoveOf: TypeAlias = Callable[[Path], Awaitable[PolicyMove | None]]
"""Returns the move of the container of an object; None also without a container. Raises Unavailable."""
InForce: TypeAlias = Callable[[PolicyMove | None], PolicyMove | None]
"""Returns a move if it matters for objects: not if it is settled and its source was retired."""


class RoutedObjects:
    """The objects of all containers, wherever these keep them."""

    def __init__(self, objects: ClusterObjects, move_of: MoveOf, in_force: InForce) -> None:
        """`objects` are those of all policies."""
        self._move_of = move_of
        self._in_force = in_force
        self.by_policy = objects
        """The same objects, by policy alone."""

    async def _place(self, path: Path, policy: int) -> MovingObjects | int:
        """Return the policy of an object, or, if its container moves, those who look in both.

        Who has known the object's policy for long, as a task of the expirer has, may know one that was retired since.
        """
        move = await self._move_of(path)
        if self._in_force(move) is not None:
            assert move is not None
            return MovingObjects(self.by_policy, Move.of(move))
        return move.target if move is not None and policy == move.source else policy

    async def head(self, path: Path, policy: int, newest: bool = False) -> ObjectInfo:
        """Return the description of an object. Raises NotFound and Unavailable."""
        place = await self._place(path, policy)
        if isinstance(place, int):
            return await self.by_policy.head(path, place, newest)
        return await place.head(path, newest)

    async def get(
        self,
        path: Path,
        policy: int,
        start: int = 0,
        stop: int | None = None,
        newest: bool = False,
        version: Timestamp | None = None,
    ) -> Download:
        """Open bytes `[start, stop)` of an object, or of one `version` of it only. Raises NotFound and Unavailable."""
        place = await self._place(path, policy)
        if isinstance(place, int):
            return await self.by_policy.get(path, place, start, stop, newest, version)
        return await place.get(path, start, stop, newest, version)

    async def put(self, path: Path, policy: int, record: PutRecord, body: bytes, footer: PutFooter) -> Written:
        """Store a small object. Raises Superseded and Unavailable."""
        place = await self._place(path, policy)
        if isinstance(place, int):
            return await self.by_policy.put(path, place, record, body, footer)
        return await place.put(path, record, body, footer)

    async def upload(self, path: Path, policy: int, record: PutRecord, size: int | None) -> Upload:
        """Begin a streamed object. Raises Superseded and Unavailable."""
        place = await self._place(path, policy)
        if isinstance(place, int):
            return await self.by_policy.upload(path, place, record, size)
        return await place.upload(path, record, size)

    async def begin_upload(self, path: Path, policy: int, record: PutRecord, size: int | None) -> Upload:
        """Begin a streamed object, whose first bytes go to devices before these have agreed to take it where they may.

        Raises Superseded and Unavailable.
        """
        place = await self._place(path, policy)
        if isinstance(place, int):
            return await self.by_policy.begin_upload(path, place, record, size)
        return await place.upload(path, record, size)

    async def post(self, path: Path, policy: int, record: PostRecord) -> Written:
        """Replace metadata. Raises NotFound, Superseded and Unavailable."""
        place = await self._place(path, policy)
        if isinstance(place, int):
            return await self.by_policy.post(path, place, record)
        return await place.post(path, record)

    async def delete(self, path: Path, policy: int, timestamp: Timestamp) -> Written:
        """Delete an object. Raises Superseded and Unavailable."""
        place = await self._place(path, policy)
        if isinstance(place, int):
            return await self.by_policy.delete(path, place, timestamp)
        return await place.delete(path, timestamp)

    # What does not depend on where an object is, or is asked only where no container moves.

    @property
    def runs(self) -> ClusterRuns:
        """Reads of many objects at once, by their keys."""
        return self.by_policy.runs

    def key(self, path: Path, policy: int) -> ObjectKey:
        """Return the object's place in a policy's current ring."""
        return self.by_policy.key(path, policy)


AnyObjects: TypeAlias = RoutedObjects | ClusterObjects
"""Objects for those who know their policies, whether or not containers move."""
