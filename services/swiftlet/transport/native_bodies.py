"""Bodies of uploads in the native transport's memory, digested by its threads.

What is read into that memory is sent from it to all replicas; on the same machine, or by RDMA, peers read it there,
without a copy. Uploads have half of the memory at most, and wait for it in order.

Fault model: servers that take nothing hold memory until their writers give them up; a wait for memory has a limit of
its own. When the client is closed all waits end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from swiftlet_native import Hasher, TransportDigester

from swiftlet.boundaries.bodies import BodyBuffer, Piece
from swiftlet.errors import NodeBusy
from swiftlet.transport.native_client import NativeClient

_AHEAD_BYTES = 2 * 1024 * 1024
"""The number of bytes of one stream that may wait to be digested before its writer has to wait."""


class _Waiting:
    """A request that waits for memory."""

    def __init__(self, then: Callable[[BodyBuffer | None], None]) -> None:
        self._then = then

    def event(self, kind: str, value: object) -> bool:
        buffer = cast("BodyBuffer | None", value) if kind == "memory" else None
        self._then(buffer)
        return True


class NativeDigester:
    """The digesting of one stream, until it is closed."""

    def __init__(self, client: NativeClient, hasher: Hasher) -> None:
        """Continue with the state of `hasher`."""
        self._client = client
        node, self._token = client.listen(self)
        self._native: TransportDigester = node.digester(self._token, hasher)
        self._waiting = 0
        self._is_lost = False
        self._room: asyncio.Future[None] | None = None
        self._limit = _AHEAD_BYTES

    def event(self, kind: str, value: object) -> bool:
        """Note that a piece was digested, or the client was closed."""
        if kind == "digested":
            self._waiting -= cast("int", value)
        else:
            self._is_lost = True
        if self._room is not None and not self._room.done() and (self._waiting <= self._limit or self._is_lost):
            self._room.set_result(None)
        return self._is_lost

    async def update(self, piece: Piece) -> None:
        """Digest the next bytes; return when there is room for more."""
        if len(piece):
            self._waiting += len(piece)
            self._native.update(piece)
        await self._until(_AHEAD_BYTES)

    async def finish(self) -> None:
        """Return when all bytes are digested."""
        await self._until(0)

    async def _until(self, limit: int) -> None:
        self._limit = limit
        while self._waiting > limit:
            if self._is_lost:
                raise NodeBusy("this client was closed")
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def close(self) -> None:
        """Stop; bytes that wait are digested nevertheless."""
        self._client.mute(self._token)


class NativeBodies:
    """Behaves as `swiftlet.boundaries.bodies.Bodies` requires."""

    def __init__(self, client: NativeClient) -> None:
        """`client` is closed by its owner."""
        self._client = client

    def buffer(self, size: int) -> BodyBuffer | None:
        """Return memory for up to 1 MiB, if there is some now."""
        return cast("BodyBuffer | None", self._client.native().upload_buffer(size))

    def wait_for_buffer(self, size: int, timeout_s: float, then: Callable[[BodyBuffer | None], None]) -> None:
        """Wait for memory, first come, first served; `then` is called with None when the time is over."""
        node, token = self._client.listen(_Waiting(then))
        node.reserve_upload(token, size, timeout_s)

    def digester(self, hasher: Hasher) -> NativeDigester:
        """Return a digester for this hasher, which nothing else may feed meanwhile."""
        return NativeDigester(self._client, hasher)
