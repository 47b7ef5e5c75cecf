"""Answers to a write that was sent to several devices at once, without any device."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest
from swiftlet_native import ObjectWire, TransportGroup

from swiftlet.errors import DiskFull, NodeUnreachable
from swiftlet.placement.tests.test_plan_health import DEVICES
from swiftlet.transport.native_calls import MEMBERS, failure
from swiftlet.transport.native_writes import NativeWrite
from swiftlet.transport.tests.answering import Answering

DONE = ("written", (True, False), None)
FULL = ("refused", (19, bytes(8) + b"\0\4full"), None)
GONE = ("failed", ("unreachable", "refused"), None)
PATIENCE_S = 1000.0


def begun(devices: int = 3) -> tuple[NativeWrite, Answering, list[tuple[int, int]]]:
    """Return a write that was sent to devices, what answers it, and what a guest is told."""
    told: list[tuple[int, int]] = []
    write = NativeWrite(DEVICES[:devices], MEMBERS, failure, lambda *news: told.append(news))
    native = Answering(devices)
    write.begun(cast(TransportGroup, native))
    return write, native, told


async def test_all_have_done_it() -> None:
    write, native, told = begun()
    waiting = asyncio.ensure_future(write.settle(2, PATIENCE_S))
    await asyncio.sleep(0)
    native.here = [(1, ("written", (False, True), (7, 1000))), (0, DONE), (2, DONE)]
    assert write.event("answered", None)
    assert await waiting is None
    assert [(reply.pending, reply.existed) for reply in write.replies] == [(True, False), (False, True), (True, False)]
    assert (told, native.calls) == ([(7, 1000)], [])


async def test_the_first_failure_is_told_at_once_and_the_others_as_they_come() -> None:
    write, native, _ = begun()
    waiting = asyncio.ensure_future(write.settle(2, PATIENCE_S))
    await asyncio.sleep(0)
    native.here = [(0, FULL)]
    assert not write.event("answered", None)
    assert await waiting == PATIENCE_S
    with pytest.raises(DiskFull):
        await write.reply(0)
    replies = [asyncio.ensure_future(write.reply(index)) for index in (1, 2)]
    await asyncio.sleep(0)
    native.here = [(2, DONE)]
    assert not write.event("answered", None)
    assert (await replies[1]).pending
    native.here = [(1, GONE)]
    assert write.event("answered", None)
    with pytest.raises(NodeUnreachable):
        await replies[0]


@pytest.mark.parametrize(("quorum", "left_s"), [(2, 0.005), (3, 0.01)])
async def test_one_that_is_slow_is_waited_for_a_while(quorum: int, left_s: float) -> None:
    write, native, _ = begun()
    native.here = [(0, DONE), (2, DONE)]
    assert await write.settle(quorum, 0.01) == left_s
    assert native.calls == ["hurry"]
    assert (await write.reply(0)).pending
    write.cancel()
    assert native.calls == ["hurry", "cancel"]


async def test_the_loop_goes_on_while_one_that_is_slow_is_waited_for() -> None:
    write, native, _ = begun()
    native.here = [(0, DONE), (2, DONE)]
    await write.settle(2, 0.01)
    slow = asyncio.ensure_future(write.reply(1))
    await asyncio.sleep(0)
    native.here = [(1, DONE)]
    assert write.event("answered", None)
    assert (await slow).pending


async def test_a_client_that_is_closed_waits_for_nobody() -> None:
    write, native, _ = begun(2)
    native.here = [(0, DONE)]
    waiting = asyncio.ensure_future(write.settle(2, PATIENCE_S))
    await asyncio.sleep(0)
    assert write.event("failed", ("lost", "this client was closed"))
    assert await waiting == PATIENCE_S
    with pytest.raises(NodeUnreachable):
        await write.reply(1)


async def test_a_refusal_names_its_device() -> None:
    write, native, _ = begun(1)
    status, header = 7, b"\0" * 7 + b"\5" + b"\0\5newer"
    assert ObjectWire.refusal(status, header) == ("Superseded", "newer", 5)
    native.here = [(0, ("refused", (status, header), None))]
    assert write.event("answered", None)
    with pytest.raises(Exception, match=f"{DEVICES[0].address}: newer"):
        await write.reply(0)
