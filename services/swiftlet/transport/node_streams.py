"""One long-lived WebSocket to each node, opened when it is first needed and anew once it has ended.

Fault model: as with HTTP, see `swiftlet.transport.http_client`. A server may not know such streams (an older version):
that is remembered for a while. Opening may fail in all ways that a request may, for everybody who waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

import aiohttp

from swiftlet.errors import NodeError
from swiftlet.ring.model import Device
from swiftlet.transport.http_client import NodeClient

WITHOUT_S = 60.0
"""How long a server that has no streams is not asked for one again."""


class NoStreams(NodeError):
    """The server has no such streams, or what is to be said does not fit: for HTTP's part, not for callers."""


class Stream(Protocol):
    """One connection."""

    @property
    def ended(self) -> bool:
        """Whether nothing can be said on it any more."""
        ...

    async def close(self) -> None:
        """End it; what is unanswered fails."""
        ...


S = TypeVar("S", bound=Stream)
Begin = Callable[[Device, aiohttp.ClientWebSocketResponse], Awaitable[S]]
"""From an open WebSocket to a stream; NodeError."""


class NodeStreams(Generic[S]):
    """Streams of one kind to all nodes that one was needed to. Lives in one event loop."""

    def __init__(
        self,
        client: NodeClient,
        path: str,
        max_message: int,
        begin: Begin[S],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`client` is closed by its owner, after this. Messages that come have up to `max_message` bytes."""
        self._client = client
        self._path = path
        self._max_message = max_message
        self._begin = begin
        self._clock = clock
        self._streams: dict[tuple[str, int], asyncio.Task[S]] = {}
        self._without: dict[tuple[str, int], float] = {}

    async def to(self, device: Device) -> tuple[S, bool]:
        """A stream to the device's server, and whether it was opened just now; NodeError, NoStreams."""
        node = device.host, device.port
        if self._without.get(node, 0.0) > self._clock():
            raise NoStreams(f"{device.address} has no streams at {self._path}")
        opening = self._streams.get(node)
        if opening is not None and opening.done():
            if not opening.cancelled() and opening.exception() is None and not opening.result().ended:
                return opening.result(), False
            opening = None
        if opening is None:
            opening = self._streams[node] = asyncio.create_task(self._open(device))
        return await asyncio.shield(opening), True

    async def _open(self, device: Device) -> S:
        node = device.host, device.port
        try:
            socket = await self._client.socket(device, self._path, self._max_message)
            if socket is not None:
                return await self._begin(device, socket)
        except NodeError:
            self._streams.pop(node, None)
            raise
        self._streams.pop(node, None)
        self._without[node] = self._clock() + WITHOUT_S
        raise NoStreams(f"{device.address} has no streams at {self._path}")

    async def close(self) -> None:
        """End all of them."""
        tasks = list(self._streams.values())
        self._streams.clear()
        for opening in tasks:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
            else:
                opening.cancel()
