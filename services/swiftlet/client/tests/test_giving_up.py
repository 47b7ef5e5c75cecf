"""Uploads that are cancelled, against a store that reads on when its client is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import pytest

from swiftlet.client import giving_up
from swiftlet.client.bodies import Body, BytesBody
from swiftlet.client.digests import Buffer
from swiftlet.client.errors import ConnectionFailed
from swiftlet.client.giving_up import put_or_give_up
from swiftlet.client.objects import Objects
from swiftlet.client.options import Options
from swiftlet.client.progress import Meter
from swiftlet.client.values import ObjectRequest, Written
from swiftlet.testing.ways.memory import Fault, MemoryWay

NAME = ObjectRequest("c", "o")
DATA = bytes(100)


class LateWay(MemoryWay):
    """A way whose store has the whole body, and stores it when the test says so, whoever waits for that."""

    def __init__(self) -> None:
        super().__init__()
        self.has_all = asyncio.Event()
        self.stores = asyncio.Event()

    async def put(self, request: ObjectRequest, body: Body) -> Written:
        data = b"".join([bytes(piece) async for piece in body.chunks()])
        self.has_all.set()
        return await asyncio.shield(asyncio.ensure_future(self._store(request, data)))

    async def _store(self, request: ObjectRequest, data: bytes) -> Written:
        await self.stores.wait()
        return await super().put(request, BytesBody(data))


class StuckBody(BytesBody):
    """A body that comes to its end only when the test says so."""

    def __init__(self) -> None:
        super().__init__(DATA)
        self.has_begun = asyncio.Event()
        self.ends = asyncio.Event()

    async def chunks(self) -> AsyncGenerator[Buffer, None]:
        yield self.data[:50]
        self.has_begun.set()
        await self.ends.wait()
        yield self.data[50:]


def begin(way: MemoryWay, body: Body) -> asyncio.Task[Written]:
    objects = Objects(way, Options(retry_wait_s=0.001))
    return asyncio.create_task(put_or_give_up(objects, NAME, body, Meter(None, None)))


async def test_it_stores() -> None:
    way = MemoryWay()
    assert (await begin(way, BytesBody(DATA))).size == 100
    assert way.objects["c", "o"] == DATA


async def test_a_body_that_was_sent_is_stored_before_the_cancellation_is_told() -> None:
    way = LateWay()
    putting = begin(way, BytesBody(DATA))
    await way.has_all.wait()
    putting.cancel()
    _, waiting = await asyncio.wait([putting], timeout=0.05)
    assert waiting == {putting}
    way.stores.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert way.objects["c", "o"] == DATA


async def test_a_body_that_was_not_sent_ends_at_once() -> None:
    way, body = MemoryWay(), StuckBody()
    putting = begin(way, body)
    await body.has_begun.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    body.ends.set()
    await asyncio.sleep(0)
    assert way.objects == {}


async def test_a_store_that_does_not_answer_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(giving_up, "ANSWER_S", 0.01)
    way = LateWay()
    putting = begin(way, BytesBody(DATA))
    await way.has_all.wait()
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert way.objects == {}
    way.stores.set()


async def test_what_fails_is_not_sent_again_once_it_is_given_up() -> None:
    way = LateWay()
    way.faults.append(Fault(ConnectionFailed("gone"), has_effect=True))
    putting = begin(way, BytesBody(DATA))
    await way.has_all.wait()
    putting.cancel()
    await asyncio.wait([putting], timeout=0.01)
    way.stores.set()
    with pytest.raises(asyncio.CancelledError):
        await putting
    assert way.calls == ["PUT"]
