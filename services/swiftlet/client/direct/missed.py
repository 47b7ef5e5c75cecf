"""Which devices have missed writes of a client: told to the metadata servers, as devices believe no guest.

A device that was told sends all readers of the partition elsewhere, until its replicator has proved that it lacks
nothing. Until then others may read there what was before the write.

Fault model: metadata servers may be gone, and are told when they are back; the client may end before. What it closes
in order is told first, if that takes no longer than `CLOSING_S`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from swiftlet.client.direct.owed import BEHIND_S, Behind
from swiftlet.client.errors import ClientError, StatusError
from swiftlet.ring.model import Device

MAX_NAMED = 64
"""Objects that are named in a request to a metadata server."""
MAX_PLACES = 4096
"""Partitions, counted for each device, of which metadata servers were not told yet; of more, the oldest are dropped."""
_PAUSES_S = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds before metadata servers are told again; the last pause is repeated."""
CLOSING_S = 1.0
_TOO_MANY = 429
_log = logging.getLogger("swiftlet.client")


@dataclass(frozen=True, slots=True)
class Place:
    """A partition of which a device has missed a write, in the terms of a metadata server."""

    account: str
    container: str
    policy: int
    device: int
    partition: int


@dataclass(slots=True)
class Reports:
    """What metadata servers are to be told, in one event loop; `clock` returns monotonic seconds.

    `tell` sends a request with these fields, and raises ClientError. `pause` sleeps for seconds.
    """

    tell: Callable[[Mapping[str, object]], Awaitable[None]]
    clock: Callable[[], float] = time.monotonic
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    _names: OrderedDict[Place, tuple[str, float]] = field(default_factory=OrderedDict)
    """The name of one object of each partition, by which the server finds it, and when it was noted."""
    _telling: asyncio.Task[None] | None = None
    _failures: int = 0

    def note(self, place: Place, name: str) -> None:
        """Have metadata servers told of a partition, by the name of an object in it."""
        self._names.setdefault(place, (name, self.clock()))
        if len(self._names) > MAX_PLACES:
            self._names.popitem(last=False)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.ensure_future(self._run())

    async def close(self) -> None:
        """Tell what is left if metadata servers answer, and end."""
        if self._telling is None:
            return
        if not self._failures:
            await asyncio.wait([self._telling], timeout=CLOSING_S)
        self._telling.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._telling

    async def _run(self) -> None:
        while self._names:
            some = self._some()
            try:
                await self.tell(_fields(some))
            except StatusError as error:
                if error.status >= 500 or error.status == _TOO_MANY:
                    await self._wait(error)
                    continue
                # A server without direct access, rights that were taken away, a container that is gone.
                _log.debug("a metadata server was not told of missed writes: %s", error)
            except ClientError as error:
                await self._wait(error)
                continue
            self._failures = 0
            for place in some:
                self._names.pop(place, None)

    def _some(self) -> dict[Place, str]:
        """Return the oldest partitions of one container that one request can name."""
        first = next(iter(self._names))
        same = (first.account, first.container, first.policy)
        some: dict[Place, str] = {}
        for place, (name, _) in self._names.items():
            if (place.account, place.container, place.policy) == same:
                some[place] = name
                if len(some) == MAX_NAMED:
                    break
        return some

    async def _wait(self, error: ClientError) -> None:
        _log.debug("metadata servers will be told of missed writes later: %s", error)
        pause_s = _PAUSES_S[min(self._failures, len(_PAUSES_S) - 1)]
        self._failures += 1
        await self.pause(pause_s)
        oldest = self.clock() - BEHIND_S
        for place in [place for place, (_, noted) in self._names.items() if noted < oldest]:
            # By now the replicator has compared what could be compared.
            del self._names[place]


def _fields(some: Mapping[Place, str]) -> dict[str, object]:
    by_device: dict[int, list[str]] = {}
    for place, name in some.items():
        by_device.setdefault(place.device, []).append(name)
    first = next(iter(some))
    missed = [{"device": device, "objects": names} for device, names in by_device.items()]
    return {"account": first.account, "container": first.container, "policy": first.policy, "missed": missed}


@dataclass(frozen=True, slots=True)
class MissedOfObject:
    """What devices have missed, as the writes of one object see it (`swiftlet.placement.copies.MissedWrites`)."""

    own: Behind
    reports: Reports
    account: str
    container: str
    name: str

    def note(self, device: Device, policy: int, partition: int) -> None:
        """Note that a write of the object was acknowledged, or may be, without this device."""
        self.own.note(device, policy, partition)
        self.reports.note(Place(self.account, self.container, policy, device.id, partition), self.name)

    def behind(self, policy: int, partition: int) -> frozenset[int]:
        """Return the ids of devices that missed something of a partition."""
        return self.own.behind(policy, partition)

    def waits(self, device: Device) -> bool:
        """Return False: what it missed is known by partition."""
        return self.own.waits(device)
