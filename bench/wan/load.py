"""The client of the study: writes and reads objects of one size, so many at a time, from one store.

    python -m bench.wan.load <PLAN

It runs in the client's region. PLAN is JSON: the target and its cells. A line of JSON is printed for each cell when it
has ended, so that what was measured is not lost with what comes after it. The same code drives each store: OpenStack
Swift and Swiftlet by the API of OpenStack Swift, Tahoe-LAFS by the web interface of its gateway, with a directory for
each thread, as two writers of one directory disturb each other; and plain TCP, which stores nothing.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from typing import Any

import aiohttp

from bench.wan.bodies import body
from bench.wan.plain import REQUEST, Connections

_SAMPLE_S = 0.05
_EXAMPLE_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Cell:
    """What is measured at a time."""

    name: str
    kind: str
    """`write`, `read`, or `delete`, whose result nobody keeps."""
    group: str
    """Objects of one group have names in common; a read is of what a write of its group has stored."""
    size: int
    """Bytes of an object."""
    threads: int
    objects: int
    limit_s: float
    """When what is not done is given up."""
    has_samples: bool = False
    """Whether it is told how many bytes had gone by when."""
    is_anew: bool = False
    """Whether it has connections of its own, which nobody has used before."""


@dataclass(slots=True)
class Outcome:
    """The counts and times that a cell has ended with."""

    taken_s: list[float] = field(default_factory=list)
    """The seconds of each operation that was served."""
    done_bytes: int = 0
    """Bytes of the operations that were served."""
    seconds: float = 0.0
    """From the first operation to the end of the last one."""
    failed: int = 0
    unfinished: int = 0
    """Operations that the limit ended, or that were not begun because of it."""
    busy_rates: list[float] = field(default_factory=list)
    """For each thread the bytes per second while it was at work; their sum is what COSBench calls bandwidth."""
    example: str = ""
    """Why one of them failed."""
    samples: list[tuple[float, int]] = field(default_factory=list)
    """Seconds since the begin, and the bytes that had been sent or received until then."""


class Wrong(Exception):
    """An answer that is not the object which was written, or no success."""


class Target:
    """A store as the client sees it."""

    def __init__(self, session: aiohttp.ClientSession, about: dict[str, Any]) -> None:
        """`about` is what the store's `target` returns, and what another client of the same store has made."""
        self.session = session
        self._about = about
        self.plain = Connections(about["host"], about["port"]) if about["api"] == "tcp" else None
        self._headers: dict[str, str] = {}
        self._base = ""
        self.directories: list[str] = list(about.get("directories", []))
        self.written: dict[str, list[int]] = dict(about.get("written", {}))
        """By group the numbers of the objects that were written; others are not read."""

    async def prepare(self, threads: int) -> None:
        """Log in and make the container, or the directories of so many threads."""
        if self.plain is not None:
            return
        endpoint = self._about["endpoint"]
        if self._about["api"] == "tahoe":
            # Its errors are pages in HTML otherwise.
            self._headers = {"Accept": "text/plain"}
            while len(self.directories) < threads:
                async with self.session.post(f"{endpoint}/uri?t=mkdir") as answer:
                    answer.raise_for_status()
                    self.directories.append((await answer.text()).strip())
            return
        login = {"X-Auth-User": self._about["user"], "X-Auth-Key": self._about["key"]}
        async with self.session.get(f"{endpoint}/auth/v1.0", headers=login) as answer:
            answer.raise_for_status()
            self._headers = {"X-Auth-Token": answer.headers["X-Auth-Token"]}
        policy = self._about["policy"]
        self._base = f"{endpoint}/v1/AUTH_test/study{policy}"
        headers = {**self._headers, **({"X-Storage-Policy": policy} if policy else {})}
        async with self.session.put(self._base, headers=headers) as answer:
            answer.raise_for_status()

    def _url(self, thread: int, name: str) -> str:
        if self._about["api"] == "tahoe":
            return f"{self._about['endpoint']}/uri/{self.directories[thread]}/{name}"
        return f"{self._base}/{name}"

    async def operate(self, cell: Cell, thread: int, number: int, counter: Counter) -> None:
        """Make one operation; Wrong when it has no success."""
        if self.plain is not None:
            await self._pass(self.plain, cell, number, counter)
            return
        url = self._url(number % cell.threads, f"{cell.group}-{number}".replace(" ", "-"))
        if cell.kind == "write":
            headers = {**self._headers, "Content-Length": str(cell.size), "Content-Type": "application/octet-stream"}
            data = _sent(body(number, cell.size), counter)
            async with self.session.put(url, data=data, headers=headers) as answer:
                await _check(answer)
                await answer.read()
            self.written.setdefault(cell.group, []).append(number)
        elif cell.kind == "read":
            async with self.session.get(url, headers=self._headers) as answer:
                await _check(answer)
                await _compare(answer.content.iter_any(), body(number, cell.size), counter)
        else:
            async with self.session.delete(url, headers=self._headers) as answer:
                await answer.read()

    async def _pass(self, plain: Connections, cell: Cell, number: int, counter: Counter) -> None:
        """Send or receive the bytes of an object over TCP."""
        if cell.kind == "delete":
            return
        reader, writer = await plain.take()
        writer.write(REQUEST.pack(b"W" if cell.kind == "write" else b"R", number, cell.size))
        if cell.kind == "write":
            async for piece in _sent(body(number, cell.size), counter):
                writer.write(piece)
                await writer.drain()
            if await reader.read(1) != b".":
                raise Wrong("the connection has ended")
            self.written.setdefault(cell.group, []).append(number)
        else:
            await _compare(_received(reader, cell.size), body(number, cell.size), counter)
        plain.give((reader, writer))


async def _received(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    """Yield so many bytes as they come, or fewer when the connection ends."""
    while size and (received := await reader.read(min(size, 1 << 20))):
        size -= len(received)
        yield received


class Counter:
    """Bytes that went by, with samples of them over time."""

    def __init__(self, has_samples: bool) -> None:
        """The time begins now."""
        self._began = time.perf_counter()
        self._has_samples = has_samples
        self._bytes = 0
        self.samples: list[tuple[float, int]] = []

    def add(self, count: int) -> None:
        """Count bytes that have been sent or received, and take a sample when the last one is old."""
        self._bytes += count
        if self._has_samples:
            now = time.perf_counter() - self._began
            if not self.samples or now - self.samples[-1][0] >= _SAMPLE_S:
                self.samples.append((now, self._bytes))


async def _sent(pieces: Iterable[memoryview], counter: Counter) -> AsyncIterator[memoryview]:
    for piece in pieces:
        yield piece
        counter.add(len(piece))


async def _check(answer: aiohttp.ClientResponse) -> None:
    if answer.status >= 300:
        text = (await answer.text(errors="replace")).strip()[-_EXAMPLE_CHARACTERS:]
        raise Wrong(f"{answer.status}: {text}")


async def _compare(answer: AsyncIterator[bytes], expected: Iterator[memoryview], counter: Counter) -> None:
    rest = memoryview(b"")
    async for received in answer:
        counter.add(len(received))
        left = memoryview(received)
        while left:
            if not rest:
                rest = next(expected, memoryview(b""))
            count = min(len(rest), len(left))
            if not count or rest[:count] != left[:count]:
                raise Wrong("the bytes are not those that were written")
            rest, left = rest[count:], left[count:]
    if rest or next(expected, None) is not None:
        raise Wrong("the object ended before its end")


async def measure(target: Target, cell: Cell) -> Outcome:
    """Do what a cell says."""
    wanted = range(cell.objects) if cell.kind == "write" else target.written.get(cell.group, [])[: cell.objects]
    outcome, numbers = Outcome(), iter(list(wanted))
    counter = Counter(cell.has_samples)
    began = time.perf_counter()

    async def one_thread(thread: int) -> None:
        mine, at_work = 0, 0.0
        for number in numbers:
            start = time.perf_counter()
            if start - began >= cell.limit_s:
                outcome.unfinished += 1
                continue
            try:
                async with asyncio.timeout(cell.limit_s - (start - began)):
                    await target.operate(cell, thread, number, counter)
            except TimeoutError:
                outcome.unfinished += 1
                continue
            except (Wrong, aiohttp.ClientError, ConnectionError) as error:
                outcome.failed += 1
                outcome.example = outcome.example or str(error) or repr(error)
                continue
            end = time.perf_counter()
            outcome.taken_s.append(end - start)
            outcome.done_bytes += cell.size
            outcome.seconds = max(outcome.seconds, end - began)
            mine, at_work = mine + cell.size, at_work + end - start
        if at_work:
            outcome.busy_rates.append(mine / at_work)

    await asyncio.gather(*(one_thread(thread) for thread in range(cell.threads)))
    if outcome.unfinished or not outcome.seconds:
        outcome.seconds = time.perf_counter() - began
    outcome.samples = counter.samples
    return outcome


def _session() -> aiohttp.ClientSession:
    connector, timeout = aiohttp.TCPConnector(limit=0), aiohttp.ClientTimeout(total=None)
    return aiohttp.ClientSession(timeout=timeout, connector=connector, read_bufsize=1 << 20)


async def run(plan: dict[str, Any]) -> None:
    """Measure all cells of a plan, and print what came of each."""
    cells = [Cell(**cell) for cell in plan["cells"]]
    async with AsyncExitStack() as sessions:
        target = Target(await sessions.enter_async_context(_session()), plan["target"])
        await target.prepare(max(cell.threads for cell in cells))
        for cell in cells:
            if cell.is_anew:
                target.session = await sessions.enter_async_context(_session())
                if target.plain is not None:
                    target.plain.close()
            outcome = await measure(target, cell)
            print(json.dumps({"cell": asdict(cell), "outcome": asdict(outcome)}), flush=True)
        # What another client of the same store has to know.
        print(json.dumps({"made": {"directories": target.directories, "written": target.written}}), flush=True)


if __name__ == "__main__":
    asyncio.run(run(json.load(sys.stdin)))
