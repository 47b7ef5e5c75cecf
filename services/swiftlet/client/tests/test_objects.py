"""Repetition, hedging and continuation over a way with faults."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import xxhash

from swiftlet.client.attempts import Attempts
from swiftlet.client.bodies import Body, BytesBody, StreamBody
from swiftlet.client.digests import checksum_of
from swiftlet.client.errors import (
    ChecksumMismatch,
    ClientError,
    ConnectionFailed,
    NotFound,
    PreconditionFailed,
    ServerError,
    status_error,
)
from swiftlet.client.hedging import Hedge, Latencies
from swiftlet.client.objects import Objects
from swiftlet.client.options import Options
from swiftlet.client.progress import Meter
from swiftlet.client.values import ObjectInfo, ObjectRequest, Span
from swiftlet.testing.ways.memory import Fault, MemoryWay

NAME = ObjectRequest("c", "o")
ONCE = ObjectRequest("c", "o", {"If-None-Match": "*"})
DATA = bytes(range(100))


def busy() -> ServerError:
    error = status_error(503, "Service Unavailable", "PUT c/o")
    assert isinstance(error, ServerError)
    return error


def objects(way: MemoryWay, **options: float | bool) -> Objects:
    return Objects(way, Options(retry_wait_s=0.001, **options))  # type: ignore[arg-type]


def faults(*ordered: Fault) -> deque[Fault]:
    return deque(ordered)


async def streamed() -> AsyncIterator[bytes]:
    yield DATA[:50]
    yield DATA[50:]


@pytest.mark.parametrize("error", [busy(), ConnectionFailed("gone"), ConnectionFailed("refused", sent=False)])
async def test_what_may_pass_is_tried_again(error: ClientError) -> None:
    way = MemoryWay(faults=faults(Fault(error), Fault(error)))
    moved: list[int] = []
    await objects(way).put(NAME, BytesBody(DATA), Meter(lambda done, _: moved.append(done), len(DATA)))
    assert (way.calls, way.objects["c", "o"], moved[-1]) == (["PUT"] * 3, DATA, 100)
    way.faults = faults(Fault(error))
    assert (await objects(way).head(NAME)).size == 100


async def test_what_will_not_pass_is_not() -> None:
    way = MemoryWay()
    with pytest.raises(NotFound):
        await objects(way).head(NAME)
    assert way.calls == ["HEAD"]


async def test_retries_end() -> None:
    way = MemoryWay(faults=faults(*[Fault(busy()) for _ in range(10)]))
    with pytest.raises(ServerError):
        await objects(way, retries=3).put(NAME, BytesBody(DATA))
    assert way.calls == ["PUT"] * 4


async def test_a_budget_bounds_the_retries_of_many_requests() -> None:
    way = MemoryWay(faults=faults(*[Fault(busy()) for _ in range(1000)]))
    tried = objects(way)
    for _ in range(50):
        with pytest.raises(ServerError):
            await tried.head(NAME)
    assert 50 < len(way.calls) <= 70


@pytest.mark.parametrize("error", [busy(), ConnectionFailed("gone")])
async def test_a_conditional_write_that_may_have_succeeded_is_not_repeated(error: ClientError) -> None:
    way = MemoryWay(faults=faults(Fault(error, has_effect=True)))
    with pytest.raises(type(error)):
        await objects(way).put(ONCE, BytesBody(DATA))
    assert way.calls == ["PUT"]


async def test_a_conditional_write_that_was_not_sent_is_repeated() -> None:
    way = MemoryWay(faults=faults(Fault(ConnectionFailed("refused", sent=False))))
    await objects(way).put(ONCE, BytesBody(DATA))
    with pytest.raises(PreconditionFailed):
        await objects(way).put(ONCE, BytesBody(DATA))


async def test_a_body_that_was_begun_is_not_sent_again() -> None:
    way = MemoryWay(faults=faults(Fault(ConnectionFailed("refused", sent=False))))
    await objects(way).put(NAME, StreamBody(streamed()))
    assert (way.calls, way.objects["c", "o"]) == (["PUT"] * 2, DATA)
    way.faults = faults(Fault(ConnectionFailed("gone"), has_effect=True))
    with pytest.raises(ConnectionFailed):
        await objects(way).put(NAME, StreamBody(streamed()))
    assert way.calls == ["PUT"] * 3


async def test_a_deletion_whose_answer_was_lost_has_happened() -> None:
    way = MemoryWay({("c", "o"): DATA}, faults(Fault(ConnectionFailed("gone"), has_effect=True)))
    await objects(way).delete(NAME)
    with pytest.raises(NotFound):
        await objects(way).delete(NAME)
    way.faults = faults(Fault(ConnectionFailed("refused", sent=False)))
    with pytest.raises(NotFound):
        await objects(way).delete(NAME)


@pytest.mark.parametrize("break_at", [0, 10, 55, 100])
@pytest.mark.parametrize("span", [None, Span(5), Span(5, 60)])
async def test_a_body_that_breaks_is_continued(break_at: int, span: Span | None) -> None:
    way = MemoryWay({("c", "o"): DATA})
    expected = DATA if span is None else DATA[span.start : span.stop]
    way.faults = faults(Fault(after_bytes=min(break_at, len(expected))))
    content = await objects(way).get(NAME, span)
    assert content.data == expected
    start = (0 if span is None else span.start) + min(break_at, len(expected))
    assert way.calls[1:] == ([] if break_at >= len(expected) else [f"GET {start}"])


async def test_a_body_is_not_continued_with_another_version() -> None:
    way = MemoryWay({("c", "o"): DATA}, faults(Fault(after_bytes=50)))
    async with await objects(way).open(NAME) as reading:
        way.objects["c", "o"] = DATA[::-1]
        with pytest.raises(ConnectionFailed, match="another version"):
            await reading.read()


async def test_a_stored_object_that_differs_is_an_error() -> None:
    class Damaging(MemoryWay):
        async def put(self, request: ObjectRequest, body: Body) -> object:  # type: ignore[override]
            return await super().put(request, BytesBody(b"other"))

    way = Damaging()
    with pytest.raises(ChecksumMismatch):
        await objects(way, retries=1).put(NAME, BytesBody(DATA))
    assert way.calls == ["PUT"] * 2
    await objects(way, verify=False).put(NAME, BytesBody(DATA))


def test_the_95th_of_100_latencies() -> None:
    known = Latencies()
    for number in range(19):
        known.add(number)
    assert known.p95_s() is None
    for number in range(19, 100):
        known.add(number)
    assert known.p95_s() == 95
    for _ in range(200):
        known.add(0)
    assert known.p95_s() == 0.005


async def test_a_slow_read_is_asked_a_second_time() -> None:
    way = MemoryWay({("c", "o"): DATA})
    hedged = objects(way)
    for _ in range(30):
        await hedged.get(NAME)
    way.calls.clear()
    never = asyncio.Event()
    way.faults = faults(Fault(until=never))
    assert (await hedged.get(NAME)).data == DATA
    assert way.calls == ["GET"] * 2


async def test_hedges_are_few_when_everything_is_slow() -> None:
    hedge = Hedge()
    hedge._latencies._sorted = [0.0] * 200
    begun = 0

    async def attempt() -> int:
        nonlocal begun
        begun += 1
        await asyncio.sleep(0.006)
        return begun

    async def discard(_: int) -> None:
        pass

    for _ in range(40):
        await hedge.first(attempt, discard)
        hedge._latencies._sorted = [0.0] * 200
        hedge._latencies._recent.clear()
    assert 40 < begun <= 44


async def test_the_other_answer_is_let_go_and_a_failure_waits_for_it() -> None:
    way = MemoryWay({("c", "o"): DATA})
    hedged = objects(way, retries=0)
    for _ in range(30):
        await hedged.get(NAME)
    late = asyncio.Event()
    way.faults = faults(Fault(until=late), Fault(ConnectionFailed("gone"), sets=late))
    assert (await hedged.get(NAME)).data == DATA


async def test_waits_are_what_the_store_asks_for() -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    attempts = Attempts(Options(retries=3), wait)
    asked = status_error(503, "busy", "GET x", retry_after_s=5)
    answers = iter([asked, status_error(429, "slow down", "GET x", retry_after_s=99), busy()])

    async def attempt() -> str:
        if (error := next(answers, None)) is not None:
            raise error
        return "done"

    assert await attempts.run(attempt) == "done"
    assert waits[:2] == [5, 10]
    assert 0.2 <= waits[2] <= 0.6


class Told(MemoryWay):
    """A way that tells a checksum beside the ETag."""

    def __init__(self, stored: bytes) -> None:
        super().__init__(objects={("c", "o"): DATA})
        self.checksum = checksum_of(xxhash.xxh3_64_intdigest(stored))

    def _find(self, method: str, request: ObjectRequest) -> tuple[bytes, ObjectInfo]:
        data, info = super()._find(method, request)
        return data, replace(info, checksum=self.checksum)


async def test_whole_objects_are_compared_with_the_checksum_that_is_told() -> None:
    """Also after they broke off in the middle; a range is not. The digest may be the way's own."""
    for digests in (False, True):

        def told(stored: bytes, *ordered: Fault, digests: bool = digests) -> Told:
            way = Told(stored)
            way.digests, way.faults = digests, faults(*ordered)
            return way

        assert (await objects(told(DATA), retries=0).get(NAME)).data == DATA
        assert (
            await objects(told(DATA, Fault(after_bytes=40), Fault(after_bytes=9)), retries=2).get(NAME)
        ).data == DATA
        for broken in ((), (Fault(after_bytes=40),)):
            with pytest.raises(ChecksumMismatch):
                await objects(told(DATA[1:], *broken), retries=1).get(NAME)
        assert (await objects(told(DATA[1:])).get(NAME, Span(1, 5))).data == DATA[1:5]
        assert (await objects(told(DATA[1:]), verify=False).get(NAME)).data == DATA
        async with await objects(told(DATA)).open(NAME) as reading:
            assert reading.is_verified
        async with await objects(told(DATA), verify=False).open(NAME) as reading:
            assert not reading.is_verified
