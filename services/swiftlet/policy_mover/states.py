"""The state of a container's move, as each primary replica of its database shows it, and setting it on all of them.

Fault model: replicas may be away, or know less than others. A state is set by a majority of them at least; who needs it
to be known to all asks each. A container may be deleted and created again at any time, and then has no move.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from swiftlet.boundaries.listings import ListingTransport
from swiftlet.errors import NotFound, PolicyConflict, Superseded, SwiftletError, Unavailable
from swiftlet.model import ContainerInfo, DatabaseName
from swiftlet.names import HashPath
from swiftlet.policy_moves import ITEM, PolicyMove
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device
from swiftlet.timestamp import ZERO, Timestamp, TimestampClock

_ATTEMPTS = 3
"""How often a state is set with a newer time when a replica has a newer one."""


@dataclass(frozen=True, slots=True)
class Shown:
    """The answers of a container's primary replicas, by device."""

    infos: Mapping[str, ContainerInfo]
    unheard: Mapping[str, str]
    """The replicas that show nothing, with the reasons."""

    @property
    def newest(self) -> ContainerInfo:
        """Return what the replica shows that knows the newest state of a move."""
        return max(self.infos.values(), key=lambda info: _age(info.move))

    def lagging(self, move: PolicyMove) -> list[str]:
        """Return the replicas, by device, that do not show this phase of a move."""
        return [*self.unheard, *(name for name, info in self.infos.items() if not is_same(info.move, move))]


def _age(move: PolicyMove | None) -> tuple[Timestamp, Timestamp]:
    return (ZERO, ZERO) if move is None else (move.since, move.known or ZERO)


def is_same(one: PolicyMove | None, other: PolicyMove) -> bool:
    """Return whether two states are about the same phase of the same move."""
    if one is None or (one.source, one.target, one.phase) != (other.source, other.target, other.phase):
        return False
    return one.since == other.since


class MoveStates:
    """The states of all containers' moves."""

    def __init__(
        self, transport: ListingTransport, ring: Callable[[], Ring], hash_path: HashPath, clock: TimestampClock
    ) -> None:
        """`ring` returns the containers' ring, or raises Unavailable."""
        self._transport, self._ring, self._hash_path, self.clock = transport, ring, hash_path, clock

    def _replicas(self, account: str, name: str) -> tuple[int, Sequence[Device]]:
        """Return the partition of a container and the primaries of its replicas."""
        ring = self._ring()
        partition = ring.partition_of(self._hash_path(account, name))
        return partition, ring.primaries(partition)

    async def look(self, container: DatabaseName) -> Shown:
        """Ask all primary replicas. Raises NotFound when most say that there is no such container, and Unavailable when
        most can't be asked.
        """
        account, name = container.account, container.container or ""
        partition, devices = self._replicas(account, name)
        asked = [self._transport.container_info(device, partition, account, name) for device in devices]
        infos: dict[str, ContainerInfo] = {}
        unheard: dict[str, str] = {}
        absent: list[NotFound] = []
        for device, answer in zip(devices, await asyncio.gather(*asked, return_exceptions=True), strict=True):
            if isinstance(answer, ContainerInfo):
                infos[device.name] = answer
            elif isinstance(answer, SwiftletError):
                unheard[device.name] = str(answer)
                absent += [answer] if isinstance(answer, NotFound) else []
            else:
                raise answer
        if 2 * len(absent) > len(devices):
            raise absent[0]
        if 2 * len(infos) <= len(devices):
            raise Unavailable(f"{container}: most of its replicas can't be asked: {unheard}")
        return Shown(infos, unheard)

    async def set(self, container: DatabaseName, move: PolicyMove) -> None:
        """Set the state on all replicas that can be reached. Raises PolicyConflict when it does not follow from what a
        replica has, NotFound, and Unavailable when most of them were not reached.
        """
        for _ in range(_ATTEMPTS):
            try:
                return await self._set(container, move, self.clock.next())
            except Superseded as newer:
                self.clock.observe(newer.timestamp)
        raise Unavailable(f"{container}: the state of its move changes; try again")

    async def _set(self, container: DatabaseName, move: PolicyMove, at: Timestamp) -> None:
        account, name = container.account, container.container or ""
        partition, devices = self._replicas(account, name)
        item = {ITEM: move.text()}
        asked = [self._transport.post_container(device, partition, account, name, at, item) for device in devices]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        failures = [answer for answer in answers if answer is not None]
        for failure in failures:
            # A refusal counts, whoever else has taken the state: replicas merge to the newest one.
            if isinstance(failure, Superseded | PolicyConflict) or not isinstance(failure, SwiftletError):
                raise failure
        absent = [failure for failure in failures if isinstance(failure, NotFound)]
        if 2 * len(absent) > len(devices):
            raise absent[0]
        if 2 * len(failures) >= len(devices):
            told = "; ".join(map(str, failures))
            raise Unavailable(f"{container}: too few of its replicas can be told of the move: {told}")
