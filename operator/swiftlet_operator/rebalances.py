"""Rebalances beside the reconciles: as they take long on the processor, they run one at a time.

A ring of many partitions takes seconds, and one reconcile may need four of them. So a reconcile that finds a rebalance
due orders it and goes on as if the ring had to wait; when all orders of a cluster are done, the cluster is looked at
again. A result is used only for the very task and builder that it was ordered for: when either has changed meanwhile,
it is ordered anew.

Fault model: the process dies, or loses the lease, at any moment: orders are lost, and found due again. A rebalance that
fails makes the reconcile that asks for its result fail, and is ordered again by the next.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from swiftlet_operator.reconcile import Key
from swiftlet_operator.rings import Outcome, Rebalance, Rebalancer, Saved, Task

LIFE_S = 60.0
"""Seconds after which a result that nobody asked for is dropped: its cluster is gone, or it came too late."""


@dataclass(frozen=True, slots=True)
class _Order:
    task: Task
    saved: Saved | None
    made: Future[tuple[Outcome, float]]

    @property
    def is_stale(self) -> bool:
        """Return whether nobody asked for the result for a long time after it was made."""
        if not self.made.done() or self.made.cancelled() or self.made.exception() is not None:
            return False
        return time.monotonic() - self.made.result()[1] > LIFE_S


class Rebalances:
    """The orders of all clusters; one thread works on them, in the order in which they came."""

    def __init__(self, wake: Callable[[Key], object]) -> None:
        """Start with no orders. `wake` is called, in the thread, when all orders of a cluster are done."""
        self._wake = wake
        self._orders: dict[tuple[Key, str], _Order] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="rebalance")

    def of(self, key: Key) -> Rebalancer:
        """Return the rebalancer that the reconciles of a cluster use."""
        return lambda due: self._take_or_order(key, due)

    def close(self) -> None:
        """Begin no more rebalances, and tell nobody."""
        self._closed = True
        self._worker.shutdown(wait=False, cancel_futures=True)

    def _take_or_order(self, key: Key, due: Rebalance) -> Outcome | None:
        # `hurry` decides when a rebalance is due and does not affect the result.
        task, place = replace(due.task, hurry=False), (key, due.task.ring)
        with self._lock:
            self._orders = {where: one for where, one in self._orders.items() if not one.is_stale}
            order = self._orders.get(place)
            if order is not None and (order.task, order.saved) == (task, due.saved):
                if not order.made.done():
                    return None
                del self._orders[place]
                return order.made.result()[0]
            made = self._worker.submit(_made, due)
            self._orders[place] = _Order(task, due.saved, made)
        # Outside of the lock: both may call `_tell` at once, which takes it too.
        if order is not None:
            order.made.cancel()
        made.add_done_callback(lambda _: self._tell(key))
        return None

    def _tell(self, key: Key) -> None:
        with self._lock:
            ready = all(order.made.done() for (whose, _), order in self._orders.items() if whose == key)
        if ready and not self._closed:
            self._wake(key)


def _made(due: Rebalance) -> tuple[Outcome, float]:
    return due.run(), time.monotonic()
