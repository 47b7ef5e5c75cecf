"""Runs as Python hears of them: taken, copied, late, and lost with their client.

Fault model: a run of which nothing comes any more; a taker that does not come; a client that is closed in the middle.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from swiftlet.boundaries.objects import Marks, RunEnd, RunPart
from swiftlet.errors import NodeError, NodeTimeout
from swiftlet.model import ObjectKey
from swiftlet.ring.model import Device
from swiftlet.transport.native_calls import NativeSettings, failure
from swiftlet.transport.native_runs import MOMENT_S, NativeRun

DEVICE = Device(0, "one", "h0", 6200, "d0", "r", "z", "n", 1.0)
PARTS = [RunPart(DEVICE, ObjectKey(0, 0, bytes([number]) * 16), 0, 10) for number in range(3)]


class FakeRun:
    """The native side, driven by the test; also the node that begins it."""

    def __init__(self) -> None:
        self.heard = NativeRun(PARTS, NativeSettings(idle_timeout_s=0.05), failure)
        self.waiting: list[bytes] = []
        self.copies: list[int] = []
        self.stopped = 0
        self.closed = 0
        self.outcome: Any = None
        self.heard.begin(cast("Any", self), 7, [], "tx", Marks())

    def run(self, *arguments: object) -> Any:
        """Begin."""
        return self

    def take(self) -> bytes | None:
        """Give what waits."""
        return self.waiting.pop(0) if self.waiting else None

    def copy(self) -> None:
        """Remember how much would have been copied."""
        self.copies.append(len(self.waiting))

    def stop(self) -> None:
        """End, once."""
        self.stopped += 1
        if self.outcome is None:
            self.finish(1, 0, b"", None, None)

    def close(self) -> None:
        """End, with nothing more."""
        self.closed += 1

    def finish(self, *outcome: object) -> None:
        """It is over."""
        self.outcome = outcome
        assert self.heard.event("end", b"")

    def ended(self) -> Any:
        """Where."""
        return self.outcome

    def chunk(self, data: bytes) -> None:
        """Bytes have come."""
        self.waiting.append(data)
        assert not self.heard.event("sent", 0)

    async def all(self) -> list[bytes]:
        """What is handed on."""
        return [chunk async for chunk in self.heard.chunks()]


async def test_all_is_taken_before_it_has_ended() -> None:
    run = FakeRun()
    run.chunk(b"one")
    run.waiting.append(b"two")
    run.finish(3, 0, b"", None, None)
    assert await run.all() == [b"one", b"two"]
    assert run.heard.end == RunEnd(3)


async def test_who_waits_is_woken_by_what_comes() -> None:
    run = FakeRun()
    reading = asyncio.ensure_future(run.all())
    await asyncio.sleep(0)
    run.chunk(b"one")
    await asyncio.sleep(0.01)
    run.chunk(b"two")
    run.finish(3, 0, b"", None, None)
    assert await reading == [b"one", b"two"]
    assert (run.stopped, run.heard.end) == (0, RunEnd(3))


async def test_what_nobody_takes_is_copied_until_it_is_closed() -> None:
    run = FakeRun()
    run.chunk(b"x")
    await asyncio.sleep(MOMENT_S * 5)
    assert run.copies[0] == 1
    await run.heard.close()
    copies = len(run.copies)
    await asyncio.sleep(MOMENT_S * 3)
    assert (len(run.copies), run.closed) == (copies, 1)


async def test_nothing_is_copied_while_it_is_taken() -> None:
    run = FakeRun()
    chunks = run.heard.chunks()
    end = asyncio.get_running_loop().time() + MOMENT_S * 5
    while asyncio.get_running_loop().time() < end:
        run.chunk(b"x")
        assert await anext(chunks) == b"x"
        await asyncio.sleep(0)
    assert run.copies == []
    await run.heard.close()


async def test_one_of_which_nothing_comes_is_stopped_as_if_its_device_had_failed() -> None:
    run = FakeRun()
    run.chunk(b"x")
    assert await run.all() == [b"x"]
    assert run.heard.end is not None
    assert (run.stopped, run.heard.end.done) == (1, 1)
    assert isinstance(run.heard.end.error, NodeTimeout)


async def test_failures_and_refusals_are_of_the_part_in_which_it_ended() -> None:
    run = FakeRun()
    run.finish(2, 0, b"", ("lost", "cut"), None)
    assert await run.all() == []
    assert run.heard.end is not None
    assert isinstance(run.heard.end.error, NodeError)


async def test_with_its_client_closed_nobody_can_go_on() -> None:
    run = FakeRun()
    run.chunk(b"x")
    assert run.heard.event("failed", ("lost", "this client was closed"))
    with pytest.raises(NodeError, match="closed"):
        await run.all()
