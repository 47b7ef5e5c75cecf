"""Bytes over TCP and nothing else: what links and the system's TCP carry, beside what stores make of them.

    python -m bench.wan.plain HOST PORT

It serves the client of the study (`api` is `tcp`). A request is a letter and two numbers, a seed and a size: the bytes
of `W` follow, and are answered by one byte; those of `R` are the answer. A connection takes one request after another.
"""

from __future__ import annotations

import asyncio
import struct
import sys

from bench.wan.bodies import body

REQUEST = struct.Struct("<cQQ")
_AT_ONCE = 1 << 20


async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection until it ends."""
    try:
        while True:
            kind, seed, size = REQUEST.unpack(await reader.readexactly(REQUEST.size))
            if kind == b"R":
                for piece in body(seed, size):
                    writer.write(piece)
                    await writer.drain()
                continue
            while size:
                got = await reader.read(min(size, _AT_ONCE))
                if not got:
                    return
                size -= len(got)
            writer.write(b".")
    except (asyncio.IncompleteReadError, ConnectionError):
        # It has ended, as each does.
        pass
    finally:
        writer.close()


async def _listen(host: str, port: int) -> None:
    async with await asyncio.start_server(serve, host, port, limit=_AT_ONCE) as server:
        await server.serve_forever()


class Connections:
    """Connections of the client: one that is free is used again."""

    def __init__(self, host: str, port: int) -> None:
        """Nothing is connected yet."""
        self._to = host, port
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def take(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection, which is the caller's until it is given back."""
        return self._free.pop() if self._free else await asyncio.open_connection(*self._to, limit=_AT_ONCE)

    def give(self, connection: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
        """Take a connection back on which a request has ended."""
        self._free.append(connection)

    def close(self) -> None:
        """Close those that are free."""
        while self._free:
            self._free.pop()[1].close()


if __name__ == "__main__":
    asyncio.run(_listen(sys.argv[1], int(sys.argv[2])))
