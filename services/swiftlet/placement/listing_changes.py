"""Knows which containers have not changed: asks each container server for its changes, not for each container.

While many containers are in use, their servers are asked every `POLL_S` what has changed since the last question. A
container's description that was received at some time still holds at a later one if most holders of the container were
asked then, have told of every change since the description was requested, and the container was in none of the answers:
a change is acknowledged when most replicas have it, so one of those that were asked has noted it.

Fault model: servers may be silent, restart, or have forgotten changes. Then nothing is known about the time before
their next answer, and descriptions are requested as if nobody told of changes. A change that most replicas of a
container do not have yet may be missed, as by who asks one of the replicas; a description counts for
`CONFIRMED_AT_MOST_S` (`swiftlet.api.context.fresh_cache`) at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from swiftlet.boundaries.listings import ChangeSource
from swiftlet.errors import SwiftletError
from swiftlet.names import HashPath
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device

POLL_S = 0.15
"""Seconds between two questions to a server."""
FEW = 8
"""With fewer containers in use, asking for each of them is cheaper."""
IN_USE_S = 1.0
"""Seconds after which a container that nobody wanted to know about counts as not in use."""
MOST_SERVERS = 64
"""With more servers than this nobody is asked for changes: it would cost more than it saves."""
REMEMBERED = 10_000
"""The number of changed containers that are remembered."""
_PATIENCE_S = 1.0

_Server = tuple[str, int]


@dataclass(slots=True)
class _Told:
    """The answers of one server so far; times are by the clock."""

    epoch: str
    number: int
    since: float
    """From this time on it has told of all changes."""
    upto: float
    """When the last question was sent that it has answered."""


class ListingChanges:
    """Asks container servers for changes, and concludes what has not changed. Used from one event loop."""

    def __init__(
        self,
        ring: Callable[[], Ring],
        source: ChangeSource,
        hash_path: HashPath,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ring` returns the present ring of containers; `clock` is in monotonic seconds."""
        self._ring = ring
        self._source = source
        self._hash_path = hash_path
        self._clock = clock
        self._told: dict[_Server, _Told] = {}
        self._changed: dict[bytes, float] = {}
        """When the last change of a container was heard of."""
        self._version: int | None = None
        """The version of the ring for which anything was told."""
        self._wanted: set[bytes] = set()
        self._wanted_before = 0
        self._is_asking = False
        self._answers = asyncio.Event()
        """Set when servers have answered, or are not asked any more; another one follows."""

    def confirmed(self, place: tuple[str, str], asked_at: float, /) -> float:
        """Return until when nothing is known to have changed of a container (account and name) that was requested at
        `asked_at`: that time itself, or a later one. Both are by the clock.
        """
        digest = self._hash_path(*place)
        self._wanted.add(digest)
        ring = self._ring()
        if ring.version != self._version or self._changed.get(digest, -math.inf) >= asked_at:
            return asked_at
        holders = ring.primaries(ring.partition_of(digest))
        told = (self._told.get((holder.host, holder.port)) for holder in holders)
        upto = sorted((one.upto for one in told if one is not None and one.since <= asked_at), reverse=True)
        most = len(holders) // 2
        return max(asked_at, upto[most]) if len(upto) > most else asked_at

    async def heard(self) -> None:
        """Wait for the next answers, if servers are being asked, for a moment at most."""
        if self._is_asking:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._answers.wait(), _PATIENCE_S)

    async def run(self) -> None:
        """Ask while many containers are in use, until cancelled."""
        counted_at = self._clock()
        while True:
            await asyncio.sleep(POLL_S)
            if self._clock() - counted_at >= IN_USE_S:
                counted_at = self._clock()
                self._wanted_before = len(self._wanted)
                self._wanted.clear()
            self._is_asking = max(len(self._wanted), self._wanted_before) >= FEW
            if self._is_asking:
                await self.ask()
            self._answers.set()
            self._answers = asyncio.Event()

    async def ask(self) -> None:
        """Ask all container servers for what has changed since they were asked last."""
        ring = self._ring()
        servers = {(one.host, one.port): one for one in ring.devices if one is not None}
        if ring.version != self._version:
            # What others changed by another ring may be on other servers.
            self._told.clear()
            self._version = ring.version
        if len(servers) > MOST_SERVERS:
            self._told.clear()
            return
        await asyncio.gather(*(self._ask(server, device) for server, device in servers.items()))

    async def _ask(self, server: _Server, device: Device) -> None:
        told, sent = self._told.get(server), self._clock()
        epoch, number = ("", 0) if told is None else (told.epoch, told.number)
        try:
            async with asyncio.timeout(_PATIENCE_S):
                answer = await self._source.changes(device, epoch, number)
        except (TimeoutError, SwiftletError):
            return  # What it told before stays true; nothing later is known.
        came = self._clock()
        if self._ring().version != self._version:
            return
        if told is None or answer.containers is None:
            self._told[server] = _Told(answer.epoch, answer.number, came, sent)
            return
        for digest in answer.containers:
            self._changed[digest] = came
        told.number, told.upto = answer.number, sent
        if len(self._changed) > REMEMBERED:
            self._changed.clear()
            for one in self._told.values():
                one.since = came
