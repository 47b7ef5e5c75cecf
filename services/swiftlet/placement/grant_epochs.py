"""Tells object servers that grants which were issued before now count no more, because what they rest on has changed.

Many changes within a moment are told together, each container once. A server that can't be reached is told again, with
growing pauses, until it was or until all such grants have ended by themselves.

Fault model: servers may be down or cut off, for longer than grants live. This process may die before it has told them:
then grants count until they end, as they do at a server that has started anew. A notice that comes twice does no harm.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import Counter

from swiftlet.errors import SwiftletError
from swiftlet.ring.model import Device

LONGEST_LIFE_S = 900.0
"""Seconds after which no grant counts any more."""
_AT_ONCE = 64
"""Servers that are told at the same time."""
_TOGETHER_S = 0.05
"""Seconds for which changes are collected before servers are told."""
_PAUSES_S = (0.3, 1.0, 3.0, 10.0)
"""Seconds before a server that was not reached is told again; the last pause is repeated."""
_MAX_CHANGES = 10_000
"""Changed containers that a server is told singly; beyond them it is told of whole accounts."""
FAILED = Counter("swiftlet_grant_epochs_failed_total", "Notices about grants that an object server did not take.")

Place = tuple[str, str]
"""An account, and a container of it; without one ("") it is all of them."""


class Teller(Protocol):
    """Tells one object server."""

    async def __call__(self, device: Device, account: str, container: str, before_ms: int) -> None:
        """Tell it that grants for a place which were issued before a time count no more. Raises NodeError."""
        ...


async def tell_all(tell: Teller, servers: Sequence[Device], changed: Mapping[Place, int]) -> dict[Device, str]:
    """Tell these servers of changes, with their times in milliseconds; return who was not reached, and why."""
    gate = asyncio.Semaphore(_AT_ONCE)

    async def one(device: Device) -> tuple[Device, str] | None:
        async with gate:
            try:
                for (account, container), before_ms in changed.items():
                    await tell(device, account, container, before_ms)
            except SwiftletError as error:
                FAILED.inc()
                return device, str(error)
        return None

    answers = await asyncio.gather(*(one(device) for device in servers))
    return dict(answer for answer in answers if answer is not None)


@dataclass(slots=True)
class _Owed:
    """What one server has not been told."""

    changes: dict[Place, int] = field(default_factory=dict)
    failures: int = 0
    not_before: float = 0.0

    def add(self, changed: Mapping[Place, int]) -> None:
        """Owe these changes too; of too many only the accounts are kept."""
        for (account, container), before_ms in changed.items():
            place = (account, container) if len(self.changes) < _MAX_CHANGES else (account, "")
            self.changes[place] = max(before_ms, self.changes.get(place, 0))

    def failed(self, now: float, told: Mapping[Place, int]) -> None:
        """Owe again what could not be told, unless it is too old to matter."""
        pause_s = _PAUSES_S[min(self.failures, len(_PAUSES_S) - 1)]
        self.failures, self.not_before = self.failures + 1, now + pause_s
        oldest_ms = (now - LONGEST_LIFE_S) * 1000
        self.add({place: before_ms for place, before_ms in told.items() if before_ms > oldest_ms})


class GrantEpochs:
    """The changes that one process makes; used in one event loop. `now` is in seconds since the epoch."""

    def __init__(
        self, tell: Teller, servers: Callable[[], Sequence[Device]], now: Callable[[], float] = time.time
    ) -> None:
        """`servers` returns a device of each object server."""
        self._tell = tell
        self._servers = servers
        self._now = now
        self._owed: dict[Device, _Owed] = {}
        self._changed = _Owed()
        self._woken = asyncio.Event()

    def note(self, account: str, container: str) -> None:
        """Note a change of a container, or of an account ("" for the container)."""
        self._changed.add({(account, container): int(self._now() * 1000)})
        self._woken.set()

    def owe(self, servers: Iterable[Device], changed: Mapping[Place, int]) -> None:
        """Tell these servers later of changes, with their times in milliseconds, of which they could not be told."""
        for device in servers:
            self._owed.setdefault(device, _Owed()).add(changed)
        self._woken.set()

    async def run(self) -> None:
        """Tell all servers of changes until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_PAUSES_S[0] if self._owed else None):
                    await self._woken.wait()
            await asyncio.sleep(_TOGETHER_S)
            self._woken.clear()
            changed, self._changed = self._changed.changes, _Owed()
            if changed:
                for device in self._servers():
                    self._owed.setdefault(device, _Owed()).add(changed)
            await self._tell_due()

    async def _tell_due(self) -> None:
        now = self._now()
        due = {device: dict(owed.changes) for device, owed in self._owed.items() if owed.not_before <= now}
        for device in due:
            self._owed[device].changes.clear()
        answers = await asyncio.gather(*(tell_all(self._tell, [device], changes) for device, changes in due.items()))
        for device, unreached in zip(due, answers, strict=True):
            if unreached:
                self._owed[device].failed(now, due[device])
            if not self._owed[device].changes:
                del self._owed[device]
