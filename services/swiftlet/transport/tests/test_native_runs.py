"""Runs as Python hears of them: put together, taken, late, and lost with their client.

Fault model: a run of which nothing comes any more; a client that is closed in the middle.
"""

from __future__ import annotations

from typing import Any, cast

import pytest

from swiftlet.errors import NodeError, NodeTimeout
from swiftlet.model import ObjectKey
from swiftlet.peers import Marks, RunEnd, RunPart
from swiftlet.ring.model import Device
from swiftlet.transport.native_calls import NativeSettings, failure
from swiftlet.transport.native_runs import JOINED_BYTES, NativeRun

DEVICE = Device(0, "one", "h0", 6200, "d0", "r", "z", "n", 1.0)
PARTS = [RunPart(DEVICE, ObjectKey(0, 0, bytes([number]) * 16), 0, 10) for number in range(3)]


class FakeRun:
    """The native side, driven by the test; also the node that begins it."""

    def __init__(self) -> None:
        self.heard = NativeRun(PARTS, NativeSettings(idle_timeout_s=0.05), failure)
        self.heard.begin(cast("Any", self), 7, [], "tx", Marks())
        self.taken_bytes: list[int] = []
        self.stopped = 0
        self.outcome: Any = None

    def run(self, *arguments: object) -> Any:
        """Begin."""
        return self

    def taken(self, count: int) -> None:
        """Hear of bytes that were taken."""
        self.taken_bytes.append(count)

    def stop(self) -> None:
        """End, once."""
        self.stopped += 1
        if self.outcome is None:
            self.finish(1, 0, b"", None, None)

    def finish(self, *outcome: object) -> None:
        """It is over."""
        self.outcome = outcome
        assert self.heard.event("end", b"")

    def ended(self) -> Any:
        """Where."""
        return self.outcome

    def chunk(self, data: bytes) -> None:
        """Bytes have come."""
        assert not self.heard.event("chunk", (data, None))

    async def all(self) -> list[bytes]:
        """What is handed on."""
        return [chunk async for chunk in self.heard.chunks()]


async def test_small_ones_are_put_together_and_large_ones_are_not() -> None:
    run = FakeRun()
    sizes = [10, 20, JOINED_BYTES - 30, 1, JOINED_BYTES, 5]
    for size in sizes:
        run.chunk(bytes(size))
    run.finish(3, 0, b"", None, None)
    assert [len(chunk) for chunk in await run.all()] == [JOINED_BYTES, 1, JOINED_BYTES, 5] == run.taken_bytes
    assert run.heard.end == RunEnd(3)


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
