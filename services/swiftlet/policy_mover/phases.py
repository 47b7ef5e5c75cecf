"""The phases of one container's move: which one is next, and from when on it may be.

A phase may follow when every primary replica of the container's database has shown the one before, and `services_s`
have passed since: then every service knows it, and what somebody began who did not know it has ended. When all replicas
have shown a phase is written into the state, so that a mover that is started again goes on waiting where the other one
was ended. Several movers may do this at the same time: each step is made once, or repeated with the same outcome.

Fault model: replicas may be away, which holds the move up. The process may end at any point. Clocks of machines on
which movers run one after the other count as right: `known` is a time of the one that wrote it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, replace

from swiftlet.errors import PolicyConflict, SwiftletError, Unavailable
from swiftlet.expiry.expirer import LONGEST_UPLOAD_S
from swiftlet.model import ContainerInfo, DatabaseName
from swiftlet.policy_mover.container_pass import NoLongerMoves
from swiftlet.policy_mover.states import MoveStates, Shown
from swiftlet.policy_moves import Phase, PolicyMove


class CanNotMove(SwiftletError):
    """The container has another policy, or another move."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the move of a container stands; times are seconds since the epoch.

    `next_s` is from when on the next phase may begin after `announced`, and objects may be moved in `moving`. While not
    all replicas have shown the phase it is the earliest that it can be. A pass that begins at `settles_s` or later may
    settle the move; None as long as that can't be told.
    """

    move: PolicyMove | None
    next_s: float = 0.0
    settles_s: float | None = None

    @property
    def phase(self) -> Phase | None:
        """Return the phase; None before the move."""
        return None if self.move is None else self.move.phase

    def is_over(self, now_s: float) -> bool:
        """Return whether the phase has lasted long enough."""
        return self.move is not None and self.move.known is not None and now_s >= self.next_s


ServicesS = Callable[[], Awaitable[float]]
"""Returns how long a phase that all replicas show has to last, in seconds. Raises what forbids to go on."""


class Phases:
    """Brings containers of a policy through the phases of a move to another one."""

    def __init__(
        self,
        states: MoveStates,
        source: int,
        target: int,
        services_s: ServicesS,
        now_s: Callable[[], float],
        name_of: Callable[[int], str] = str,
    ) -> None:
        """`services_s` is asked before each step. `now_s` returns seconds since the epoch. `name_of` returns the name
        of a policy.
        """
        self._states, self._source, self._target = states, source, target
        self._services_s, self._now_s, self._name_of = services_s, now_s, name_of

    async def standing(self, container: DatabaseName) -> Standing:
        """Return where a container stands, and change nothing. Raises CanNotMove, NotFound and Unavailable."""
        shown = await self._states.look(container)
        return await self._standing(self._mine(container, shown.newest))

    async def _standing(self, move: PolicyMove | None) -> Standing:
        if move is None or move.phase is Phase.SETTLED:
            return Standing(move)
        known_s = self._now_s() if move.known is None else move.known.seconds
        next_s = known_s + await self._services_s()
        return Standing(move, next_s, next_s + LONGEST_UPLOAD_S if move.phase is Phase.MOVING else None)

    def _mine(self, container: DatabaseName, info: ContainerInfo) -> PolicyMove | None:
        """Return the container's move if it is this one; None when it has not begun. Raises CanNotMove."""
        move = info.move
        if move is not None and (move.source, move.target) == (self._source, self._target):
            return move
        if move is not None and move.phase is not Phase.SETTLED:
            names = self._name_of(move.source), self._name_of(move.target)
            raise CanNotMove(f"{container} moves from policy {names[0]} to {names[1]}, which has to be settled first")
        if info.policy != self._source:
            names = self._name_of(info.policy), self._name_of(self._source)
            raise CanNotMove(f"{container} has policy {names[0]}, not {names[1]}")
        return None

    async def advance(self, container: DatabaseName) -> Standing:
        """Make the step that is due, if any; return where the container stands then. Raises CanNotMove, NotFound, and
        Unavailable, also while a replica does not show the phase.
        """
        shown = await self._states.look(container)
        move = self._mine(container, shown.newest)
        if move is None:
            await self._services_s()
            try:
                return await self._set(container, shown, Phase.ANNOUNCED, None)
            except PolicyConflict as refusal:
                raise CanNotMove(str(refusal)) from refusal
        if move.known is None and move.phase is not Phase.SETTLED:
            if lagging := shown.lagging(move):
                with suppress(PolicyConflict):
                    # A replica that lacks the phases before does not take this one by itself: it gets it by sync.
                    await self._states.set(container, move)
                raise Unavailable(f"{container} is not {move.phase.value} on all replicas: {', '.join(lagging)}")
            move = replace(move, known=self._states.clock.next())
            await self._states.set(container, move)
        standing = await self._standing(move)
        if move.phase is Phase.ANNOUNCED and standing.is_over(self._now_s()):
            return await self._set(container, shown, Phase.MOVING, move)
        return standing

    async def _set(self, container: DatabaseName, shown: Shown, phase: Phase, before: PolicyMove | None) -> Standing:
        announced = None if before is None else before.announced or before.since
        since, created = self._states.clock.next(), shown.newest.created
        move = PolicyMove(self._source, self._target, phase, since, created, announced=announced)
        await self._states.set(container, move)
        return await self._standing(move)

    async def settle(self, container: DatabaseName) -> Standing:
        """End a move of which a pass has found nothing that was left. Raises NoLongerMoves and Unavailable."""
        await self.still(container)
        shown = await self._states.look(container)
        return await self._set(container, shown, Phase.SETTLED, shown.newest.move)

    async def still(self, container: DatabaseName) -> None:
        """Raise NoLongerMoves unless all replicas that can be asked, and most at least, show that objects may be moved;
        and Unavailable.
        """
        shown = await self._states.look(container)
        for info in shown.infos.values():
            move = info.move
            if move is None or (move.source, move.target) != (self._source, self._target):
                raise NoLongerMoves(f"{container} no longer moves from policy {self._source} to {self._target}")
            if move.phase is Phase.ANNOUNCED:
                raise NoLongerMoves(f"{container} is only announced to move")
