"""Threads that work for an event loop, and which transactions they get together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest

from swiftlet.errors import DeviceFailed
from swiftlet.listing.commits import Commits
from swiftlet.listing.thread_pool import ThreadPool
from swiftlet.listing.writer import Outcome, Write


@pytest.fixture
def pool() -> Iterator[ThreadPool]:
    made = ThreadPool(2, "pool")
    yield made
    made.close()


async def test_what_a_job_returns_or_raises_comes_back(pool: ThreadPool) -> None:
    assert await pool.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await pool.run(lambda: 1 // 0)
    assert await pool.run(lambda: 8) == 8, "the thread goes on"


async def test_there_are_no_more_threads_than_allowed_and_none_without_work(pool: ThreadPool) -> None:
    before = {thread.name for thread in threading.enumerate()}
    assert not [name for name in before if name.startswith("pool")]
    names = await asyncio.gather(*(pool.run(lambda: threading.current_thread().name) for _ in range(20)))
    assert set(names) <= {"pool-0", "pool-1"}


async def test_the_thread_that_was_idle_last_gets_the_next_job(pool: ThreadPool) -> None:
    """No other one is woken to find nothing."""
    meet = threading.Barrier(2)
    await asyncio.gather(*(pool.run(lambda: meet.wait(30)) for _ in range(2)))

    async def who_works() -> str:
        # A job is told of a moment before its thread is idle again.
        async with asyncio.timeout(30):
            while len(pool._idle) < 2:  # noqa: ASYNC110 - a thread does it
                await asyncio.sleep(0)
        return await pool.run(lambda: threading.current_thread().name)

    last = await who_works()
    assert {await who_works() for _ in range(50)} == {last}


async def test_who_went_away_is_not_told(pool: ThreadPool) -> None:
    gate = threading.Event()
    task = asyncio.create_task(pool.run(lambda: gate.wait(10)))
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    gate.set()
    assert await pool.run(lambda: 1) == 1


async def test_a_job_for_a_pool_that_is_closed_fails() -> None:
    pool = ThreadPool(1, "pool")
    await pool.run(lambda: 1)
    pool.close()
    with pytest.raises(RuntimeError, match="pool is closed"):
        await pool.run(lambda: 1)


async def test_every_job_is_told_of_once_whenever_the_pool_is_closed() -> None:
    for _ in range(30):
        pool, told = ThreadPool(2, "pool"), asyncio.Queue[int]()
        await pool.run(lambda: 1)

        def give(number: int, pool: ThreadPool = pool, told: asyncio.Queue[int] = told) -> None:
            pool.do(lambda: None, lambda _value, _error: told.put_nowait(number))

        closing = asyncio.get_running_loop().run_in_executor(None, pool.close)
        for number in range(200):
            give(number)
            if number % 50 == 0:
                await asyncio.sleep(0)
        await closing
        async with asyncio.timeout(30):
            assert sorted([await told.get() for _ in range(200)]) == list(range(200))
        await asyncio.sleep(0)
        assert told.empty()


async def test_without_a_further_thread_those_there_do_the_work_and_without_any_it_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start, pool, lone = threading.Thread.start, ThreadPool(4, "pool"), ThreadPool(4, "lone")
    assert await pool.run(lambda: 1) == 1

    def fails(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    assert await asyncio.gather(*(pool.run(lambda number=number: number) for number in range(9))) == list(range(9))  # type: ignore[misc]
    with pytest.raises(RuntimeError, match="can't start"):
        await lone.run(lambda: 1)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert await lone.run(lambda: 1) == 1
    lone.close()
    pool.close()


def test_a_thread_outlives_the_loop_that_gave_it_work() -> None:
    pool, gate, jobs = ThreadPool(1, "pool"), threading.Event(), list[bool]()

    async def leave() -> None:
        pool.do(lambda: jobs.append(gate.wait(30)), lambda _value, _error: None)

    async def run() -> int:
        return await pool.run(lambda: 2)

    asyncio.run(leave())
    gate.set()
    assert asyncio.run(run()) == 2, "the thread goes on"
    assert jobs == [True]
    pool.close()


class Database:
    """One with a write that waits, which notes the thread's job that its transaction was in."""

    def __init__(self, jobs: list[list[str]], name: str, ready: bool = True, later: bool = True) -> None:
        self.ready = ready
        self.told: asyncio.Future[Outcome | BaseException] = asyncio.get_running_loop().create_future()
        self._jobs = jobs
        self._name = name
        self._batch = [Write(lambda _: None, lambda _value, _error: None, later=later)]

    def next_batch(self) -> list[Write]:
        return self._batch

    def attempt(self, batch: Sequence[Write]) -> Outcome | BaseException:
        assert batch == self._batch
        self._jobs.append([self._name, threading.current_thread().name])
        return DeviceFailed("broken") if self._name == "broken" else Outcome()

    def finish(self, batch: Sequence[Write], outcome: Outcome | BaseException) -> None:
        assert batch == self._batch
        self.told.set_result(outcome)
        if self._name == "deaf":
            raise ValueError("deaf")


class Counted(ThreadPool):
    """Counts the jobs."""

    jobs = 0

    def do(self, job: object, done: object) -> None:
        self.jobs += 1
        super().do(job, done)  # type: ignore[arg-type]


async def test_transactions_that_wait_for_no_sync_go_together_and_others_alone() -> None:
    pool = Counted(2, "counted")
    commits, attempts = Commits(pool), list[list[str]]()
    quick = [Database(attempts, f"quick-{number}") for number in range(20)]
    broken = Database(attempts, "broken")
    alone = [Database(attempts, "closed", ready=False), Database(attempts, "durable", later=False)]
    for database in (*quick, broken, *alone):
        commits.add(database)
    outcomes = await asyncio.gather(*(database.told for database in quick))
    assert isinstance(await broken.told, DeviceFailed)
    await asyncio.gather(*(database.told for database in alone))
    assert pool.jobs == 4, "21 in two jobs, two alone"
    assert len(attempts) == 23
    assert all(isinstance(outcome, Outcome) for outcome in outcomes), "one that fails takes no other with it"
    pool.close()


async def test_a_database_that_can_t_be_told_keeps_nothing_from_those_beside_it() -> None:
    pool, messages = ThreadPool(1, "pool"), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: messages.append(str(context["exception"])))
    commits, attempts = Commits(pool), list[list[str]]()
    databases = [Database(attempts, name) for name in ("first", "deaf", "last")]
    for database in databases:
        commits.add(database)
    async with asyncio.timeout(30):
        await asyncio.gather(*(database.told for database in databases))
    assert messages == ["deaf"]
    pool.close()
