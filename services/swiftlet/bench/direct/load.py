"""The generator, in as many processes as the scenario has threads; used as `swiftlet_native.Load` is."""

from __future__ import annotations

import asyncio
import multiprocessing
import signal
import time
from collections.abc import Iterable
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from typing import Any

from swiftlet.bench.direct.engine import Engine, Order, Phase, Plan, Recent
from swiftlet.bench.direct.tally import Tally, added
from swiftlet.bench.errors import BenchError

_TELL_S = 0.2
"""After so many seconds a process tells what has happened."""
_EVERY = 1 << 62
"""No order has a larger number."""


class DirectLoad:
    """Processes that load a store. Methods raise BenchError when one of them has ended."""

    def __init__(self, plan: Plan) -> None:
        context = multiprocessing.get_context("spawn")
        self._processes: list[SpawnProcess] = []
        self._pipes: list[Connection] = []
        for number in range(plan.scenario.threads):
            here, there = context.Pipe()
            one = context.Process(target=_serve, args=(replace(plan, process=number), there), daemon=True)
            one.start()
            there.close()
            self._processes.append(one)
            self._pipes.append(here)
        self._recent = Recent()
        self._done: dict[Connection, Tally] = {}
        self._number = 0

    def begin(self, phase: Phase, connections: int, objects: int = 0) -> None:
        """Begin a phase other than measuring."""
        parts = zip(self._parts(connections), self._parts(objects), strict=True)
        self._order(Order(phase, one, count) for one, count in parts)

    def measure(
        self,
        connections: int,
        *,
        warm_up_s: float,
        duration_s: float | None,
        operations: int | None,
        think_s: float,
        interval_s: float | None,
        is_random: bool,
    ) -> None:
        """Begin a step that is measured; arguments are those of `swiftlet_native.Load.measure`."""
        processes = len(self._pipes)
        counts = [None] * processes if operations is None else self._parts(operations)
        self._order(
            Order(
                "measure",
                one,
                warm_up_s=warm_up_s,
                duration_s=duration_s,
                operations=count,
                think_s=think_s,
                interval_s=None if interval_s is None else interval_s * processes,
                is_random=is_random,
            )
            for one, count in zip(self._parts(connections), counts, strict=True)
        )

    def _parts(self, total: int) -> list[int]:
        whole, more = divmod(total, len(self._pipes))
        return [whole + (number < more) for number in range(len(self._pipes))]

    def _order(self, orders: Iterable[Order]) -> None:
        self._done = {}
        self._number += 1
        for pipe, order in zip(self._pipes, orders, strict=True):
            pipe.send(replace(order, number=self._number))

    def wait(self, timeout_s: float) -> bool:
        """Wait until what was begun is done, but no longer than so; return whether it is."""
        until = time.monotonic() + timeout_s
        while len(self._done) < len(self._pipes):
            working = [pipe for pipe in self._pipes if pipe not in self._done]
            for pipe in wait(working, max(0.0, until - time.monotonic())):
                assert isinstance(pipe, Connection)
                self._take(pipe)
            if time.monotonic() >= until:
                break
        return len(self._done) == len(self._pipes)

    def _take(self, pipe: Connection) -> None:
        try:
            told = pipe.recv()
        except EOFError as error:
            raise BenchError("a process of the generator has ended; its error is above") from error
        if isinstance(told, Tally):
            self._done[pipe] = told
            return
        assert isinstance(told, Recent)
        self._recent.add(told)

    def recent(self) -> dict[str, Any]:
        """Return what happened since the last call."""
        recent, self._recent = self._recent, Recent()
        latency = recent.latency.times()
        return {
            "succeeded": recent.succeeded,
            "failed": recent.failed,
            "moved_bytes": recent.moved,
            "median_s": latency.quantile_s(0.5) or 0.0,
            "p99_s": latency.quantile_s(0.99) or 0.0,
        }

    def cancel(self) -> None:
        """End what was begun soon."""
        for pipe in self._pipes:
            if pipe not in self._done:
                pipe.send(self._number)

    def finish(self) -> dict[str, Any]:
        """Return what came of it; wait for its end."""
        while not self.wait(1.0):
            pass
        return added(list(self._done.values())).told()

    def close(self) -> None:
        """Let the processes end, and wait for that."""
        for pipe in self._pipes:
            pipe.close()
        for one in self._processes:
            one.join()


def _serve(plan: Plan, pipe: Connection) -> None:
    """Do orders until the other side is gone."""
    # Ctrl-C is the parent's, which says what is to be done.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    asyncio.run(_Serving(Engine(plan), pipe).run())


class _Serving:
    def __init__(self, engine: Engine, pipe: Connection) -> None:
        self._engine = engine
        self._pipe = pipe
        self._orders: asyncio.Queue[Order | None] = asyncio.Queue()

    async def run(self) -> None:
        asyncio.get_running_loop().add_reader(self._pipe.fileno(), self._read)
        while (order := await self._orders.get()) is not None:
            telling = asyncio.create_task(self._tell())
            try:
                tally = await self._engine.run(order)
            finally:
                telling.cancel()
            self._send_recent()
            self._pipe.send(tally)
        await self._engine.close()

    def _read(self) -> None:
        try:
            told = self._pipe.recv()
        except EOFError:
            asyncio.get_running_loop().remove_reader(self._pipe.fileno())
            self._engine.cancel(_EVERY)
            self._orders.put_nowait(None)
            return
        if isinstance(told, Order):
            self._orders.put_nowait(told)
        else:
            # The number of the order that is cancelled.
            self._engine.cancel(told)

    async def _tell(self) -> None:
        while True:
            await asyncio.sleep(_TELL_S)
            self._send_recent()

    def _send_recent(self) -> None:
        recent, self._engine.recent = self._engine.recent, Recent()
        self._pipe.send(recent)
