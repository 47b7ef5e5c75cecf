"""Messages with many requests each, which one native call sends to several devices, and their answers.

Fault model: as of `swiftlet.transport.native_caller`. Each message has one answer, with one for each of its requests,
or one domain error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

from swiftlet.ring.model import Device
from swiftlet.transport.native_calls import Dialect, Failure
from swiftlet.transport.native_group import NativeGroup, Told

One = tuple[int, bytes, bytes]
"""The answer to one of many requests: status, header, bytes of the object."""


class NativeMany(NativeGroup[Sequence[One]]):
    """Messages that were sent, and their answers in the same order."""

    def __init__(self, devices: Sequence[Device], dialect: Dialect, fail: Failure, told: Told) -> None:
        """Begin before anything was sent: `begun` follows."""
        super().__init__(devices, dialect, fail, told, lambda value: cast("list[One]", value))

    async def wait(self, patience_s: float | None = None) -> None:
        """Return when all have answered, or after so long; without a limit also when there is something new."""
        try:
            if patience_s is None:
                if not self.is_over:
                    await self.news()
                return
            loop = asyncio.get_running_loop()
            end = loop.time() + patience_s
            while not self.is_over and await self.news(end - loop.time()):
                pass
        except BaseException:
            self.cancel()
            raise
        if not self.is_over:
            self.hurry()
