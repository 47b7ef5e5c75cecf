"""Growing pauses after failed deliveries, for each container replica."""

from __future__ import annotations

from collections.abc import Callable

MAX_PAUSE_S = 300.0
"""The longest pause in seconds, however often a delivery failed."""

Group = tuple[str, str, int]
"""Account, container, and the number of the container's replica."""


class Pauses:
    """The receivers whose last delivery failed, and the time until which each is not tried."""

    def __init__(self, first_s: float, clock: Callable[[], float]) -> None:
        """`first_s` is the pause after a first failure, further pauses double; `clock` returns seconds."""
        self._first_s = first_s
        self._clock = clock
        self._pauses: dict[Group, tuple[float, float]] = {}

    def over(self, group: Group) -> bool:
        """Return whether the receiver may be tried."""
        return self._pauses.get(group, (0.0, 0.0))[0] <= self._clock()

    def failed(self, group: Group) -> None:
        """Begin a pause that is longer than the last one."""
        _, last_s = self._pauses.get(group, (0.0, 0.0))
        pause_s = min(MAX_PAUSE_S, max(self._first_s, last_s * 2))
        self._pauses[group] = (self._clock() + pause_s, pause_s)

    def delivered(self, group: Group) -> None:
        """End the pauses of a receiver that took rows."""
        self._pauses.pop(group, None)
