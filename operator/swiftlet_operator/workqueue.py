"""Which clusters are due: each key once, one worker at a time per key, and growing delays after failures.

A key that is added while it is being worked on is due again afterwards, so that no change is missed. Several events
within `debounce_s` cause one reconcile.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from swiftlet_operator.metrics import RECONCILE_SECONDS
from swiftlet_operator.problems import KubeError, NotLeader
from swiftlet_operator.reconcile import Key

DEBOUNCE_S = 0.3
FIRST_DELAY_S = 1.0
LONGEST_DELAY_S = 120.0

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Entry:
    due_at: float
    working: bool = False
    failures: int = 0
    handle: asyncio.Task[None] | None = field(default=None)


class WorkQueue:
    """Runs `work` for keys that are due. `work` returns in how many seconds to come again, None for only after an
    event.
    """

    def __init__(
        self, work: Callable[[Key], Awaitable[float | None]], *, workers: int = 4, debounce_s: float = DEBOUNCE_S
    ) -> None:
        """Work on at most `workers` keys at a time."""
        self._work = work
        self._slots = asyncio.Semaphore(workers)
        self._debounce_s = debounce_s
        self._entries: dict[Key, _Entry] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self.done = 0
        """How many reconciles ended, successfully or not."""

    def add(self, key: Key, delay_s: float | None = None) -> None:
        """Work on `key` after `delay_s`, or sooner if it is already due sooner."""
        due = asyncio.get_running_loop().time() + (self._debounce_s if delay_s is None else delay_s)
        entry = self._entries.get(key)
        if entry is None:
            entry = self._entries[key] = _Entry(due)
        elif entry.due_at <= due:
            return
        entry.due_at = due
        if not entry.working:
            self._schedule(key, entry)

    def add_all(self) -> None:
        """Work on every key that is known."""
        for key in list(self._entries):
            self.add(key)

    def knows(self, key: Key) -> bool:
        """Return whether `key` is being worked on, or will be at some time."""
        return key in self._entries

    async def close(self) -> None:
        """Cancel the work in progress."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _schedule(self, key: Key, entry: _Entry) -> None:
        if entry.handle is not None:
            entry.handle.cancel()
        entry.handle = asyncio.create_task(self._when_due(key, entry))
        self._tasks.add(entry.handle)
        entry.handle.add_done_callback(self._tasks.discard)

    async def _when_due(self, key: Key, entry: _Entry) -> None:
        await asyncio.sleep(max(0.0, entry.due_at - asyncio.get_running_loop().time()))
        async with self._slots:
            entry.working, entry.due_at = True, float("inf")
            again_s = await self._once(key, entry)
        self.done += 1
        entry.working, entry.handle = False, None
        if again_s is not None:
            entry.due_at = min(entry.due_at, asyncio.get_running_loop().time() + again_s)
        if entry.due_at == float("inf"):
            del self._entries[key]
        else:
            self._schedule(key, entry)

    async def _once(self, key: Key, entry: _Entry) -> float | None:
        began_s, outcome = time.monotonic(), "failed"
        try:
            again_s = await self._work(key)
        except NotLeader as error:
            outcome = "refused"
            _log.info("the reconcile of %s/%s was given up: %s", key.namespace, key.name, error)
            return None
        except KubeError as error:
            entry.failures += 1
            _log.warning("the reconcile of %s/%s failed and is repeated: %s", key.namespace, key.name, error)
        except Exception:
            # One cluster's failure must not end the worker, which serves others too.
            entry.failures += 1
            _log.exception("the reconcile of %s/%s failed unexpectedly", key.namespace, key.name)
        else:
            entry.failures, outcome = 0, "done"
            return again_s
        finally:
            RECONCILE_SECONDS.labels(outcome).observe(time.monotonic() - began_s)
        return min(LONGEST_DELAY_S, FIRST_DELAY_S * float(1 << min(entry.failures - 1, 10)))
