"""The queue of the work left in a round, which decides what comes next. No I/O, no clock.

Work with peers that are back comes first, and what was finished before a restart comes last; within these, the order is
random. What failed is tried again before anything else. Returns of handoffs are mixed in.

After a session, its partitions go on to their next peers in small groups. The messages of a session cost more than a
few more partitions in it, so these groups are gathered until they are enough for a session, no session is running that
could add to them, or the executor stops the wait.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from swiftlet.sync.failures.neighbours import node_of
from swiftlet.sync.planning.device_partitions import DevicePartitions
from swiftlet.sync.planning.tasks import SessionTask
from swiftlet.sync.session.queue import HandoffReturn

PendingReturn = tuple[DevicePartitions, HandoffReturn]
"""A handoff that has to be returned, with the device that holds it."""
_Key = tuple[bool, int, int, bool]
"""Whether it was finished before a restart, the own device, the peer, and whether the partitions are known
to differ.
"""


class TaskQueue:
    """The tasks of one round, for all own devices and policies."""

    def __init__(self, size_of: Callable[[DevicePartitions], int], first: Iterable[str]) -> None:
        """`size_of` returns how many partitions of a device go into a session; `first` names nodes that are back."""
        self.first = set(first)
        """The names of nodes that are back, whose partitions come first."""
        self._size_of = size_of
        self._own_devices: dict[int, DevicePartitions] = {}
        self._waiting: dict[_Key, list[int]] = {}
        self._gathering: dict[_Key, list[int]] = {}
        self._retries: deque[SessionTask] = deque()
        self._returns: deque[PendingReturn] = deque()

    def __bool__(self) -> bool:
        """Return whether any work is left."""
        return bool(self._waiting or self._gathering or self._retries or self._returns)

    @property
    def returns(self) -> Sequence[PendingReturn]:
        """Handoffs that have to be returned."""
        return self._returns

    def compare(
        self,
        own: DevicePartitions,
        peer: int,
        partitions: list[int],
        *,
        differ: bool,
        late: set[int],
        gather: bool = False,
    ) -> None:
        """Queue partitions for comparison with a peer; `late` has those that were finished before a restart.

        `gather` tells that a session left them for this peer, so that they wait for others.
        """
        self._own_devices[id(own)] = own
        if len(partitions) > self._size_of(own):
            random.shuffle(partitions)
        for is_late, part in ((True, late), (False, [p for p in partitions if p not in late] if late else partitions)):
            if not part:
                continue
            key = is_late, id(own), peer, differ
            gathered = self._gathering.setdefault(key, [])
            gathered += part
            if not gather or len(gathered) >= self._size_of(own):
                self._waiting.setdefault(key, []).extend(self._gathering.pop(key))

    def ripen(self) -> None:
        """End the wait of all gathered partitions."""
        for key, gathered in self._gathering.items():
            self._waiting.setdefault(key, []).extend(gathered)
        self._gathering.clear()

    def retry(self, task: SessionTask) -> None:
        """Queue the failed partitions of a session again; they come before anything else."""
        self._retries.append(task)

    def add_returns(self, returns: Iterable[PendingReturn]) -> None:
        """Queue handoffs, in random order with those that are waiting."""
        shuffled = [*self._returns, *returns]
        random.shuffle(shuffled)
        self._returns = deque(shuffled)

    def add_returns_first(self, returns: Iterable[PendingReturn]) -> None:
        """Queue handoffs whose primary is back, before all others."""
        self._returns.extendleft(returns)

    def next(self, alone: bool) -> SessionTask | PendingReturn | None:
        """Return the next piece of work, or None while there is none; `alone` tells that no session is running."""
        if self._retries:
            return self._retries.popleft()
        if alone and not self._waiting:
            self.ripen()
        if self._returns and (not self._waiting or random.random() < 0.5):  # noqa: S311 - order
            return self._returns.popleft()
        return self._next_task() if self._waiting else None

    def _next_task(self) -> SessionTask:
        keys = list(self._waiting)
        random.shuffle(keys)
        key = min(keys, key=self._rank)
        _, own_id, peer, differs = key
        own, waiting = self._own_devices[own_id], self._waiting[key]
        size = self._size_of(own)
        partitions = waiting[-size:]
        del waiting[-size:]
        if not waiting:
            del self._waiting[key]
        return SessionTask(own, own.device_of(peer), differs, partitions)

    def _rank(self, key: _Key) -> tuple[bool, bool]:
        """Return the sort key of partitions: those of returned peers come first, those finished before a
        restart last.
        """
        late, own_id, peer, _ = key
        return node_of(self._own_devices[own_id].device_of(peer)) not in self.first, late
