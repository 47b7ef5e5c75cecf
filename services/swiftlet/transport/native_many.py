"""Messages with many requests each, which one native call sends to several devices, and their answers.

Fault model: as of `swiftlet.transport.native_caller`. Each message has one answer, with one for each of its requests,
or one domain error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from swiftlet_native import TransportManySent

from swiftlet.errors import SwiftletError
from swiftlet.ring.model import Device
from swiftlet.transport.native_calls import CallFailed, Dialect, Failure
from swiftlet.transport.native_writes import Told

One = tuple[int, bytes, bytes]
"""The answer to one of many requests: status, header, bytes of the object."""


class NativeMany:
    """Messages that were sent, and their answers in the same order; the listener of their call."""

    def __init__(self, devices: Sequence[Device], dialect: Dialect, fail: Failure, told: Told) -> None:
        """Begin before anything was sent: `begun` follows."""
        self._devices = devices
        self._dialect = dialect
        self._fail = fail
        self._told = told
        self._news = asyncio.Event()
        self._sent: TransportManySent | None = None
        self.answers: list[Sequence[One] | SwiftletError | None] = [None] * len(devices)
        """What the devices have answered; None of those that have not yet."""
        self.is_over = False
        """Whether all have."""

    def begun(self, sent: TransportManySent) -> None:
        """Note the native call."""
        self._sent = sent

    def event(self, kind: str, value: object) -> bool:
        """Take what has come; return whether that was the last."""
        if kind == "failed":
            failed = CallFailed(*cast("tuple[str, str]", value))
            for index, answer in enumerate(self.answers):
                if answer is None:
                    self.answers[index] = self._fail(self._devices[index], failed)
            self.is_over = True
        else:
            self._take()
        self._news.set()
        return self.is_over

    def _take(self) -> None:
        assert self._sent is not None
        answers, self.is_over = self._sent.take()
        for index, (kind, value, told) in answers:
            device = self._devices[index]
            if told is not None:
                self._told(*told)
            if kind == "many":
                self.answers[index] = cast("list[One]", value)
            elif kind == "refused":
                self.answers[index] = self._dialect.refused(device, *cast("tuple[int, bytes]", value))
            else:
                self.answers[index] = self._fail(device, CallFailed(*cast("tuple[str, str]", value)))

    async def wait(self, patience_s: float | None = None) -> None:
        """Return when all have answered, or after so long; without a limit also when there is something new."""
        loop = asyncio.get_running_loop()
        end = None if patience_s is None else loop.time() + patience_s
        while not self.is_over:
            self._news.clear()
            timer = None if end is None else loop.call_at(end, self._news.set)
            try:
                await self._news.wait()
            except BaseException:
                self.cancel()
                raise
            finally:
                if timer is not None:
                    timer.cancel()
            if end is None:
                return
            if loop.time() >= end:
                if not self.is_over and self._sent is not None:
                    # From now on each answer is told of.
                    self._sent.hurry()
                    self._take()
                return

    def cancel(self) -> None:
        """Wait for nothing any more; devices may do it all the same."""
        if self._sent is not None:
            self._sent.cancel()
