"""Clients that keep their connections, and hold a server to what HTTP/1.1 says of ending one.

A server may end a kept connection with an answer that says so (`Connection: close`), and then ends it in order: what a
client sees is the end of the stream, never a reset. A client takes its next request, and those that it sent behind one
whose answer was the last, to another server.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

PATIENCE_S = 40.0
_SMALL = b"some data"


@dataclass(slots=True)
class Fleet:
    """Keeps the addresses at which clients find servers, and counts what happened to the clients."""

    ports: list[int]
    """Addresses of servers that accept new connections."""
    path: str
    headers: Mapping[str, str]
    stopped: asyncio.Event = field(default_factory=asyncio.Event)
    done: Counter[str] = field(default_factory=Counter)
    """Requests by kind of client, and `last` for answers that ended their connection."""
    wrong: list[str] = field(default_factory=list)

    def request(self, method: str, name: str, length: int = 0) -> bytes:
        """Return the head of a request."""
        lines = [f"{method} {self.path}/{name} HTTP/1.1", "Host: test", f"Content-Length: {length}"]
        lines += [f"{key}: {value}" for key, value in self.headers.items()]
        return "\r\n".join([*lines, "", ""]).encode()


class _Connection:
    """To one of the servers."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def answer(self) -> bool:
        """Whether the connection may be used after this answer."""
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower().split("\r\n")
        headers = dict(line.split(": ", 1) for line in head[1:] if line)
        await self.reader.readexactly(int(headers.get("content-length", "0")))
        status = int(head[0].split()[1])
        assert status in {200, 201}, f"answer {status}"
        return headers.get("connection") != "close"

    async def ended(self) -> None:
        """Wait for the server's end of it, which has to be one in order."""
        assert await self.reader.read() == b"", "bytes behind the last answer"
        self.close()

    def close(self) -> None:
        self.writer.close()


async def _connect(fleet: Fleet, port: int | None = None) -> _Connection:
    return _Connection(*await asyncio.open_connection("127.0.0.1", port or random.choice(fleet.ports)))


async def asking(fleet: Fleet, kind: str, pause: Callable[[], float], port: int, name: str) -> None:
    """One request after the other, with pauses, reads and writes."""
    connection = await _connect(fleet, port)
    method = "GET"
    while not fleet.stopped.is_set():
        body = _SMALL if method == "PUT" else b""
        connection.writer.write(fleet.request(method, name, len(body)) + body)
        fleet.done[kind] += 1
        if not await connection.answer():
            fleet.done["last"] += 1
            await connection.ended()
            connection = await _connect(fleet)
        method = random.choice(("GET", "PUT"))
        await asyncio.sleep(pause())
    connection.close()


async def pipelining(fleet: Fleet, port: int, name: str) -> None:
    """Two requests at a time; the second has an answer too, or the first says that it has none."""
    connection = await _connect(fleet, port)
    while not fleet.stopped.is_set():
        connection.writer.write(fleet.request("GET", name))
        await asyncio.sleep(random.choice((0, 0, 0.0005)))
        connection.writer.write(fleet.request("GET", name))
        for _ in range(2):
            fleet.done["pipelining"] += 1
            if not await connection.answer():
                fleet.done["last"] += 1
                await connection.ended()
                connection = await _connect(fleet)
                break
    connection.close()


async def uploading(fleet: Fleet, port: int, name: str, bytes_: int = 1 << 20) -> None:
    """Bodies that come in over some time."""
    connection = await _connect(fleet, port)
    while not fleet.stopped.is_set():
        connection.writer.write(fleet.request("PUT", name, bytes_))
        for _ in range(8):
            connection.writer.write(b"x" * (bytes_ // 8))
            await connection.writer.drain()
            await asyncio.sleep(0.05)
        fleet.done["uploading"] += 1
        if not await connection.answer():
            fleet.done["last"] += 1
            await connection.ended()
            connection = await _connect(fleet)
    connection.close()


async def resting(fleet: Fleet, port: int, name: str) -> None:
    """One request, and then nothing: the server may end the connection, in order."""
    connection = await _connect(fleet, port)
    connection.writer.write(fleet.request("GET", name))
    await connection.answer()
    fleet.done["resting"] += 1
    await connection.ended()


async def watched(fleet: Fleet, kind: str, client: object) -> None:
    """Note how a client failed."""
    try:
        async with asyncio.timeout(PATIENCE_S):
            await client  # type: ignore[misc]
    except (OSError, EOFError, AssertionError, TimeoutError) as error:
        fleet.wrong.append(f"{kind}: {error!r}")


def clients(fleet: Fleet, port: int, each: int) -> list[asyncio.Task[None]]:
    """So many of each kind, all on one server at first."""
    made: list[tuple[str, object]] = []
    for number in range(each):
        name = f"o{number}"
        made += [
            ("busy", asking(fleet, "busy", lambda: 0.004, port, name)),
            ("quick", asking(fleet, "quick", lambda: random.uniform(0.0, 0.02), port, name)),
            ("slow", asking(fleet, "slow", lambda: random.uniform(0.1, 0.6), port, name)),
            ("pipelining", pipelining(fleet, port, name)),
            ("uploading", uploading(fleet, port, f"large{number}")),
            ("resting", resting(fleet, port, name)),
        ]
    return [asyncio.ensure_future(watched(fleet, kind, client)) for kind, client in made]
