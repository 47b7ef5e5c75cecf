"""Simulated time and a network that loses, duplicates, delays and reorders messages, and can be partitioned.

Fault model: each message may be lost, come twice, or take any time up to the longest delay, so that later ones overtake
it; links between parts of the cluster may be cut; a slow node's messages take longer than callers wait. A link between
two regions may lose messages, each direction on its own, and may so be cut in one direction alone.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count
from random import Random

from swiftlet.errors import NodeTimeout, SwiftletError

Outcome = object
"""An answer, or the SwiftletError in its place."""


class Timeline:
    """Events in the order of their simulated time; those with equal time in the order in which they were scheduled."""

    def __init__(self) -> None:
        """Start at second 0 without events."""
        self.now_s = 0.0
        self.ran = 0
        """The number of events so far."""
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = count()

    def after(self, delay_s: float, event: Callable[[], None]) -> None:
        """Run an event when so many simulated seconds have passed."""
        heapq.heappush(self._heap, (self.now_s + delay_s, next(self._order), event))

    def run_until(self, end_s: float, most: int) -> bool:
        """Run all events up to a moment; return False when there were more than `most` events in total."""
        while self._heap and self._heap[0][0] <= end_s:
            self.now_s, _, event = heapq.heappop(self._heap)
            event()
            self.ran += 1
            if self.ran > most:
                return False
        self.now_s = max(self.now_s, end_s)
        return True


@dataclass(slots=True)
class Weather:
    """The state of the network. `delay_s`: the longest ordinary delay of a message."""

    loss: float = 0.0
    doubled: float = 0.0
    delay_s: float = 0.01


TIMEOUT_S = 2.0
"""How long a caller waits for an answer."""
SLOW_S = 4.0
"""The longest delay of a slow node's messages."""


class Network:
    """Carries messages between endpoints: nodes by their device's id, proxies by negative numbers."""

    def __init__(self, timeline: Timeline, random: Random, weather: Weather, unheard: float = 0.0) -> None:
        """Start with all endpoints connected; `unheard` is the additional share of proxies' messages that are lost."""
        self.weather = weather
        self.unheard = unheard
        self.slow: set[int] = set()
        self.down: set[int] = set()
        self.parts: dict[int, int] = {}
        """The part of a partitioned network that an endpoint is in: part 0 for those not named; proxies are in all."""
        self.regions: dict[int, str] = {}
        """The region of each node; those not named and proxies are near everybody."""
        self.links: dict[tuple[str, str], float] = {}
        """The share of messages that is lost from one region to another, where it is any: 1 for a link that is cut."""
        self.messages = 0
        """The number of messages sent."""
        self.bytes = 0
        """Bytes of sync messages sent."""
        self.lost = 0
        """How many messages were lost."""
        self.doubled = 0
        """How many messages were duplicated."""
        self.overtaken = 0
        """How many messages, or copies of them, arrived after one that was sent later between the same two
        endpoints.
        """
        self.cut = 0
        """How many messages arrived when their endpoints were no longer connected."""
        self._latest: dict[tuple[int, int], int] = {}
        self._timeline = timeline
        self._random = random

    def linked(self, one: int, other: int) -> bool:
        """Return whether messages can pass between two endpoints now."""
        if one in self.down or other in self.down:
            return False
        return min(one, other) < 0 or self.parts.get(one, 0) == self.parts.get(other, 0)

    def call(
        self, source: int, target: int, serve: Callable[[], Outcome], done: Callable[[Outcome], None], size: int = 0
    ) -> None:
        """Send a request that `serve` answers at the target; `done` gets the answer, an error, or NodeTimeout."""
        waiting = [True]

        def finish(outcome: Outcome) -> None:
            if waiting[0]:
                waiting[0] = False
                done(outcome)

        def arrive() -> None:
            try:
                outcome = serve()
            except SwiftletError as error:
                outcome = error
            if isinstance(outcome, bytes):
                self.bytes += len(outcome)
            self._send(target, source, lambda: finish(outcome))

        self.bytes += size
        self._send(source, target, arrive)
        self._timeline.after(TIMEOUT_S, lambda: finish(NodeTimeout(f"{target} did not answer {source}")))

    def _send(self, source: int, target: int, event: Callable[[], None]) -> None:
        self.messages += 1
        weather = self.weather
        loss = self.unheard if min(source, target) < 0 else weather.loss
        if loss and self._random.random() < loss:
            self.lost += 1
            return
        link = self._link(source, target)
        if link and self._random.random() < link:
            self.lost += 1
            return
        copies = 2 if weather.doubled and self._random.random() < weather.doubled else 1
        self.doubled += copies - 1
        longest = SLOW_S if source in self.slow or target in self.slow else weather.delay_s
        number = self.messages
        for _ in range(copies):
            self._timeline.after(self._random.random() * longest, lambda: self._deliver(source, target, number, event))

    def _link(self, source: int, target: int) -> float:
        """Return the share of messages that the link from one endpoint to another loses besides."""
        if not self.links or min(source, target) < 0:
            return 0.0
        return self.links.get((self.regions.get(source, ""), self.regions.get(target, "")), 0.0)

    def _deliver(self, source: int, target: int, number: int, event: Callable[[], None]) -> None:
        if not self.linked(source, target):
            self.cut += 1
            return
        latest = self._latest.get((source, target), 0)
        if number < latest:
            self.overtaken += 1
        else:
            self._latest[source, target] = number
        event()
