"""Runs of the whole cluster: which device each part of a run is asked of, and what its end says of the devices.

Fault model: a run ends at the first thing that is wrong; asking other devices is left to a read of that object alone
(`ClusterObjects.get`), which knows all of them. Devices that failed lately are in no run.
"""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Sequence

from swiftlet.model import ObjectKey
from swiftlet.peers import Marks, ObjectTransport, Run, RunEnd, RunPart
from swiftlet.placement.fanout import NODE_TROUBLE
from swiftlet.placement.health import NodeHealth
from swiftlet.placement.plan import plan_read
from swiftlet.placement.rings import Rings


class ClusterRuns:
    """Runs over objects of all policies."""

    def __init__(self, rings: Rings, transport: ObjectTransport, health: NodeHealth) -> None:
        """Of one proxy."""
        self._rings = rings
        self._transport = transport
        self._health = health

    def part(
        self, key: ObjectKey, start: int, stop: int, size: int | None, etag: str | None, unmarked: bool
    ) -> RunPart | None:
        """Bytes `[start, stop)` of an object as part of a run; None when they have to be read by themselves."""
        plan = plan_read(self._rings.objects(key.policy), key.partition, self._health.suppressed)
        if not plan.first or not self._transport.runs(plan.first[0]):
            return None
        return RunPart(plan.first[0], key, start, stop, size, etag, unmarked)

    def open(self, parts: Sequence[RunPart], marks: Marks) -> ClusterRun:
        """Begin a run."""
        return ClusterRun(parts, self._transport.open_run(parts, marks), self._health)


class ClusterRun:
    """A run whose end is remembered of its devices."""

    def __init__(self, parts: Sequence[RunPart], run: Run, health: NodeHealth) -> None:
        """`run` is of these parts."""
        self._parts = parts
        self._run = run
        self._health = health

    @functools.cached_property
    def end(self) -> RunEnd:
        """Where it has ended; only after `chunks` has."""
        assert self._run.end is not None
        return self._run.end

    @property
    def is_complete(self) -> bool:
        """Whether all of it was handed on; only after `chunks` has ended."""
        return self.end.done == len(self._parts)

    async def chunks(self) -> AsyncIterator[bytes]:
        """Bytes in order, up to its end."""
        async for chunk in self._run.chunks():
            yield chunk
        for device in {part.device.id: part.device for part in self._parts[: self.end.done]}.values():
            self._health.succeeded(device)
        if isinstance(self.end.error, NODE_TROUBLE):
            self._health.failed(self._parts[self.end.done].device)

    async def close(self) -> None:
        """Stop; harmless a second time."""
        await self._run.close()
