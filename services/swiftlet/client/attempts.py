"""Repetition: which failures may pass, how long to wait, and how much repeating a client may do at all.

Reads are repeated after any failure that may pass. Writes are too: the same bytes under the same name are the same
object, whichever attempt stored them, and a deletion that finds nothing has happened. A write with conditions is
repeated only when the failed attempt has had no effect for certain: otherwise its own effect could break its condition.

Every client has a budget: each repetition takes one from it, and ten requests that succeed give one back. A store that
is in trouble is not asked five times as much by clients that all repeat.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from swiftlet.client.errors import (
    ChecksumMismatch,
    ClientError,
    ConnectionFailed,
    NotFound,
    ServerError,
    StatusError,
    TooManyRequests,
)
from swiftlet.client.options import Options

T = TypeVar("T")
_BUDGET = 20.0
_GAINED = 0.1
_CERTAIN = frozenset({429, 498})
_PASSING = frozenset({408, 429, 498, 500, 502, 503, 504})


def may_pass(error: ClientError) -> bool:
    """Whether the same request could succeed a moment later."""
    if isinstance(error, StatusError):
        return error.status in _PASSING
    return isinstance(error, (ConnectionFailed, ChecksumMismatch))


def had_no_effect(error: ClientError) -> bool:
    """Whether the failed request has certainly changed nothing."""
    if isinstance(error, StatusError):
        return error.status in _CERTAIN
    return isinstance(error, ConnectionFailed) and not error.sent


class Attempts:
    """Makes attempts at requests, of one client."""

    def __init__(self, options: Options, wait: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        """Begin with a full budget; `wait` waits for seconds."""
        self._options = options
        self._wait = wait
        self._budget = _BUDGET

    async def run(
        self,
        attempt: Callable[[], Awaitable[T]],
        *,
        is_repeatable: Callable[[], bool] = lambda: True,
        is_conditional: bool = False,
    ) -> T:
        """Return what the attempt returns; repeat it while that is safe, may help, and the budget allows it."""
        for number in range(self._options.retries + 1):
            try:
                result = await attempt()
            except ClientError as error:
                if (
                    not may_pass(error)
                    or not is_repeatable()
                    or (is_conditional and not had_no_effect(error))
                    or not self.take(number)
                ):
                    raise
                await self._wait(self.pause_s(number, error))
            else:
                self.gain()
                return result
        raise AssertionError("the last attempt has neither returned nor raised")

    async def delete(
        self, attempt: Callable[[], Awaitable[None]], *, is_conditional: bool = False, uncertain: bool = False
    ) -> None:
        """Delete by attempts: what is gone after an attempt that may have had its effect has been deleted.

        With `uncertain` there was such an attempt before.
        """

        async def once() -> None:
            nonlocal uncertain
            try:
                await attempt()
            except NotFound:
                if not uncertain:
                    raise
            except (ConnectionFailed, ServerError) as error:
                uncertain = uncertain or not had_no_effect(error)
                raise

        await self.run(once, is_conditional=is_conditional)

    def take(self, number: int) -> bool:
        """Whether there may be another attempt after `number` of them; it is taken from the budget then."""
        if number >= self._options.retries or self._budget < 1:
            return False
        self._budget -= 1
        return True

    def gain(self) -> None:
        """Note that a request has succeeded."""
        self._budget = min(_BUDGET, self._budget + _GAINED)

    async def pause(self, number: int, error: ClientError) -> None:
        """Wait before the attempt after `number` of them."""
        await self._wait(self.pause_s(number, error))

    def pause_s(self, number: int, error: ClientError) -> float:
        """Return the seconds to wait: what the store asks for, or twice as long each time, with jitter."""
        asked = error.retry_after_s if isinstance(error, (ServerError, TooManyRequests)) else 0
        usual = self._options.retry_wait_s * float(2**number) * random.uniform(0.5, 1.5)  # noqa: S311
        return min(self._options.retry_wait_most_s, max(asked, usual))
