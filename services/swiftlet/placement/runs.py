"""Runs of the whole cluster: which device each part of a run is read from, and what the end of a run says of devices.

Consecutive parts are read from one device for as long as it has them all, up to `STAY_BYTES`, so that its threads and
its process find the next request before they sleep. Among several such devices one of the nearest is chosen, by chance.

Fault model: a run ends at the first thing that is wrong; asking other devices is left to a read of that object alone
(`ClusterObjects.get`), which knows all of them. Devices that failed lately are in no run.
"""

from __future__ import annotations

import functools
import random
from collections.abc import AsyncIterator, Callable, Sequence

from swiftlet.boundaries.objects import Marks, ObjectTransport, Run, RunEnd, RunPart
from swiftlet.errors import Unproved
from swiftlet.model import ObjectKey
from swiftlet.placement.fanout import NODE_TROUBLE
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.plan import ANYWHERE, Place
from swiftlet.placement.rings import Rings
from swiftlet.ring.lookup import Ring
from swiftlet.ring.model import Device

STAY_BYTES = 4 << 20
"""After so many bytes from one device another one follows, so that two of them work at once on what is read ahead."""


class ClusterRuns:
    """Makes runs over objects of all policies."""

    def __init__(
        self,
        rings: Rings,
        transport: ObjectTransport,
        health: NodeHealth,
        is_suppressed: Callable[[Device], bool],
        place: Place = ANYWHERE,
        is_coded: Callable[[int], bool] = lambda policy: False,
    ) -> None:
        """Prepare the runs of one proxy at a place; `is_suppressed` says which devices are asked last, `is_coded` of
        which policies no device has whole objects.
        """
        self._rings = rings
        self._transport = transport
        self._health = health
        self._is_suppressed = is_suppressed
        self._place = place
        self._is_coded = is_coded

    def plan(self) -> RunPlan:
        """Return an empty list of parts for one run, which begins soon."""
        return RunPlan(self._rings, self._usable, self._place, self._is_coded)

    def _usable(self, device: Device) -> bool:
        suppressed = self._is_suppressed(device) or device.id in self._health.behind()
        return not suppressed and self._transport.runs(device)

    def open(self, parts: Sequence[RunPart], marks: Marks) -> ClusterRun:
        return ClusterRun(parts, self._transport.open_run(parts, marks), self._health)


class RunPlan:
    """The parts of a run, and the devices from which they are requested."""

    def __init__(
        self,
        rings: Rings,
        usable: Callable[[Device], bool],
        place: Place = ANYWHERE,
        is_coded: Callable[[int], bool] = lambda policy: False,
    ) -> None:
        """`usable` returns whether a device may be in a run, and is called once for each."""
        self._place = place
        self._is_coded = is_coded
        self._rings = rings
        self._is_usable = usable
        self._ring: Ring | None = None
        self._known: dict[int, bool] = {}
        """Whether a device of this ring may be in a run, by its id."""
        self._parts: list[RunPart] = []
        self._wanted: list[tuple[ObjectKey, int, int, int | None, str | None, bool]] = []
        """The objects that come after `_parts`, all on the same device."""
        self._devices: dict[int, Device] = {}
        """The devices that have all of these objects."""
        self._bytes = 0

    def add(self, key: ObjectKey, start: int, stop: int, size: int | None, etag: str | None, unmarked: bool) -> bool:
        """Add bytes `[start, stop)` of an object as the next part; return False when they have to be read
        separately.
        """
        if self._is_coded(key.policy):
            return False
        ring = self._rings.objects(key.policy)
        if ring is not self._ring:
            self._decide()
            self._ring, self._known = ring, {}
        having = self._nearest([device for device in ring.primaries(key.partition) if self._usable(device)])
        if not having:
            return False
        both = {number: having[number] for number in self._devices if number in having}
        if not both or self._bytes >= STAY_BYTES:
            self._decide()
        self._devices = both if self._wanted else having
        self._wanted.append((key, start, stop, size, etag, unmarked))
        self._bytes += stop - start
        return True

    def _nearest(self, devices: Sequence[Device]) -> dict[int, Device]:
        """Return those devices by id than which none is nearer."""
        nearest = min(map(self._place.distance, devices), default=0)
        return {device.id: device for device in devices if self._place.distance(device) == nearest}

    def _usable(self, device: Device) -> bool:
        known = self._known.get(device.id)
        if known is None:
            known = self._known[device.id] = self._is_usable(device)
        return known

    def _decide(self) -> None:
        if self._wanted:
            device = random.choice(list(self._devices.values()))  # noqa: S311 - spreads load, protects nothing
            self._parts.extend([RunPart(device, *wanted) for wanted in self._wanted])
        self._wanted.clear()
        self._devices = {}
        self._bytes = 0

    @property
    def parts(self) -> list[RunPart]:
        """Return all parts that were added."""
        self._decide()
        return self._parts


class ClusterRun:
    """A run whose outcome is noted for its devices."""

    def __init__(self, parts: Sequence[RunPart], run: Run, health: NodeHealth) -> None:
        """`run` reads these parts."""
        self._parts = parts
        self._run = run
        self._health = health

    @functools.cached_property
    def end(self) -> RunEnd:
        """Return where the run has ended; only after `chunks` has ended."""
        assert self._run.end is not None
        return self._run.end

    @property
    def is_complete(self) -> bool:
        """Return whether all bytes were handed on; only after `chunks` has ended."""
        return self.end.done == len(self._parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the bytes in order, up to the end of the run."""
        async for chunk in self._run.chunks():
            yield chunk
        for device in {part.device.id: part.device for part in self._parts[: self.end.done]}.values():
            self._health.succeeded(device)
        if isinstance(self.end.error, Unproved):
            self._health.unproved(self._parts[self.end.done].device)
        if isinstance(self.end.error, NODE_TROUBLE):
            self._health.failed(self._parts[self.end.done].device)

    async def close(self) -> None:
        """Stop; a second call does nothing."""
        await self._run.close()
