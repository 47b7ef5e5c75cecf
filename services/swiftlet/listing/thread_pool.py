"""Threads that work for an event loop: a job goes out, and what came of it comes back as one call in the loop.

What an executor does for a job (a future on either side, locks around both) costs several times what it takes to
commit a few rows, and a container server does little else. Each thread of a pool has a queue of its own, and a job
goes to the one that was idle last: in one queue for all, each job would wake a second thread that finds nothing. Each
job wakes the loop once.

What must hold: `done` is called exactly once for each job, in the loop, and never from within `do`. A job that is
taken stands before the word to end in a thread's queue, or in the backlog, which no thread leaves behind that comes to
its queue; so it is done whenever the pool is closed, and one that comes later is refused.

Fault model: a job may raise anything, which belongs to whoever gave it; threads go on. No further thread may be had:
those that are there do the work, and without any the job fails. A loop that is gone hears nothing, and threads go on
with what others wait for.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

from swiftlet.listing.background_tasks import resolve

T = TypeVar("T")
Done = Callable[[Any, BaseException | None], None]
"""Called with what a job returned, or what it raised."""
_Job = tuple[asyncio.AbstractEventLoop, Callable[[], Any], Done]


class _Worker:
    """One thread and what it has to do."""

    __slots__ = ("jobs", "thread")

    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.thread: threading.Thread | None = None


class ThreadPool:
    """Threads of one event loop; none before there is work."""

    def __init__(self, threads: int, name: str) -> None:
        """At most that many threads, whose names begin with `name`."""
        self._most = threads
        self._name = name
        self._backlog: deque[_Job] = deque()
        """Jobs for which no thread was free."""
        self._idle: list[_Worker] = []
        self._workers: list[_Worker] = []
        self._closed = False
        self._gate = threading.Lock()
        """Held while a job is taken, while a thread gets the next one, and while all that ends."""

    def do(self, job: Callable[[], Any], done: Done) -> None:
        """Run `job` in one of the threads, then `done` in the event loop."""
        loop = asyncio.get_running_loop()
        with self._gate:
            refused = self._take((loop, job, done))
        if refused is not None:
            loop.call_soon(done, None, refused)

    def _take(self, job: _Job) -> RuntimeError | None:
        """Give a job to the thread that was idle last, or a further one, or whichever is free first; else why not."""
        if self._closed:
            return RuntimeError(f"{self._name} is closed")
        if not self._idle and len(self._workers) < self._most:
            worker = _Worker()
            # Nobody waits for these at the process's end: what was acknowledged is on the disk by then.
            name = f"{self._name}-{len(self._workers)}"
            worker.thread = threading.Thread(target=self._work, args=(worker,), name=name, daemon=True)
            try:
                worker.thread.start()
            except RuntimeError as error:
                if not self._workers:
                    return error
            else:
                self._workers.append(worker)
                self._idle.append(worker)
        if self._idle:
            self._idle.pop().jobs.put(job)
        else:
            self._backlog.append(job)
        return None

    async def run(self, job: Callable[[], T]) -> T:
        """What `job` returns or raises, from one of the threads."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.do(job, lambda value, error: resolve(answer, value, error))
        return await answer

    def close(self) -> None:
        """Finish what was given, end the threads; blocks. In any thread."""
        with self._gate:
            self._closed = True
        for worker in self._workers:
            worker.jobs.put(None)
        for worker in self._workers:
            if worker.thread is not None:
                worker.thread.join()

    def _work(self, worker: _Worker) -> None:
        while (given := worker.jobs.get()) is not None:
            following: _Job | None = given
            while following is not None:
                _carry_out(*following)
                following = self._next(worker)
            del given, following

    def _next(self, worker: _Worker) -> _Job | None:
        """What a thread does next; none when it is idle from now on."""
        with self._gate:
            if self._backlog:
                return self._backlog.popleft()
            self._idle.append(worker)
            return None


def _carry_out(loop: asyncio.AbstractEventLoop, job: Callable[[], Any], done: Done) -> None:
    value, error = None, None
    try:
        value = job()
    except BaseException as raised:
        error = raised
    try:
        loop.call_soon_threadsafe(done, value, error)
    except RuntimeError:
        if not loop.is_closed():
            raise
