"""Requests that share messages: what goes together, and who gets which answer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from swiftlet.errors import NodeBusy, NodeError, SwiftletError
from swiftlet.transport.bundles import Bundles
from swiftlet.transport.claims_wire import MAX_MANY, many_from_wire
from swiftlet.transport.wire import WireError, answers_from_wire

Fields = dict[str, Any]


class Peer:
    """Answers each request with its number, once `gate` is open."""

    def __init__(self, at_once: int = 1) -> None:
        self.messages: list[tuple[str, list[int]]] = []
        self.gate = asyncio.Event()
        self.fault: SwiftletError | None = None
        self.queues: Bundles[str, Fields, Fields] = Bundles(self.send, MAX_MANY, at_once)

    async def send(self, key: str, bodies: Sequence[Fields]) -> Sequence[Fields | SwiftletError]:
        self.messages.append((key, [body["n"] for body in bodies]))
        await self.gate.wait()
        if self.fault is not None:
            raise self.fault
        return [NodeBusy("full") if body["n"] < 0 else body for body in bodies]

    def ask(self, number: int, key: str = "a") -> asyncio.Task[Fields]:
        return asyncio.create_task(self.queues.ask(key, {"n": number}))


async def turn() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_one_is_under_way_and_the_others_go_together() -> None:
    peer = Peer()
    first = peer.ask(0)
    await turn()
    rest = [peer.ask(number) for number in (1, -2, 3)]
    apart = peer.ask(4, "b")
    await turn()
    assert peer.messages == [("a", [0]), ("b", [4])]
    rest[2].cancel()
    peer.gate.set()
    answers = await asyncio.gather(first, *rest, apart, return_exceptions=True)
    assert answers[:2] == [{"n": 0}, {"n": 1}]
    assert [type(answer) for answer in answers[2:4]] == [NodeBusy, asyncio.CancelledError]
    assert answers[4] == {"n": 4}
    assert peer.messages[2:] == [("a", [1, -2])]
    assert (peer.queues._waiting, peer.queues._under_way) == ({}, {})


async def test_a_message_has_a_limit_and_its_failure_is_that_of_those_in_it() -> None:
    peer = Peer()
    peer.gate.set()
    peer.fault = NodeError("away")
    asked = [peer.ask(number) for number in range(MAX_MANY + 5)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert {type(answer) for answer in answers} == {NodeError}
    assert [len(numbers) for _, numbers in peer.messages] == [MAX_MANY, 5]
    peer.fault = None
    assert await peer.ask(7) == {"n": 7}
    assert (peer.queues._waiting, peer.queues._under_way) == ({}, {})


@pytest.mark.parametrize("claims", [None, [], [1], [{}] * (MAX_MANY + 1)])
def test_messages_of_another_shape(claims: object) -> None:
    with pytest.raises(WireError):
        many_from_wire({"claims": claims})


@pytest.mark.parametrize(
    "answers", [None, [], [[200, {}]] * 3, [[200, {}], {}], [[200, {}], ["x", {}]], [[200, {}], []]]
)
def test_answers_of_another_shape(answers: object) -> None:
    with pytest.raises(WireError):
        answers_from_wire({"answers": answers}, 2)


async def test_few_messages_may_be_in_progress_at_a_time() -> None:
    peer = Peer(at_once=2)
    asked = [peer.ask(number) for number in range(4)]
    await turn()
    more = [peer.ask(number) for number in (4, 5)]
    await turn()
    rest = [peer.ask(number) for number in (6, 7)]
    await turn()
    assert [numbers for _, numbers in peer.messages] == [[0, 1, 2, 3], [4, 5]]
    peer.gate.set()
    assert [answer["n"] for answer in await asyncio.gather(*asked, *more, *rest)] == list(range(8))
    assert [numbers for _, numbers in peer.messages][2:] == [[6, 7]]


async def test_what_waits_ends_with_the_queues() -> None:
    peer = Peer()
    asked = [peer.ask(0)]
    await turn()
    asked.append(peer.ask(1))
    await turn()
    await peer.queues.close()
    assert all(isinstance(one, asyncio.CancelledError) for one in await asyncio.gather(*asked, return_exceptions=True))
    assert (peer.queues._waiting, peer.queues._under_way) == ({}, {})
