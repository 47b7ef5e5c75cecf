"""A network between a client and a server, which breaks where a test asks for it."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass
class Network:
    """A forwarder to a port, which cuts the next connections after so many bytes in one direction."""

    port: int
    downwards: deque[int] = field(default_factory=deque)
    """Bytes to the client after which the next connections are cut, in their order."""
    upwards: deque[int] = field(default_factory=deque)
    cuts: int = 0
    is_down: bool = False
    """Whether new connections end at once."""
    goes_down: bool = False
    """Whether it is down after the next cut, as a server that was killed in the middle."""
    may_pass: asyncio.Event = field(default_factory=asyncio.Event)
    """Cleared, it keeps what comes in either direction until it is set again, also the end of a connection."""

    change: Callable[[], Callable[[bytes], bytes]] | None = None
    """Returns what becomes of the bytes to the client of one connection, from its first one on."""

    connections: set[asyncio.Task[object]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Begin as a network that keeps nothing back."""
        self.may_pass.set()

    async def end(self) -> None:
        """Cut what is left."""
        for task in self.connections:
            task.cancel()
        await asyncio.gather(*self.connections, return_exceptions=True)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one connection to the store, and cut it where a test asks for it."""
        task = asyncio.current_task()
        assert task is not None
        if self.is_down:
            writer.transport.abort()
            return
        self.connections.add(task)
        down = self.downwards.popleft() if self.downwards else None
        up = self.upwards.popleft() if self.upwards and down is None else None
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.port)
        except OSError:
            writer.transport.abort()
            return
        ways = [
            asyncio.ensure_future(self._copy(reader, back, up)),
            asyncio.ensure_future(self._copy(there, writer, down, None if self.change is None else self.change())),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            for one in (writer, back):
                one.transport.abort()
            await asyncio.gather(*ways, return_exceptions=True)

    async def _copy(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        limit: int | None,
        change: Callable[[bytes], bytes] | None = None,
    ) -> None:
        left = limit
        with contextlib.suppress(OSError):
            while data := await source.read(65536 if left is None else min(65536, max(left, 1))):
                await self.may_pass.wait()
                if left is not None:
                    data = data[:left]
                    left -= len(data)
                target.write(data if change is None else change(data))
                await target.drain()
                if left == 0:
                    self.cuts += 1
                    self.is_down = self.is_down or self.goes_down
                    return
        await self.may_pass.wait()
