"""Lets go of parts of slices when the rows of their objects count by themselves, as after single writes.

A part of a container's slice is let go of at each replica that lists the row; a part of an account's slice when every
replica of the container that answers lists the row and has reported its totals to the account since. Rows that the
front has delivered are in all replicas of the container, so that one question by the newest of them stands for all.

Fault model: a replica of a container may be away, have missed a row, or be unable to report: then it is asked again a
few times. After that the parts stay held until their slices expire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from swiftlet.front.slices import Slice
from swiftlet.model import Amounts, DatabaseName
from swiftlet.placement.claims import ClusterClaims
from swiftlet.quota.excess import total
from swiftlet.timestamp import Timestamp

GATHER_S = 0.2
"""Seconds between two questions about one container, for which the parts of rows gather."""
PAUSES_S = (0.1, 0.3, 1.0, 3.0, 10.0)
"""Seconds between repeated questions about the same rows."""
MAX_LATER = 1000
"""The largest number of repeated questions; what further ones are about stays held until it expires."""

Parts = Mapping[Slice, Amounts]
"""Sums of parts of slices."""


@dataclass(slots=True)
class _Rows:
    """Rows of a container, and the parts that end with them."""

    rows: dict[str, Timestamp] = field(default_factory=dict)
    newest: tuple[Timestamp, str] | None = None
    """The newest of the rows that all replicas have."""
    of_container: dict[Slice, Amounts] = field(default_factory=dict)
    of_account: dict[Slice, Amounts] = field(default_factory=dict)
    done_at: set[int] = field(default_factory=set)
    """The devices where the parts of the container's slices have been let go of."""

    def asked(self) -> Iterable[tuple[str, Timestamp]]:
        """Return the rows that are asked about."""
        yield from self.rows.items()
        if self.newest is not None:
            yield self.newest[1], self.newest[0]

    def add(self, parts: Parts) -> None:
        """Add parts to the sums of their slices, those of accounts and those of containers apart."""
        for slice, amounts in parts.items():
            sums = self.of_account if slice.name.container is None else self.of_container
            sums[slice] = total([sums.get(slice, Amounts()), amounts])


class Settling:
    """Asks about rows; runs in one event loop."""

    def __init__(self, claims: ClusterClaims) -> None:
        """Begin without any rows."""
        self._claims = claims
        self._waiting: dict[DatabaseName, _Rows] = {}
        self._asking: dict[DatabaseName, asyncio.Task[None]] = {}
        self._later: set[asyncio.Task[None]] = set()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is waited for."""
        return not self._waiting and not self._asking and not self._later

    def all_list(self, container: DatabaseName, row: str, at: Timestamp, parts: Parts) -> None:
        """Note that all replicas list a row and older ones, whose objects took these parts."""
        told = {slice: amounts for slice, amounts in parts.items() if slice.name.container is None and slice.precise}
        for slice in parts.keys() - told.keys():
            slice.list(parts[slice])
        if told:
            waiting = self._wait(container, told)
            waiting.newest = max(waiting.newest or (at, row), (at, row))

    def delivered(self, container: DatabaseName, rows: Mapping[str, Timestamp], parts: Parts) -> None:
        """Note that these rows were sent to all replicas, some of which may not have them."""
        for slice, amounts in parts.items():
            if not slice.precise:
                slice.list(amounts)
        told = {slice: amounts for slice, amounts in parts.items() if slice.precise}
        if told:
            known = self._wait(container, told).rows
            for name, stamp in rows.items():
                known[name] = max(stamp, known.get(name, stamp))

    def _wait(self, container: DatabaseName, parts: Parts) -> _Rows:
        waiting = self._waiting.setdefault(container, _Rows())
        waiting.add(parts)
        if container not in self._asking:
            self._asking[container] = asyncio.create_task(self._serve(container))
        return waiting

    async def _serve(self, container: DatabaseName) -> None:
        try:
            while rows := self._waiting.pop(container, None):
                if not await self._ask(container, rows):
                    self._ask_later(container, rows)
                await asyncio.sleep(GATHER_S)
        finally:
            del self._asking[container]

    def _ask_later(self, container: DatabaseName, rows: _Rows) -> None:
        if len(self._later) < MAX_LATER:
            task = asyncio.create_task(self._repeat(container, rows))
            self._later.add(task)
            task.add_done_callback(self._later.discard)

    async def _repeat(self, container: DatabaseName, rows: _Rows) -> None:
        for pause_s in PAUSES_S:
            await asyncio.sleep(pause_s)
            if await self._ask(container, rows):
                return

    async def _ask(self, container: DatabaseName, rows: _Rows) -> bool:
        """Let go of what the answers allow; return whether that was all at those replicas that answer."""
        report = bool(rows.of_account)
        asked = [self._claims.listed_by(container, name, at, report) for name, at in rows.asked()]
        answers = [known for known in await asyncio.gather(*asked) if known is not None]
        if len(answers) < len(asked):
            return False
        listing = [{device for device, one in known.items() if one.listed} for known in answers]
        for device in set.intersection(*listing) - rows.done_at:
            rows.done_at.add(device)
            for slice, amounts in rows.of_container.items():
                slice.list_at(device, amounts)
        all_list = all(one.listed for known in answers for one in known.values())
        if report and all_list and all(one.reported for known in answers for one in known.values()):
            for slice, amounts in rows.of_account.items():
                slice.list(amounts)
            rows.of_account.clear()
        return all_list and not rows.of_account

    async def close(self) -> None:
        """Ask nobody any more; what is held expires."""
        tasks = [*self._asking.values(), *self._later]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
