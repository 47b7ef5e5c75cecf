"""One long-lived WebSocket to each node, opened when it is first needed and again once it has ended.

Fault model: as with HTTP, see `swiftlet.transport.http_client`. Opening may fail in all ways that a request may, for
all callers that wait for it; each failure is counted, and the next request tries again. What goes over streams has no
other way: a server that refuses streams counts as failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeVar

import aiohttp
from prometheus_client import Counter

from swiftlet.errors import NodeError
from swiftlet.ring.model import Device
from swiftlet.transport.http_client import NodeClient

NOT_OPENED = Counter(
    "swiftlet_streams_not_opened_total",
    "Streams to other servers that could not be opened: /v1/rows for listing rows, /v1/sync for replicators' requests.",
    ["path"],
)


class Stream(Protocol):
    """One connection of a stream."""

    @property
    def ended(self) -> bool:
        """Whether nothing more can be sent on it."""
        ...

    async def close(self) -> None:
        """End the stream; unanswered requests fail."""
        ...


S = TypeVar("S", bound=Stream)
Begin = Callable[[Device, aiohttp.ClientWebSocketResponse], Awaitable[S]]
"""A function that makes a stream of an open WebSocket. It raises NodeError."""


class NodeStreams(Generic[S]):
    """The streams of one kind to all nodes; runs in one event loop."""

    def __init__(
        self,
        client: NodeClient,
        path: str,
        max_message: int,
        begin: Begin[S],
    ) -> None:
        """`client` is closed by its owner, after this. Received messages may have up to `max_message` bytes."""
        self._client = client
        self._path = path
        self._max_message = max_message
        self._begin = begin
        self._streams: dict[tuple[str, int], asyncio.Task[S]] = {}

    async def to(self, device: Device) -> tuple[S, bool]:
        """Return a stream to the device's server, and whether it has just been opened. Raises NodeError."""
        node = device.host, device.port
        opening = self._streams.get(node)
        if opening is not None and opening.done():
            if not opening.cancelled() and opening.exception() is None and not opening.result().ended:
                return opening.result(), False
            opening = None
        if opening is None:
            opening = self._streams[node] = asyncio.create_task(self._open(device))
        return await asyncio.shield(opening), True

    async def _open(self, device: Device) -> S:
        try:
            return await self._begin(device, await self._client.socket(device, self._path, self._max_message))
        except NodeError:
            NOT_OPENED.labels(self._path).inc()
            self._streams.pop((device.host, device.port), None)
            raise

    async def close(self) -> None:
        """End all streams, and those that are being opened; unanswered requests on them fail."""
        tasks = list(self._streams.values())
        self._streams.clear()
        for opening in tasks:
            if opening.done() and not opening.cancelled() and opening.exception() is None:
                await opening.result().close()
            else:
                opening.cancel()
