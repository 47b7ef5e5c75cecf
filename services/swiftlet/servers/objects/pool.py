"""The threads of one device: store calls block, and a slow device must block only its own callers.

Fault model: a disk may take seconds for any call, or hang. Its threads are then all busy and calls queue up behind
them; admission bounds that queue, and with it the memory of waiting requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from swiftlet.errors import NodeBusy

P = ParamSpec("P")
T = TypeVar("T")


class DevicePool:
    """The threads of one device, and the limit of requests that may be in progress on it."""

    def __init__(self, name: str, threads: int, max_requests: int) -> None:
        """`max_requests` is the number of requests that are admitted at a time, including those that wait."""
        self.name = name
        self._executor = ThreadPoolExecutor(threads, thread_name_prefix=f"device-{name}")
        self._max_requests = max_requests
        self._requests = 0

    @property
    def requests(self) -> int:
        """The number of requests in progress."""
        return self._requests

    @contextmanager
    def admitted(self) -> Iterator[None]:
        """Count one more request while it runs. Raises NodeBusy when there are too many."""
        if self._requests >= self._max_requests:
            raise NodeBusy(f"device {self.name} has {self._requests} requests at work; try another replica")
        self._requests += 1
        try:
            yield
        finally:
            self._requests -= 1

    async def run(self, call: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run a blocking call on one of the threads. A cancelled caller still waits for the call to end."""
        future = asyncio.get_running_loop().run_in_executor(self._executor, lambda: call(*args, **kwargs))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait({future})
            raise

    def close(self) -> None:
        """End the threads after their calls."""
        self._executor.shutdown(wait=True)
