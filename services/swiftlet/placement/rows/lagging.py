"""Replicas of a database that have missed something that this process reported as done: they are asked last for a
while.

A write is done when most replicas have it. A client who then reads from the one that was slow or away would not see
what it has just written, though others could show it. So the slow one is remembered, by path and device, and reads
through this process begin with the others. It is still asked when no other one answers.

Fault model: this process may end, or the client's next request go to another one: then a read may show an older state
until the replica has caught up. If more paths than `MAX_PATHS` lag at once, those remembered for longest are forgotten.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable

from swiftlet.ring.model import Device

LAGS_S = 60.0
"""Seconds within which delayed rows are delivered and databases compared, while no server is down."""
MAX_PATHS = 10_000


class Lagging:
    """Devices that lack something, by the path of the database."""

    def __init__(self, lags_s: float = LAGS_S, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock` returns monotonic seconds."""
        self._lags_s = lags_s
        self._clock = clock
        self._paths: OrderedDict[str, dict[int, float]] = OrderedDict()

    def missed(self, path: str, devices: Iterable[Device]) -> None:
        """Note that these devices lack something of the database at `path` that others have."""
        until_s = self._clock() + self._lags_s
        for device in devices:
            self._paths.setdefault(path, {})[device.id] = until_s
            self._paths.move_to_end(path)
        if len(self._paths) > MAX_PATHS:
            self._paths.popitem(last=False)

    def behind(self, path: str) -> Collection[int]:
        """Return the ids of devices that may lack something."""
        found = self._paths.get(path)
        if found is None:
            return ()
        now_s = self._clock()
        still = {device: until_s for device, until_s in found.items() if until_s > now_s}
        if still:
            self._paths[path] = still
        else:
            del self._paths[path]
        return still.keys()
