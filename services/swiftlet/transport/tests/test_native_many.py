"""Answers to messages with many requests, without any device."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from swiftlet_native import TransportGroup, TransportMany

from swiftlet.errors import NodeBusy, NodeUnreachable
from swiftlet.placement.tests.test_plan_health import DEVICES
from swiftlet.transport.native_calls import MEMBERS, failure
from swiftlet.transport.native_many import NativeMany
from swiftlet.transport.tests.answering import Answering

ONE = (0, b"header", b"bytes")


def begun(messages: int = 3) -> tuple[NativeMany, Answering, list[tuple[int, int]]]:
    """Return messages that were sent, what answers them, and what a guest is told."""
    told: list[tuple[int, int]] = []
    sent = NativeMany(DEVICES[:messages], MEMBERS, failure, lambda *news: told.append(news))
    native = Answering(messages)
    sent.begun(cast(TransportGroup, native))
    return sent, native, told


async def test_answers_come_by_message() -> None:
    sent, native, told = begun()
    waiting = asyncio.ensure_future(sent.wait(1000.0))
    await asyncio.sleep(0)
    native.here = [(1, ("failed", ("unreachable", "refused"), None))]
    assert not sent.event("answered", None)
    native.here = [(2, ("refused", (16, bytes(8) + b"\0\4busy"), (7, 8))), (0, ("many", [ONE], (7, 9)))]
    assert sent.event("answered", None)
    await waiting
    kinds = [type(answer) for answer in sent.answers]
    assert (kinds[0], kinds[2], told) == (list, NodeBusy, [(7, 8), (7, 9)])
    assert isinstance(sent.answers[1], NodeUnreachable)
    assert native.calls == []


async def test_after_a_while_each_answer_is_told_of() -> None:
    sent, native, _ = begun(2)
    native.here = [(0, ("many", [ONE], None))]
    await sent.wait(0.0)
    assert (sent.answers[0], sent.is_over, native.calls) == ([ONE], False, ["hurry"])
    waiting = asyncio.ensure_future(sent.wait())
    await asyncio.sleep(0)
    native.here = [(1, ("many", [], None))]
    assert sent.event("answered", None)
    await waiting
    await sent.wait()


async def test_a_client_that_is_closed_or_cancelled_waits_for_nobody() -> None:
    sent, native, _ = begun(1)
    waiting = asyncio.ensure_future(sent.wait(1000.0))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert native.calls == ["cancel"]
    assert sent.event("failed", ("lost", "this client was closed"))
    assert isinstance(sent.answers[0], NodeUnreachable)


def test_a_message_has_limits() -> None:
    place = (0, 1, bytes(16))
    many = TransportMany("d0", b"grant")
    assert [many.head(b"o", place, True) for _ in range(257)] == [True] * 256 + [False]
    version: Any = (1, 0, b"/a/c/o", b"", [], [])
    full = TransportMany("d0", None)
    puts = [full.put(b"o", place, 1, version, (1 << 20, 1, b""), bytes(1 << 20)) for _ in range(2)]
    assert puts == [True, False], "the requests need room, too"
    assert full.get(b"o", place, 1, False)
    with pytest.raises(ValueError, match="limit"):
        full.delete(b"o", place, 1, 1, bytes(70_000))
