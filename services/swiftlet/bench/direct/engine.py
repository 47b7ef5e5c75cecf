"""One process of the generator: as many operations at a time as the order says, each measured.

An order ends once nothing more is to begin and what has begun has ended or timed out. Operations of an open loop begin
at their times; latency counts from there.
"""

from __future__ import annotations

import asyncio
import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Literal

from swiftlet.bench.direct.contents import Contents
from swiftlet.bench.direct.population import Population
from swiftlet.bench.direct.store import OpenStore, Store, StoreFailure
from swiftlet.bench.direct.tally import Histogram, Tally
from swiftlet.bench.scenario import Scenario

Phase = Literal["create_containers", "fill", "empty", "delete_containers", "measure"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What all orders have in common; `process` is the number of this one of as many as the scenario has threads."""

    store: OpenStore
    scenario: Scenario
    prefix: str
    process: int = 0


@dataclass(frozen=True, slots=True)
class Order:
    """What one process is to do: its part of all connections, objects and operations."""

    phase: Phase
    connections: int
    objects: int = 0
    warm_up_s: float = 0.0
    duration_s: float | None = None
    operations: int | None = None
    think_s: float = 0.0
    interval_s: float | None = None
    """Between the begins of two operations of this process; None in a closed loop."""
    is_random: bool = False
    number: int = 1
    """Orders of one generator count up."""


@dataclass
class Recent:
    """Counts what has happened since somebody looked last."""

    succeeded: int = 0
    failed: int = 0
    moved: int = 0
    latency: Histogram = field(default_factory=Histogram)

    def add(self, other: Recent) -> None:
        """Add what happened in another process."""
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.moved += other.moved
        self.latency.add(other.latency)


@dataclass
class _Window:
    since: float
    until: float | None
    """When it ends; None with a count of operations."""
    left: int | None
    """Operations that may still begin and count."""

    def has(self, moment: float) -> bool:
        return moment >= self.since and (self.until is None or moment < self.until)


class Engine:
    """The objects of one process, and what it does with them."""

    def __init__(self, plan: Plan, clock: Callable[[], float] = time.monotonic) -> None:
        self._plan = plan
        self._scenario = scenario = plan.scenario
        self._clock = clock
        self._chance = random.Random(f"{scenario.seed} {plan.process}")  # noqa: S311
        self._contents = Contents(scenario.seed, scenario.sizes.pieces())
        self._population = Population(plan.process, scenario.threads, self._chance)
        mix = [(kind, weight) for kind, weight in scenario.operations.weights() if weight > 0]
        self._kinds = [kind for kind, _ in mix]
        self._weights = list(accumulate(weight for _, weight in mix))
        self._store: Store | None = None
        self._cancelled = 0
        """All orders up to this number are cancelled."""
        self.recent = Recent()
        self._begin(Order("measure", 0))

    def _begin(self, order: Order) -> None:
        now = self._clock()
        since = now + order.warm_up_s
        self._order = order
        self._tally = Tally()
        self._is_over = False
        self._fill_left = order.objects
        self._next_container = self._plan.process
        until = None if order.duration_s is None else since + order.duration_s
        self._window = _Window(since, until, order.operations)
        self._next_arrival = now
        self._last_end = now

    def cancel(self, number: int) -> None:
        """Begin nothing more of an order, which may not have begun itself."""
        self._cancelled = max(self._cancelled, number)

    @property
    def _is_cancelled(self) -> bool:
        return self._order.number <= self._cancelled

    async def run(self, order: Order) -> Tally:
        """Do an order and return what was measured."""
        if self._store is None:
            self._store = self._plan.store()
        self._begin(order)
        began, cpu_s, over_http = self._clock(), _cpu_s(), self._store.over_http
        works = self._open_loop if order.interval_s is not None else self._closed_loop
        async with asyncio.TaskGroup() as group:
            for _ in range(order.connections):
                group.create_task(works(self._store))
        self._conclude()
        tally = self._tally
        tally.cpu_s = _cpu_s() - cpu_s
        tally.busiest = min(1.0, tally.cpu_s / max(1e-9, self._clock() - began))
        tally.over_http = self._store.over_http - over_http
        return tally

    async def close(self) -> None:
        """Close the connections to the store, after the last order."""
        if self._store is not None:
            await self._store.close()

    # Loops.

    async def _closed_loop(self, store: Store) -> None:
        connection = _Connection()
        while not self._ends():
            chosen = self._choose()
            if chosen is None:
                break
            await self._operate(store, *chosen, self._clock(), connection)
            if self._order.think_s:
                await asyncio.sleep(self._pause(self._order.think_s))
        self._count(connection)

    async def _open_loop(self, store: Store) -> None:
        connection = _Connection()
        while not self._ends():
            intended = self._arrival()
            if self._window.until is not None and intended >= self._window.until:
                break
            if (wait_s := intended - self._clock()) > 0:
                await asyncio.sleep(wait_s)
                if self._is_cancelled:
                    break
                self._tally.lateness.record(self._clock() - intended)
            elif self._ends():
                self._not_begun(intended)
                break
            chosen = self._choose()
            if chosen is None:
                break
            await self._operate(store, *chosen, intended, connection)
        self._count(connection)

    def _ends(self) -> bool:
        window = self._window
        is_late = window.until is not None and self._clock() >= window.until
        return self._is_over or self._is_cancelled or is_late or window.left == 0

    def _arrival(self) -> float:
        assert self._order.interval_s is not None
        moment = self._next_arrival
        self._next_arrival += self._pause(self._order.interval_s)
        return moment

    def _pause(self, mean_s: float) -> float:
        return self._chance.expovariate(1 / mean_s) if self._order.is_random and mean_s else mean_s

    # Choosing.

    def _choose(self) -> tuple[str, int] | None:
        chosen = self._next()
        if chosen is None:
            self._is_over = True
        return chosen

    def _next(self) -> tuple[str, int] | None:
        match self._order.phase:
            case "create_containers" | "delete_containers":
                container = self._next_container
                self._next_container += self._scenario.threads
                kind = self._order.phase.removesuffix("s")
                return (kind, container) if container < self._scenario.containers else None
            case "fill":
                self._fill_left -= 1
                return ("create", self._population.fresh()) if self._fill_left >= 0 else None
            case "empty":
                number = self._population.take_last()
                return None if number is None else ("delete", number)
            case _:
                return self._of_mix()

    def _of_mix(self) -> tuple[str, int] | None:
        drawn = self._draw()
        # What needs an object where none is free gives way to something else.
        for kind in (drawn, *self._kinds):
            number = self._number_for(kind)
            if number is not None:
                return kind, number
        self._tally.ended_early = "no object was left: store more in advance, or create as many as are deleted"
        return None

    def _draw(self) -> str:
        return self._chance.choices(self._kinds, cum_weights=self._weights)[0]

    def _number_for(self, kind: str) -> int | None:
        match kind:
            case "create":
                return self._population.fresh()
            case "read" | "update" | "head":
                return self._population.pick()
            case "delete":
                return self._population.take()
            case _:
                return self._population.any()

    # Operating.

    async def _operate(self, store: Store, kind: str, number: int, intended: float, connection: _Connection) -> None:
        begun = self._clock()
        window = self._window
        is_counted = window.has(intended) and window.left != 0
        if is_counted and window.left is not None:
            window.left -= 1
        limit_s = self._scenario.timeout_s
        failure: StoreFailure | None = None
        moved = 0
        try:
            async with asyncio.timeout(limit_s):
                moved = await self._request(store, kind, number)
        except TimeoutError:
            failure = StoreFailure("timeout", f"not answered within {limit_s:.1f} s")
        except StoreFailure as error:
            failure = error
        now = self._last_end = self._clock()
        connection.busy_s += (now - begun) * is_counted
        if failure is None:
            self._succeeded(kind, moved, now, now - intended, is_counted, connection)
        else:
            self._failed(kind, number, failure, now - intended, is_counted)
        self._leave(kind, number, failure)

    def _succeeded(
        self, kind: str, moved: int, now: float, latency_s: float, is_counted: bool, connection: _Connection
    ) -> None:
        is_within = self._window.has(now)
        self._tally.moved += moved * is_within
        if is_counted or is_within:
            counted = self._tally.of(kind)
            counted.ended += is_within
            if is_counted:
                counted.succeeded += 1
                counted.compared += kind == "read" and self._scenario.verify > 0
                counted.bytes += moved
                counted.latency.record(latency_s)
                connection.operations += 1
                connection.bytes += moved
        self.recent.succeeded += 1
        self.recent.moved += moved
        self.recent.latency.record(latency_s)

    def _failed(self, kind: str, number: int, failure: StoreFailure, latency_s: float, is_counted: bool) -> None:
        if is_counted:
            counted = self._tally.of(kind)
            counted.fail(failure.kind, f"{kind} {self._container(number)}/{_name(number)}: {failure.text}")
            if failure.kind == "timeout":
                counted.latency.record(latency_s)
        self.recent.failed += 1

    def _leave(self, kind: str, number: int, failure: StoreFailure | None) -> None:
        """Note what an operation leaves of its object."""
        if kind in ("read", "update", "head"):
            self._population.release(number)
        elif kind == "create" and failure is None:
            self._population.created(number)
        elif kind in ("create", "delete") and failure is not None:
            self._population.doubt(number)
            # It is tried again in the next order.
            self._is_over = self._is_over or self._order.phase == "empty"

    async def _request(self, store: Store, kind: str, number: int) -> int:
        """Make a request; return the bytes of bodies that it moved."""
        container, name = self._container(number), _name(number)
        match kind:
            case "create" | "update":
                body = self._contents.body(number)
                await store.put(container, name, body)
                return len(body)
            case "read":
                body = await store.get(container, name)
                self._check_size(number, len(body))
                # The bytes are at hand: that only a share of reads is compared would save little.
                if self._scenario.verify > 0 and body != self._contents.body(number):
                    raise StoreFailure("corrupt", "its bytes are not those that were stored")
                return len(body)
            case "head":
                self._check_size(number, await store.head(container, name))
            case "delete":
                await self._delete(store, container, name)
            case "list":
                found = await store.names(container, name, self._scenario.page)
                if found != sorted(found) or len(found) > self._scenario.page or (found and found[0] <= name):
                    raise StoreFailure("corrupt", "names do not ascend after the marker, or are too many")
            case "create_container":
                await store.create_container(container)
            case "delete_container":
                await store.delete_container(container)
        return 0

    def _check_size(self, number: int, size: int) -> None:
        if size != self._contents.size(number):
            raise StoreFailure("corrupt", f"it has {size} bytes instead of {self._contents.size(number)}")

    async def _delete(self, store: Store, container: str, name: str) -> None:
        try:
            await store.delete(container, name)
        except StoreFailure as failure:
            # What is deleted in the end may never have been.
            if self._order.phase != "empty" or failure.kind != "status 404":
                raise

    def _container(self, number: int) -> str:
        return f"{self._plan.prefix}-{number % self._scenario.containers:06}"

    # Concluding.

    def _count(self, connection: _Connection) -> None:
        if connection.busy_s > 0:
            self._tally.workers_operations_per_s += connection.operations / connection.busy_s
            self._tally.workers_bytes_per_s += connection.bytes / connection.busy_s

    def _conclude(self) -> None:
        window = self._window
        if self._is_cancelled:
            self._tally.ended_early = "cancelled"
        ended = self._is_cancelled or self._is_over
        if self._order.interval_s is not None and window.until is not None and not ended:
            while (intended := self._arrival()) < window.until:
                self._not_begun(intended)
        until = window.until if window.until is not None and not ended else self._last_end
        self._tally.window_s = max(0.0, until - window.since)

    def _not_begun(self, intended: float) -> None:
        window = self._window
        if window.until is not None and intended >= window.since:
            counted = self._tally.of(self._draw())
            counted.fail("not begun", "no connection was free for it")
            counted.latency.record(window.until - intended)


@dataclass
class _Connection:
    operations: int = 0
    bytes: int = 0
    busy_s: float = 0.0


def _name(number: int) -> str:
    return f"{number:010}"


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime
