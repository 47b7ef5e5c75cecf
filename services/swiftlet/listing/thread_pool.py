"""Threads that work for an event loop: a job goes out, and its outcome comes back as one call in the loop.

What an executor does for a job (a future on either side, locks around both) costs several times what it takes to commit
a few rows, which is most of the work of a container server. Each thread of a pool has a queue of its own, and a job
goes to the thread that was idle last: with one queue for all, each job would also wake a second thread that finds
nothing. Each job wakes the loop once.

Invariant: `done` is called exactly once for each job, in the loop, and never from within `do`. An accepted job stands
in a thread's queue before the request to end, or in the backlog, which every thread empties before it looks at its
queue. So it is done even if the pool is closed meanwhile; a job that comes later is refused.

Fault model: a job may raise anything; the caller gets it, and threads go on. If no further thread can be started, the
existing ones do the work; if there are none, the job fails. A closed loop gets no calls, and threads go on with jobs of
others.
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
"""A callback that gets what a job returned, or the exception that it raised."""
_Job = tuple[asyncio.AbstractEventLoop, Callable[[], Any], Done]


class _Worker:
    """One thread and the queue of its jobs."""

    __slots__ = ("jobs", "thread")

    def __init__(self) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.thread: threading.Thread | None = None


class ThreadPool:
    """Threads of one event loop; none is started before there is work."""

    def __init__(self, threads: int, name: str) -> None:
        """`threads` is the largest number of threads, and `name` begins their names."""
        self._most = threads
        self._name = name
        self._backlog: deque[_Job] = deque()
        """Jobs for which no thread was free."""
        self._idle: list[_Worker] = []
        self._workers: list[_Worker] = []
        self._closed = False
        self._gate = threading.Lock()
        """Held while a job is accepted, while a thread takes the next one, and while the pool is closed."""

    def do(self, job: Callable[[], Any], done: Done) -> None:
        """Run `job` in one of the threads, then `done` in the event loop."""
        loop = asyncio.get_running_loop()
        with self._gate:
            refused = self._take((loop, job, done))
        if refused is not None:
            loop.call_soon(done, None, refused)

    def _take(self, job: _Job) -> RuntimeError | None:
        """Give a job to the idle thread, to a new one, or to the backlog; return the error if none can take it."""
        if self._closed:
            return RuntimeError(f"{self._name} is closed")
        if not self._idle and len(self._workers) < self._most:
            worker = _Worker()
            # The process need not wait for daemon threads at its end: what was acknowledged is on the disk by then.
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
        """Run a job in one of the threads; return or raise what it does."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self.do(job, lambda value, error: resolve(answer, value, error))
        return await answer

    def close(self) -> None:
        """Finish the accepted jobs and end the threads; blocks. It may be called in any thread."""
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
        """Return a thread's next job; with None the thread is idle from now on."""
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
