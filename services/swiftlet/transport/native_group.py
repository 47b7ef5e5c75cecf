"""Calls that one native call makes together, and their answers, which come together.

Fault model: as of `swiftlet.transport.native_caller`. Each call has one answer or one domain error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar, cast

from swiftlet_native import TransportGroup

from swiftlet.errors import SwiftletError
from swiftlet.ring.model import Device
from swiftlet.transport.native_calls import CallFailed, Dialect, Failure

A = TypeVar("A")
Told = Callable[[int, int], None]
"""Called with what guests are told in each answer: the version of the policy's ring, and the clock in ms since 1970."""


class NativeGroup(Generic[A]):
    """The listener of calls to several devices, and what these have answered."""

    def __init__(
        self,
        devices: Sequence[Device],
        dialect: Dialect,
        fail: Failure,
        told: Told,
        decoded: Callable[[object], A],
    ) -> None:
        """Begin before anything was sent: `begun` follows. `decoded` returns an answer from its native value."""
        self.answers: list[A | SwiftletError | None] = [None] * len(devices)
        """What the devices have answered; None of those that have not yet."""
        self.is_over = False
        """Whether all devices have answered."""
        self._devices = devices
        self._dialect = dialect
        self._fail = fail
        self._told = told
        self._decoded = decoded
        self._news = asyncio.Event()
        self._sent: TransportGroup | None = None

    def begun(self, sent: TransportGroup) -> None:
        """Note the native calls."""
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
        # Who waits for later news waits for another event.
        news, self._news = self._news, asyncio.Event()
        news.set()
        return self.is_over

    def _take(self) -> None:
        assert self._sent is not None
        answers, self.is_over = self._sent.take()
        for index, (kind, value, told) in answers:
            device = self._devices[index]
            if told is not None:
                self._told(*told)
            if kind == "refused":
                self.answers[index] = self._dialect.refused(device, *cast("tuple[int, bytes]", value))
            elif kind == "failed":
                self.answers[index] = self._fail(device, CallFailed(*cast("tuple[str, str]", value)))
            else:
                self.answers[index] = self._decoded(value)

    async def news(self, within_s: float | None = None) -> bool:
        """Return whether anything has come, once it has or after so long."""
        try:
            async with asyncio.timeout(within_s):
                return await self._news.wait()
        except TimeoutError:
            return False

    def hurry(self) -> None:
        """Take what has come, and be told of each further answer."""
        assert self._sent is not None
        self._sent.hurry()
        self._take()

    def cancel(self) -> None:
        """Wait for nothing any more; devices may do it all the same."""
        if self._sent is not None:
            self._sent.cancel()
