"""Claims of the whole cluster: a write that a limit concerns is granted by all replicas of the database that answer.

The first primary that answers decides first, so that writers who compete for the last room meet in one place; then the
others are asked in parallel. A replica that missed rows or claims would grant too much; one that has seen them refuses,
and a single refusal counts. A limit is exceeded only if every replica that could be asked has missed something.

Fault model: replicas may be unreachable; a quorum of primaries must grant, otherwise the amounts are not known well
enough (Unavailable). Handoffs are not asked, because they do not know what is there. What was granted for a write that
does not happen is released, or expires. The end of a claim is awaited for a few seconds; a slow device that has not
heard of it by then is told later, since a claim that stays holds room that nobody needs.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

import structlog

from swiftlet.boundaries.listings import ListingTransport
from swiftlet.errors import NotFound, SwiftletError, Unavailable
from swiftlet.model import Amounts, Bounds, Claim, Confirmation, DatabaseName, Excess
from swiftlet.names import HashPath
from swiftlet.placement.fanout import NODE_TROUBLE
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.quorums import write_quorum
from swiftlet.placement.rings import Rings
from swiftlet.ring.model import Device
from swiftlet.timestamp import Timestamp

T = TypeVar("T")
MAX_LATE = 10_000
"""The largest number of claims that are ended in the background; further ones end when they expire."""
_LATE_S = 30.0
"""Seconds for which a device is asked to end a claim after the write has stopped waiting; messages have their own
limits.
"""
_log = structlog.get_logger("claims")


class ClusterClaims:
    """Claims on accounts and containers, wherever their replicas are."""

    def __init__(
        self,
        rings: Rings,
        transport: ListingTransport,
        hash_path: HashPath,
        health: NodeHealth,
        confirm_wait_s: float = 5.0,
    ) -> None:
        """`confirm_wait_s` bounds how long a finished write waits for its claim to end."""
        self._rings = rings
        self._transport = transport
        self._hash_path = hash_path
        self._health = health
        self._confirm_wait_s = confirm_wait_s
        self._late: set[asyncio.Task[Any]] = set()

    async def take(self, name: DatabaseName, claim: Claim, bounds: Bounds, life_s: int) -> Excess | None:
        """Hold or change a claim; return the reason when it does not fit. Raises NotFound and Unavailable."""
        partition, primaries = self._primaries(name)

        async def ask(device: Device) -> Excess | None:
            return await self._transport.take_claim(device, partition, name, claim, bounds, life_s)

        sound = [device for device in primaries if not self._health.suppressed(device)]
        order = [*sound, *(device for device in primaries if device not in sound)]
        answers: dict[int, Excess | SwiftletError | None] = {}
        while order and not any(not isinstance(answer, SwiftletError) for answer in answers.values()):
            first = order.pop(0)
            answers[first.id] = await self._answer(first, ask)
            if isinstance(answers[first.id], Excess):
                return self._refused(answers)
        rest = await asyncio.gather(*(self._answer(device, ask) for device in order))
        answers |= {device.id: answer for device, answer in zip(order, rest, strict=True)}
        refused = self._refused(answers)
        granted = [device for device in primaries if answers[device.id] is None]
        if refused is None and len(granted) >= write_quorum(len(primaries)):
            return None
        await self._each(granted, lambda device: self._transport.cancel_claim(device, partition, name, claim.id))
        if refused is not None:
            return refused
        absent = [answer for answer in answers.values() if isinstance(answer, NotFound)]
        if len(absent) >= write_quorum(len(primaries)):
            raise absent[0]
        reasons = "; ".join(str(answer) for answer in answers.values() if isinstance(answer, SwiftletError))
        raise Unavailable(f"the quota of {name} can't be checked: too few replicas know how much it holds ({reasons})")

    async def confirm(self, name: DatabaseName, claim_id: str, row: str, at: Timestamp, report: bool = False) -> bool:
        """End the claim of a write that is done; return whether a quorum answered and all of them list the row.

        With `report` all of them also have to have reported the totals to the account.
        """
        partition, primaries = self._primaries(name)

        async def confirm(device: Device) -> Confirmation:
            return await self._transport.confirm_claim(device, partition, name, claim_id, row, at, report)

        answers = await self._each(primaries, confirm)
        fine = [answer for answer in answers if answer.listed and (answer.reported or not report)]
        return len(fine) == len(answers) >= write_quorum(len(primaries))

    async def listed_by(
        self, name: DatabaseName, row: str, at: Timestamp, report: bool = False
    ) -> Mapping[int, Confirmation] | None:
        """Return what replicas know of a row whose write has no claim of its own, by the ids of their devices; None
        when fewer than a quorum answer.

        With `report` those that list it report the totals to the account first.
        """
        partition, primaries = self._primaries(name)
        nobodys = os.urandom(16).hex()

        async def ask(device: Device) -> tuple[int, Confirmation]:
            return device.id, await self._transport.confirm_claim(device, partition, name, nobodys, row, at, report)

        answers = dict(await self._each(primaries, ask))
        return answers if len(answers) >= write_quorum(len(primaries)) else None

    async def lower(self, name: DatabaseName, claim_id: str, rest: Callable[[int], Amounts], life_s: int) -> None:
        """Hold only the `rest` of a claim, which may differ between devices, at those that can be reached.

        It is never refused, because it is less than what is held; nothing is left of it where the rest is nothing.
        """
        partition, primaries = self._primaries(name)

        async def lower(device: Device) -> None:
            left = rest(device.id)
            if left == Amounts():
                await self._transport.cancel_claim(device, partition, name, claim_id)
            else:
                await self._transport.take_claim(device, partition, name, Claim(claim_id, left), Bounds(), life_s)

        await self._each(primaries, lower)

    async def cancel(self, name: DatabaseName, claim_id: str) -> None:
        """Cancel a claim at those of its replicas that can be reached."""
        partition, primaries = self._primaries(name)
        await self._each(primaries, lambda device: self._transport.cancel_claim(device, partition, name, claim_id))

    def _primaries(self, name: DatabaseName) -> tuple[int, Sequence[Device]]:
        ring = self._rings.account() if name.container is None else self._rings.container()
        partition = ring.partition_of(self._hash_path(name.account, name.container))
        return partition, ring.primaries(partition)

    async def _answer(
        self, device: Device, ask: Callable[[Device], Awaitable[Excess | None]]
    ) -> Excess | SwiftletError | None:
        try:
            answer = await ask(device)
        except NODE_TROUBLE as error:
            self._health.failed(device)
            return error
        except SwiftletError as error:
            self._health.succeeded(device)
            return error
        self._health.succeeded(device)
        return answer

    @staticmethod
    def _refused(answers: dict[int, Excess | SwiftletError | None]) -> Excess | None:
        return next((answer for answer in answers.values() if isinstance(answer, Excess)), None)

    async def _each(self, devices: Sequence[Device], call: Callable[[Device], Awaitable[T]]) -> list[T]:
        """Return the answers that came in time; the other requests continue, or their claims expire."""

        async def one(device: Device) -> T | None:
            try:
                async with asyncio.timeout(self._confirm_wait_s + _LATE_S):
                    return await call(device)
            except (SwiftletError, TimeoutError) as error:
                _log.info("a claim could not be ended; it expires by itself", device=device.name, error=str(error))
                return None

        if not devices:
            return []
        asked = [asyncio.create_task(one(device)) for device in devices]
        try:
            await asyncio.wait(asked, timeout=self._confirm_wait_s)
        finally:
            self._leave([task for task in asked if not task.done()])
        return [answer for task in asked if task.done() and (answer := task.result()) is not None]

    def _leave(self, late: Sequence[asyncio.Task[T | None]]) -> None:
        """Continue requests that nobody waits for any longer: what is queued behind a slow message is still sent."""
        for task in late:
            if len(self._late) >= MAX_LATE:
                task.cancel()
            else:
                self._late.add(task)
                task.add_done_callback(self._late.discard)
