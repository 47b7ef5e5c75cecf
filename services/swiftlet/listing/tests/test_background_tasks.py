"""Whoever waits is told once: tasks that end in any way, listeners that raise, futures that are done."""

from __future__ import annotations

import asyncio

import pytest

from swiftlet.listing.background_tasks import BackgroundTasks, resolve, tell


def heard() -> list[str]:
    """What the event loop is told of failures from here on."""
    messages: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: messages.append(str(context["exception"])))
    return messages


@pytest.mark.parametrize("steps", [0, 1, 3])
async def test_a_task_that_is_cancelled_is_told_of_even_before_its_first_step(steps: int) -> None:
    background, told = BackgroundTasks(), list[BaseException | None]()
    begun: list[int] = []

    async def work() -> None:
        begun.append(1)
        await asyncio.Event().wait()

    background.begin(work(), told.append)
    (task,) = background._tasks
    for _ in range(steps):
        await asyncio.sleep(0)
    assert bool(begun) is bool(steps)
    task.cancel()
    await asyncio.wait([task])
    await asyncio.sleep(0)
    assert [type(error) for error in told] == [asyncio.CancelledError]
    assert not background._tasks


async def test_the_end_of_a_task_is_told_and_what_it_raised() -> None:
    background, told = BackgroundTasks(), asyncio.Queue[BaseException | None]()

    async def work(error: Exception | None) -> None:
        if error is not None:
            raise error

    background.begin(work(None), told.put_nowait)
    assert await told.get() is None
    background.begin(work(KeyError("x")), told.put_nowait)
    assert isinstance(await told.get(), KeyError)


async def test_who_raises_keeps_nothing_from_the_others() -> None:
    messages, told = heard(), list[int]()

    def first(_number: int) -> None:
        raise ValueError("the first one")

    for listener in (first, told.append):
        tell(listener, 7)
    assert told == [7]
    assert messages == ["the first one"]


async def test_a_future_is_resolved_once_and_with_any_error() -> None:
    answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    resolve(answer, 1, None)
    resolve(answer, None, ValueError("late"))
    assert await answer == 1
    given_up: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    given_up.cancel()
    resolve(given_up, 1, None)
    odd: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    resolve(odd, None, StopIteration(3))
    with pytest.raises(RuntimeError, match="StopIteration"):
        await odd
