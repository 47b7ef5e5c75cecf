"""Threads that work for an event loop, and which transactions they get together."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

import pytest

from swiftlet.errors import DeviceFailed
from swiftlet.listing.commits import Commits
from swiftlet.listing.crew import Crew
from swiftlet.listing.writer import Outcome, Write


@pytest.fixture
def crew() -> Iterator[Crew]:
    made = Crew(2, "crew")
    yield made
    made.close()


async def test_what_a_job_returns_or_raises_comes_back(crew: Crew) -> None:
    assert await crew.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await crew.run(lambda: 1 // 0)
    assert await crew.run(lambda: 8) == 8, "the thread goes on"


async def test_there_are_no_more_threads_than_allowed_and_none_without_work(crew: Crew) -> None:
    before = {thread.name for thread in threading.enumerate()}
    assert not [name for name in before if name.startswith("crew")]
    names = await asyncio.gather(*(crew.run(lambda: threading.current_thread().name) for _ in range(20)))
    assert set(names) <= {"crew-0", "crew-1"}


async def test_the_thread_that_was_idle_last_gets_the_next_job(crew: Crew) -> None:
    """No other one is woken to find nothing."""
    meet = threading.Barrier(2)
    await asyncio.gather(*(crew.run(lambda: meet.wait(30)) for _ in range(2)))

    async def who_works() -> str:
        # A job is told of a moment before its thread is idle again.
        async with asyncio.timeout(30):
            while len(crew._idle) < 2:  # noqa: ASYNC110 - a thread does it
                await asyncio.sleep(0)
        return await crew.run(lambda: threading.current_thread().name)

    last = await who_works()
    assert {await who_works() for _ in range(50)} == {last}


async def test_who_went_away_is_not_told(crew: Crew) -> None:
    gate = threading.Event()
    task = asyncio.create_task(crew.run(lambda: gate.wait(10)))
    await asyncio.sleep(0)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    gate.set()
    assert await crew.run(lambda: 1) == 1


async def test_a_job_for_a_crew_that_is_closed_fails() -> None:
    crew = Crew(1, "crew")
    await crew.run(lambda: 1)
    crew.close()
    with pytest.raises(RuntimeError, match="crew is closed"):
        await crew.run(lambda: 1)


async def test_every_job_is_told_of_once_whenever_the_crew_is_closed() -> None:
    for _ in range(30):
        crew, told = Crew(2, "crew"), asyncio.Queue[int]()
        await crew.run(lambda: 1)

        def give(number: int, crew: Crew = crew, told: asyncio.Queue[int] = told) -> None:
            crew.do(lambda: None, lambda _value, _error: told.put_nowait(number))

        closing = asyncio.get_running_loop().run_in_executor(None, crew.close)
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
    start, crew, lone = threading.Thread.start, Crew(4, "crew"), Crew(4, "lone")
    assert await crew.run(lambda: 1) == 1

    def fails(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fails)
    assert await asyncio.gather(*(crew.run(lambda number=number: number) for number in range(9))) == list(range(9))  # type: ignore[misc]
    with pytest.raises(RuntimeError, match="can't start"):
        await lone.run(lambda: 1)
    monkeypatch.setattr(threading.Thread, "start", start)
    assert await lone.run(lambda: 1) == 1
    lone.close()
    crew.close()


def test_a_thread_outlives_the_loop_that_gave_it_work() -> None:
    crew, gate, jobs = Crew(1, "crew"), threading.Event(), list[bool]()

    async def leave() -> None:
        crew.do(lambda: jobs.append(gate.wait(30)), lambda _value, _error: None)

    async def run() -> int:
        return await crew.run(lambda: 2)

    asyncio.run(leave())
    gate.set()
    assert asyncio.run(run()) == 2, "the thread goes on"
    assert jobs == [True]
    crew.close()


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


class Counted(Crew):
    """Counts the jobs."""

    jobs = 0

    def do(self, job: object, done: object) -> None:
        self.jobs += 1
        super().do(job, done)  # type: ignore[arg-type]


async def test_transactions_that_wait_for_no_sync_go_together_and_others_alone() -> None:
    crew = Counted(2, "counted")
    commits, attempts = Commits(crew), list[list[str]]()
    quick = [Database(attempts, f"quick-{number}") for number in range(20)]
    broken = Database(attempts, "broken")
    alone = [Database(attempts, "closed", ready=False), Database(attempts, "durable", later=False)]
    for database in (*quick, broken, *alone):
        commits.add(database)
    outcomes = await asyncio.gather(*(database.told for database in quick))
    assert isinstance(await broken.told, DeviceFailed)
    await asyncio.gather(*(database.told for database in alone))
    assert crew.jobs == 4, "21 in two jobs, two alone"
    assert len(attempts) == 23
    assert all(isinstance(outcome, Outcome) for outcome in outcomes), "one that fails takes no other with it"
    crew.close()


async def test_a_database_that_can_t_be_told_keeps_nothing_from_those_beside_it() -> None:
    crew, messages = Crew(1, "crew"), list[str]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: messages.append(str(context["exception"])))
    commits, attempts = Commits(crew), list[list[str]]()
    databases = [Database(attempts, name) for name in ("first", "deaf", "last")]
    for database in databases:
        commits.add(database)
    async with asyncio.timeout(30):
        await asyncio.gather(*(database.told for database in databases))
    assert messages == ["deaf"]
    crew.close()
