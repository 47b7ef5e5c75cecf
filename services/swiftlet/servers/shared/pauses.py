"""Growing pauses of what could not be delivered, per container replica."""

from __future__ import annotations

from collections.abc import Callable

MAX_PAUSE_S = 300.0
"""However often it failed, it is tried again after so long."""

Group = tuple[str, str, int]
"""Account, container, and which of its replicas."""


class Pauses:
    """Receivers that are left alone, and until when. Holds only those whose last delivery failed."""

    def __init__(self, first_s: float, clock: Callable[[], float]) -> None:
        """The pause after a first failure; pauses double from there. `clock` in seconds."""
        self._first_s = first_s
        self._clock = clock
        self._pauses: dict[Group, tuple[float, float]] = {}

    def over(self, group: Group) -> bool:
        """Whether it may be tried."""
        return self._pauses.get(group, (0.0, 0.0))[0] <= self._clock()

    def failed(self, group: Group) -> None:
        """Begin a pause, longer than the last one."""
        _, last_s = self._pauses.get(group, (0.0, 0.0))
        pause_s = min(MAX_PAUSE_S, max(self._first_s, last_s * 2))
        self._pauses[group] = (self._clock() + pause_s, pause_s)

    def delivered(self, group: Group) -> None:
        """Forget the failures of a group, to which rows were delivered."""
        self._pauses.pop(group, None)
