"""The event loop of the synchronous client: one for a process, in a thread of its own.

A process made by fork has none of its parent's threads: it begins a loop of its own when it first needs one. The
parent's loop shares its event poll with the copy that the fork made, which therefore closes its descriptor of it and
leaves everything else alone.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import selectors
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

from swiftlet.client.http import close_all

T = TypeVar("T")
_CLEAN_UP_S = 30.0


class _LoopThread:
    """An event loop in a thread, which ends with the process."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.loop = asyncio.SelectorEventLoop(self.selector)
        self._thread = threading.Thread(target=self.loop.run_forever, name="swiftlet-client", daemon=True)
        self._thread.start()


_lock = threading.Lock()
_current: _LoopThread | None = None
_inherited: list[_LoopThread] = []


def loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process, started if it is not running."""
    global _current
    with _lock:
        if _current is None:
            _current = _LoopThread()
        return _current.loop


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns, run by the loop; Ctrl-C cancels it and waits until it has cleaned up."""
    target = loop()
    if asyncio._get_running_loop() is target:
        coroutine.close()
        raise RuntimeError("the synchronous client was called by its own event loop: use AsyncClient there")
    ended = threading.Event()

    async def whole() -> T:
        try:
            return await coroutine
        finally:
            ended.set()

    future: Future[T] = asyncio.run_coroutine_threadsafe(whole(), target)
    try:
        return future.result()
    except BaseException:
        if future.cancel():
            ended.wait(_CLEAN_UP_S)
        raise


def _at_exit() -> None:
    """Close what programs have left open: aiohttp would complain of it when it is collected."""
    if _current is not None:
        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(close_all(), _current.loop).result(_CLEAN_UP_S)


atexit.register(_at_exit)


def _after_fork() -> None:
    global _current, _lock
    _lock = threading.Lock()
    if _current is not None:
        _current.selector.close()
        _inherited.append(_current)
        _current = None


os.register_at_fork(after_in_child=_after_fork)
